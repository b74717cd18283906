"""Several processes that train one run together, started by `torchrun`.

The episodes of a batch, and those that are drawn from the store, are shared out among them. Whatever is learned from is
exchanged, so that every process has the same store, the same weights and the same metrics. The first one, the leader,
has the run folder and writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from apil.device import Device, device_of
from apil.errors import ApilError
from apil.rng import Share
from apil.types import Episodes, Uncertainty


@dataclass(frozen=True)
class Crew:
    """The processes that train a run; one alone unless there are more."""

    rank: int = 0
    """The number of this process; 0 leads."""
    size: int = 1

    @property
    def alone(self) -> bool:
        return self.size == 1

    def share(self, count: int) -> Share:
        """The share of this process in `count` things; shares differ by one at most."""
        first, last = (count * rank // self.size for rank in (self.rank, self.rank + 1))
        return Share(last - first, first, count)

    def part(self, count: int) -> slice | None:
        """The same as places; None for all of them."""
        if self.alone:
            return None
        own = self.share(count)
        return slice(own.first, own.first + own)

    def any(self, flag: bool) -> bool:
        """Whether one of the processes says so."""
        if self.alone:
            return flag
        flags = torch.tensor([int(flag)])
        with _exchange():
            distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        return bool(flags)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """To each the sum of those of all processes, all in one message."""
        if self.alone:
            return list(tensors)
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        message = flat if flat.is_cpu or flat.is_cuda else flat.cpu()
        with _exchange():
            distributed.all_reduce(message)
        parts = torch.split(message.to(flat.device), [tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def swap(self, own: Sequence[Tensor], shapes: Sequence[Sequence[torch.Size]], like: Tensor) -> list[list[Tensor]]:
        """The tensors of every process, in one message from each. All know the `shapes` of each process; they are of
        the type and on the device of `like`, and may be none."""
        sizes = [[shape.numel() for shape in several] for several in shapes]
        flat = torch.cat([like.new_empty(0), *(tensor.detach().flatten() for tensor in own)])
        message = flat if flat.is_cpu or flat.is_cuda else flat.cpu()
        rows = [message if rank == self.rank else message.new_empty(sum(size)) for rank, size in enumerate(sizes)]
        with _exchange():
            sent = [distributed.broadcast(row, rank, async_op=True) for rank, row in enumerate(rows) if len(row)]
            for one in sent:
                one.wait()
        parts = [torch.split(row.to(like.device), size) for row, size in zip(rows, sizes, strict=True)]
        return [
            [part.view(shape) for part, shape in zip(*found, strict=True)] for found in zip(parts, shapes, strict=True)
        ]

    def join(self, own: Tensor, count: int) -> Tensor:
        """[runs, count, ...] of a whole batch from the share of each process [runs, share, ...].

        Gradients reach the own share alone, as often as there are processes: their mean is that of the whole batch.
        """
        return own if self.alone else _Joined.apply(own, self, count)  # type: ignore[no-untyped-call]

    def gather(self, own: Episodes, count: int) -> Episodes:
        """The whole batch of `count` episodes, from the share of each process."""
        if self.alone:
            return own
        shares = [Crew(rank, self.size).share(count) for rank in range(self.size)]
        tables = _tables(own)
        # [runs, share, bytes]: an episode is a row, so that shares of different sizes differ in rows alone.
        packed = torch.cat([_bytes(table) for table in tables.values()], -1)
        runs, _, width = packed.shape
        parts = self.swap([packed], [[torch.Size((runs, share, width))] for share in shares], packed)
        rows = torch.cat([part for (part,) in parts], 1)
        columns = torch.split(rows, [_bytes(table).shape[-1] for table in tables.values()], -1)
        whole = {name: _table(column, table) for (name, table), column in zip(tables.items(), columns, strict=True)}
        parts_of = {field.name: whole.pop(f"uncertainty.{field.name}") for field in fields(Uncertainty)}
        return replace(own, **whole, uncertainty=Uncertainty(**parts_of))

    def tell(self, content: bytes) -> None:
        """Sends something from the leader to all others, who `hear` it."""
        if not self.alone:
            with _exchange():
                distributed.broadcast(torch.tensor([len(content)]), 0)
                distributed.broadcast(torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8), 0)

    def hear(self) -> bytes:
        """What the leader tells next."""
        with _exchange():
            length = torch.zeros(1, dtype=torch.long)
            distributed.broadcast(length, 0)
            content = torch.zeros(max(1, int(length)), dtype=torch.uint8)
            distributed.broadcast(content, 0)
        return content.numpy().tobytes()[: int(length)]

    def tell_json(self, values: Any) -> None:
        self.tell(json.dumps(values).encode())

    def hear_json(self) -> Any:
        return json.loads(self.hear())


ALONE = Crew()


class _Joined(torch.autograd.Function):
    """`Crew.join`."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, crew: Crew, count: int) -> Tensor:
        ctx.part, ctx.size = crew.part(count), crew.size
        whole = own.new_zeros(own.shape[0], count, *own.shape[2:])
        whole[:, ctx.part] = own
        return crew.sum([whole])[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][:, ctx.part] * ctx.size, None, None


@contextmanager
def _exchange() -> Iterator[None]:
    """Where processes meet: whoever waits for one that has ended says so in one line."""
    try:
        yield
    except RuntimeError as error:
        raise ApilError("Another process of torchrun has ended: see its output; --resume continues the run.") from error


def _tables(episodes: Episodes) -> dict[str, Tensor]:
    """All tensors of a batch of episodes by name, each [runs, episodes, ...]."""
    found = {own.name: getattr(episodes, own.name) for own in fields(Episodes) if own.name != "uncertainty"}
    return found | {f"uncertainty.{own.name}": getattr(episodes.uncertainty, own.name) for own in fields(Uncertainty)}


def _bytes(table: Tensor) -> Tensor:
    """[runs, episodes, bytes]"""
    flat = table.detach().reshape(*table.shape[:2], -1).contiguous()
    if not flat.shape[-1]:
        return torch.empty(*table.shape[:2], 0, dtype=torch.uint8)
    return torch.from_numpy(np.ascontiguousarray(flat.numpy()).view(np.uint8))


def _table(content: Tensor, like: Tensor) -> Tensor:
    """The table back from its bytes; `like` another one of the same kind, with any number of episodes."""
    shape = (*content.shape[:2], *like.shape[2:])
    if not content.shape[-1]:
        return like.new_zeros(shape)
    return content.clone(memory_format=torch.contiguous_format).view(like.dtype).view(shape)


def processes() -> int:
    """How many processes `torchrun` has started for this training; 1 without it."""
    given = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")]
    return int(given[1] or 1) if all(given) else 1


@contextmanager
def joined(device: str) -> Iterator[tuple[Crew, Device]]:
    """The crew that `torchrun` has started this process for, and its device; of a process without it, itself."""
    if processes() == 1:
        yield ALONE, device_of(device)
        return
    name = f"cuda:{os.environ['LOCAL_RANK']}" if device == "cuda" else device
    found = device_of(name)
    if found.torch.type == "cuda":
        torch.cuda.set_device(found.torch)
    try:
        distributed.init_process_group("cpu:gloo,cuda:nccl" if found.torch.type == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        raise ApilError(f"The processes of torchrun do not find each other ({str(error)[:200]}).") from error
    try:
        yield Crew(distributed.get_rank(), distributed.get_world_size()), found
    finally:
        distributed.destroy_process_group()
