"""DAGGER on R2R as a plain loop: acts step by step with gradients on and learns through the graph of all its steps.

The same model (its layers are apil's), batch, draws and updates; torch's own Adam. At every step the decoder runs over
all steps so far anew, with the text read anew by each of its layers: nothing is cached. The instruction is encoded
once. Instructions and exits are padded to the longest of the batch, unless apil's packing is asked for. Dropout is on
while acting, since acting and learning are one pass; with all rates 0 the losses are apil's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from apil.config import RunConfig
from apil.learning.build import build
from apil.model.instruction import InstructionModel, look_for, step_tokens
from apil.model.panorama import Glance, glance
from apil.model.transformer import Packing, Weights, affine, decode, encode, norm
from apil.nn import mlp
from apil.rng import Draws, race
from apil.tasks.r2r.task import R2R
from apil.types import Observation
from apil.uncertainty import split_entropy

LEADING = 4
"""Features of an observation before the flags of the exits."""


class PlainR2R:
    """Trains one run."""

    def __init__(self, config: RunConfig, packed: bool = False) -> None:
        self.config, self.packed = config, packed
        agents = build([config])
        assert isinstance(agents.model, InstructionModel)
        assert isinstance(agents.task, R2R)
        self.streams, self.task, self.model = agents.streams, agents.task, agents.model
        self.parts = [list(part.values()) for part in (self.model.policy, self.model.identity)]
        for parameter in self.parts[0] + self.parts[1]:
            parameter.requires_grad_()
        self.adams = [torch.optim.Adam(part, lr=config.learning_rate) for part in self.parts]
        self.averages = [p.detach().clone() for part in self.parts for p in part]
        self.decisions = 0

    def iteration(self, number: int) -> float:
        """One batch of episodes and one update; returns the policy loss."""
        batch, horizon = self.config.batch, self.task.horizon
        draws = self.streams.draws("model", number)
        masks = draws.kept(self.model.dropout, self.model.models, self.model.state_size + self.model.persona_size)[0]
        draws.uniform(horizon, batch)  # apil draws these for committees too large for the sum over all teachers
        arrival = draws.exponential(horizon, batch, self.task.actions)
        dropping = self.streams.draws("dropout", number)
        pass_ = _Pass(self.model, dropping, self.packed)
        state = self.task.reset(self.streams.draws("task", number), batch)
        losses, who, counts = [], [], []
        for t in range(horizon):
            live = ~self.task.done(state)
            seen, reference = self.task.observe(state), self.task.reference(state)
            answer = reference.actions[..., 0]
            encoded, sight, sought = pass_.step(seen, t)
            logits = pass_.logits(encoded, sight, sought, seen.valid[0])
            mean = pass_.belief(encoded, sight, sought, seen.valid[0], masks)
            losses.append(functional.cross_entropy(logits, answer[0], reduction="none")[live[0]])
            guess = mlp(self.model.identity, encoded.detach().unsqueeze(0))[0, :, :1]
            identity = torch.zeros(batch, dtype=torch.long)
            who.append(functional.cross_entropy(guess, identity, reduction="none")[live[0]])
            counts.append(int(live.sum()))
            state = self.task.step(state, race(mean, arrival[0, t]).unsqueeze(0))
        self.decisions += sum(counts)
        policy, identity_loss = torch.cat(losses).mean(), torch.cat(who).mean()
        self._update(policy + identity_loss, number)
        return policy.item()

    def _update(self, loss: Tensor, number: int) -> None:
        for adam in self.adams:
            adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parts[0], self.config.clip)
        rate = self.config.learning_rate * min(1.0, (number + 1) / self.config.warmup)
        for adam in self.adams:
            adam.param_groups[0]["lr"] = rate
            adam.step()
        share = max(1.0 - self.config.average, 1.0 / (number + 1))
        with torch.no_grad():
            everything = [p for part in self.parts for p in part]
            for average, parameter in zip(self.averages, everything, strict=True):
                average.lerp_(parameter, share)


class _Pass:
    """One batch of episodes with the graph of all its steps."""

    def __init__(self, model: InstructionModel, draws: Draws, packed: bool) -> None:
        self.model, self.draws, self.packed = model, draws, packed
        everywhere = torch.ones_like(model.see.exits)
        self.see = model.see if packed else replace(model.see, exits=everywhere)
        self.weights: Weights = model.weights()
        self.words = model.word_vectors(self.weights)
        self.tokens: list[Tensor] = []
        self.before: Glance | None = None

    def keep(self, rate: float, shape: tuple[int, ...]) -> Tensor:
        """A dropout mask."""
        return self.draws.kept(rate, *shape)[0]

    def drop(self, branch: Tensor) -> Tensor:
        """Dropout of a branch of the transformer."""
        rate = self.model.sizes.branch_dropout
        return branch * self.keep(rate, tuple(branch.shape)) if rate else branch

    def step(self, seen: Observation, t: int) -> tuple[Tensor, Glance, Tensor]:
        """The states [n, d] at step t, what is seen there, and the words sought [n, d]."""
        features, weights, model = seen.features[0], self.weights, self.model
        if t == 0:
            instruction = features[:, 0].long()
            packed = self.packed
            self.text = (
                model.read(weights, self.words, instruction, self.keep, self.drop)
                if packed
                else self._read(instruction)
            )
        rates = (model.sizes.word_dropout, model.sizes.view_dropout)
        sight = glance(
            weights, self.see, self.words, features[:, 1].long(), features[:, 2], features[:, LEADING:], self.keep,
            rates,
        )  # fmt: skip
        self.tokens.append(step_tokens(weights, sight, self._came(features[:, 3].long()), torch.tensor([t])))
        self.before = sight
        text, packing, bare = self.text
        table = torch.stack(self.tokens, 1)
        causal = torch.full((t + 1, t + 1), -torch.inf).triu(1)
        for layer in range(model.sizes.step_layers):
            reading = model.layer_text(weights, layer, text, packing)
            table, _ = decode(weights, f"step.{layer}", table, None, causal, reading, self.drop)
        now = norm(weights, "state.n", table)[:, -1:]
        sought = look_for(weights, now, *model.look_text(weights, text, bare, packing), packing.bias)
        return now[:, 0], sight, sought[:, 0]

    def _read(self, instruction: Tensor) -> tuple[Tensor, Packing, Tensor]:
        """Encodes the instructions [n] with their padding: every place of the table counts as a row."""
        weights, sizes = self.weights, self.model.sizes
        tokens = self.see.tokens[instruction, : sizes.words]
        tokens = tokens[:, : int((tokens > 0).sum(1).max())]
        count, width = tokens.shape
        packing = Packing(torch.arange(count * width), count, width, Packing.of(tokens > 0).bias)
        flat = tokens.flatten()
        kept = self.keep(sizes.word_dropout, tuple(flat.shape)) > 0
        bare = self.words[torch.where(kept | (flat <= 2), flat, 1)]
        rows = affine(weights, "text.in", bare) + weights["text.at"][packing.place % width]
        for layer in range(sizes.text_layers):
            rows = encode(weights, f"text.{layer}", rows, packing, sizes.heads, self.drop)
        return norm(weights, "text.n", rows), packing, bare

    def _came(self, last: Tensor) -> Tensor:
        """[n, d]: the candidate that was taken at the step before."""
        if self.before is None:
            return self.words.new_zeros(len(last), self.words.shape[-1])
        table = _padded(self.before, self.before.candidates, len(last), self.model.actions)
        return table[torch.arange(len(last)), last]

    def _wanted(self, inputs: Tensor, sight: Glance, sought: Tensor, valid: Tensor) -> Tensor:
        """[n, M, A] logits of M inputs [n, M, d + persona]."""
        weights, count, actions = self.weights, len(inputs), self.model.actions
        wanted = functional.linear(inputs, weights["policy.w"], weights["policy.b"])
        candidates = _padded(sight, sight.candidates, count, actions)
        logits = wanted @ candidates.transpose(1, 2) / math.sqrt(wanted.shape[-1])
        fit = (sought[sight.step] * sight.shown).sum(-1, keepdim=True) * weights["match"] / math.sqrt(sought.shape[-1])
        logits = logits + _padded(sight, fit, count, actions).transpose(1, 2)
        return logits.masked_fill(~valid.unsqueeze(1), -torch.inf)

    def logits(self, state: Tensor, sight: Glance, sought: Tensor, valid: Tensor) -> Tensor:
        """[n, A]: of the one teacher, with dropout, for the loss."""
        inputs = torch.cat([state, self.weights["persona"].expand(len(state), -1)], -1)
        inputs = inputs * self.keep(self.model.dropout, tuple(inputs.shape))
        return self._wanted(inputs.unsqueeze(1), sight, sought, valid)[:, 0]

    def belief(self, state: Tensor, sight: Glance, sought: Tensor, valid: Tensor, masks: Tensor) -> Tensor:
        """[n, A]: the mean policy over N2 models; the uncertainties are worked out as apil does."""
        with torch.no_grad():
            inputs = torch.cat([state, self.weights["persona"].expand(len(state), -1)], -1).unsqueeze(1) * masks
            policies = self._wanted(inputs, sight, sought, valid).softmax(-1).unsqueeze(2).unsqueeze(0)
            even = torch.ones(1, len(state), len(masks), 1)
            return split_entropy(policies, even, models=2, samples=3)[0][0]


def _padded(sight: Glance, rows: Tensor, count: int, actions: int) -> Tensor:
    """[n, A, d] of packed candidates [M, d]."""
    table = rows.new_zeros(count * actions, rows.shape[-1])
    return table.index_copy(0, sight.step * actions + sight.action, rows).view(count, actions, -1)
