"""Settings of a run: a frozen record that imports nothing heavy and has no side effects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from apil.errors import ApilError

Expectation = Literal["monte-carlo", "exact"]
Option = str | int | float | bool


SCHEMA = 1
"""Of run folders; raised when an older apil could not read a newer one."""


def positive(name: str, value: float) -> None:
    """Refuses what is not a number above zero."""
    if not 0 < value < math.inf:
        raise ApilError(f"{name} is {str(value)[:20]}: give a number above 0.")


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run. The same config on the same machine gives the same bytes."""

    task: str
    """See `apil list`."""
    teacher: str
    """A registered name, or members joined by '+': first+last+uniform."""
    query: str
    """See `apil list`."""
    seed: int = 0
    iterations: int = 1000
    """Batches of episodes; one update each."""
    batch: int = 1
    """Episodes in an iteration."""
    learning_rate: float = 1e-3
    expectation: Expectation = "exact"
    """How the expectation over identities is taken."""
    samples: int = 5
    """N1, identities drawn for each model under monte-carlo."""
    models: int = 10
    """N2, dropout masks."""
    hidden: int = 100
    persona: int = 50
    dropout: float = 0.2
    threshold: float | None = None
    """The query policy's threshold, or the probability of `random`; None where there is none."""
    sigma: float = 2.0
    epsilon: float = 0.0
    gap: float | Literal["estimate"] = 0.0
    """d*_T, the final distance of an agent that always follows the teachers: a number, or learned while training."""
    weights: tuple[float, ...] | None = None
    """Of the committee's members; equal if not given."""
    selection: Literal["episode", "query"] | None = None
    """When a member of the committee is drawn; the committee's own rule if not given."""
    log_every: int = 20
    """Iterations between two rows of metrics."""
    save_every: int = 200
    """Iterations between two checkpoints."""
    teacher_deadline: float | None = None
    """Seconds a teacher has for one batch of answers."""
    on_teacher_error: Literal["stop", "skip"] = "stop"
    """A bad answer stops the run, or the step goes on as one not asked."""
    answers: bool = True
    """Every question and answer is written to answers.jsonl."""
    warmup: int = 0
    """Updates over which the learning rate rises from 0; then it stays as it is, however many are to come."""
    clip: float = 0.0
    """The policy's gradient is cut to this length; 0 for never."""
    average: float = 0.0
    """Decay of the moving average of the weights, which acts in evaluation; 0 for none. Early on the average is over
    all iterations so far. No part of it depends on how many iterations are to come."""
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    """Settings of the task and of its state encoder, by name; empty where a task has none."""
    budget: float | None = None
    """The share of the training steps that the query policy may ask on, in the place of a threshold."""
    query_options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    """Settings of the query policy, by name; empty where it has none."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Of the policy: Adam (Kingma and Ba 2015), or Muon (Jordan et al. 2024) for the matrices of its layers."""

    def __post_init__(self) -> None:
        for name in (
            "iterations",
            "batch",
            "learning_rate",
            "samples",
            "models",
            "hidden",
            "persona",
            "log_every",
            "save_every",
        ):
            positive(name.replace("_", "-"), getattr(self, name))
        if self.teacher_deadline is not None:
            positive("teacher-deadline", self.teacher_deadline)
        if not 0 <= self.dropout < 1:
            raise ApilError(f"dropout is {self.dropout:g}: give a rate from 0 to below 1.")
        if self.warmup < 0:
            raise ApilError(f"warmup is {self.warmup}: give a number of updates from 0 up.")
        if not 0 <= self.clip < math.inf:
            raise ApilError(f"clip is {self.clip:g}: give a length from 0 (never) up.")
        if not 0 <= self.average < 1:
            raise ApilError(f"average is {self.average:g}: give a decay from 0 (none) to below 1.")
        if not self.sigma > 1:
            raise ApilError(f"sigma is {self.sigma:g}: progress needs a factor above 1.")
        if not self.epsilon >= 0:
            raise ApilError(f"epsilon is {self.epsilon:g}: a distance is not negative, use 0 or more.")
        if self.gap != "estimate" and not (isinstance(self.gap, float | int) and 0 <= self.gap < math.inf):
            raise ApilError(f"gap is {self.gap}: give a distance from 0 up, or estimate.")
        if self.threshold is not None and not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise ApilError(f"threshold is {self.threshold:g}: give a number from 0 up.")
        if self.query in ("random", "errpred") and self.threshold is not None and self.threshold > 1:
            raise ApilError(f"threshold is {self.threshold:g}: for {self.query} it is a probability, from 0 to 1.")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise ApilError(f"budget is {self.budget:g}: give the share of steps to ask on, above 0 and up to 1.")
        if self.budget is not None and self.threshold is not None:
            raise ApilError("A query policy has a threshold or a budget, not both: leave one out.")
        if self.on_teacher_error not in ("stop", "skip"):
            raise ApilError(f"on-teacher-error is '{self.on_teacher_error}': give stop or skip.")
        if self.optimizer not in ("adam", "muon"):
            raise ApilError(f"optimizer is '{self.optimizer}': give adam or muon.")
        if self.expectation not in ("monte-carlo", "exact"):
            raise ApilError(f"expectation is '{self.expectation}': give monte-carlo or exact.")

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; what only some query policies have is left out where there is none."""
        values = {"schema": SCHEMA, **asdict(self)}
        unset = [name for name in ("budget", "query_options") if not values[name]]
        if self.optimizer == "adam":
            unset.append("optimizer")
        return {name: value for name, value in values.items() if name not in unset}

    @staticmethod
    def from_json(values: dict[str, Any]) -> RunConfig:
        """The config back from `to_json`; unknown or missing settings are told."""
        values = dict(values)
        schema = values.pop("schema", None)
        if not _is(schema, int) or schema > SCHEMA:
            newer = _is(schema, int)
            told = f"a newer apil (schema {schema}): upgrade apil" if newer else "something else: use another folder"
            raise ApilError(f"The run's config was written by {told}.")
        known = {f.name for f in fields(RunConfig)}
        unknown = sorted(set(values) - known)
        if unknown or not {"task", "teacher", "query"} <= set(values):
            raise ApilError(
                f"Not a run's config (unknown settings: {', '.join(unknown) or 'none'}): use another folder."
            )
        for name, value in values.items():
            if not _fits(name, value):
                raise ApilError(
                    f"Not a run's config ({name} is {str(value)[:60]!r}): restore it or use another folder."
                )
        weights = values.get("weights")
        return RunConfig(**{**values, "weights": None if weights is None else tuple(weights)})


def _fits(name: str, value: object) -> bool:
    """Whether a value read from a file has the type of a setting."""
    if name == "weights" and isinstance(value, list):
        return all(_is(item, int, float) for item in value)
    if name in ("options", "query_options"):
        plain = isinstance(value, dict) and all(isinstance(key, str) for key in value)
        return plain and all(isinstance(v, bool | str) or _is(v, int, float) for v in value.values())  # type: ignore[attr-defined]
    if name == "answers":
        return isinstance(value, bool)
    if value is None:
        return name in ("weights", "threshold", "teacher_deadline", "selection", "budget")
    if name in ("task", "teacher", "query", "expectation", "selection", "on_teacher_error", "optimizer"):
        return isinstance(value, str)
    numbers = (
        "learning_rate",
        "dropout",
        "sigma",
        "epsilon",
        "gap",
        "threshold",
        "teacher_deadline",
        "average",
        "clip",
        "budget",
    )
    if name in numbers:
        return _is(value, int, float) or (name == "gap" and value == "estimate")
    return name != "weights" and _is(value, int)


def _is(value: object, *kinds: type) -> bool:
    """Of one of these kinds, no truth value, and small enough to reckon with."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, int) or abs(value) < 2**63
