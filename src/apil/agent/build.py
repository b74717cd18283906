"""From a description and tensors to the parts that act: senses, a model and a query policy; no trainer, no teachers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apil.agent.spec import AgentSpec, own_model
from apil.agent.storage import differences
from apil.errors import ApilError, UnknownNameError
from apil.model.encoded import encoded
from apil.model.persona import PersonaModel
from apil.model.protocol import Model
from apil.query import QUERY_POLICIES, default_threshold
from apil.query.protocol import QueryPolicy, QuerySetup
from apil.rng import Streams
from apil.tasks.gymnasium.actions import Actions
from apil.tasks.gymnasium.encoders import Encoder, state_encoder
from apil.tasks.gymnasium.layout import Layout
from apil.tasks.gymnasium.space_json import space_from_json
from apil.types import Observation


class Senses:
    """Between an environment and an agent: reads observations as it gives them, and says actions as it takes them."""

    def __init__(self, spec: AgentSpec) -> None:
        self.actions = Actions(space_from_json(spec.action_space), spec.task)
        space = spec.observation_space
        self.layout = None if space is None else Layout(space_from_json(space), spec.task)
        self._task, self._features, self._masked = spec.task, spec.features, spec.masked
        if self.layout is not None and self.layout.size != spec.features:
            raise ApilError(
                f"The description of the agent of '{spec.task}' has {spec.features} features and a space of "
                f"{self.layout.size}: restore the file, or save the agent again."
            )

    def observe(self, observation: Any, valid: Any) -> tuple[Observation, bool]:
        """What was given as [1, n, ...], and whether it was one observation alone; arguments as in `Agent.act`."""
        read = self._rows if self.layout is None or isinstance(observation, Observation) else self.layout.read
        if isinstance(observation, Observation):
            observation, valid = observation.features, observation.valid if valid is None else valid
            if observation.dim() == 3 and len(observation) == 1:
                observation, valid = observation[0], valid[0] if np.ndim(valid) == 3 else valid
        rows, alone = read(observation)
        return Observation(torch.from_numpy(rows).unsqueeze(0), self._valid(valid, len(rows))), alone

    def _rows(self, features: Any) -> tuple[NDArray[np.float32], bool]:
        """[n, F] from the features themselves."""
        try:
            rows = np.asarray(features, np.float32).copy()
        except (TypeError, ValueError):
            rows = np.zeros((0, 0, 0), np.float32)
        if rows.shape[-1:] != (self._features,) or rows.ndim not in (1, 2) or not np.isfinite(rows).all():
            shown = f"shape {rows.shape}" if rows.size else type(features).__name__
            raise ApilError(
                f"The observation ({shown}) does not fit '{self._task}': give {self._features} finite features, or a "
                f"batch [n, {self._features}]."
            )
        return rows.reshape(-1, self._features), rows.ndim == 1

    def _valid(self, valid: Any, count: int) -> Tensor:
        """[1, n, A]"""
        actions = self.actions.count
        if valid is None:
            if self._masked:
                raise ApilError(
                    f"The agent of '{self._task}' was trained with a mask of valid actions: give valid (predict: "
                    f"action_masks), {actions} truth values for each observation; all of them true where all are valid."
                )
            return torch.ones(1, count, actions, dtype=torch.bool)
        flags = np.asarray(valid)
        if flags.shape not in ((actions,), (count, actions)) or not flags.any(-1).all():
            raise ApilError(
                f"The valid actions have shape {flags.shape}: give {actions} truth values for each of {count} "
                "observations, at least one of them true."
            )
        return torch.from_numpy(np.broadcast_to(flags.astype(bool), (count, actions)).copy()).unsqueeze(0)


def build(
    spec: AgentSpec, saved: dict[str, Tensor], encoder: Encoder | None, data: str | None
) -> tuple[Model, QueryPolicy | None]:
    """The parts of an agent with its saved tensors; no query policy where it is one that is not known here."""
    senses = Senses(spec)
    model = _model(spec, saved, senses, encoder, data)
    query = _query(spec, model, senses)
    expected = tensors_of(model, query)
    for name, difference in differences(expected, saved):
        raise _misfit(spec, f"{name}: {difference}")
    with torch.no_grad():
        for name, view in expected.items():
            view.copy_(saved[name])
    return model, query


def _misfit(spec: AgentSpec, what: str) -> ApilError:
    return ApilError(
        f"The tensors of the agent of '{spec.task}' do not fit its description ({what}): restore its files, or give "
        "the encoder that it was trained with."
    )


def tensors_of(model: Model, query: QueryPolicy | None) -> dict[str, Tensor]:
    """What the parts of one agent have learned and remember, by name; views without the runs axis."""
    parts = {"policy": model.policy, "identity": model.identity, "model": model.memory}
    if query is not None:
        parts |= {"query": query.parameters, "memory": query.memory}
    return {f"{part}.{name}": value[0].detach() for part, named in parts.items() for name, value in named.items()}


def _model(
    spec: AgentSpec, saved: dict[str, Tensor], senses: Senses, encoder: Encoder | None, data: str | None
) -> Model:
    streams = Streams([spec.seed])
    if spec.own is not None:
        part = own_model(spec.task)
        if part is None:
            raise ApilError(
                f"The task '{spec.task}' has a model of its own and is not known here: import the package that "
                "registers it, or name it in APIL_PLUGINS."
            )
        return part.rebuild(spec, streams, data)
    if data is not None:
        raise ApilError(f"data is {data!r:.60}: the task '{spec.task}' needs none, leave it out.")
    make = _encoder(spec, senses, encoder)
    box = senses.actions.box

    def of_states(size: int) -> PersonaModel:
        persona = spec.model.persona
        wanted = {"policy.w1": (size + persona, spec.model.hidden), "policy.persona": (len(spec.teachers), persona)}
        for name, shape in wanted.items():  # before anything of these sizes is made
            if name not in saved or tuple(saved[name].shape) != shape:
                raise _misfit(spec, f"{name} is not {list(shape)}")
        return PersonaModel(
            streams,
            state_size=size,
            actions=senses.actions.count if box is None else box,
            teachers=len(spec.teachers),
            samples=[spec.model.drawn],
            sizes=spec.model,
        )

    if make is None and spec.model.encode:
        shape = (spec.features, spec.model.encode)
        if "policy.encoder.w" not in saved or tuple(saved["policy.encoder.w"].shape) != shape:
            raise _misfit(spec, f"policy.encoder.w is not {list(shape)}")
    return encoded(streams, spec.features, spec.model, make, of_states)


def _encoder(spec: AgentSpec, senses: Senses, given: Encoder | None) -> Callable[[], nn.Module] | None:
    if spec.encoder != "own":
        if given is not None:
            raise ApilError(f"The agent of '{spec.task}' needs no encoder of yours: leave encoder out.")
        if spec.encoder == "none" or senses.layout is None:
            return None
        return state_encoder("learned", senses.layout)
    if given is None or isinstance(given, str):
        raise ApilError(
            f"The agent of '{spec.task}' was trained with an encoder of its owner's, which no file holds: give it with "
            "apil.load(folder, encoder=module), as it was given to from_gymnasium."
        )
    if senses.layout is not None:
        return state_encoder(given, senses.layout)
    return (lambda: given) if isinstance(given, nn.Module) else cast(Callable[[], nn.Module], given)


def _query(spec: AgentSpec, model: Model, senses: Senses) -> QueryPolicy | None:
    name, query = spec.query.name, spec.query
    try:
        factory = QUERY_POLICIES.load(name)
    except UnknownNameError:
        warnings.warn(
            f"The query policy '{name:.200}' is not known here, so decision.ask is None: import the package that "
            "registers it before apil.load, or name it in APIL_PLUGINS.",
            stacklevel=4,
        )
        return None
    box = senses.actions.box
    threshold = default_threshold(name) if query.threshold is None else query.threshold
    setup = QuerySetup(
        streams=Streams([spec.seed]),
        state_size=model.state_size,
        actions=senses.actions.count * (1 if box is None else 2),
        horizon=spec.horizon,
        thresholds=torch.tensor([math.nan if threshold is None else threshold]),
        hidden=spec.model.hidden,
        recurrent=model.recurrent,
        sigma=query.sigma,
        epsilon=query.epsilon,
        gap=query.gap,
        box=box,
        budgets=None if query.budget is None else torch.tensor([query.budget]),
        features=spec.features,
    )
    try:
        policy: QueryPolicy = factory(setup, **query.options)
        policy.begin(1)  # some options are read no earlier
    except TypeError as error:
        raise ApilError(
            f"The query policy '{name}' does not take these options ({str(error)[:80]!r}): restore agent.json."
        ) from error
    return policy
