"""Whom to ask: choices of the selectors, through the command line, Python, study files, stacks and resumed runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import read_json, read_rows
from apil.learning.build import Parts
from apil.learning.trainer import Trainer
from apil.runs.train import resume_run, start_run
from apil.select import SELECTORS
from apil.select.rules import Ranked
from apil.settings import RunSettings
from apil.teachers import Anonymous, Member, NoisyDistance, Team
from apil.teachers.protocol import Teacher

TEAM = Team(
    [
        Member("dear", "first", cost=3.0, weight=0.8),
        Member("cheap", "last", cost=1.0, weight=0.1),
        Member("away", "uniform", cost=1.0, available=0.0, weight=0.1),
    ]
)


def trained(select: str, teacher: Teacher = TEAM, **settings: Any) -> Trainer:
    run = RunSettings.of("maze", "+".join(teacher.members), "bc", iterations=2, batch=4, select=select, **settings)
    trainer = Trainer([run], parts=Parts(teacher=teacher))
    trainer.train()
    return trainer


def askeds(select: str, teacher: Teacher = TEAM, **settings: Any) -> Tensor:
    """The numbers of answers by each teacher."""
    seen: list[Tensor] = []
    run = RunSettings.of("maze", "+".join(teacher.members), "bc", iterations=2, batch=4, select=select, **settings)
    trainer = Trainer([run], parts=Parts(teacher=teacher))
    observe = trainer.agents.model.observe

    def watched(lessons: Any) -> None:
        seen.append(lessons.identity[lessons.answered])
        observe(lessons)

    trainer.agents = replace(trainer.agents, model=_Watched(trainer.agents.model, watched))
    trainer.step()
    return torch.cat(seen).bincount(minlength=len(teacher.members))


class _Watched:
    """A model whose lessons are looked at."""

    def __init__(self, inner: Any, observe: Any) -> None:
        self._inner, self.observe = inner, observe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("name", SELECTORS.names())
def test_every_selector_keeps_the_contract(name: str) -> None:
    apil.check_selector(name)


def test_cheapest_asks_the_cheapest_who_is_there() -> None:
    dear, cheap, away = askeds("cheapest").tolist()
    assert (dear, away) == (0, 0)
    assert cheap > 0


def test_round_robin_asks_all_who_are_there_about_as_often() -> None:
    dear, cheap, away = askeds("round-robin").tolist()
    assert away == 0
    assert abs(dear - cheap) <= 0.2 * (dear + cheap) + 4


def test_a_selector_chooses_through_wrappers_and_in_committees() -> None:
    assert askeds("cheapest", NoisyDistance(TEAM, noise=0.1)).tolist()[0] == 0
    first, last = askeds("round-robin", apil.teachers.TEACHERS.load("twodifdetm")()).tolist()
    assert min(first, last) > 0


def test_who_cannot_be_told_apart_cannot_be_chosen() -> None:
    with pytest.raises(ApilError, match="chooses who answers by itself"):
        trained("cheapest", Anonymous(TEAM))


def test_environment_adds_nothing() -> None:
    assert not trained("environment").agents.selectors
    assert not any(name.startswith("select.") for name in trained("environment").state(0))


def test_costs_of_answers_and_switches_are_added_up() -> None:
    free, dear = (trained("round-robin", switch_cost=cost, log_every=1).rows[0][-1] for cost in (0.0, 0.5))
    assert dear["answers"] == free["answers"]
    switches = (dear["cost"] - free["cost"]) / 0.5
    assert switches == int(switches)
    assert 0 < switches < dear["answers"]
    alone = trained("cheapest", switch_cost=0.5, log_every=1).rows[0][-1]
    assert alone["cost"] == alone["answers"]


def test_a_stack_may_have_several_selectors_and_each_run_is_as_alone() -> None:
    runs = [
        RunSettings.of("maze", "first+last", "random", threshold=0.3, iterations=3, seed=seed, select=select)
        for seed, select in enumerate(SELECTORS.names())
    ]
    stack = Trainer(runs)
    stack.train()
    for place, run in enumerate(runs):
        alone = Trainer([run])
        alone.train()
        own, theirs = alone.state(0), stack.state(place)
        assert own.keys() == theirs.keys()
        for name, value in own.items():
            assert torch.equal(value, theirs[name]), (run.whom.name, name)


@pytest.mark.parametrize("name", [name for name in SELECTORS.names() if name != "environment"])
def test_a_resumed_run_is_the_run(name: str, tmp_path: Path) -> None:
    run = RunSettings.of(
        "maze", "first+last", "random", threshold=0.3, iterations=6, log_every=2, save_every=3, select=name
    )
    start_run(run, tmp_path / "whole", progress=print)
    start_run(run.changed(iterations=3), tmp_path / "parts", progress=print)
    resume_run(tmp_path / "parts", iterations=6, progress=print)
    for file in ("metrics.jsonl", "answers.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_the_command_line_knows_selectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*argv: str) -> int:
        monkeypatch.setattr(sys, "argv", ["apil", *argv])
        try:
            main()
        except SystemExit as stop:
            return int(str(stop.code or 0))
        return 0

    monkeypatch.chdir(tmp_path)
    train = ("train", "--task", "maze", "--teacher", "first+last", "--query", "dagger", "--iterations", "2")
    assert run(*train, "--select", "round-robin", "--out", "run") == 0
    assert read_json(tmp_path / "run" / "config.json")["whom"]["name"] == "round-robin"
    assert read_rows(tmp_path / "run" / "metrics.jsonl")
    capsys.readouterr()
    assert run("list") == 0
    assert "round-robin" in capsys.readouterr().out
    assert run(*train, "--select", "round-robbin", "--out", "other") == 2
    assert "round-robin" in capsys.readouterr().err
    assert run(*train, "--select", "cheapest", "--select-options", "x=1", "--out", "third") == 2


def test_a_study_file_may_name_a_selector(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'tasks = ["grid"]\nteachers = ["twodifdetm"]\nrules = ["dagger"]\nseeds = 1\nepisodes = 5\n'
        '[settings]\nselect = "cheapest"\niterations = 2\nlog_every = 1\n'
    )
    apil.study(str(file), out=tmp_path / "out", workers=1, progress=False)
    (config,) = (tmp_path / "out").rglob("config.json")
    assert read_json(config)["whom"]["name"] == "cheapest"


class _Silly(Ranked):
    """Asks one who is not there."""

    def begin(self, draws: Any, episodes: int, horizon: int) -> Any:
        session = super().begin(draws, episodes, horizon)
        choose = session.choose
        object.__setattr__(session, "choose", lambda *asked: choose(*asked) + 1)
        return session


def test_what_is_wrong_with_a_selector_is_said() -> None:
    with pytest.raises(ApilError, match=r"not there|outside"):
        apil.check_selector(lambda setup: _Silly(setup.costs))
    with pytest.raises(ApilError, match="has no 'memory'"):
        apil.check_selector(lambda setup: object())  # type: ignore[arg-type, return-value]
