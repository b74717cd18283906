"""A greedy policy as an ONNX file: the networks, with the dropout masks of the N2 models folded into the weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from apil.agent.spec import AgentSpec
from apil.errors import ApilError
from apil.files import write_bytes
from apil.model.encoded import CLIP, EncodedModel, StateEncoder
from apil.model.head import LEAST, MOST
from apil.model.persona import PersonaModel
from apil.nn import linear
from apil.rng import Draws
from apil.tasks.gymnasium.actions import Actions

# In ONNX's own text; a name that no line makes is an input or one of the constants. n observations at once.
_SCALE = """
    shifted = Sub(features, shift)  stretched = Mul(shifted, factor)
    scaled = Clip(stretched, least_scaled, most_scaled)
"""
_ENCODER = """
    encoder_drive = Gemm(scaled, encoder_w, encoder_b)
    state = Relu(encoder_drive)
"""
_NETWORKS = """
    identity_drive = Gemm(state, identity_w1, identity_b1)
    identity_hidden = Relu(identity_drive)
    identity_logits = Gemm(identity_hidden, identity_w2, identity_b2)
    identity = Softmax<axis = -1>(identity_logits)
    weights = Div(identity, models)
    drive = MatMul(state, of_state)
    drive_of_model = Reshape(drive, by_model)
    drive_of_teacher = Add(drive_of_model, of_persona)
    hidden = Relu(drive_of_teacher)
    unbiased = MatMul(hidden, w2)
    outputs = Add(unbiased, b2)
"""
"""identity [n, K], weights [n, K] and outputs [n, N2, K, ...]."""
_CATEGORICAL = """
    valid_of_each = Unsqueeze(valid, inner)
    logits = Where(valid_of_each, outputs, never)
    probabilities = Softmax<axis = -1>(logits)
    policy = Einsum<equation = "nmka,nk->na">(probabilities, weights)
    best = ArgMax<axis = 1, keepdims = 0>(policy)
    action = Add(best, first)
"""
_GAUSSIAN = """
    means, raw = Split<axis = -1, num_outputs = 2>(outputs)
    to_most = Sub(most, raw)  off_most = Softplus(to_most)  below = Sub(most, off_most)
    over_least = Sub(below, least)  off_least = Softplus(over_least)  log_variance = Add(least, off_least)
    variance = Exp(log_variance)
    mean = Einsum<equation = "nmka,nk->na">(means, weights)
    mean_for_each = Unsqueeze(mean, inner)
    apart = Sub(means, mean_for_each)  squared = Mul(apart, apart)  spread = Add(variance, squared)
    total = Einsum<equation = "nmka,nk->na">(spread, weights)
    deviation = Sqrt(total)
    policy = Concat<axis = 1>(mean, deviation)
    clipped = Clip(mean, minus_one, one)  share = Add(clipped, one)  stretched_share = Mul(share, half)
    unbounded = Add(stretched_share, low)  bounded_below = Max(unbounded, low)  bounded = Min(bounded_below, high)
    action = Reshape(bounded, shape)
"""


def write_onnx(path: Path, spec: AgentSpec, model: Any, draws: Draws, actions: Actions) -> None:
    """Writes the policy; `draws` are those of the models that vote."""
    front = _Front.of(model)
    if front is None:
        raise ApilError(
            f"The agent of '{spec.task}' encodes its state by a network of its own: only agents that read vectors "
            "can be exported."
        )
    try:
        import onnx
        from onnx.parser import parse_model
    except ImportError:
        raise ApilError("Export needs the package onnx: install it with pip install 'apil[onnx]'.") from None
    made = parse_model(_text(spec, actions, front.nodes))
    for name, value in (front.weights | _weights(front.model, draws) | _numbers(actions)).items():
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.helper.set_model_props(made, {"agent.json": json.dumps(spec.to_json())})
    onnx.checker.check_model(made)
    write_bytes(path, made.SerializeToString())


@dataclass(frozen=True)
class _Front:
    """What stands between the features and the model of state vectors."""

    model: PersonaModel
    nodes: str
    weights: dict[str, Any]

    @staticmethod
    def of(model: Any) -> _Front | None:
        """None where it cannot be written."""
        if isinstance(model, PersonaModel):
            return _Front(model, "scaled = Identity(features)  state = Identity(scaled)", {})
        if not isinstance(model, EncodedModel) or isinstance(model.encoder, StateEncoder):
            return None
        nodes, weights = "scaled = Identity(features)", {}
        if model.scale is not None:
            shift, factor = model.scale.shift_and_factor()
            nodes = _SCALE
            weights = {"shift": shift[0], "factor": factor[0], "least_scaled": -CLIP, "most_scaled": CLIP}
        if model.encoder is None:
            return _Front(model.model, nodes + "state = Identity(scaled)", weights)
        own = {f"encoder_{name}": value[0] for name, value in model.encoder.parameters.items()}
        return _Front(model.model, nodes + _ENCODER, {**weights, **own})


def _text(spec: AgentSpec, actions: Actions, front: str) -> str:
    """The model with named inputs and outputs, without its constants."""
    inputs, outputs = f"float[n, {spec.features}] features", f"float[n, {len(spec.teachers)}] identity"
    if actions.box is None:
        inputs += f", bool[n, {actions.count}] valid"
        outputs = f"int64[n] action, float[n, {actions.count}] policy, {outputs}"
    else:
        shape = ", ".join(["n", *map(str, actions.space.shape or ())])
        outputs = f"float[{shape}] action, float[n, {2 * actions.count}] policy, {outputs}"
    nodes = front + _NETWORKS + (_CATEGORICAL if actions.box is None else _GAUSSIAN)
    return f'<ir_version: 8, opset_import: ["" : 18]> apil ({inputs}) => ({outputs}) {{{nodes}}}'


def _weights(model: PersonaModel, draws: Draws) -> dict[str, Any]:
    """Of the networks, a mask of each of the N2 models on those of the policy's first layer."""
    sizes, size = model.sizes, model.state_size
    weights = {f"identity_{name}": value[0] for name, value in model.identity.items()}
    for name in ("identity_w2", "identity_b2"):
        weights[name] = weights[name][..., : model.teachers]
    mask = draws.kept(sizes.dropout, sizes.models, size + sizes.persona)[0]
    weight = model.policy["w1"][0]
    of_state = (mask[:, :size].T.unsqueeze(-1) * weight[:size].unsqueeze(1)).flatten(1)
    personas = model.policy["persona"] * mask[:, None, size:]
    of_persona = linear(personas, weight[size:].expand(sizes.models, -1, -1), model.policy["b1"])
    weights |= {
        "of_state": of_state,
        "of_persona": of_persona,
        "w2": model.policy["w2"][0],
        "b2": model.policy["b2"][0],
    }
    return {**weights, "by_model": [-1, sizes.models, 1, sizes.hidden], "models": float(sizes.models)}


def _numbers(actions: Actions) -> dict[str, Any]:
    """What the outputs of the policy are turned into actions with."""
    if actions.box is None:
        return {"inner": [1, 2], "never": -np.inf, "first": int(getattr(actions.space, "start", 0))}
    low, high, shape = actions.box.low, actions.box.high, [-1, *(actions.space.shape or ())]
    bounds = {"low": low, "high": high, "half": 0.5 * (high - low), "minus_one": -1.0, "one": 1.0}
    return {"inner": [1, 2], "most": MOST, "least": LEAST, "shape": shape, **bounds}
