"""A greedy policy as an ONNX file: the networks, with the dropout masks of the N2 models folded into the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from apil.agent.spec import AgentSpec
from apil.errors import ApilError
from apil.files import write_bytes
from apil.model.head import LEAST, MOST
from apil.model.persona import PersonaModel
from apil.nn import linear
from apil.rng import Draws
from apil.tasks.gymnasium.actions import Actions

_OPSET, _IR = 18, 8


def write_onnx(path: Path, spec: AgentSpec, model: Any, draws: Draws, actions: Actions) -> None:
    """Writes the policy; `draws` are those of the models that vote."""
    if not isinstance(model, PersonaModel):
        raise ApilError(
            f"The agent of '{spec.task}' encodes its state by a network of its own: only agents that read features "
            "directly can be exported."
        )
    try:
        import onnx
    except ImportError:
        raise ApilError("Export needs the package onnx: install it with pip install 'apil[onnx]'.") from None
    graph = _Graph()
    identity = _identity(graph, model)
    policy, action = _policy(graph, model, draws, identity, actions)
    made = graph.made(onnx, spec, {"action": action, "policy": policy, "identity": identity}, actions)
    onnx.checker.check_model(made)
    write_bytes(path, made.SerializeToString())


class _Graph:
    """Nodes and constants, as they are added."""

    def __init__(self) -> None:
        self._nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        self._constants: dict[str, Any] = {}

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Adds a node; inputs are names, or values of constants. Returns the name of its output."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        output = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append((operator, names, output, attributes))
        return output

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        if isinstance(value, Tensor):
            value = value.detach().numpy()
        whole = isinstance(value, int) or (isinstance(value, list) and all(isinstance(each, int) for each in value))
        self._constants[name] = np.array(value, np.int64 if whole else np.float32)
        return name

    def made(self, onnx: Any, spec: AgentSpec, outputs: dict[str, str], actions: Actions) -> Any:
        """The model with named inputs and outputs; n observations at once."""
        helper, kind = onnx.helper, onnx.TensorProto
        nodes = [helper.make_node(what, given, [out], **said) for what, given, out, said in self._nodes]
        nodes += [helper.make_node("Identity", [inner], [name]) for name, inner in outputs.items()]
        info = helper.make_tensor_value_info
        numbers = actions.count if actions.box is None else 2 * actions.count
        of_action = (kind.INT64, ["n"]) if actions.box is None else (kind.FLOAT, ["n", *(actions.space.shape or ())])
        inputs = [info("features", kind.FLOAT, ["n", spec.features])]
        if actions.box is None:
            inputs.append(info("valid", kind.BOOL, ["n", actions.count]))
        graph = helper.make_graph(
            nodes,
            "apil",
            inputs,
            [
                info("action", *of_action),
                info("policy", kind.FLOAT, ["n", numbers]),
                info("identity", kind.FLOAT, ["n", len(spec.teachers)]),
            ],
            [onnx.numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
        helper.set_model_props(made, {"agent.json": json.dumps(spec.to_json())})
        return made


def _identity(graph: _Graph, model: PersonaModel) -> str:
    """[n, K]"""
    weights, known = {name: value[0] for name, value in model.identity.items()}, model.teachers
    hidden = graph("Relu", graph("Add", graph("MatMul", "features", weights["w1"]), weights["b1"]))
    logits = graph("Add", graph("MatMul", hidden, weights["w2"][:, :known]), weights["b2"][:known])
    return graph("Softmax", logits, axis=-1)


def _policy(graph: _Graph, model: PersonaModel, draws: Draws, identity: str, actions: Actions) -> tuple[str, str]:
    """The mean policy and the action."""
    size, sizes = model.state_size, model.sizes
    mask = draws.kept(sizes.dropout, sizes.models, size + sizes.persona)[0]
    weight = model.policy["w1"][0]
    # [F, N2 hidden], and [N2, K, hidden] with the bias.
    of_state = (mask[:, :size].T.unsqueeze(-1) * weight[:size].unsqueeze(1)).flatten(1)
    personas = model.policy["persona"] * mask[:, None, size:]
    of_persona = linear(personas, weight[size:].expand(sizes.models, -1, -1), model.policy["b1"])
    drive = graph("Reshape", graph("MatMul", "features", of_state), [-1, sizes.models, 1, sizes.hidden])
    hidden = graph("Relu", graph("Add", drive, of_persona))
    outputs = graph("Add", graph("MatMul", hidden, model.policy["w2"][0]), model.policy["b2"][0])
    weights = graph("Unsqueeze", identity, [1, 3])
    return (_categorical if actions.box is None else _gaussian)(graph, outputs, weights, actions)


def _categorical(graph: _Graph, outputs: str, weights: str, actions: Actions) -> tuple[str, str]:
    valid = graph("Unsqueeze", "valid", [1, 2])
    probabilities = graph("Softmax", graph("Where", valid, outputs, -np.inf), axis=-1)
    policy = _over_models(graph, _over_teachers(graph, graph("Mul", probabilities, weights)))
    first = int(getattr(actions.space, "start", 0))
    return policy, graph("Add", graph("ArgMax", policy, axis=1, keepdims=0), first)


def _gaussian(graph: _Graph, outputs: str, weights: str, actions: Actions) -> tuple[str, str]:
    assert actions.box is not None
    low, high, numbers = actions.box.low, actions.box.high, actions.count
    means = graph("Slice", outputs, [0], [numbers], [3])
    below = graph(
        "Sub", MOST, graph("Softplus", graph("Sub", MOST, graph("Slice", outputs, [numbers], [2 * numbers], [3])))
    )
    variance = graph("Exp", graph("Add", LEAST, graph("Softplus", graph("Sub", below, LEAST))))
    of_model = graph("ReduceSum", graph("Mul", means, weights), [2])
    apart = graph("Sub", means, of_model)
    spread = graph("Add", variance, graph("Mul", apart, apart))
    mean = _over_models(graph, graph("Squeeze", of_model, [2]))
    swing = graph("Sub", graph("Squeeze", of_model, [2]), graph("Unsqueeze", mean, [1]))
    behavioral = _over_models(graph, _over_teachers(graph, graph("Mul", spread, weights)))
    total = graph("Add", behavioral, _over_models(graph, graph("Mul", swing, swing)))
    policy = graph("Concat", mean, graph("Sqrt", total), axis=1)
    share = graph("Add", graph("Clip", mean, -1.0, 1.0), 1.0)
    action = graph("Min", graph("Max", graph("Add", graph("Mul", share, 0.5 * (high - low)), low), low), high)
    return policy, graph("Reshape", action, [-1, *(actions.space.shape or ())])


def _over_teachers(graph: _Graph, values: str) -> str:
    """[n, N2, K, ...] -> [n, N2, ...], weighted before."""
    return graph("ReduceSum", values, [2], keepdims=0)


def _over_models(graph: _Graph, values: str) -> str:
    """[n, N2, ...] -> [n, ...]"""
    return graph("ReduceMean", values, [1], keepdims=0)
