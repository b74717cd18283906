"""The teacher persona-aware model of an agent that follows instructions, after the transformer of HANNA.

An encoder reads the instruction; a decoder over the steps of the episode gives the state s. The persona-conditioned
policy, linear in (s, h), gives a vector that is compared with those of the candidates, stop and the exits. The words
that the state looks for in the text are compared with those shown towards each exit. Acting caches what keys and
values would be made of; learning sees whole episodes in one causal pass. See docs/method/r2r.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from apil.device import here
from apil.model.expectation import IdentitySampler
from apil.nn import Parameters, initial_normal, mlp, mlp_parameters
from apil.r2r import transformer
from apil.r2r.layout import DIRECTIONS
from apil.r2r.options import FEATURES, InstructionSizes, sizes_of
from apil.r2r.panorama import Glance, Keep, glance, look_again, look_for, match, sight_parameters, step_tokens
from apil.r2r.text import END, UNKNOWN
from apil.r2r.transformer import Drop, Packing, Weights, affine, decode, encode, linear_parameters, norm, same
from apil.rng import Draws, Share, Streams
from apil.settings import ModelSettings, RunSettings
from apil.types import Belief, Lessons, Observation
from apil.uncertainty import entropy, split_by_model

if TYPE_CHECKING:
    from apil.r2r.task import R2R

_FEW = 0.8
"""Acting leaves those who have stopped out when fewer than this share of the agents still walk."""
_FAR = 3.0
"""Tens of metres; what is farther counts as this far."""


@dataclass(frozen=True)
class Dropout:
    """Masks in learning, of rows of several kinds; of a part of a batch the same as those of the whole have there."""

    draws: Draws
    episodes: Share | None = None
    """Those of the part; None for the whole batch, as in the others."""
    steps: Share | None = None
    """Its live steps."""
    words: Share | None = None
    """The words of its instructions."""

    def of_episodes(self, rate: float, shape: tuple[int, ...]) -> Tensor:
        return self._kept(rate, shape, self.episodes)

    def of_steps(self, rate: float, shape: tuple[int, ...]) -> Tensor:
        return self._kept(rate, shape, self.steps)

    def of_words(self, rate: float, shape: tuple[int, ...]) -> Tensor:
        return self._kept(rate, shape, self.words)

    def of_directions(self, rate: float, shape: tuple[int, ...]) -> Tensor:
        """Of the eight directions of each live step."""
        steps, own = self.steps, DIRECTIONS
        share = None if steps is None else Share(own * steps, own * steps.first, own * steps.total)
        return self._kept(rate, shape, share)

    def _kept(self, rate: float, shape: tuple[int, ...], share: Share | None) -> Tensor:
        assert share is None or share == shape[0]
        return self.draws.kept(rate, *(shape if share is None else (share, *shape[1:])))[0]


class InstructionModel:
    """The model of one run: it is not stacked, its products are large enough alone."""

    recurrent = True

    def __init__(
        self, streams: Streams, task: R2R, teachers: int, settings: ModelSettings, sizes: InstructionSizes
    ) -> None:
        assert len(streams.seeds) == 1
        with torch.device("cpu"):  # the tables of the task are on the host
            panoramas = task.panoramas
        see, size, persona = here(panoramas), sizes.width, settings.persona
        self.sizes, self.teachers, self.actions, self.models = sizes, teachers, task.actions, settings.models
        self.dropout, self.persona_size, self.state_size = settings.dropout, persona, size
        self.samples = torch.tensor([settings.drawn], device="cpu")
        hidden: dict[str, Any] = dict.fromkeys(set(FEATURES[1:]).difference(sizes.features.split(",")))
        self.see = replace(see, **hidden)
        self._glove = _centred(see.glove)
        made: Parameters = {
            "word": initial_normal(streams, "word", (see.words, size)) * 0.1,
            "text.at": initial_normal(streams, "text.at", (sizes.words, size)) * 0.1,
            "step.at": initial_normal(streams, "step.at", (task.horizon, size)) * 0.1,
            "persona": initial_normal(streams, "persona", (teachers, persona)),
            "match": torch.ones(1, 1),
            "sought.w": torch.eye(size).unsqueeze(0),
        }
        made |= linear_parameters(streams, {"glove": (see.glove.shape[1], size)}, bias=False)
        made |= linear_parameters(streams, {"text.in": (size, size)})
        if self.see.read is not None:
            made |= linear_parameters(streams, {"text.read": (len(self.see.read.scale), size)}, bias=False)
        self._text_layers = sizes.text_layers if self.see.read is None else 0
        for layer in range(self._text_layers):
            made |= transformer.layer_parameters(streams, f"text.{layer}", size)
        made |= transformer.norm_parameters("text.n", size) | sight_parameters(streams, self.see, size)
        made |= transformer.norm_parameters("around.n", size)
        made |= linear_parameters(streams, dict.fromkeys(("last", "around.q", "look.q"), (size, size)))
        made |= linear_parameters(streams, {"look.k": (size, size)}, bias=False)
        made |= transformer.norm_parameters("again.n", size)
        made |= transformer.attention_parameters(streams, "again", size)
        for layer in range(sizes.step_layers):
            made |= transformer.layer_parameters(streams, f"step.{layer}", size, decoder=True)
        made |= transformer.norm_parameters("state.n", size)
        made |= linear_parameters(streams, {"policy": (size + persona, size)})
        if sizes.persona_gate:
            made["gate"] = torch.zeros(1, persona, size)
        if sizes.distance_weight:
            made |= linear_parameters(streams, {"distance": (size, 1)})
        self.policy = made
        self.identity: Parameters = mlp_parameters(streams, "identity", (size, settings.hidden, max(2, teachers)))
        self.memory: Parameters = {}

    def observe(self, lessons: Lessons) -> None:
        """Does nothing: there is no memory."""

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
            session = InstructionSession(self, torch.ones(1, self.state_size + self.persona_size), None)
            return session.mixture(observation, 0)[0][:, 0].unsqueeze(0)

    def losses(self, lessons: Lessons, draws: Draws, part: slice | None = None) -> tuple[Tensor, Tensor]:
        """Policy and identity loss, both [1]: negative log-likelihoods, averaged over the answered steps of the batch;
        the error of the distance over those of them that came with one."""
        answers = int((lessons.answered & lessons.live).sum())
        distances = int((lessons.answered & lessons.live & ~lessons.distance.isnan()).sum())
        dropout = Dropout(draws) if part is None else self._dropout_of(lessons, draws, part)
        lessons = lessons if part is None else lessons.of_episodes(part)
        weights, live = self.weights(), lessons.live[0]
        known = (lessons.answered, lessons.action, lessons.distance, lessons.identity)
        has_answer, action, distance, identity = (table[0][live] for table in known)
        state, seen, sought = self._whole_episodes(weights, lessons.features[0], live, dropout)
        gates = _gates(weights)
        read = state if gates is None else state * gates[identity]
        inputs = torch.cat([read, weights["persona"][identity]], -1)
        inputs = inputs * dropout.of_steps(self.dropout, tuple(inputs.shape))
        wanted = affine(weights, "policy", inputs)[seen.step]
        logits = (wanted * seen.candidates).sum(-1) / math.sqrt(wanted.shape[-1])
        logits = logits + match(weights, seen, sought[seen.step])
        likelihood = seen.table(logits, self.actions, -torch.inf)
        answered = has_answer.nonzero().squeeze(-1)
        count = max(1, answers)
        policy = functional.cross_entropy(likelihood[answered], action[answered], reduction="sum") / count
        if self.sizes.distance_weight:
            # A teacher that leaves a distance out gives NaN.
            measured = answered[~distance[answered].isnan()]
            guess = affine(weights, "distance", state[measured])[:, 0]
            truth = (distance[measured] / 10.0).clamp_max(_FAR)
            policy = policy + self.sizes.distance_weight * (guess - truth).square().sum() / max(1, distances)
        acted_on = state.detach() if lessons.state is None else lessons.state[0][live]
        who = mlp(self.identity, acted_on.unsqueeze(0))[0, :, : self.teachers]
        of_identity = functional.cross_entropy(who[answered], identity[answered], reduction="sum") / count
        return policy.unsqueeze(0), of_identity.unsqueeze(0)

    def _dropout_of(self, lessons: Lessons, draws: Draws, part: slice) -> Dropout:
        """The masks of some episodes of a batch."""
        tokens = self.see.tokens[lessons.features[0, :, 0, 0].long(), : self.sizes.words] > 0

        def share(rows: Tensor) -> Share:
            before, own, total = int(rows[: part.start].sum()), int(rows[part].sum()), int(rows.sum())
            return Share(own, before, total)

        episodes = Share(part.stop - part.start, part.start, len(tokens))
        return Dropout(draws, episodes, share(lessons.live[0].sum(1)), share(tokens.sum(1)))

    def _whole_episodes(
        self, weights: Weights, observed: Tensor, live: Tensor, dropout: Dropout
    ) -> tuple[Tensor, Glance, Tensor]:
        """States [rows, d], what was seen, and the words sought [rows, d] at all live steps, in one causal pass.

        `observed` [n, T, F], `live` [n, T]; rows are the live steps, episode after episode."""
        rate = self.sizes.branch_dropout

        def drop(branch: Tensor) -> Tensor:
            keep = dropout.of_steps if branch.dim() == 2 else dropout.of_episodes
            return branch * keep(rate, tuple(branch.shape)) if rate else branch

        def drop_words(branch: Tensor) -> Tensor:
            return branch * dropout.of_words(rate, tuple(branch.shape)) if rate else branch

        words = self.word_vectors(weights)
        instruction, features = observed[:, 0, 0].long(), observed[live]
        mirrored = self._in_mirror(instruction, dropout.of_episodes)
        text, packing, bare = self.read(weights, words, instruction, dropout.of_words, drop_words, mirrored)
        episode, time = live.nonzero(as_tuple=True)
        side = None if mirrored is None else 1.0 - 2.0 * mirrored[episode].float()
        rates = (self.sizes.shown_dropout, self.sizes.view_dropout)
        seen = glance(weights, self.see, words, features, dropout.of_directions, rates, side)
        # The live steps of an episode follow each other, so the row above holds the action that led here.
        number = seen.table(torch.arange(len(seen.step)), self.actions, -1)
        above = (torch.arange(len(time)) - 1).clamp_min(0)
        came = seen.candidates[number[above, features[:, 3].long()].clamp_min(0)]
        came = torch.where((time == 0).unsqueeze(-1), 0.0, came)
        steps = Packing.of(live)
        read = (packing.pad(text), packing.pad(bare), packing.bias)
        before: list[Tensor | None] = [None] * self.sizes.step_layers
        state, sought = self.think(weights, seen, came, time, steps, before, read, drop)
        return state, seen, sought

    def think(
        self,
        weights: Weights,
        seen: Glance,
        came: Tensor,
        time: Tensor,
        steps: Packing,
        before: list[Tensor | None],
        read: tuple[Tensor, Tensor, Tensor],
        drop: Drop = same,
    ) -> tuple[Tensor, Tensor]:
        """The states and the words sought, both [rows, d], of packed steps at `time`, to which the candidates `came`
        led. `before` has what each layer keeps of earlier steps, and gets that of these.

        `read` are the instructions as read, their bare words, both [n, L, d], and the bias that hides padding."""
        (text, bare, hide), heads = read, self.sizes.heads
        around = norm(weights, "around.n", seen.around)
        table = steps.pad(step_tokens(weights, seen, around, came, time))
        causal = None
        if steps.width > 1:
            causal = torch.full((1, steps.width, steps.width), -torch.inf).triu(1).repeat_interleave(heads, 1)
        for layer, earlier in enumerate(before):
            table, before[layer] = decode(weights, f"step.{layer}", table, earlier, causal, text, hide, heads, drop)
            if layer == 0:
                table = steps.pad(look_again(weights, steps.pack(table), around, heads, drop))
        table = norm(weights, "state.n", table)
        return steps.pack(table), steps.pack(look_for(weights, table, text, bare, hide))

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
        keep: Keep | None = None,
        drop: Drop = same,
        mirrored: Tensor | None = None,
    ) -> tuple[Tensor, Packing, Tensor]:
        """Encodes the instructions [n], those `mirrored` [n] with left for right: packed tokens [rows, d], their
        packing, and their bare word vectors."""
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
            read, start = self.see.read, self.see.read.start[instruction]
            if mirrored is not None:
                start = torch.where(mirrored, read.mirrored[instruction], start)
            place = start[packing.place // packing.width] + packing.place % packing.width
            understood = affine(weights, "text.read", read.rows.index_select(0, place) * read.scale)
            rows = rows + (understood if lost is None else understood.masked_fill(lost.unsqueeze(1), 0.0))
        rows = rows + weights["text.at"].index_select(0, packing.place % packing.width)
        for layer in range(self._text_layers):
            rows = encode(weights, f"text.{layer}", rows, packing, self.sizes.heads, drop)
        return norm(weights, "text.n", rows), packing, bare


class InstructionSession:
    """The models drawn for one batch of episodes, with the instruction and the steps so far cached."""

    def __init__(self, model: InstructionModel, masks: Tensor, sampler: IdentitySampler | None) -> None:
        """`masks` [N2, d + persona]: one model each."""
        self._model, self._masks, self._sampler = model, masks, sampler
        self._weights = model.weights()
        self._words = model.word_vectors(self._weights)
        self._steps: list[Tensor | None] = [None] * model.sizes.step_layers
        self._rows = torch.arange(0)
        """[rows] long: the agents that are still looked at; all that follows is of them."""
        self._taken = masks
        """[rows, A, d]: the candidates of the step before; zero before the first."""
        self._text = (masks, masks, masks)
        """The instructions as read, their bare words, both [rows, L, d], and the bias that hides padding."""
        size = model.state_size
        weight = self._weights["policy.w"]
        # [N2, K, d]: the share of each persona in the vector that is sought, bias included.
        personas = self._weights["persona"] * masks[:, None, size:]
        self._of_persona = functional.linear(personas, weight[:, size:], self._weights["policy.b"])
        self._gates = _gates(self._weights)

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        """The belief in the states of step `t`."""
        assert self._sampler is not None
        policies, state = self.mixture(observation, t)
        policies = policies.unsqueeze(0)
        identity = self._model.identity_distribution(state).unsqueeze(0)
        weights = self._sampler.dense_weights(identity, self._model.models, t)
        of_model, mean, uncertainty = split_by_model(policies, entropy(policies), weights, models=2, samples=3)
        return Belief(state.unsqueeze(0), mean, identity, uncertainty, horizon - t, of_model=of_model)

    def mixture(self, observation: Observation, t: int) -> tuple[Tensor, Tensor]:
        """The policy of every model and teacher [n, N2, K, A], and the states [n, d].

        Agents that have stopped are left out once they are many: stop is all they do, and their state is zero."""
        features, model = observation.features[0], self._model
        if t == 0:
            text, packing, bare = model.read(self._weights, self._words, features[:, 0].long())
            self._text = (packing.pad(text), packing.pad(bare), packing.bias)
            self._rows = torch.arange(len(features))
            self._taken = features.new_zeros(len(features), model.actions, model.state_size)
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
        self._taken = self._taken[kept]

    def _look_and_step(self, features: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """One step of those who have not been left out."""
        seen = glance(self._weights, self._model.see, self._words, features)
        came = self._taken[torch.arange(len(features)), features[:, 3].long()]
        step = Packing.of(torch.ones(len(features), 1, dtype=torch.bool))
        now = torch.tensor([t])
        state, sought = self._model.think(self._weights, seen, came, now, step, self._steps, self._text)
        self._taken = seen.table(seen.candidates, self._model.actions, 0.0)
        return self._policies(state, seen, sought), state

    def _policies(self, state: Tensor, seen: Glance, sought: Tensor) -> Tensor:
        """[n, N2, K, A] of the states [n, d] and the words sought [n, d]."""
        model, size = self._model, self._model.state_size
        read = (state.unsqueeze(1) * self._masks[:, :size]).unsqueeze(2)
        read = read if self._gates is None else read * self._gates
        of_state = functional.linear(read, self._weights["policy.w"][:, :size])
        wanted = (of_state + self._of_persona).flatten(1, 2)
        fit = match(self._weights, seen, sought[seen.step])
        logits = wanted @ self._taken.transpose(1, 2) / math.sqrt(size)
        logits = logits + seen.table(fit, model.actions, -torch.inf).unsqueeze(1)
        return logits.softmax(-1).view(len(state), len(self._masks), model.teachers, model.actions)


def instruction_model(streams: Streams, task: R2R, settings: Sequence[RunSettings], teachers: int) -> InstructionModel:
    """The facet `model` of R2R: the model of a run, from its settings."""
    (run,) = settings
    return InstructionModel(streams, task, teachers, run.model, sizes_of(run.task.options))


def _gates(weights: Weights) -> Tensor | None:
    """[K, d]: what each persona multiplies the state by; None where it has no say in that."""
    return 1.0 + weights["persona"] @ weights["gate"] if "gate" in weights else None


def _centred(glove: Tensor) -> Tensor:
    """Word vectors without their common part and of one length, so that a product tells likeness; zero stays zero."""
    known = glove.any(1, keepdim=True)
    if not bool(known.any()):
        return glove
    centred = torch.where(known, glove - glove[known.squeeze(1)].mean(0), 0.0)
    return 4.0 * functional.normalize(centred, dim=1)
