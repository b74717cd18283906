"""What asking would be worth if one knew where the agent is wrong, on the MiniGrid tasks for choosing.

    python benchmarks/oracle.py [--tasks dev-gap dev-key] [--seeds 5] [--out benchmarks/results/oracle.json]

The environments know which actions are right, so that the probability of a wrong action w(s) is known at every step.
Three rules that no user can have ask on one step in forty, at the middle budget of the benchmark:

- wrong: where w(s_t) is highest,
- first: where w(s_t) times the chance that no mistake was made before, the product of 1 - w(s_i), is highest,
- clean: where that chance alone is highest.

Success alone beside that of asking at random, with 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import apil
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.query.gates import gate_of
from apil.query.protocol import QueryLoss, QuerySetup
from apil.runs.calibration import load_calibration
from apil.settings.run import SHARE
from apil.studies.budget.definition import read_benchmark
from apil.studies.files import Rule, StudyFile, TaskEntry, own_plan
from apil.studies.statistics import interval
from apil.tasks.gymnasium.task import GymnasiumState, GymnasiumTask
from apil.types import Answer, Belief, Episodes

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "budget"
FIRST_SEED = 900


class Peeking(GymnasiumTask):
    """The state that was observed last, for those who may look into it."""

    last: GymnasiumState


def peek(task: GymnasiumTask) -> None:
    """Makes a task remember the state that was observed last."""
    observe = task.observe

    def observed(state: GymnasiumState) -> Any:
        Peeking.last = state
        return observe(state)

    object.__setattr__(task, "observe", observed)


class Oracle:
    """Asks by what the environments know."""

    executes_answer = True

    def __init__(self, setup: QuerySetup, kind: str) -> None:
        self.kind, self.gate, self.parameters = kind, gate_of(setup), dict[str, Tensor]()
        self.memory = {f"gate.{name}": value for name, value in self.gate.memory.items()}

    def begin(self, episodes: int, training: bool = True) -> OracleSession:
        return OracleSession(self, training)

    def observe(self, episodes: Episodes) -> None:
        if episodes.notes.shape[-1]:
            self.gate.learn(episodes.notes[..., 0], episodes)

    def loss(self, episodes: Episodes) -> QueryLoss | None:
        return None

    def review(self, episodes: Episodes, luck: Tensor) -> Tensor:
        return self.gate.review(episodes.notes[..., 0], episodes, luck)


class OracleSession:
    """One batch of episodes."""

    def __init__(self, policy: Oracle, training: bool) -> None:
        self._kind, self._gate, self._training = policy.kind, policy.gate.begin(training), training
        self._wrong = self._clean = self._score = torch.empty(0)

    def ask(self, belief: Belief, luck: Tensor) -> Tensor:
        """Where an agent is measured nobody is asked."""
        if not self._training:
            self._score = torch.zeros_like(luck)
            return self._score > 0
        self._wrong = wrong_mass(belief.mean)
        if self._clean.shape != luck.shape:
            self._clean = torch.ones_like(luck)
        self._score = {"wrong": self._wrong, "first": self._wrong * self._clean, "clean": self._clean}[self._kind]
        return self._gate(self._score, luck, belief.live, None)

    def hear(self, belief: Belief, answer: Answer, answered: Tensor) -> None:
        if self._training:
            self._clean = torch.where(answered, self._clean, self._clean * (1 - self._wrong))

    @property
    def notes(self) -> Tensor:
        return self._score.unsqueeze(-1)[..., : int(self._training)]


def wrong_mass(mean: Tensor) -> Tensor:
    """[runs, episodes]: the probability of an action that is on no shortest way."""
    state = Peeking.last
    found = torch.zeros(mean.shape[:2])
    for run, episode in (~state.done).nonzero().tolist():
        right = state.situations.environment(run, episode).env.right()  # type: ignore[attr-defined]
        found[run, episode] = 1 - mean[run, episode, right].sum() if right else 1.0
    return found


def oracle(setup: QuerySetup, *, kind: str = "first") -> Oracle:
    """For the registry."""
    return Oracle(setup, kind)


def success_of(label: str, rule: Rule, seeds: int) -> dict[str, float | None]:
    """Success alone of one rule at the middle budget of a task, over seeds."""
    task = read_benchmark(FOLDER, [label], [], choosing=True).tasks[0]
    file = task.file
    study = StudyFile(
        tasks=(TaskEntry(name=file.task, label=label, options=file.options),),
        teachers=(file.teacher,),
        settings={"answers": False, **file.settings},
        seeds=seeds,
        first_seed=FIRST_SEED,
        rules=(rule,),
        answers=(file.budgets.of("middle"),),
    )
    trainer = Trainer([cell.config for cell in own_plan(study, study.tasks[0], load_calibration(None), task.path, [])])
    assert isinstance(trainer.agents.task, GymnasiumTask)
    peek(trainer.agents.task)
    trainer.train()
    return interval([own["success_alone"] for own in evaluate(trainer.trained_agents(), 200)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["dev-gap", "dev-crossing", "dev-shift", "dev-key"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    apil.register_query_policy(
        "oracle", oracle, "knows where the agent is wrong", needs_threshold=True, takes_budget=True
    )
    kinds = [
        Rule(query="oracle", label=kind, budget=SHARE, options={"kind": kind}) for kind in ("wrong", "first", "clean")
    ]
    rules = [Rule(query="random", label="random", budget=SHARE), *kinds]
    found: list[dict[str, Any]] = []
    for label in options.tasks:
        for rule in rules:
            found.append(
                {
                    "task": label,
                    "rule": rule.label,
                    "seeds": options.seeds,
                    "success_alone": success_of(label, rule, options.seeds),
                }
            )
            print(json.dumps(found[-1]), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
