"""A run that begins with the answers of an earlier one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_parts import imported

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.learning.update import Learner
from apil.runs.resolve import resolve
from apil.runs.train import resume_run, start_run
from apil.settings import RunSettings

LEARNS: dict[str, Any] = {"replay": 32, "updates": 5, "validation": 0.1, "standardise": True, "batch": 4}
OLD = RunSettings.of("maze", "first+last", "always", iterations=40, hidden=16, persona=4, models=3, **LEARNS)
NEW = OLD.changed(
    query="dagger", hidden=24, encode=12, answer_budget=30, iterations=14, log_every=4, save_every=3, seed=5
)


def quiet(done: int) -> None:
    pass


def _content(folder: Path) -> dict[str, bytes]:
    skip = {"timings.jsonl", "environment.json", ".lock"}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in skip}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "old"
    start_run(OLD, folder, progress=quiet)
    return folder


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "new"
    start_run(NEW, folder, progress=quiet, answers_from=old)
    return folder


def test_the_store_begins_with_the_earlier_answers(old: Path, new: Path) -> None:
    before, now = apil.answers(old), apil.answers(new)
    assert now.earlier.sum() == len(before)
    first = slice(0, len(before))
    for name in ("features", "action", "distance", "identity", "iteration", "step", "version", "executed"):
        assert np.array_equal(getattr(now, name)[first], getattr(before, name)), name
    assert abs(now.held_out.sum() - len(now) / 10) <= 1


def test_they_are_no_answers_of_the_new_run(old: Path, new: Path) -> None:
    rows = [json.loads(line) for line in (new / "metrics.jsonl").read_text().splitlines()]
    own = int((~apil.answers(new).earlier).sum())
    assert rows[-1]["answers"] == own == 30
    assert len((new / "answers.jsonl").read_text().splitlines()) == 30
    note = json.loads((new / "earlier.json").read_text())
    assert (note["answers"], note["rows"]) == (len(apil.answers(old)),) * 2


def test_the_scale_has_seen_them_once(old: Path, new: Path) -> None:
    from safetensors.torch import load_file

    states = load_file(max(new.glob("checkpoint-*.safetensors")))
    live = sum(json.loads(line)["steps"] for line in (new / "metrics.jsonl").read_text().splitlines())
    assert states["model.scale.count"].item() == len(apil.answers(old)) + live


@pytest.mark.parametrize("iteration", [0, 2, 5, 11])
def test_it_resumes_exactly_without_the_earlier_run(
    iteration: int, old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(shutil.copytree(old, tmp_path / "old"))
    original = Learner.replay

    def replay(self: Learner, episodes: Any, store: Any, at: int, *rest: Any) -> Any:
        if at == iteration:
            raise KeyError
        return original(self, episodes, store, at, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "replay", replay)
        with pytest.raises(KeyError):
            start_run(NEW, tmp_path / "run", progress=quiet, answers_from=source)
    shutil.rmtree(source)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    resume_run(moved, iterations=None, progress=quiet)
    found, expected = _content(moved), _content(new)
    assert found.pop("earlier.json") != expected.pop("earlier.json")  # it names the other folder
    assert found == expected


@pytest.mark.parametrize("hurt", ["cut", "flipped", "gone"])
def test_the_first_answers_are_checked_before_there_is_a_checkpoint(
    hurt: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "replay", fail)
        with pytest.raises(KeyError):
            start_run(NEW, tmp_path / "run", progress=quiet, answers_from=old)
    path = tmp_path / "run" / "answers.store"
    content = bytearray(path.read_bytes())
    content[4200] ^= 1
    if hurt == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(content) if hurt == "flipped" else bytes(content[:5000]))
    before = _content(tmp_path / "run")
    with pytest.raises(ApilError, match="restore it or train again"):
        resume_run(tmp_path / "run", iterations=None, progress=quiet)
    assert _content(tmp_path / "run") == before


def test_paid_answers_outlive_an_architecture(old: Path, tmp_path: Path) -> None:
    """With twenty answers of its own, and another network: with the earlier answers it reaches far more."""
    given: dict[str, Any] = {"answer_budget": 20, "hidden": 64, "encode": 48, "seed": 3, "progress": False}
    with_them = apil.train("maze", "first+last", "dagger", answers_from=old, folder=tmp_path / "run", **given)
    without = apil.train("maze", "first+last", "dagger", **given)
    assert with_them.rows[-1]["answers"] == without.rows[-1]["answers"] == 20
    reached, missed = with_them.evaluate(100)["success_alone"], without.evaluate(100)["success_alone"]
    assert reached > missed + 0.3
    in_memory = apil.train("maze", "first+last", "dagger", answers_from=old, **given)
    assert in_memory.rows == with_them.rows


def test_teachers_are_matched_by_name(old: Path, tmp_path: Path) -> None:
    start_run(NEW.changed(teacher="uniform+last+first"), tmp_path / "run", progress=quiet, answers_from=old)
    before, now = apil.answers(old), apil.answers(tmp_path / "run")
    assert now.teacher[: len(before)].tolist() == before.teacher.tolist()
    start_run(NEW.changed(teacher="first+last+uniform"), tmp_path / "more", progress=quiet, answers_from=old)
    again = apil.answers(tmp_path / "more")
    assert again.teacher[: len(before)].tolist() == before.teacher.tolist()


def test_other_options_of_the_task_are_told(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An architecture may be one; so may be other walls, for which the answers are wrong."""
    config = resolve("maze", "first+last", "dagger", {"walls": 5, "iterations": 1, **LEARNS}, {}).settings
    start_run(config, tmp_path / "run", progress=quiet, answers_from=old)
    assert "given with other options of the task (walls" in capsys.readouterr().err


def test_answers_are_handed_on(new: Path, tmp_path: Path) -> None:
    start_run(NEW.changed(seed=9), tmp_path / "third", progress=quiet, answers_from=new)
    assert int(apil.answers(tmp_path / "third").earlier.sum()) == len(apil.answers(new))


def _flip(folder: Path) -> None:
    content = bytearray((folder / "answers.store").read_bytes())
    content[4300] ^= 4
    (folder / "answers.store").write_bytes(bytes(content))


def _remove(folder: Path) -> None:
    (folder / "answers.store").unlink()


def _nothing(folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("words", "hurt", "told"),
    [
        (["--task", "grid"], _nothing, "are of the task: maze; the run needs grid"),
        (["--task", "maze", "--size", "6"], _nothing, "are with rows of:"),
        (["--task", "maze", "--teacher", "first+uniform"], _nothing, "add last to --teacher"),
        (["--task", "maze", "--replay", "0"], _nothing, "give replay, for example 128"),
        (["--task", "maze", "--as-printed"], _nothing, "give replay, for example 128"),
        (["--task", "maze"], _flip, "was changed: its first"),
        (["--task", "maze"], _remove, "There is no"),
        (["--task", "maze"], shutil.rmtree, "There is no run folder"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    words: list[str],
    hurt: Callable[[Path], None],
    told: str,
    old: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = Path(shutil.copytree(old, tmp_path / "old"))
    hurt(source)
    teacher = [] if "--teacher" in words else ["--teacher", "first+last"]
    with pytest.raises(SystemExit) as stopped:
        main(["train", *words, *teacher, "--out", str(tmp_path / "new"), "--answers-from", str(source)])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_run_as_printed_has_no_answers_to_give(tmp_path: Path) -> None:
    start_run(RunSettings.of("maze", "first+last", "bc", iterations=2), tmp_path / "printed", progress=quiet)
    with pytest.raises(ApilError, match="keeps no store of answers"):
        start_run(NEW, tmp_path / "run", progress=quiet, answers_from=tmp_path / "printed")


def test_a_killed_run_gives_what_it_was_answered(old: Path, tmp_path: Path) -> None:
    """No checkpoint yet, and a torn row at the end."""
    killed = Path(shutil.copytree(old, tmp_path / "killed"))
    for path in killed.glob("checkpoint-*"):
        path.unlink()
    store = killed / "answers.store"
    store.write_bytes(store.read_bytes()[:-5] + bytes(9000))
    start_run(NEW, tmp_path / "run", progress=quiet, answers_from=killed)
    assert int(apil.answers(tmp_path / "run").earlier.sum()) == len(apil.answers(old)) - 1


def test_resuming_with_other_answers_is_refused(
    old: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--resume", str(new), "--answers-from", str(old)])
    assert stopped.value.code == 2
    assert "--answers-from cannot be changed on resume" in capsys.readouterr().err
    given: dict[str, Any] = {"iterations": 2, "progress": False, "folder": tmp_path / "run"}
    apil.train("maze", "first+last", "dagger", **given)
    with pytest.raises(ApilError, match="began without earlier answers"):
        apil.train("maze", "first+last", "dagger", answers_from=old, **given)


def test_whole_episodes_are_handed_on_whole(tmp_path: Path) -> None:
    with imported("own_task"):
        given = {"iterations": 8, "batch": 6, "length": 4, "replay": 8, "threshold": 0.4, "validation": 0.1}
        config = resolve("t-maze", "twodifdetm", "random", given, {}).settings
        start_run(config, tmp_path / "old", progress=quiet)
        start_run(config.changed(hidden=20, seed=4), tmp_path / "new", progress=quiet, answers_from=tmp_path / "old")
        before, now = apil.answers(tmp_path / "old"), apil.answers(tmp_path / "new")
        assert now.header.before == len(before.rows) > len(before)
        assert now.action[: len(before)].tolist() == before.action.tolist()
