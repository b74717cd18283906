"""The teacher persona-aware model of an agent that follows instructions.

After the transformer of HANNA: an encoder reads the instruction; a decoder runs over the steps of the episode,
attends to the steps before and to the text, and its outcome is the state s. The persona-conditioned policy is linear
in (s, h): it gives a vector that is compared with those of the candidates, stop and the exits. Beside it, the words
that the state looks for in the text are compared with the words shown in the direction of each exit.

Acting keeps no gradient and caches what keys and values would be made of; learning sees whole episodes in one causal
pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from apil.model.expectation import IdentitySampler
from apil.nn import Parameters, initial_normal, mlp, mlp_parameters
from apil.r2r.looking import compare, dropping, look_again, look_for, match, same, step_tokens
from apil.r2r.options import InstructionSizes
from apil.r2r.panorama import Glance, Keep, glance, sight_parameters
from apil.r2r.scenes import Panoramas, Readings
from apil.r2r.transformer import (
    Drop,
    Packing,
    Weights,
    affine,
    attention_parameters,
    decode,
    decoder_parameters,
    encode,
    encoder_parameters,
    linear_parameters,
    norm,
    norm_parameters,
)
from apil.rng import Draws, Streams
from apil.settings import ModelSettings
from apil.types import Belief, Episodes, Observation
from apil.uncertainty import split_by_model

_FEW = 0.8
"""Acting leaves those who have stopped out when fewer than this share of the agents still walk."""
_FAR = 3.0
"""Tens of metres; what is farther counts as this far."""
UNKNOWN, END = 1, 2
"""Words that stand for those that are not known, and for the end; 0 is none."""
_LEADING = 4
"""Features of an observation before the flags of the exits: instruction, viewpoint, heading, last action."""


class InstructionModel:
    """The model of one run: it is not stacked, its products are large enough alone."""

    recurrent = True

    def __init__(
        self,
        streams: Streams,
        see: Panoramas,
        *,
        teachers: int,
        actions: int,
        horizon: int,
        settings: ModelSettings,
        sizes: InstructionSizes,
    ) -> None:
        assert len(streams.seeds) == 1
        hidden, persona = settings.hidden, settings.persona
        self.sizes, self.teachers, self.actions, self.models = sizes, teachers, actions, settings.models
        self.dropout, self.persona_size, self.state_size = settings.dropout, persona, sizes.width
        self.samples = torch.tensor([settings.drawn])
        self.see = _only(see, sizes)
        self._glove = _centred(see.glove)
        size = sizes.width
        made: Parameters = {
            "word": initial_normal(streams, "word", (see.words, size)) * 0.1,
            "text.at": initial_normal(streams, "text.at", (sizes.words, size)) * 0.1,
            "step.at": initial_normal(streams, "step.at", (horizon, size)) * 0.1,
            "persona": initial_normal(streams, "persona", (teachers, persona)),
            "match": torch.ones(1, 1),
            "sought.w": torch.eye(size).unsqueeze(0),
        }
        made |= linear_parameters(streams, "glove", see.glove.shape[1], size, bias=False)
        made |= linear_parameters(streams, "text.in", size, size)
        if self.see.read is not None:
            made |= linear_parameters(streams, "text.read", len(self.see.read.scale), size, bias=False)
        self._text_layers = sizes.text_layers if self.see.read is None else 0
        for layer in range(self._text_layers):
            made |= encoder_parameters(streams, f"text.{layer}", size)
        made |= norm_parameters(1, "text.n", size)
        made |= sight_parameters(streams, self.see, size)
        made |= norm_parameters(1, "around.n", size)
        for name in ("last", "around.q", "look.q"):
            made |= linear_parameters(streams, name, size, size)
        made |= linear_parameters(streams, "look.k", size, size, bias=False)
        made |= norm_parameters(1, "again.n", size) | attention_parameters(streams, "again", size)
        for layer in range(sizes.step_layers):
            made |= decoder_parameters(streams, f"step.{layer}", size)
        made |= norm_parameters(1, "state.n", size)
        made |= linear_parameters(streams, "policy", size + persona, size)
        if sizes.distance_weight:
            made |= linear_parameters(streams, "distance", size, 1)
        self.policy = made
        self.identity: Parameters = mlp_parameters(streams, "identity", (size, hidden, max(2, teachers)))

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> InstructionSession:
        """Draws N2 models and the identity samples for one batch of episodes."""
        masks = draws.kept(self.dropout, self.models, self.state_size + self.persona_size)[0]
        sampler = IdentitySampler.draw(draws, sample_draws, self.samples, episodes, horizon, self.models)
        return InstructionSession(self, masks, sampler)

    def weights(self) -> Weights:
        """The weights without the runs axis."""
        return {name: value.squeeze(0) for name, value in self.policy.items()}

    def identity_distribution(self, state: Tensor) -> Tensor:
        """rho(k | s): [n, d] -> [n, K]."""
        return mlp(self.identity, state.unsqueeze(0))[0, :, : self.teachers].softmax(-1)

    def policies(self, observation: Observation) -> Tensor:
        """pi(a | s, h(k)) without dropout in first states: [1, n, F] -> [1, n, K, A]."""
        with torch.no_grad():
            masks = torch.ones(1, self.state_size + self.persona_size)
            session = InstructionSession(self, masks, None)
            return session.mixture(observation, 0)[0][:, 0].unsqueeze(0)

    def losses(self, episodes: Episodes, draws: Draws) -> tuple[Tensor, Tensor]:
        """Policy and identity loss, both [1]: negative log-likelihoods, averaged over the asked steps of the batch.

        The error of the distance is averaged over those of them at which one was told."""
        batch = _Batch.of(episodes)
        weights = self.weights()

        def keep(rate: float, shape: tuple[int, ...]) -> Tensor:
            return draws.kept(rate, *shape)[0]

        state, seen, sought = self._whole_episodes(weights, batch, keep)
        inputs = torch.cat([state, weights["persona"][batch.identity]], -1)
        inputs = inputs * keep(self.dropout, tuple(inputs.shape))
        wanted = affine(weights, "policy", inputs)
        logits = compare(weights, seen, wanted[seen.step], sought[seen.step])
        place = seen.step * self.actions + seen.action
        table = logits.new_full((len(state) * self.actions,), -torch.inf).index_copy(0, place, logits)
        likelihood = table.view(-1, self.actions)
        asked = batch.asked.nonzero().squeeze(-1)
        count = max(1, len(asked))
        policy = functional.cross_entropy(likelihood[asked], batch.action[asked], reduction="sum") / count
        if self.sizes.distance_weight:
            # A teacher that may leave distances out tells NaN.
            told = asked[~batch.distance[asked].isnan()]
            guess = affine(weights, "distance", state[told])[:, 0]
            truth = (batch.distance[told] / 10.0).clamp_max(_FAR)
            policy = policy + self.sizes.distance_weight * (guess - truth).square().sum() / max(1, len(told))
        who = mlp(self.identity, batch.state.unsqueeze(0))[0, :, : self.teachers]
        identity = functional.cross_entropy(who[asked], batch.identity[asked], reduction="sum") / count
        return policy.unsqueeze(0), identity.unsqueeze(0)

    def _whole_episodes(self, weights: Weights, batch: _Batch, keep: Keep) -> tuple[Tensor, Glance, Tensor]:
        """States [rows, d], what was seen, and the words sought [rows, d] at all live steps, in one causal pass."""
        drop = dropping(keep, self.sizes.branch_dropout)
        words = self.word_vectors(weights)
        mirrored = self._in_mirror(batch.instruction, keep)
        text, packing, bare = self.read(weights, words, batch.instruction, keep, drop, mirrored)
        side = None if mirrored is None else 1.0 - 2.0 * mirrored[batch.live.nonzero()[:, 0]].float()
        rates = (self.sizes.shown_dropout, self.sizes.view_dropout)
        seen = glance(weights, self.see, words, batch.place, batch.heading, batch.flags, keep, rates, side)
        # The live steps of an episode follow each other, so the row above holds the action that led here.
        rows = torch.arange(len(batch.place))
        lookup = torch.full((len(rows) * self.actions,), -1).index_copy(
            0, seen.step * self.actions + seen.action, torch.arange(len(seen.step))
        )
        above = (rows - 1).clamp_min(0)
        came = seen.candidates[lookup[above * self.actions + batch.last].clamp_min(0)]
        came = torch.where((batch.time == 0).unsqueeze(-1), 0.0, came)
        around = norm(weights, "around.n", seen.around)
        tokens = step_tokens(weights, seen, around, came, batch.time)
        steps = Packing.of(batch.live)
        table = steps.pad(tokens)
        heads = self.sizes.heads
        causal = torch.full((1, steps.width, steps.width), -torch.inf).triu(1).repeat_interleave(heads, 1)
        text, bare = packing.pad(text), packing.pad(bare)
        for layer in range(self.sizes.step_layers):
            table, _ = decode(weights, f"step.{layer}", table, None, causal, text, packing.bias, heads, drop)
            if layer == 0:
                table = steps.pad(look_again(weights, steps.pack(table), around, heads, drop))
        table = norm(weights, "state.n", table)
        sought = look_for(weights, table, text, bare, packing.bias)
        return steps.pack(table), seen, steps.pack(sought)

    def _in_mirror(self, instruction: Tensor, keep: Keep) -> Tensor | None:
        """[n] bool: which episodes are learned from in a mirror; only those whose mirrored instruction is known."""
        if not self.sizes.mirror:
            return None
        mirrored = keep(self.sizes.mirror, (len(instruction),)) == 0
        return mirrored if self.see.read is None else mirrored & (self.see.read.mirrored[instruction] >= 0)

    def word_vectors(self, weights: Weights) -> Tensor:
        """[W, d]: known word vectors, projected, and what is learned of each word."""
        return functional.linear(self._glove, weights["glove.w"]) + weights["word"]

    def read(
        self,
        weights: Weights,
        words: Tensor,
        instruction: Tensor,
        keep: Keep | None,
        drop: Drop,
        mirrored: Tensor | None = None,
    ) -> tuple[Tensor, Packing, Tensor]:
        """Encodes the instructions [n]: packed tokens [rows, d], their packing, and their bare word vectors.

        Those `mirrored` [n] are read with left for right."""
        tokens = self.see.tokens[instruction, : self.sizes.words]
        tokens = tokens[:, : int((tokens > 0).sum(1).max())]
        packing = Packing.of(tokens > 0)
        if mirrored is not None:
            tokens = torch.where(mirrored.unsqueeze(1), self.see.mirrored[tokens], tokens)
        flat = tokens.flatten()[packing.place]
        lost = None
        if keep is not None and self.sizes.word_dropout:
            lost = (keep(self.sizes.word_dropout, tuple(flat.shape)) == 0) & (flat > END)
            flat = torch.where(lost, UNKNOWN, flat)
        bare = words.index_select(0, flat)
        rows = affine(weights, "text.in", bare)
        if self.see.read is not None:
            understood = self._understood(weights, self.see.read, instruction, mirrored, packing)
            rows = rows + (understood if lost is None else understood.masked_fill(lost.unsqueeze(1), 0.0))
        rows = rows + weights["text.at"].index_select(0, packing.place % packing.width)
        for layer in range(self._text_layers):
            rows = encode(weights, f"text.{layer}", rows, packing, self.sizes.heads, drop)
        return norm(weights, "text.n", rows), packing, bare

    def _understood(
        self, weights: Weights, read: Readings, instruction: Tensor, mirrored: Tensor | None, packing: Packing
    ) -> Tensor:
        """[rows, d]: what a language model made of the words."""
        start = read.start[instruction]
        if mirrored is not None:
            start = torch.where(mirrored, read.mirrored[instruction], start)
        place = start[packing.place // packing.width] + packing.place % packing.width
        return affine(weights, "text.read", read.rows.index_select(0, place) * read.scale)


@dataclass(frozen=True)
class _Batch:
    """Episodes as the rows of their live steps, R of them, episode after episode."""

    instruction: Tensor
    """[n] long"""
    live: Tensor
    """[n, T] bool"""
    place: Tensor
    heading: Tensor
    last: Tensor
    """[R] long: the action before."""
    flags: Tensor
    time: Tensor
    """[R] long: the number of the step."""
    asked: Tensor
    action: Tensor
    distance: Tensor
    identity: Tensor
    state: Tensor
    """[R, d]: as it was at the time of acting, without gradient."""

    @staticmethod
    def of(episodes: Episodes) -> _Batch:
        """From the episodes of one run."""
        live = episodes.live[0]
        features = episodes.features[0][live]
        return _Batch(
            instruction=episodes.features[0, :, 0, 0].long(),
            live=live,
            place=features[:, 1].long(),
            heading=features[:, 2],
            last=features[:, 3].long(),
            flags=features[:, _LEADING:],
            time=torch.arange(live.shape[1]).expand_as(live)[live],
            asked=episodes.asked[0][live],
            action=episodes.action[0][live],
            distance=episodes.distance[0][live],
            identity=episodes.identity[0][live],
            state=episodes.state[0][live],
        )


class InstructionSession:
    """The models drawn for one batch of episodes, with the instruction and the steps so far cached."""

    def __init__(self, model: InstructionModel, masks: Tensor, sampler: IdentitySampler | None) -> None:
        """`masks` [N2, d + persona]: one model each."""
        self._model, self._masks, self._sampler = model, masks, sampler
        self._weights = model.weights()
        self._words = model.word_vectors(self._weights)
        self._steps: list[Tensor | None] = [None] * model.sizes.step_layers
        self._taken: Tensor | None = None
        """[rows, A, d]: the candidates of the step before."""
        self._rows = torch.arange(0)
        """[rows] long: the agents that are still looked at; all that follows is of them."""
        self._text = (masks, masks, masks)
        """The instructions as read, their bare words, both [rows, L, d], and the bias that hides padding."""
        size = model.state_size
        weight = self._weights["policy.w"]
        # [N2, K, d]: the share of each persona in the vector that is sought, bias included.
        personas = self._weights["persona"] * masks[:, None, size:]
        self._of_persona = functional.linear(personas, weight[:, size:], self._weights["policy.b"])

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        """The belief in the states of step `t`."""
        assert self._sampler is not None
        policies, state = self.mixture(observation, t)
        identity = self._model.identity_distribution(state).unsqueeze(0)
        weights = self._sampler.dense_weights(identity, self._model.models, t)
        of_model, mean, uncertainty = split_by_model(policies.unsqueeze(0), weights, models=2, samples=3)
        return Belief(state.unsqueeze(0), mean, identity, uncertainty, horizon - t, of_model=of_model)

    def mixture(self, observation: Observation, t: int) -> tuple[Tensor, Tensor]:
        """The policy of every model and teacher [n, N2, K, A], and the states [n, d].

        Agents that have stopped are left out once they are many: stop is all they do, and their state is zero.
        """
        features, model = observation.features[0], self._model
        if t == 0:
            self._read(features[:, 0].long())
        # A last action of stop ends an episode; before the first there is none.
        walking = features[self._rows, 3] > 0 if t else torch.ones(len(features), dtype=torch.bool)
        if int(walking.sum()) < _FEW * len(self._rows):
            self._leave(walking)
        rows = self._rows
        policies = features.new_zeros(len(features), len(self._masks), model.teachers, model.actions)
        policies[..., 0] = 1.0
        states = features.new_zeros(len(features), model.state_size)
        if len(rows):
            policies[rows], states[rows] = self._look_and_step(features[rows], t)
        return policies, states

    def _leave(self, walking: Tensor) -> None:
        """Goes on with those who walk."""
        kept = walking.nonzero().squeeze(-1)
        self._rows = self._rows[kept]
        text, bare, bias = self._text
        self._text = (text[kept], bare[kept], bias[kept])
        self._steps = [None if step is None else step[kept] for step in self._steps]
        self._taken = None if self._taken is None else self._taken[kept]

    def _look_and_step(self, features: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """One step of those who have not been left out."""
        weights, actions = self._weights, self._model.actions
        seen = glance(
            weights, self._model.see, self._words, features[:, 1].long(), features[:, 2], features[:, _LEADING:],
            None, (0.0, 0.0),
        )  # fmt: skip
        came = self._came(features[:, 3].long(), len(features))
        around = norm(weights, "around.n", seen.around)
        table = step_tokens(weights, seen, around, came, torch.tensor([t])).unsqueeze(1)
        (text, bare, bias), heads = self._text, self._model.sizes.heads
        for layer, before in enumerate(self._steps):
            table, so_far = decode(weights, f"step.{layer}", table, before, None, text, bias, heads, same)
            self._steps[layer] = so_far
            if layer == 0:
                table = look_again(weights, table.squeeze(1), around, heads, same).unsqueeze(1)
        state = norm(weights, "state.n", table)
        sought = look_for(weights, state, text, bare, bias)[:, 0]
        place = seen.step * actions + seen.action
        size = self._words.shape[-1]
        candidates = seen.candidates.new_zeros(len(features) * actions, size).index_copy(0, place, seen.candidates)
        self._taken = candidates.view(len(features), actions, size)
        return self._policies(state[:, 0], seen, sought, self._taken, place), state[:, 0]

    def _read(self, instruction: Tensor) -> None:
        """Encodes the instructions, once an episode."""
        model = self._model
        text, packing, bare = model.read(self._weights, self._words, instruction, None, same)
        self._text = (packing.pad(text), packing.pad(bare), packing.bias)
        self._rows = torch.arange(len(instruction))

    def _came(self, last: Tensor, count: int) -> Tensor:
        """[n, d]: the candidate that was taken at the step before; zero before the first."""
        if self._taken is None:
            return self._words.new_zeros(count, self._words.shape[-1])
        return self._taken[torch.arange(count), last]

    def _policies(self, state: Tensor, seen: Glance, sought: Tensor, candidates: Tensor, place: Tensor) -> Tensor:
        """[n, N2, K, A]; `candidates` [n, A, d], those of `seen` at their `place` in the flattened table."""
        model, count = self._model, len(state)
        size = model.state_size
        of_state = functional.linear(state.unsqueeze(1) * self._masks[:, :size], self._weights["policy.w"][:, :size])
        wanted = (of_state.unsqueeze(2) + self._of_persona).flatten(1, 2)
        logits = wanted @ candidates.transpose(1, 2) / math.sqrt(size)
        fit = match(self._weights, seen, sought[seen.step])
        bias = fit.new_full((count * model.actions,), -torch.inf).index_copy(0, place, fit)
        logits = logits + bias.view(count, 1, model.actions)
        return logits.softmax(-1).view(count, len(self._masks), model.teachers, model.actions)


def _only(see: Panoramas, sizes: InstructionSizes) -> Panoramas:
    """The panoramas without the features that the agent is not to see."""
    shown = sizes.features.split(",")
    return replace(
        see,
        captions=see.captions if "captions" in shown else None,
        objects=see.objects if "objects" in shown else None,
        rooms=see.rooms if "rooms" in shown else None,
        images=see.images if "images" in shown else None,
    )


def _centred(glove: Tensor) -> Tensor:
    """Word vectors without their common part and of one length, so that a product tells likeness; zero stays zero."""
    known = glove.any(1, keepdim=True)
    if not bool(known.any()):
        return glove
    centred = torch.where(known, glove - glove[known.squeeze(1)].mean(0), 0.0)
    return 4.0 * functional.normalize(centred, dim=1)
