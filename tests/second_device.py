"""A second kind of device without its hardware: it computes on the CPU, and refuses whatever a real one would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

NAME = "meta"
"""Its name for torch, which has a device of this name that holds no numbers. Inside `second_device` it holds some."""
_MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class MixedDevicesError(AssertionError):
    """An operation on tensors of two devices."""


class Far(Tensor):
    """A tensor of the second device; its numbers are in `near`."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        # A view of a tensor that was made outside of inference mode is none of it either.
        with torch.inference_mode(near.is_inference()):
            made = Tensor._make_wrapper_subclass(
                cls,
                near.shape,
                strides=near.stride(),
                storage_offset=near.storage_offset(),
                dtype=near.dtype,
                device=torch.device(NAME),
                requires_grad=near.requires_grad,
            )
        made.near = near
        return made

    def tolist(self) -> Any:
        return self.near.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _MOVES:
            for value in tree_flatten((args, kwargs))[0]:
                # A number may come from the host, as it may on a real device.
                if isinstance(value, Tensor) and not isinstance(value, Far) and value.dim():
                    raise MixedDevicesError(f"{func} of tensors on {NAME} and on {value.device}")
        leaves = str(kwargs.get("device", NAME)) == "cpu"
        near_args, near_kwargs = tree_map_only(Far, lambda far: far.near, (args, kwargs))
        if "device" in near_kwargs:
            near_kwargs["device"] = "cpu"
        made = func(*near_args, **near_kwargs)
        if leaves or (func is torch.ops.aten.copy_.default and not isinstance(args[0], Far)):
            return args[0] if func is torch.ops.aten.copy_.default else made
        written = _written(func, args, kwargs)
        return tree_map_only(Tensor, Far, made) if written is None else written


def _written(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation writes to and returns; None if it makes something new."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write and func._schema.returns:
            return args[place] if place < len(args) else kwargs[argument.name]
    return None


class _Makes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors that are asked for on the second device."""

    def __init__(self, float64: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._float64 = float64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        far = any(isinstance(value, Far) for value in tree_flatten((args, kwargs))[0])
        asked = "device" in kwargs and str(kwargs["device"]) == NAME
        made = (
            func(*args, **kwargs)
            if far or not asked
            else tree_map_only(Tensor, Far, func(*args, **kwargs | {"device": "cpu"}))
        )
        if not self._float64:
            for value in tree_flatten(made)[0]:
                if isinstance(value, Far) and value.dtype == torch.float64:
                    raise TypeError(f"{NAME} has no float64 ({func})")
        return made


class _Takes(TorchFunctionMode):
    """`torch.tensor` and `torch.as_tensor` make tensors of the device `meta` without asking anybody."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and str(kwargs.get("device")) == NAME:
            return func(*args, **kwargs | {"device": "cpu"}).to(NAME)
        return func(*args, **kwargs)


@contextmanager
def second_device(*, float64: bool = True) -> Iterator[str]:
    """The name of the device. Not `float64`: it has no numbers of that size, as Apple's has not."""
    with _Makes(float64), _Takes():
        yield NAME
