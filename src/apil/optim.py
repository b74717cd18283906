"""Optimisers for a stack of runs, each run with its own step count.

A run that has nothing to learn in an iteration (no answers) keeps its weights and its state: no label, no update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from apil.crew import ALONE, Crew
from apil.errors import unknown_name
from apil.nn import Parameters


class Optimizer(Protocol):
    """Descends along the gradients of one part of an agent."""

    parameters: Parameters
    """What it updates in place, each [runs, ...]."""

    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        """One update; `gradients` in the order of the parameters and zero where `active` [runs] is false.

        Parameters and gradients are on the device of the run, `active` is on the host.
        """

    def state(self, run: int) -> dict[str, Tensor]:
        """Everything that it keeps of one run between steps, as views: saved in checkpoints, overwritten on resume."""


OptimizerFactory = Callable[[str, Parameters], Optimizer]
"""Makes the optimiser of each part of an agent: 'policy', 'identity' or 'query'."""


OPTIMIZERS = ("adam", "muon")


def optimizer_factory(name: str, learning_rate: float, warmup: int = 0, crew: Crew = ALONE) -> OptimizerFactory:
    """'adam' for all parts, or 'muon' for the policy and Adam for the smaller networks of the others.

    The processes of a `crew` share the work of Muon.
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)

    def made(part: str, parameters: Parameters) -> Optimizer:
        if name == "muon" and part == "policy":
            return Muon(parameters, learning_rate, warmup, crew)
        return Adam(parameters, learning_rate, warmup)

    return made


_TINY = torch.finfo(torch.float32).tiny


class Adam:
    """Adam (Kingma and Ba 2015), written out elementwise: a run gives the same bits alone as in any stack."""

    def __init__(self, parameters: Parameters, learning_rate: float, warmup: int = 0) -> None:
        """The rate rises linearly over the first `warmup` updates of a run, then it is constant."""
        self.parameters = parameters
        self._learning_rate, self._warmup = learning_rate, warmup
        self._first, self._second = ({name: torch.zeros_like(v) for name, v in parameters.items()} for _ in range(2))
        first = next(iter(parameters.values()))
        # On the host, as are the rates that follow from it: some devices have no float64.
        self._steps = torch.zeros(len(first), dtype=torch.float64, device="cpu")
        self._device = None if first.is_cpu else first.device
        for value in parameters.values():
            value.requires_grad_(True)

    def state(self, run: int) -> dict[str, Tensor]:
        """'first.*' and 'second.*', the moments, and 'steps' [1]."""
        moments = (("first", self._first), ("second", self._second))
        state = {f"{moment}.{name}": value[run] for moment, values in moments for name, value in values.items()}
        return {**state, "steps": self._steps[run : run + 1]}

    def rate(self, active: Tensor) -> Tensor:
        """[runs] float64: the learning rate of the last update, 0 where `active` is false."""
        rate = active * self._learning_rate
        return rate * (self._steps.clamp_min(1.0) / self._warmup).clamp_max(1.0) if self._warmup else rate

    def bring(self, of_runs: Tensor) -> Tensor:
        """What was computed on the host, on the device of the parameters."""
        return of_runs if self._device is None else of_runs.to(self._device)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        self._steps += active
        power = self._steps.clamp_min(1.0)
        rates = (self.rate(active) / (1.0 - 0.9**power)).float()
        corrections = (1.0 - 0.999**power).rsqrt().float()
        of_runs = [torch.where(active, 0.9, 1.0), torch.where(active, 0.999, 1.0), corrections, rates]
        of_runs = of_runs if self._device is None else [self.bring(own) for own in of_runs]
        values, gradients = list(self.parameters.values()), list(gradients)
        first, second = list(self._first.values()), list(self._second.values())
        shaped = {dim: [own.view(-1, *[1] * (dim - 1)) for own in of_runs] for dim in {value.dim() for value in values}}
        keep_first, keep_second, correction, rate = zip(*(shaped[value.dim()] for value in values), strict=True)
        # One call for all tensors of a part: most are so small that calls take longer than what they do.
        torch._foreach_mul_(first, keep_first)
        torch._foreach_add_(first, gradients, alpha=0.1)
        torch._foreach_mul_(second, keep_second)
        torch._foreach_addcmul_(second, gradients, gradients, value=0.001)
        # Square roots of exact zeros are many times slower than those of the smallest normal number.
        scale = torch._foreach_clamp_min(second, _TINY)
        torch._foreach_sqrt_(scale)
        torch._foreach_mul_(scale, correction)
        torch._foreach_add_(scale, 1e-8)
        for moment, divisor in zip(first, scale, strict=True):
            torch.div(moment, divisor, out=divisor)
        torch._foreach_mul_(scale, rate)
        torch._foreach_sub_(values, scale)


_SIDE = 64
"""Muon is for the matrices of layers and of words; smaller ones, other tables of vectors and biases go by Adam."""


class Muon:
    """Muon (Jordan et al. 2024) for matrices, Adam for the rest.

    The momentum of the gradient is made nearly orthogonal, so that all directions of a matrix learn alike, and scaled
    to the size of Adam's steps (Liu et al. 2025), so that one learning rate serves both.
    """

    def __init__(self, parameters: Parameters, learning_rate: float, warmup: int = 0, crew: Crew = ALONE) -> None:
        """Each process of a `crew` turns some of the matrices."""
        self.parameters, self._crew = parameters, crew
        self._momentum = {name: torch.zeros_like(v) for name, v in parameters.items() if _is_matrix(name, v)}
        rest = {name: value for name, value in parameters.items() if name not in self._momentum}
        self._adam = Adam(rest, learning_rate, warmup)
        self._of_shape: dict[tuple[int, int], list[str]] = {}
        for name, value in self._momentum.items():
            parameters[name].requires_grad_(True)
            self._of_shape.setdefault((min(value.shape[1:]), max(value.shape[1:])), []).append(name)
        self._shares = _shared_out(self._of_shape, crew.size)
        self._own = set(self._shares[crew.rank])

    def state(self, run: int) -> dict[str, Tensor]:
        """The momentum as 'first.*', and the state of Adam for the rest."""
        return {f"first.{name}": value[run] for name, value in self._momentum.items()} | self._adam.state(run)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], active: Tensor) -> None:
        by_name = dict(zip(self.parameters, gradients, strict=True))
        self._adam.step([by_name[name] for name in self._adam.parameters], active)
        rate = self._adam.bring(self._adam.rate(active).float())
        keep = self._adam.bring(torch.where(active, 0.95, 1.0).view(-1, 1, 1))
        changes: dict[str, Tensor] = {}
        for (_, longer), names in self._of_shape.items():  # lying or standing
            ahead = []
            for name in names:
                momentum = self._momentum[name].mul_(keep).add_(by_name[name])
                if name in self._own:
                    wanted = torch.add(by_name[name], momentum, alpha=0.95)
                    ahead.append(wanted if wanted.shape[1] <= wanted.shape[2] else wanted.mT)
            if ahead:
                rates = (rate * (0.2 * math.sqrt(longer))).repeat(len(ahead)).view(-1, 1, 1)
                turned = nearly_orthogonal(torch.cat(ahead)).mul_(rates)
                own = (name for name in names if name in self._own)
                changes |= zip(own, turned.chunk(len(ahead)), strict=True)
        for name, change in self._everyones(changes).items():
            value = self.parameters[name]
            value.sub_(change if value.shape[1] <= value.shape[2] else change.mT)

    def _everyones(self, changes: dict[str, Tensor]) -> dict[str, Tensor]:
        """The changes of all matrices, lying, from those of each process."""
        if self._crew.alone or not self._momentum:
            return changes
        shapes = [[self._lying(name) for name in names] for names in self._shares]
        own, like = self._shares[self._crew.rank], next(iter(self._momentum.values()))
        found = self._crew.swap([changes[name] for name in own], shapes, like)
        return {
            name: change for pair in zip(self._shares, found, strict=True) for name, change in zip(*pair, strict=True)
        }

    def _lying(self, name: str) -> torch.Size:
        """[runs, shorter, longer]"""
        runs, *sides = self._momentum[name].shape
        return torch.Size((runs, *sorted(sides)))


def _shared_out(of_shape: Mapping[tuple[int, int], Sequence[str]], processes: int) -> list[list[str]]:
    """The matrices that each process turns: all have about as much work."""
    work = {name: short * short * longer for (short, longer), names in of_shape.items() for name in names}
    loads = [0] * processes
    shares: list[list[str]] = [[] for _ in loads]
    for name in sorted(work, key=work.__getitem__, reverse=True):
        rank = loads.index(min(loads))
        loads[rank] += work[name]
        shares[rank].append(name)
    return shares


def _is_matrix(name: str, value: Tensor) -> bool:
    """Weights of a layer ('w', 'text.0.f.1.w', 'w1') and the table of words ('word'), large enough; no other table."""
    return value.dim() == 3 and name.rpartition(".")[2].startswith("w") and min(value.shape[1:]) >= _SIDE


def nearly_orthogonal(matrices: Tensor) -> Tensor:
    """[n, a, b], a <= b: to each the matrix U V' of its U S V', up to singular values from about 0.7 to 1.2; five steps
    of a Newton-Schulz iteration with the coefficients of Muon. Zero stays zero."""
    turned: Tensor = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7)
    for _ in range(5):
        square = turned @ turned.mT
        mixed = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        turned = torch.baddbmm(turned, mixed, turned, beta=3.4445)
    return turned
