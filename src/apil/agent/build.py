"""From a description and tensors to the parts that act: a model and a query policy, no trainer and no teachers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from apil.agent.senses import Senses
from apil.agent.spec import AgentSpec, own_model
from apil.agent.storage import differences
from apil.errors import ApilError, UnknownNameError
from apil.model.encoded import EncodedModel, StateEncoder
from apil.model.persona import PersonaModel
from apil.model.protocol import Model
from apil.query import QUERY_POLICIES, default_threshold
from apil.query.protocol import QueryPolicy, QuerySetup
from apil.rng import Streams
from apil.tasks.gymnasium.encoders import Encoder, state_encoder


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
    parts = {"policy": model.policy, "identity": model.identity}
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
    states = None if make is None else StateEncoder(streams, make, spec.features)
    size, persona = spec.features if states is None else states.state_size, spec.model.persona
    wanted = {"policy.w1": (size + persona, spec.model.hidden), "policy.persona": (len(spec.teachers), persona)}
    for name, shape in wanted.items():  # before anything of these sizes is made
        if name not in saved or tuple(saved[name].shape) != shape:
            raise _misfit(spec, f"{name} is not {list(shape)}")
    box = senses.actions.box
    model = PersonaModel(
        streams,
        state_size=size,
        actions=senses.actions.count if box is None else box,
        teachers=len(spec.teachers),
        samples=[spec.model.drawn],
        sizes=spec.model,
    )
    return model if states is None else EncodedModel(states, model)


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
            f"The query policy '{name}' is not known here, so decision.ask is None: import the package that registers "
            "it before apil.load, or name it in APIL_PLUGINS.",
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
    )
    try:
        policy: QueryPolicy = factory(setup, **query.options)
        policy.begin(1)  # some options are read no earlier
    except TypeError as error:
        raise ApilError(
            f"The query policy '{name}' does not take these options ({str(error)[:80]!r}): restore agent.json."
        ) from error
    return policy
