"""An answer that was given is never asked for again."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from apil.errors import ApilError
from apil.learning.build import Parts, build
from apil.learning.collect import Agents, collect
from apil.learning.group import Group
from apil.rng import Draws
from apil.runs.answers import AnswerBook, AnswerBooks
from apil.runs.journal import Prefix
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.teachers import Team
from apil.types import Answer, Episodes, Observation, Reference

CONFIG = RunSettings.of("maze", "twodifdetm", "dagger", batch=5, iterations=3)


class Moody:
    """A teacher who never says the same twice: valid actions by its own count of questions, not by the draws."""

    members = ("first", "last")

    def __init__(self) -> None:
        self.questions = 0

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Moody:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        self.questions += int(asked.sum())
        luck = (observation.valid * torch.rand(observation.valid.shape, generator=self._generator())).argmax(-1)
        return Answer(luck, reference.distance, torch.full_like(luck, self.questions % 2))

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.questions)


def taught_by(teacher: Moody) -> Agents:
    agents = build([CONFIG])
    group = agents.teachers[0]
    return replace(agents, teachers=[Group(group.runs, group.streams, teacher, group.name)])


def book(path: Path, from_iteration: int = 0) -> AnswerBook:
    made = AnswerBook(path, CONFIG, from_iteration=from_iteration)
    made.open()
    return made


def lesson(agents: Agents, path: Path, iteration: int) -> Episodes:
    books = AnswerBooks([book(path, iteration)])
    episodes = collect(agents, iteration, CONFIG.learner.batch, log=books)
    books.flush()
    return episodes


def test_remembered_answers_are_used_and_only_the_others_asked_for(tmp_path: Path) -> None:
    teacher = Moody()
    first = lesson(taught_by(teacher), tmp_path / "answers.jsonl", 0)
    put = teacher.questions
    lines = (tmp_path / "answers.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == put == int(first.answered.sum())

    again = Moody()
    second = lesson(taught_by(again), tmp_path / "answers.jsonl", 0)
    assert again.questions == 0
    assert torch.equal(first.action, second.action)
    assert torch.equal(first.identity, second.identity)
    assert torch.equal(first.answered, second.answered)

    # Cut in the middle of a step, and of a line: only what is gone is asked for.
    kept = 37
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:kept]) + lines[kept][:11])
    rest = Moody()
    third = lesson(taught_by(rest), tmp_path / "cut.jsonl", 0)
    assert rest.questions == int(third.answered.sum()) - kept
    assert (tmp_path / "cut.jsonl").read_bytes().splitlines(keepends=True)[:kept] == lines[:kept]


def test_a_row_says_who_answered_what_to_whom(tmp_path: Path) -> None:
    episodes = lesson(taught_by(Moody()), tmp_path / "answers.jsonl", 2)
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {row["iteration"] for row in rows} == {2}
    assert {row["query"] for row in rows} == {"dagger"}
    for row in rows:
        place = (0, row["episode"], row["step"])
        assert bool(episodes.answered[place])
        assert row["action"] == int(episodes.action[place])
        assert row["identity"] == int(episodes.identity[place])
        assert row["distance"] == float(episodes.distance[place])


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"iteration": 0, "episode": 0, "step": 0, "identity": 2, "action": 0, "distance": 1.0, "query": "dagger"},
        {"iteration": 0, "episode": 0, "step": 0, "identity": 0, "action": 4, "distance": 1.0, "query": "dagger"},
        {"iteration": 0, "episode": 0, "step": 0, "identity": 0, "action": 0, "distance": -1.0, "query": "dagger"},
        {"iteration": 0, "episode": 5, "step": 0, "identity": 0, "action": 0, "distance": 1.0, "query": "dagger"},
        {"iteration": 0, "episode": 0, "step": -1, "identity": 0, "action": 0, "distance": 1.0, "query": "dagger"},
    ],
)
def test_what_cannot_be_an_answer_is_refused(tmp_path: Path, row: dict[str, object]) -> None:
    (tmp_path / "answers.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ApilError, match="not an answer"):
        book(tmp_path / "answers.jsonl")


class Thoughtful(Moody):
    """The same, but an answer takes its time; notes what was on disk at each question."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.seen: list[tuple[int, int]] = []

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        self.seen.append((self.questions, len(self._path.read_bytes().splitlines())))
        time.sleep(0.002)
        return super().answer(observation, reference, asked, t)


def test_what_a_slow_teacher_said_is_written_before_the_next_question(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    books = AnswerBooks([book(path)])
    teacher = Thoughtful(path)
    collect(taught_by(teacher), 0, CONFIG.learner.batch, log=books)
    assert len(teacher.seen) > 5
    assert all(given == written for given, written in teacher.seen)
    assert len(path.read_bytes().splitlines()) == teacher.questions, "also after the last one, without a flush"


def counted(path: Path, bad: Sequence[int] = ()) -> tuple[Team, list[tuple[int, int]]]:
    """One who answers by itself; at each of its calls the number of the call and of the lines on file are noted."""
    seen: list[tuple[int, int]] = []

    def script(state: np.ndarray[Any, Any], rng: np.random.Generator) -> int:
        seen.append((len(seen), len(path.read_bytes().splitlines())))
        return 9 if len(seen) - 1 in bad else int(state.argmax()) % 2

    return Team({"first": script, "last": script}), seen


def asked_by(team: Any) -> Agents:
    return build([RunSettings.of("grid", "first+last", "bc", batch=16)], Parts(teacher=team))


def grid_book(path: Path) -> AnswerBooks:
    made = AnswerBook(path, RunSettings.of("grid", "first+last", "bc", batch=16))
    made.open()
    return AnswerBooks([made])


def test_each_answer_is_on_file_before_the_next_question_of_the_same_batch(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    books = grid_book(path)
    team, seen = counted(path)
    collect(asked_by(team), 0, 16, log=books)
    assert len(seen) == 16 * 8
    assert all(given == written for given, written in seen)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["step"], row["episode"]) for row in rows] == [(t, e) for t in range(8) for e in range(16)]


def test_a_bad_answer_takes_none_of_its_neighbours_with_it(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    books = grid_book(path)
    team, seen = counted(path, bad=[40])
    with pytest.raises(ApilError, match="iteration 0, episode 8, step 2"):
        collect(asked_by(team), 0, 16, log=books)
    assert len(path.read_bytes().splitlines()) == 40
    collect(asked_by(team), 0, 16, log=grid_book(path))
    assert len(seen) == 16 * 8 + 1, "only the bad one was asked for again"


class Careless:
    """Answers whole batches; one of the answers at step 2 is no action."""

    members = ("first", "last")
    batched = True

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Careless:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        action = reference.actions[..., 0].clone()
        action[0, 5] = 9 if t == 2 else action[0, 5]
        return Answer(action, reference.distance, torch.zeros_like(action))


def test_sound_answers_of_a_batch_are_kept_beside_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    books = grid_book(path)
    with pytest.raises(ApilError, match="answered action 9"):
        collect(asked_by(Careless()), 0, 16, log=books)
    books.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["episode"] for row in rows if row["step"] == 2] == [*range(5), *range(6, 16)]


def test_answers_reach_the_disk_while_the_teacher_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens after the answer: no other question, no checkpoint."""
    books = grid_book(tmp_path / "answers.jsonl")
    synced, sync = threading.Event(), os.fsync

    def watched(file: int) -> None:
        sync(file)
        synced.set()

    monkeypatch.setattr(os, "fsync", watched)
    books.note(0, 0, torch.ones(1, 1, dtype=torch.bool), Answer(*(torch.zeros(1, 1, dtype=torch.long),) * 3))
    assert synced.wait(60)
    books.close()


def test_a_disk_that_fails_while_the_teacher_pauses_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = grid_book(tmp_path / "answers.jsonl")
    failed = threading.Event()

    def fails(file: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    said = torch.ones(1, 1, dtype=torch.bool), Answer(*(torch.zeros(1, 1, dtype=torch.long),) * 3)
    books.note(0, 0, *said)
    assert failed.wait(60)
    books.close()
    with pytest.raises(ApilError, match="Input/output error"):
        books.note(0, 1, *said)


class Odd:
    """Answers with numbers that are easy to get wrong in a file, and leaves every third question open."""

    members = ("first", "last")
    distances = (0.0, -0.0, float("inf"), 0.1, 1e-30, 3.0)

    def begin(self, draws: Draws, episodes: int, horizon: int) -> Odd:
        return self

    def answer(self, observation: Observation, reference: Reference, asked: Tensor, t: int) -> Answer:
        action = observation.valid.int().argmax(-1)
        distance = torch.full_like(reference.distance, self.distances[t % len(self.distances)])
        given = torch.arange(asked.shape[1]).expand(asked.shape) % 3 != 0
        return Answer(action, distance, torch.zeros_like(action), given)


def test_odd_numbers_and_open_questions_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    agents = build([CONFIG.changed(on_teacher_error="skip")])
    group = agents.teachers[0]
    agents = replace(agents, teachers=[Group(group.runs, group.streams, Odd(), group.name)])
    first = lesson(agents, path, 0)
    content = path.read_bytes()
    assert content.count(b'"distance": null') == int(first.unanswered.sum()) > 0
    second = lesson(agents, path, 0)
    assert path.read_bytes() == content
    assert torch.equal(first.unanswered, second.unanswered)
    assert first.distance[first.answered].numpy().tobytes() == second.distance[second.answered].numpy().tobytes()


@pytest.mark.parametrize("name", ["iteration", "episode", "step", "identity", "action", "distance", "crc32"])
def test_a_digit_changed_in_any_row_is_one_clear_line(tmp_path: Path, name: str) -> None:
    """No checkpoint vouches for these rows. Each change is to something that could be an answer."""
    path = tmp_path / "answers.jsonl"
    lesson(taught_by(Moody()), path, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    row = json.loads(lines[20])
    changed = row[name] + 1.0 if name == "distance" else row[name] ^ 1
    before, after = (f'"{name}": {value}'.encode() for value in (row[name], changed))
    lines[20] = lines[20].replace(before, after, 1)
    assert lines[20] != (path.read_bytes().splitlines(keepends=True))[20]
    path.write_bytes(b"".join(lines))
    with pytest.raises(ApilError, match=r"answers\.jsonl has a row that was changed since") as caught:
        AnswerBook(path, CONFIG)
    assert "\n" not in str(caught.value)


def test_rows_of_older_versions_have_no_checksum_and_are_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lesson(taught_by(Moody()), path, 0)
    path.write_bytes(re.sub(rb', "crc32": \d+', b"", path.read_bytes()))
    silent = Moody()
    lesson(taught_by(silent), path, 0)
    assert silent.questions == 0


def test_changed_answers_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lesson(taught_by(Moody()), path, 0)
    content = path.read_bytes()
    prefix = Prefix(len(content), hashlib.sha256(content).hexdigest())
    AnswerBook(path, CONFIG, 1, prefix)
    changed = content.replace(b'"action": 0', b'"action": 1', 1)
    assert changed != content
    path.write_bytes(changed)
    with pytest.raises(ApilError, match=r"answers\.jsonl was changed.*restore it or start the run over"):
        AnswerBook(path, CONFIG, 1, prefix)
    assert path.read_bytes() == changed


class Heard:
    """Progress that is told of answers."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.answers: list[int] = []

    def __call__(self, done: int) -> None:
        self.done.append(done)

    def heard(self, answers: int) -> None:
        self.answers.append(answers)


@pytest.mark.parametrize("settings", [{}, {"walks": 2, "replay": 8}])
def test_progress_tells_of_answers_in_the_middle_of_an_iteration(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Of a teacher that takes its time: an iteration may last minutes."""
    progress, before = Heard(), []

    def script(state: np.ndarray[Any, Any], rng: np.random.Generator) -> int:
        time.sleep(0.02)
        before.append((len(progress.answers), len([done for done in progress.done if done])))
        return int(state.argmax()) % 2

    config = RunSettings.of("grid", "ann", "bc", batch=4, iterations=1, on_teacher_error="skip", **settings)
    start_run(config, tmp_path / "run", progress=progress, parts=Parts(teacher=Team({"ann": script})))
    assert any(answers and not done for answers, done in before), "told of before the first iteration is over"
    assert progress.answers == sorted(progress.answers)
