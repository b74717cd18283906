"""Watching runs: by what is in their folders, whatever state these are in, and without changing a byte."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.files import in_use, locked
from apil.runs.panel import curve, lines
from apil.runs.view import Watcher

_SMALL = ("--iterations", "6", "--log-every", "2", "--save-every", "2", "--hidden", "8", "--persona", "2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with looks at success alone and events for TensorBoard."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    main(
        ["train", "--task", "grid", "--query", "dagger", *_SMALL, "--out", str(folder), "--looks", "4", "--tensorboard"]
    )
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_finished_run_is_shown_and_not_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _bytes(run)
    main(["watch", str(run)])
    shown = capsys.readouterr().out
    assert "finished, 6 of 6 iterations" in shown
    answers = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["answers"]
    assert f"answers                   {answers}" in shown
    assert "at iteration 6" in shown, "success alone, by the last look"
    assert "first said" in shown or "last said" in shown
    assert _bytes(run) == before


def test_torn_and_odd_lines_are_passed_over(run: Path) -> None:
    whole = Watcher(run).look()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('nonsense\n[1]\n{"no": "iteration"}\n{"iteration": 8, "succ')
    with (run / "answers.jsonl").open("ab") as file:
        file.write(b'\xff\n{"iteration": ')
    torn = Watcher(run).look()
    assert (torn.rows, torn.questions) == (whole.rows, whole.questions)


def test_rows_that_a_resume_writes_again_are_taken_once(run: Path) -> None:
    watcher = Watcher(run)
    assert [row["iteration"] for row in watcher.look().rows] == [2, 4, 6]
    first = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (run / "metrics.jsonl").write_text(first)
    assert [row["iteration"] for row in watcher.look().rows] == [2]
    (run / "metrics.jsonl").write_text(first + '{"iteration": 4, "answers": 9}\n{"iteration": 4, "answers": 10}\n')
    assert [row.get("answers") for row in watcher.look().rows][1:] == [10]


def test_the_state_of_a_run_is_seen_without_disturbing_it(run: Path) -> None:
    assert Watcher(run).look().state == "finished"
    with locked(run):
        assert in_use(run)
        assert Watcher(run).look().state == "in training"
    assert not in_use(run)
    (run / "end.json").unlink()
    assert Watcher(run).look().state == "finished", "older versions noted no end"
    for path in run.glob("checkpoint-*"):
        path.unlink()
    assert Watcher(run).look().state == "killed"


def test_a_run_that_has_just_begun_can_be_watched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in run.iterdir():
        if path.is_file() and path.name != "config.json":
            path.unlink()
    main(["watch", str(run), "--once"])
    assert "0 of 6 iterations" in capsys.readouterr().out


def test_watching_imports_nothing_heavy(run: Path) -> None:
    script = (
        "import sys\nfrom apil.cli import main\n"
        f"main(['watch', {str(run)!r}, '--once'])\n"
        "print(sorted({'torch', 'matplotlib', 'scipy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["watch", "compare"])
def test_what_is_no_run_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(SystemExit) as stopped:
            main([command, str(folder)])
        error = capsys.readouterr().err
        assert stopped.value.code == 2
        assert error.count("\n") == 1
        assert str(folder) in error


def test_runs_are_compared_in_a_figure_and_tables(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    main(["compare", str(run), str(other), "--out", str(tmp_path / "out")])
    assert "success alone" in capsys.readouterr().out
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "compare.svg").read_text().rstrip().endswith("</svg>")
    with (tmp_path / "out" / "compare.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["run"] for row in table] == [str(run), str(other)]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (int(table[0]["answers"]), float(table[0]["query_rate"])) == (last["answers"], last["query_rate"])
    with (tmp_path / "out" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["iteration"]) for row in rows] == [
        (str(r), str(i)) for r in (run, other) for i in (2, 4, 6)
    ]


def _events(run: Path) -> dict[tuple[str, int], float]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    (path,) = (run / "tensorboard").iterdir()
    events = list(LegacyEventFileLoader(str(path)).Load())
    return {(value.tag, event.step): value.simple_value for event in events for value in event.summary.value}


def test_tensorboard_has_the_metrics_also_of_a_resumed_run(run: Path) -> None:
    def expected() -> dict[tuple[str, int], float]:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return {("asking/answers", row["iteration"]): row["answers"] for row in rows}

    found = _events(run)
    assert expected().items() <= found.items()
    assert {"success/success", "success/success_alone", "uncertainty/total", "loss/policy_loss"} <= {
        t for t, _ in found
    }
    main(["train", "--resume", str(run), "--iterations", "8"])
    assert len(expected()) == 4
    assert expected().items() <= _events(run).items()


def test_python_writes_for_tensorboard_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apil.train("grid", "detm", "dagger", iterations=4, log_every=2, folder=tmp_path / "run", tensorboard=True)
    assert ("asking/answers", 4) in _events(tmp_path / "run")
    assert "grid, detm, dagger" in capsys.readouterr().out
    with pytest.raises(ApilError, match="give a folder too"):
        apil.train("grid", "detm", "dagger", iterations=4, tensorboard=True)


def test_a_small_curve_keeps_the_shape() -> None:
    assert curve([0.0, 0.5, 1.0], 3) == "▁▅█"
    assert len(curve([float(x) for x in range(1000)])) == 24
    assert curve([1.0]) == ""


def test_what_is_left_is_shown_of_a_run_in_training(run: Path) -> None:
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(rows[:2]))
    (run / "timings.jsonl").write_text('{"from": 0, "to": 4, "seconds": 100.0}\n')
    with locked(run):
        view = Watcher(run).look()
    assert view.left == 50.0
    assert "about 0:00:50 left" in "\n".join(lines(view))


def test_output_that_is_not_read_to_its_end_is_no_failure(run: Path) -> None:
    """As in `apil answers RUN | head -1`."""
    words = [sys.executable, "-m", "apil", "compare", str(run), "--out", str(run.parent / "compared")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_a_run_that_has_all_its_answers_says_that_it_learns_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--hidden", "8", "--persona", "2")
    main(
        [
            "train",
            "--task",
            "grid",
            "--query",
            "dagger",
            "--answer-budget",
            "40",
            *small,
            "--out",
            str(tmp_path / "run"),
        ]
    )
    shown = capsys.readouterr().out
    assert "40 of 40" in shown
    assert "learning from 40 answers until the loss on held-out ones stops falling" in shown
