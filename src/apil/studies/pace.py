"""How long a study still takes, by what its finished stacks took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from apil.studies.plan import Cell
from apil.studies.stack import work_of

_LATE = 0.1
"""Share of its time so far that a stack is expected to take on, once it has taken longer than others of its kind."""


@dataclass
class _Running:
    cells: Sequence[Cell]
    began: float
    units: int = 0
    """Of work, done since it began."""

    def left(self, now: float, rates: Sequence[float]) -> float | None:
        """Seconds left, by the `rates` of finished stacks or else by its own progress."""
        took, units = now - self.began, work_of(self.cells)
        if rates:
            return max(median(rates) * units - took, _LATE * took)
        return took * (units - self.units) / self.units if self.units > 0 else None


class Pace:
    """Measures the stacks of a study and estimates the time left.

    A unit of work does not cost the same everywhere: tasks and query policies differ by an order of magnitude, and a
    run learns on after its last answer. So a stack is expected to cost what finished stacks of its kind did for each
    unit, as their median: the same task and query policy, else the same task, else all.
    """

    def __init__(self, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers, self._clock = workers, clock
        self._running: dict[int, _Running] = {}
        self._rates: list[tuple[Cell, float]] = []
        """A cell of each finished stack, and its seconds for a unit of work."""

    def began(self, job: int, cells: Sequence[Cell]) -> None:
        self._running.setdefault(job, _Running(cells, self._clock()))

    def did(self, job: int, units: int) -> None:
        if job in self._running:
            self._running[job].units += units

    def ended(self, job: int, *, whole: bool) -> None:
        """A stack is over; only one that was trained as a `whole` counts for others."""
        found = self._running.pop(job, None)
        if found is not None and whole:
            self._rates.append((found.cells[0], (self._clock() - found.began) / max(1, work_of(found.cells))))

    def left(self, waiting: Iterable[Sequence[Cell]]) -> float | None:
        """Seconds left with these stacks still waiting; None where nothing is known yet."""
        now = self._clock()
        running = [job.left(now, self._known(job.cells[0])) for job in self._running.values()]
        known = [seconds for seconds in running if seconds is not None]
        if not known and not self._rates:
            return None
        rest = 0.0
        for cells in waiting:
            rates = self._known(cells[0]) or self._own_rates(now)
            if not rates:
                return None
            rest += median(rates) * work_of(cells)
        longest = max(known, default=0.0)
        return max(longest, (sum(known) + rest) / self._workers)

    def _known(self, cell: Cell) -> list[float]:
        """Seconds for a unit in finished stacks of a cell's kind."""
        for alike in (_task_and_query, _task, lambda own: None):
            found = [rate for other, rate in self._rates if alike(other) == alike(cell)]
            if found:
                return found
        return []

    def _own_rates(self, now: float) -> list[float]:
        """The same by the stacks that are running."""
        return [(now - job.began) / job.units for job in self._running.values() if job.units > 0]


def _task_and_query(cell: Cell) -> object:
    return _task(cell), cell.config.query.name


def _task(cell: Cell) -> object:
    return cell.config.task.name, str(cell.config.task.options)
