"""The teacher persona-aware model: a distribution over policies.

    identity distribution  rho(k | s)      a network on the state
    persona                h(k)            a table with one vector a teacher
    policy                 pi(a | s, h)    a network on the state and the persona, dropout on its input;
                                           a head says what its outputs mean

Dropout stays on while acting: each mask is one model omega drawn from the posterior q (MC dropout). N2 masks are
drawn for each batch of episodes, and all decisions in it are made by these N2 models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from apil.device import here
from apil.model.expectation import DENSE, IdentitySampler
from apil.model.head import Categorical, Gaussian, Mixture, Parts, joined, likelihood_loss
from apil.nn import Parameters, initial_normal, linear, mlp, mlp_parameters
from apil.rng import Draws, Share, Streams
from apil.settings import ModelSettings
from apil.types import ActionBox, Belief, Lessons, Observation

_BLOCK = 2**18
"""Hidden units that are computed at a time while acting; a megabyte."""


_IDENTITY_DROPOUT = 0.5
"""At the input of the identity model, where it learns from a store: who answers is often a matter of chance."""


class PersonaModel:
    """The models of a stack of runs. All runs have the same sizes and number of teachers."""

    recurrent = False

    def __init__(
        self,
        streams: Streams,
        *,
        state_size: int,
        actions: int | ActionBox,
        teachers: int,
        samples: Sequence[int],
        sizes: ModelSettings,
        states: Observation | None = None,
    ) -> None:
        """`actions` is their number, or the box of continuous ones; `samples` is N1 of each run, 0 for the exact
        expectation over identities; `states` [1, n, ...] are all that can be seen, where they are few and numbered.
        """
        self.states = here(states)
        self.sizes, self.teachers, self.state_size = sizes, teachers, state_size
        self.head = Categorical(actions) if isinstance(actions, int) else Gaussian(here(actions))
        # With one teacher there is nothing to draw.
        self.samples = torch.tensor(samples if teachers > 1 else [0] * len(samples), device="cpu")
        inputs = state_size + sizes.persona
        self.policy: Parameters = mlp_parameters(streams, "policy", (inputs, sizes.hidden, self.head.outputs))
        self.policy["persona"] = initial_normal(streams, "persona", (teachers, sizes.persona))
        # At least two outputs: a product of width 1 takes another kernel. The spare one is cut off before the softmax.
        self.identity: Parameters = mlp_parameters(streams, "identity", (state_size, sizes.hidden, max(2, teachers)))
        self.memory: Parameters = {}

    def observe(self, lessons: Lessons) -> None:
        """Does nothing: there is no memory."""

    def begin(self, draws: Draws, sample_draws: Draws, episodes: int, horizon: int) -> SampledModel:
        width = self.state_size + self.sizes.persona
        masks = draws.kept(self.sizes.dropout, self.sizes.models, width)
        sampler = IdentitySampler.draw(draws, sample_draws, self.samples, episodes, horizon, self.sizes.models)
        return SampledModel(self, masks, sampler, self.head.luck(draws, episodes, horizon))

    def identity_distribution(self, features: Tensor) -> Tensor:
        """rho(k | s): [runs, n, S] -> [runs, n, K]."""
        if self.teachers == 1:
            return features.new_ones(*features.shape[:-1], 1)
        return mlp(self.identity, features).softmax(-1)

    def policies(self, observation: Observation) -> Tensor:
        """pi(a | s, h(k)) of every teacher without dropout: [runs, n, S] -> [runs, n, K, A or 2n]."""
        features = observation.features
        runs, count, _ = features.shape
        weight = self.policy["w1"]
        state, persona = weight[:, : self.state_size], weight[:, self.state_size :]
        hidden = torch.bmm(features, state).unsqueeze(2)
        hidden = torch.relu(hidden + linear(self.policy["persona"], persona, self.policy["b1"]).unsqueeze(1))
        logits = linear(hidden.reshape(runs, count * self.teachers, -1), self.policy["w2"], self.policy["b2"])
        return self.head.policies(logits.view(runs, count, self.teachers, -1), observation)

    def losses(self, lessons: Lessons, draws: Draws, part: slice | None = None) -> tuple[Tensor, Tensor]:
        """Policy loss (theta, phi) and identity loss (psi) of each run, both [runs].

        Negative log-likelihoods at answered steps, summed over the steps of an episode, averaged over episodes.
        """
        runs, batch, horizon = lessons.answered.shape
        count = batch * horizon
        if part is not None:
            lessons = lessons.of_episodes(part)
            count = Share((part.stop - part.start) * horizon, part.start * horizon, count)
        features = lessons.features.reshape(runs, count, -1)
        answered = lessons.answered.reshape(runs, count)
        identity = lessons.identity.reshape(runs, count)
        rows = identity + self.teachers * torch.arange(runs).unsqueeze(1)
        persona = self.policy["persona"].flatten(0, 1).index_select(0, rows.flatten()).view(runs, count, -1)
        inputs = torch.cat([features, persona], dim=-1)
        inputs = inputs * draws.kept(self.sizes.dropout, count, inputs.shape[-1])
        valid = lessons.valid_actions.reshape(runs, count, -1)
        policy = self.head.loss(mlp(self.policy, inputs), lessons.action.flatten(1, 2), valid, answered)
        # The identity loss does not reach an encoder of the state.
        seen = features.detach()
        if lessons.state is None:
            seen = seen * draws.kept(_IDENTITY_DROPOUT, count, seen.shape[-1])
        logits = mlp(self.identity, seen)[..., : self.teachers]
        return policy / batch, likelihood_loss(logits, identity, answered) / batch


@dataclass(frozen=True)
class _Table:
    """What N2 models have to say of every state."""

    identity: Tensor
    """[runs, n, K]"""
    parts: Parts
    """Each [runs, n, N2, K, ...]."""


class SampledModel:
    """N2 models drawn for one batch of episodes; what does not change within it is computed once."""

    def __init__(self, model: PersonaModel, masks: Tensor, sampler: IdentitySampler, luck: Tensor | None) -> None:
        self._model, self._sampler, self._luck = model, sampler, luck
        size, weight = model.state_size, model.policy["w1"]
        self._state_mask, self._persona_mask = masks[:, None, :, :size], masks[:, :, size:]
        self._state_weight, self._persona_weight = weight[:, :size], weight[:, size:]
        self._dense = self._hidden_of_personas() if model.teachers <= DENSE else None
        few = None if self._dense is None else model.states
        self._enough = math.inf if few is None else few.features.shape[1]
        """Episodes for which it is worth while to know every state."""

    def belief(self, observation: Observation, t: int, horizon: int) -> Belief:
        """Where there are at least as many episodes as states, everything about a state is computed once a batch."""
        place = observation.place
        if place is not None and place.shape[1] >= self._enough:
            identity, mixed = self._from_table(place, t)
        else:
            identity = self._model.identity_distribution(observation.features)
            mixed = self._mixture(observation, identity, t)
        return Belief(
            observation.features, mixed.mean, identity, mixed.uncertainty, horizon - t, mixed.drawn, mixed.of_model
        )

    def _mixture(self, observation: Observation, identity: Tensor, t: int) -> Mixture:
        """The policies in the states of step `t`, averaged."""
        head, models = self._model.head, self._model.sizes.models
        if self._dense is not None:
            chosen, weights = None, self._sampler.dense_weights(identity, models, t)
        else:
            chosen, weights = self._sampler.sampled(identity, models, t)
        luck = None if self._luck is None else self._luck[:, t]
        blocks = self._blocks(*weights.shape)
        if len(blocks) == 1:
            return head.mixture(self._parts(observation, chosen, None), weights, luck)
        return joined(
            [
                head.mixture(self._parts(observation, chosen, own), weights[own], None if luck is None else luck[own])
                for own in blocks
            ]
        )

    def _blocks(self, runs: int, episodes: int, models: int, policies: int) -> list[slice]:
        """Some runs at a time, so that what is computed of them stays in the cache; runs do not mix."""
        step = max(1, _BLOCK // (episodes * models * policies * self._model.sizes.hidden))
        return [slice(start, start + step) for start in range(0, runs, step)]

    def _parts(self, observation: Observation, chosen: Tensor | None, block: slice | None) -> Parts:
        """What the policies of some runs (all if None) are in these states."""
        model, features, valid, of_personas = self._model, observation.features, observation.valid, self._dense
        mask, weight, w2, b2 = self._state_mask, self._state_weight, model.policy["w2"], model.policy["b2"]
        if block is not None:
            features, valid, mask, weight, w2, b2 = (own[block] for own in (features, valid, mask, weight, w2, b2))
            of_personas = None if of_personas is None else of_personas[block]
            chosen = None if chosen is None else chosen[block]
        runs, episodes, size = features.shape
        masked = features.unsqueeze(2) * mask
        of_state = torch.bmm(masked.view(runs, -1, size), weight)
        of_state = of_state.view(runs, episodes, model.sizes.models, 1, -1)
        if of_personas is None:
            assert chosen is not None
            of_personas = self._hidden_of_chosen(chosen, slice(None) if block is None else block)
        hidden = torch.relu_(of_state + of_personas)
        outputs = linear(hidden.flatten(1, 3), w2, b2)
        return model.head.parts(outputs.view(*hidden.shape[:-1], -1), valid)

    @cached_property
    def _table(self) -> _Table:
        """What is known of every state."""
        model = self._model
        assert model.states is not None
        runs, count = len(self._state_mask), model.states.features.shape[1]
        seen = Observation(model.states.features.expand(runs, -1, -1), model.states.valid.expand(runs, -1, -1))
        blocks = self._blocks(runs, count, model.sizes.models, model.teachers)
        parts = zip(*[self._parts(seen, None, block) for block in blocks], strict=True)
        first, second = (torch.cat(of_blocks) for of_blocks in parts)
        return _Table(model.identity_distribution(seen.features), (first, second))

    def _from_table(self, place: Tensor, t: int) -> tuple[Tensor, Mixture]:
        """Identity distributions and mixtures in the states numbered `place` [runs, episodes]."""
        table = self._table
        rows = (place + table.identity.shape[1] * torch.arange(len(place)).unsqueeze(1)).flatten()

        def at(values: Tensor) -> Tensor:
            return values.flatten(0, 1).index_select(0, rows).view(*place.shape, *values.shape[2:])

        identity = at(table.identity)
        weights = self._sampler.dense_weights(identity, self._model.sizes.models, t)
        luck = None if self._luck is None else self._luck[:, t]
        return identity, self._model.head.mixture((at(table.parts[0]), at(table.parts[1])), weights, luck)

    def _hidden_of_personas(self) -> Tensor:
        """[runs, 1, N2, K, hidden]: the share of every persona in the hidden layer, bias included."""
        model = self._model
        masked = model.policy["persona"].unsqueeze(1) * self._persona_mask.unsqueeze(2)
        hidden = linear(masked.flatten(1, 2), self._persona_weight, model.policy["b1"])
        return hidden.view(-1, 1, model.sizes.models, model.teachers, hidden.shape[-1])

    def _hidden_of_chosen(self, chosen: Tensor, block: slice) -> Tensor:
        """The same for the sampled identities, `chosen` [runs, episodes, N2, J] -> [runs, episodes, N2, J, hidden]."""
        model = self._model
        rows = chosen + model.teachers * torch.arange(len(chosen)).view(-1, 1, 1, 1)
        persona = model.policy["persona"][block].flatten(0, 1)[rows] * self._persona_mask[block][:, None, :, None]
        hidden = linear(persona.flatten(1, 3), self._persona_weight[block], model.policy["b1"][block])
        return hidden.view(*chosen.shape, -1)
