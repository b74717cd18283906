"""Walks in flight: teachers that take their time, several questions open at once, nothing lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, collect
from apil.learning.flight import Answered, Event, Finished, Flight, merge
from apil.learning.update import Learner
from apil.optim import optimizer_factory
from apil.rng import Draws, Streams
from apil.settings import RunSettings
from apil.tasks.gymnasium import from_gymnasium
from apil.teachers import Team
from apil.types import Answer, Episodes, Observation, Reference

Manner = Callable[[Answer, int, int], Answer]
"""An answer, the number of its walk and its step -> what the teacher makes of it, in its own time."""


@dataclass(frozen=True)
class _Slow:
    """Answers with the first reference action, in its own manner."""

    manner: Manner
    members: tuple[str, ...] = ("slow",)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> _Session:
        return _Session(self.manner, draws.iteration)


@dataclass(frozen=True)
class _Session:
    manner: Manner
    walk: int

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        answer = Answer(reference.actions[..., 0], reference.distance, torch.zeros_like(reference.count))
        return self.manner(answer, self.walk, t)


def _agents(manner: Manner, query: str = "bc", task: str = "grid", **settings: Any) -> Agents:
    config = RunSettings.of(task, "detm", query, **{"threshold": 0.5, "seed": 3, **settings})
    return build([config], Parts(teacher=_Slow(manner)))


def _at_once(answer: Answer, walk: int, t: int) -> Answer:
    return answer


def _unsteady(seed: int = 0) -> Manner:
    """Takes up to three milliseconds."""
    generator, lock = np.random.default_rng(seed), threading.Lock()

    def manner(answer: Answer, walk: int, t: int) -> Answer:
        with lock:
            seconds = generator.uniform(0, 0.003)
        time.sleep(seconds)
        return answer

    return manner


def _flown(flight: Flight) -> tuple[list[Answered], dict[int, Episodes]]:
    events: list[Event] = list(flight)
    assert flight.over
    assert flight.close() == []
    finished = {event.walk: event.episodes for event in events if isinstance(event, Finished)}
    return [event for event in events if isinstance(event, Answered)], finished


def _same(one: Episodes, other: Episodes) -> bool:
    names = [f.name for f in fields(Episodes) if f.name != "uncertainty"]
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in pairs)


@pytest.mark.parametrize("task", ["grid", "maze"])
@pytest.mark.parametrize("query", ["bc", "random", "dagger", "never"])
def test_nothing_is_lost_and_nothing_asked_twice_whoever_answers_first(task: str, query: str) -> None:
    agents = _agents(_unsteady(), query, task)
    answered, finished = _flown(Flight(agents, 4, first=10, episodes=11))
    assert sorted(finished) == list(range(10, 21))
    places = [(event.walk, event.question.t) for event in answered]
    assert len(set(places)) == len(places)
    expected = {(n, t) for n, own in finished.items() for t in own.answered[0, 0].nonzero().flatten().tolist()}
    assert set(places) == expected
    for number, own in finished.items():
        assert _same(own, collect(agents, number, 1)), "each is the walk that it would be alone"


def test_several_questions_are_open_at_once() -> None:
    meeting = threading.Barrier(3)

    def waits_for_two_others(answer: Answer, walk: int, t: int) -> Answer:
        meeting.wait(60)
        return answer

    answered, finished = _flown(Flight(_agents(waits_for_two_others), 3, episodes=3))
    assert len(finished) == 3
    assert len(answered) == sum(int(own.answered.sum()) for own in finished.values()) == 3 * 8


def test_a_walk_waits_until_the_caller_has_seen_its_answer() -> None:
    asked: list[tuple[int, int]] = []

    def notes(answer: Answer, walk: int, t: int) -> Answer:
        asked.append((walk, t))
        return answer

    flight = Flight(_agents(notes), 1, episodes=2)
    for count, event in enumerate(event for event in flight if isinstance(event, Answered)):
        assert len(asked) == count + 1
        assert asked[-1] == (event.walk, event.question.t)


def test_weights_may_change_between_events() -> None:
    agents = _agents(_unsteady(), "dagger", task="maze")
    learner = Learner(agents, optimizer_factory("adam", 0.05, 0), 0.0)
    before = {name: value.clone() for name, value in agents.model.policy.items()}
    finished: list[Episodes] = []
    for event in Flight(agents, 3, episodes=12):
        if isinstance(event, Finished):
            finished.append(event.episodes)
            learner.update(merge(finished[-4:]), len(finished))
    assert len(finished) == 12
    assert not any(torch.equal(value, before[name]) for name, value in agents.model.policy.items())
    fresh = collect(agents, 11, 1)
    assert not torch.equal(finished[-1].mean, fresh.mean)


def test_finished_walks_are_joined_as_one_batch() -> None:
    agents = _agents(_at_once, "random", "maze")
    parts = [collect(agents, n, 1) for n in range(5)]
    batch = merge(parts)
    assert batch.features.shape[:2] == (1, 5)
    assert batch.uncertainty.total.shape == batch.live.shape
    for n, part in enumerate(parts):
        assert torch.equal(batch.features[:, n], part.features[:, 0])
        assert torch.equal(batch.uncertainty.model[:, n], part.uncertainty.model[:, 0])
        assert bool(batch.success[0, n]) == bool(part.success)


@pytest.mark.parametrize("left", [0, 1, 7, 30, 1000])
def test_all_walks_together_get_no_more_answers_than_are_left(left: int) -> None:
    flight = Flight(_agents(_unsteady()), 5, episodes=6, left=left)
    answered, finished = _flown(flight)
    expected = min(left, 6 * 8)
    assert len(answered) == sum(int(own.answered.sum()) for own in finished.values()) == expected
    assert flight.left == left - expected


def test_a_question_that_stays_unanswered_frees_its_place() -> None:
    def away_at_first(answer: Answer, walk: int, t: int) -> Answer:
        return replace(answer, given=torch.full_like(answer.identity, t >= 4, dtype=torch.bool))

    flight = Flight(_agents(away_at_first), 1, episodes=2, left=3)
    events, finished = _flown(flight)
    assert flight.left == 0
    assert [(e.walk, e.question.t) for e in events if e.answer.given is not None and bool(e.answer.given)] == [
        (0, 4),
        (0, 5),
        (0, 6),
    ]
    assert len(events) == 7, "what is not answered is an event too"
    assert int(finished[1].answered.sum()) == 0


# Faults


def _raises(answer: Answer, walk: int, t: int) -> Answer:
    if t < 2:
        return answer
    raise RuntimeError("no connection\nto the service")


def _hangs(answer: Answer, walk: int, t: int) -> Answer:
    if t >= 2:
        threading.Event().wait(60)
    return answer


def _nonsense(answer: Answer, walk: int, t: int) -> Answer:
    return answer if t < 2 else replace(answer, action=answer.action + 7)


@pytest.mark.parametrize("manner", [_raises, _hangs, _nonsense])
def test_a_fault_gives_the_error_of_collect(manner: Manner) -> None:
    deadline = 0.3 if manner is _hangs else None
    with pytest.raises(ApilError) as expected:
        collect(_agents(manner, teacher_deadline=deadline), 7, 1)
    flight = Flight(_agents(manner, teacher_deadline=deadline), 1, first=7, episodes=1)
    with pytest.raises(ApilError) as caught:
        list(flight)
    assert str(caught.value) == str(expected.value)
    assert flight.over, "the walk is abandoned"


@pytest.mark.parametrize("manner", [_raises, _hangs, _nonsense])
def test_a_fault_may_leave_the_question_unanswered(manner: Manner) -> None:
    deadline = 0.3 if manner is _hangs else None
    agents = _agents(manner, on_teacher_error="skip", teacher_deadline=deadline)
    _, finished = _flown(Flight(agents, 3, episodes=3))
    for own in finished.values():
        assert own.answered[0, 0].tolist() == [True] * 2 + [False] * 6
        assert torch.equal(own.unanswered, ~own.answered)


def test_walks_beside_one_that_fails_stay_in_flight() -> None:
    def fails_in_one(answer: Answer, walk: int, t: int) -> Answer:
        return answer if walk != 1 else _raises(answer, walk, t)

    flight, errors, finished = Flight(_agents(fails_in_one), 3, episodes=3), 0, set()
    while not flight.over:
        try:
            event = flight.event()
        except ApilError:
            errors += 1
        else:
            finished |= {event.walk} if isinstance(event, Finished) else set()
    assert errors == 1
    assert finished == {0, 2}


# Stopping


def test_closing_delivers_the_answers_that_were_given_and_abandons_the_rest() -> None:
    given, release, both = threading.Semaphore(0), threading.Event(), threading.Barrier(2)

    def one_thinks(answer: Answer, walk: int, t: int) -> Answer:
        if walk == 2:
            release.wait(60)
        elif t == 0:
            both.wait(60)
        given.release()
        return answer

    flight = Flight(_agents(one_thinks), 3)
    first = flight.event()
    assert isinstance(first, Answered)
    assert first.walk in (0, 1)
    for _ in range(2):
        assert given.acquire(timeout=60)
    # The thread of the second answer may still be on its way from the teacher to the flight.
    for thread in threading.enumerate():
        if thread.name == f"walk {1 - first.walk}":
            thread.join(60)
    rest = flight.close()
    release.set()
    assert [event.walk for event in rest] == [1 - first.walk]
    assert flight.over
    assert flight.event() is None


def test_who_does_not_want_to_wait_gets_no_event() -> None:
    release = threading.Event()

    def waits(answer: Answer, walk: int, t: int) -> Answer:
        release.wait(60)
        return answer

    flight = Flight(_agents(waits), 2, episodes=2)
    assert flight.event(timeout=0) is None
    assert not flight.over
    release.set()
    assert isinstance(flight.event(), Answered)
    flight.close()


_HANGS = """
import threading
from apil.learning.build import Parts, build
from apil.learning.flight import Flight
from apil.settings import RunSettings

class Hangs:
    members = ("slow",)
    def begin(self, draws, episodes, horizon):
        return self
    def answer(self, observation, reference, asked, t):
        threading.Event().wait(600)

flight = Flight(build([RunSettings.of("grid", "detm", "bc")], Parts(teacher=Hangs())), 2)
flight.event(timeout=0.05)
print(threading.active_count(), len(flight.close()))
"""


def test_a_teacher_that_hangs_does_not_keep_the_process_alive() -> None:
    command = [sys.executable, "-c", _HANGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "3 0\n"


def test_a_flight_is_of_one_run() -> None:
    agents = build([RunSettings.of("grid", "detm", "bc", seed=seed) for seed in (0, 1)])
    with pytest.raises(ApilError, match="of one run, not of a stack of 2"):
        Flight(agents, 2)


# Environments


@pytest.mark.parametrize("at_once", [1, 3])
def test_each_walk_has_environments_of_its_own(at_once: int) -> None:
    task = from_gymnasium(lambda: gymnasium.make("CartPole-v1"), distance="steps", horizon=12, name="pole")
    state = task.reset(Streams([0]).draws("task", 0), 1)
    team = Team({"anna": lambda seen, rng: int(seen[2] > 0), "ben": lambda seen, rng: int(seen[3] > 0)})
    agents = build(
        [RunSettings.of("pole", "anna+ben", "random", threshold=0.5, seed=4)], Parts(task=task, teacher=team)
    )
    _, finished = _flown(Flight(agents, at_once, episodes=5))
    assert task.picture(state, 0, 0).text, "the task's own environments were not touched"
    for number, own in finished.items():
        assert _same(own, collect(agents, number, 1))
