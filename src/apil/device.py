"""Where the numbers of a run are computed: a device of torch, and how records get there and back."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from apil.errors import ApilError

Record = TypeVar("Record")


class Device:
    """A device of torch. `with device:` every tensor is made there.

    Models and query policies live on the device of a run. Tasks, teachers and the store of answers are on the host, the
    CPU: they know nothing of devices. On the host nothing is moved, and `with` does nothing.
    """

    def __init__(self, name: str = "cpu") -> None:
        self.torch = torch.device(name)
        self.is_host = self.torch.type == "cpu"
        self.float64 = self.torch.type != "mps"
        """It has numbers of 64 bits."""

    def __enter__(self) -> None:
        if not self.is_host:
            self.torch.__enter__()

    def __exit__(self, *error: Any) -> None:
        if not self.is_host:
            self.torch.__exit__(*error)

    def bring(self, record: Record) -> Record:
        """A tensor, or a record with all of its tensors, from the host to this device."""
        return record if self.is_host else moved(record, self.torch)

    def back(self, record: Record) -> Record:
        """The same from this device to the host."""
        return record if self.is_host else moved(record, HOST.torch)


HOST = Device()


def device_of(name: str) -> Device:
    """The device of a name; an error where this machine has none."""
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise ApilError(f"device is {name[:60]!r}: give cpu, cuda (or cuda:1 and so on) or mps.")
    count = {"cpu": 1, "mps": int(torch.backends.mps.is_available()), "cuda": torch.cuda.device_count()}
    kind, _, number = name.partition(":")
    if int(number or 0) >= count[kind]:
        raise ApilError(f"device is {name}, and torch {torch.__version__} finds {count[kind]} of that kind: use cpu.")
    return Device(name)


def here(record: Record) -> Record:
    """The record on the device where tensors are made now."""
    device = torch.get_default_device()
    return record if device.type == "cpu" else moved(record, device)


def moved(record: Any, device: torch.device) -> Any:
    """The record with its tensors, and those of records in it, on a device."""
    if isinstance(record, Tensor):
        return record.to(device)
    if is_dataclass(record) and not isinstance(record, type):
        values = {own.name: getattr(record, own.name) for own in fields(record)}
        return replace(record, **{name: moved(value, device) for name, value in values.items()})
    return record
