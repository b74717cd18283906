"""DAgger on R2R as a plain loop: acts step by step with gradients on and learns through the graph of all its steps.

The same model, batch, draws and updates (apil's optimiser). At every step the decoder runs over all steps so far again,
with the text read again by each of its layers: nothing is cached but the encoded instruction and the panoramas.
Attention is as it is commonly written: keys and values of all rows, then torch's own `scaled_dot_product_attention`;
the other layers are apil's. Instructions and exits are padded to the longest of the batch. Where it is `packed`, the
loop has apil's packing and apil's attention too. Dropout is on while acting, and so is the mirror, since acting and
learning are one pass; with all rates 0 the losses are apil's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from apil.learning.build import build
from apil.nn import mlp
from apil.optim import optimizer_factory
from apil.r2r.instruction import InstructionModel
from apil.r2r.panorama import Glance, glance, look_again, look_for, step_tokens
from apil.r2r.task import R2R
from apil.r2r.transformer import (
    Packing,
    Weights,
    affine,
    decode,
    encode,
    feed_forward,
    heads_of,
    norm,
    packed_keys_values,
)
from apil.rng import Draws, race
from apil.settings import RunSettings
from apil.types import Observation
from apil.uncertainty import split_entropy

FAR = 3.0
"""Tens of metres; what is farther counts as this far."""


class PlainR2R:
    """Trains one run."""

    def __init__(self, config: RunSettings, packed: bool = False) -> None:
        self.config, self.packed = config, packed
        agents = build([config])
        assert isinstance(agents.model, InstructionModel)
        assert isinstance(agents.task, R2R)
        self.streams, self.task, self.model = agents.streams, agents.task, agents.model
        make = optimizer_factory(config.learner.optimizer, config.learner.learning_rate, config.learner.warmup)
        self.optimisers = [make("policy", self.model.policy), make("identity", self.model.identity)]
        self.parts = [list(optimiser.parameters.values()) for optimiser in self.optimisers]
        self.averages = [p.detach().clone() for part in self.parts for p in part]
        self.decisions = 0

    def iteration(self, number: int) -> float:
        """One batch of episodes and one update; returns the policy loss."""
        batch, horizon = self.config.learner.batch, self.task.horizon
        draws = self.streams.draws("model", number)
        masks = draws.kept(self.model.dropout, self.model.models, self.model.state_size + self.model.persona_size)[0]
        draws.uniform(horizon, batch)  # apil draws these for committees too large for the sum over all teachers
        arrival = draws.exponential(horizon, batch, self.task.actions)
        dropping = self.streams.draws("dropout", number)
        pass_ = _Pass(self.model, dropping, self.packed)
        state = self.task.reset(self.streams.draws("task", number), batch)
        losses, far, who, counts = [], [], [], []
        for t in range(horizon):
            live = ~self.task.done(state)
            seen, reference = self.task.observe(state), self.task.reference(state)
            answer = reference.actions[..., 0]
            encoded, sight, sought = pass_.step(seen, t)
            logits = pass_.logits(encoded, sight, sought, seen.valid[0])
            mean = pass_.belief(encoded, sight, sought, seen.valid[0], masks)
            losses.append(functional.cross_entropy(logits, answer[0], reduction="none")[live[0]])
            far.append(pass_.distance_error(encoded, reference.distance[0])[live[0]])
            guess = mlp(self.model.identity, encoded.detach().unsqueeze(0))[0, :, :1]
            identity = torch.zeros(batch, dtype=torch.long)
            who.append(functional.cross_entropy(guess, identity, reduction="none")[live[0]])
            counts.append(int(live.sum()))
            state = self.task.step(state, race(mean, arrival[0, t]).unsqueeze(0))
        self.decisions += sum(counts)
        policy, identity_loss = torch.cat(losses).mean(), torch.cat(who).mean()
        policy = policy + self.model.sizes.distance_weight * torch.cat(far).mean()
        self._update(policy + identity_loss, number)
        return policy.item()

    def _update(self, loss: Tensor, number: int) -> None:
        for part in self.parts:
            for parameter in part:
                parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parts[0], self.config.learner.clip)
        for optimiser, part in zip(self.optimisers, self.parts, strict=True):
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in part]
            optimiser.step(gradients, torch.tensor([True]))
        share = max(1.0 - self.config.learner.average, 1.0 / (number + 1))
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
        self.panoramas: list[Tensor] = []
        """[n, 8, d], or keys and values of them, [n, 8, 2 d]: what was around at each step."""
        self.mirrored: Tensor | None = None
        """[n] bool: the episodes in a mirror."""
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
            self.mirrored = self._in_mirror(instruction)
            self.text = (
                model.read(weights, self.words, instruction, self.keep, self.drop, self.mirrored)
                if self.packed
                else self._read(instruction)
            )
        rates = (model.sizes.shown_dropout, model.sizes.view_dropout)
        side = None if self.mirrored is None else 1.0 - 2.0 * self.mirrored.float()
        sight = glance(weights, self.see, self.words, features, self.keep, rates, side)
        around = norm(weights, "around.n", sight.around)
        came = self._came(features[:, 3].long())
        self.tokens.append(step_tokens(weights, sight, around, came, torch.tensor([t])))
        self.panoramas.append(around if self.packed else affine(weights, "again.kv", around))
        self.before = sight
        table = torch.stack(self.tokens, 1)
        for layer in range(model.sizes.step_layers):
            table = self._decode(f"step.{layer}", table)
            if layer == 0:
                table = self._look_again(table)
        now = norm(weights, "state.n", table)[:, -1:]
        return now[:, 0], sight, self._look_for(now)[:, 0]

    def _in_mirror(self, instruction: Tensor) -> Tensor | None:
        """[n] bool: which episodes are in a mirror."""
        if not self.model.sizes.mirror:
            return None
        mirrored = self.keep(self.model.sizes.mirror, tuple(instruction.shape)) == 0
        read = self.see.read
        return mirrored if read is None else mirrored & (read.mirrored[instruction] >= 0)

    def _decode(self, name: str, table: Tensor) -> Tensor:
        """One decoder layer over all steps so far: [n, steps, d]."""
        weights, heads = self.weights, self.model.sizes.heads
        text, packing, _ = self.text
        causal = torch.full((1, table.shape[1], table.shape[1]), -torch.inf).triu(1)
        if self.packed:
            several = causal.repeat_interleave(heads, 1)
            return decode(weights, name, table, None, several, packing.pad(text), packing.bias, heads, self.drop)[0]
        inner = norm(weights, f"{name}.n1", table)
        keys, values = (heads_of(part, heads) for part in affine(weights, f"{name}.a.kv", inner).chunk(2, -1))
        table = table + self.drop(self._attend(f"{name}.a", inner, keys, values, causal))
        inner = norm(weights, f"{name}.n2", table)
        keys, values = packed_keys_values(weights, f"{name}.c", text, packing, heads)
        table = table + self.drop(self._attend(f"{name}.c", inner, keys, values, packing.bias.unsqueeze(1)))
        return table + self.drop(feed_forward(weights, f"{name}.f", norm(weights, f"{name}.n3", table)))

    def _attend(self, name: str, rows: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """Attention of rows [n, q, d] over keys and values [n, heads, width, k], projected: [n, q, d]."""
        queries = heads_of(affine(self.weights, f"{name}.q", rows), keys.shape[1])
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        return affine(self.weights, f"{name}.o", mixed.transpose(1, 2).flatten(2))

    def _look_again(self, table: Tensor) -> Tensor:
        """[n, steps, d]: the second look at the panoramas, at all steps so far."""
        around, heads = torch.stack(self.panoramas, 1).flatten(0, 1), self.model.sizes.heads
        if self.packed:
            return look_again(self.weights, table.flatten(0, 1), around, heads, self.drop).view_as(table)
        keys, values = (heads_of(part, heads) for part in around.chunk(2, -1))
        rows = norm(self.weights, "again.n", table).flatten(0, 1).unsqueeze(1)
        return table + self.drop(self._attend("again", rows, keys, values, None).view_as(table))

    def _look_for(self, now: Tensor) -> Tensor:
        """[n, 1, d]: the bare words that the states [n, 1, d] pick from the text, turned a little."""
        weights, (text, packing, bare) = self.weights, self.text
        if self.packed:
            return look_for(weights, now, packing.pad(text), packing.pad(bare), packing.bias)
        keys = packing.pad(functional.linear(text, weights["look.k.w"]))
        queries = affine(weights, "look.q", now)
        picked = functional.scaled_dot_product_attention(queries, keys, packing.pad(bare), attn_mask=packing.bias)
        return functional.linear(picked, weights["sought.w"])

    def distance_error(self, state: Tensor, distance: Tensor) -> Tensor:
        """[n]: of the distance [n] predicted from the states [n, d], squared, in tens of metres; 0 if none is."""
        if not self.model.sizes.distance_weight:
            return torch.zeros_like(distance)
        guess = affine(self.weights, "distance", state)[:, 0]
        return (guess - (distance / 10.0).clamp_max(FAR)).square()

    def _read(self, instruction: Tensor) -> tuple[Tensor, Packing, Tensor]:
        """Encodes the instructions [n] with their padding: every place of the table counts as a row."""
        weights, sizes, read = self.weights, self.model.sizes, self.see.read
        tokens = self.see.tokens[instruction, : sizes.words]
        tokens = tokens[:, : int((tokens > 0).sum(1).max())]
        count, width = tokens.shape
        packing = Packing(torch.arange(count * width), count, width, Packing.of(tokens > 0).bias)
        if self.mirrored is not None:
            tokens = torch.where(self.mirrored.unsqueeze(1), self.see.mirrored[tokens], tokens)
        flat = tokens.flatten()
        kept = (self.keep(sizes.word_dropout, tuple(flat.shape)) > 0) | (flat <= 2)
        bare = self.words[torch.where(kept, flat, 1)]
        rows = affine(weights, "text.in", bare) + weights["text.at"][packing.place % width]
        if read is not None:
            start = read.start[instruction]
            if self.mirrored is not None:
                start = torch.where(self.mirrored, read.mirrored[instruction], start)
            place = (start.unsqueeze(1) + torch.arange(width)).flatten().clamp_max(len(read.rows) - 1)
            rows = rows + affine(weights, "text.read", read.rows[place] * read.scale) * kept.unsqueeze(1)
        for layer in range(sizes.text_layers if read is None else 0):
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
