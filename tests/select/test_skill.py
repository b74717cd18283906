"""What is known of teachers: who is good, where, and who turned bad; asking and acting by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import apil
from apil.learning.build import Parts
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.rng import Streams
from apil.runs.train import resume_run, start_run
from apil.select.learned import CANDIDATES, best, learned
from apil.select.protocol import SelectSetup
from apil.select.skill import SkillBook, turning_point
from apil.settings import RunSettings
from apil.teachers import Drift, Member, Team
from apil.teachers.policies import Question, Reply
from apil.types import Episodes, Observation, Uncertainty

EPISODES, STEPS, FEATURES = 4, 10, 3


def setup(teachers: int = 3, costs: tuple[float, ...] = (3.0, 1.0, 1.0)) -> SelectSetup:
    own = torch.ones(1, teachers) if len(costs) != teachers else torch.tensor([costs])
    return SelectSetup(Streams([0]), teachers, own, torch.zeros(1), FEATURES, 2, STEPS)


def walk(number: int, right: Callable[[Tensor, Tensor], Tensor], teachers: int = 3) -> Episodes:
    """Walkers on a line from 0 to 1, whose place is x; everybody is asked in turn and obeyed, and d = 10 (1 - x)."""
    draws = Streams([0]).draws("walk", number)
    x = 0.2 + 0.6 * draws.uniform(EPISODES)
    luck = draws.uniform(STEPS, EPISODES)
    who = (draws.uniform(STEPS, EPISODES) * teachers).long()
    places = []
    for t in range(STEPS):
        places.append(x)
        good = right(who[:, t], x) > luck[:, t]
        x = (x + torch.where(good, 0.1, -0.1)).clamp(0.0, 1.0)
    place = torch.stack(places, -1)
    features = torch.stack([place, 1 - place, place.square()], -1)
    shape = place.shape
    return Episodes(
        features=features,
        state=features,
        valid_actions=torch.ones(*shape, 2, dtype=torch.bool),
        mean=torch.full((*shape, 2), 0.5),
        identity_belief=torch.full((*shape, teachers), 1 / teachers),
        answered=torch.ones(shape, dtype=torch.bool),
        unanswered=torch.zeros(shape, dtype=torch.bool),
        action=torch.zeros(shape, dtype=torch.long),
        distance=10 * (1 - place),
        identity=who.transpose(1, 2),
        taken=torch.zeros(shape, dtype=torch.long),
        live=torch.ones(shape, dtype=torch.bool),
        final_distance=10 * (1 - x),
        success=x > 0.95,
        uncertainty=Uncertainty(*torch.zeros(5, *shape)),
        notes=features[..., :0],
    )


def uneven(who: Tensor, x: Tensor) -> Tensor:
    """The chance of being right: always, three in ten, and to the right of the middle alone."""
    return torch.stack([torch.ones_like(x), torch.full_like(x, 0.3), (x > 0.5).float()]).gather(0, who.unsqueeze(0))[0]


def seen(x: float) -> Tensor:
    return torch.tensor([[x, 1 - x, x * x]])


def test_skill_is_found_where_it_is() -> None:
    book = SkillBook(setup())
    for number in range(5):
        book.observe(walk(number, uneven))
    east, west = (book.fit(0).skills(seen(x), torch.arange(3))[0][0].tolist() for x in (0.85, 0.15))
    assert min(east[0], west[0]) > 0.6
    assert max(east[1], west[1]) < 0.4
    assert east[2] > 0.5
    assert west[2] < 0
    assert not book.memory["turns"].any()


def test_whom_to_ask_follows_skill_and_cost() -> None:
    selector = learned(setup())
    for number in range(6):
        selector.observe(walk(number, uneven))
    session = selector.begin(Streams([0]).draws("select", 0), 1, STEPS)
    everybody, put, valid = torch.ones(1, 1, 3) > 0, torch.ones(1, 1) > 0, torch.ones(1, 1, 2) > 0

    def asked(x: float, there: Tensor = everybody) -> int:
        return int(session.choose(Observation(seen(x).unsqueeze(0), valid), there, put, 0))

    assert asked(0.9) == 2  # right there, at a third of the price
    assert asked(0.1) == 0
    assert asked(0.1, torch.tensor([[[False, True, True]]])) == 1


def test_a_teacher_who_turns_is_noticed_and_asked_less() -> None:
    selector = best(setup(costs=(1.0, 1.0, 1.0)))

    def good(who: Tensor, x: Tensor) -> Tensor:
        return torch.where(who == 1, 0.7, 1.0)

    def turned(who: Tensor, x: Tensor) -> Tensor:
        return torch.where(who == 0, 0.0, torch.where(who == 1, 0.7, 1.0))

    for number in range(5):
        selector.observe(walk(number, good))
    before = float(selector.skills.fit(0).average(seen(0.5), 0)[0])
    assert not selector.memory["turns"].any()
    for number in range(5, 7):
        selector.observe(walk(number, turned))
    turns = selector.memory["turns"][0].tolist()
    assert turns[0] >= 1
    assert turns[1:] == [0, 0]
    assert float(selector.skills.fit(0).average(seen(0.5), 0)[0]) < 0.2 < before


def test_a_fall_of_progress_is_found_and_steady_teachers_give_few_alarms() -> None:
    draws = Streams([0]).draws("steady", 0)
    steady = torch.where(draws.uniform(60, 100)[0] < 0.7, 1.0, -1.0) + 0.5 * draws.normal(60, 100)[0]
    alarms = [any(turning_point(row[:n]) is not None for n in range(12, 101, 4)) for row in steady.clamp(-1.5, 1.5)]
    assert sum(alarms) <= 3  # one in twenty at most
    fallen = torch.cat([torch.full((40,), 0.9), torch.full((10,), -0.6)]) + 0.4 * draws.normal(50)[0]
    assert turning_point(fallen) in range(37, 44)
    assert turning_point(fallen.flip(0)) is None  # who becomes better has not turned
    assert turning_point(fallen[:8]) is None


def test_a_turn_is_in_the_metrics_and_forgets_what_was_before() -> None:
    team = Team([Member("steady", "first"), Member("turns", Drift("first", Wrong(), 25))])
    run = RunSettings.of(
        "maze", "steady+turns", "random", threshold=0.5, iterations=60, log_every=20, batch=8, hidden=8, models=2,
        replay=16, select="round-robin", acting="by-skill", options={"size": 4, "walls": 2},
    )  # fmt: skip
    trainer = Trainer([run], parts=Parts(teacher=team))
    rows = [row[0] for _ in range(60) if (row := trainer.step()) is not None]
    trainer.close()
    assert rows[0] is not None
    assert "turned" not in rows[0]
    assert rows[-1] is not None
    assert list(rows[-1]["turned"]) == ["turns"]
    assert rows[-1]["turned"] == trainer.turned(0)
    book = trainer.agents.selectors[0].part.memory
    assert 0 < int(book["since"][0, 1]) < int(book["count"][0])


def test_of_many_teachers_some_are_compared() -> None:
    many = 1000
    selector = learned(setup(many))
    for number in range(3):
        selector.observe(walk(number, lambda who, x: torch.ones_like(x), many))
    session = selector.begin(Streams([0]).draws("select", 1), 4, STEPS)
    assert session.candidates.shape == (1, CANDIDATES)
    assert len(set(session.candidates[0].tolist())) == CANDIDATES
    there, put = torch.zeros(1, 4, many) > 0, torch.ones(1, 4) > 0
    there[:, :, 17] = True
    features = seen(0.5).expand(1, 4, -1)
    chosen = session.choose(Observation(features, torch.ones(1, 4, 2) > 0), there, put, 0)
    assert (chosen == 17).all()


class Wrong:
    """Takes a move that leads nowhere better, wherever there is one."""

    batched = True

    def reply(self, question: Question) -> Reply:
        reference, valid = question.reference, question.observation.valid
        listed = torch.arange(valid.shape[-1]) < reference.count.unsqueeze(-1)
        bad = valid & ~torch.zeros_like(valid).scatter(-1, reference.actions, listed)
        return Reply(torch.where(bad.any(-1), bad.long().argmax(-1), reference.actions[..., 0]), question.who)


def test_with_one_good_and_two_bad_teachers_the_agent_ends_near_the_good_one() -> None:
    team = Team([Member("good", "first"), Member("bad", Wrong()), Member("worse", Wrong())], selection="query")

    def success(acting: str, weights: tuple[float, ...] | None = None) -> float:
        settings: dict[str, Any] = {"size": 4, "walls": 2}
        run = RunSettings.of(
            "maze", "good+bad+worse", "random", threshold=0.3, iterations=120, batch=8, replay=64, updates=5,
            encode=32, hidden=32, models=4, standardise=True, acting=acting, options=settings,
        )  # fmt: skip
        trainer = Trainer([run], parts=Parts(teacher=team if weights is None else team.reweighted(weights, None)))
        trainer.train()
        return float(evaluate(trainer.trained_agents(), 200, helped=False)[0]["success_alone"])

    alone, mixed, by_skill = success("as-answered", (1.0, 0.0, 0.0)), success("as-answered"), success("by-skill")
    assert by_skill > alone - 0.15
    assert by_skill > mixed + 0.15


def test_a_run_that_acts_by_skill_is_the_same_resumed_and_in_a_stack(tmp_path: Path) -> None:
    def run(seed: int, **more: Any) -> RunSettings:
        return RunSettings.of(
            "maze", "first+last", "random", threshold=0.3, iterations=6, log_every=2, save_every=3, seed=seed,
            replay=16, updates=2, hidden=8, models=2, **more,
        )  # fmt: skip

    ours = run(1, select="learned", acting="by-skill")
    stack = Trainer([run(0), ours, run(2, acting="by-skill")])
    stack.train()
    alone = Trainer([ours])
    alone.train()
    for name, value in alone.state(0).items():
        assert torch.equal(value, stack.state(1)[name]), name
    start_run(ours, tmp_path / "whole", progress=print)
    start_run(ours.changed(iterations=3), tmp_path / "parts", progress=print)
    resume_run(tmp_path / "parts", iterations=6, progress=print)
    for file in ("metrics.jsonl", "answers.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


def test_skills_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunSettings.of(
        "maze", "first+uniform", "random", threshold=0.5, iterations=4, replay=16, hidden=8, models=2, select="learned"
    )
    start_run(run, tmp_path / "run", progress=print)
    skills = apil.answers(tmp_path / "run").skills
    assert sorted(own.name for own in skills) == ["first", "uniform"]
    assert all(own.skill.low < own.skill.mean < own.skill.high for own in skills)
    assert sum(own.answers for own in skills) == len(apil.answers(tmp_path / "run"))
    assert all(own.regions for own in skills)
    from apil.cli import main

    monkeypatch.setattr("sys.argv", ["apil", "answers", str(tmp_path / "run")])
    main()
    assert "Skill of the teachers" in capsys.readouterr().out
    plain = run.changed(select="environment")
    start_run(plain, tmp_path / "plain", progress=print)
    assert apil.answers(tmp_path / "plain").skills == []
