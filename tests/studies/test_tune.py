"""Searches for settings: on seeds that are not reported, scored as a study would, written as a study."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from apil.cli import main
from apil.errors import ApilError
from apil.files import read_json
from apil.learning.evaluate import evaluate
from apil.learning.trainer import Trainer
from apil.studies.files import read_study_file
from apil.studies.tuning import RUNGS, as_toml, read_search

_FILE = """
tasks = ["grid"]
teachers = ["detm"]
rules = [{ query = "random", budget = 0.5, label = "half" }, "bc"]
seeds = 3
episodes = 10

[costs]
first = 2.5

[settings]
iterations = 9
hidden = 8

[tune]
trials = 3
episodes = 20
first_seed = 50

[search]
learning_rate = { low = 1e-4, high = 1e-1, log = true }
batch = { low = 1, high = 4 }
encode = [0, 8]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "search.toml"
    path.write_text(_FILE)
    return path


def test_the_best_settings_are_written_as_a_study_that_reports_other_seeds(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna", reason="needs the extra tune: pip install 'apil[tune]'")
    for name in ("one.toml", "two.toml"):
        main(["tune", str(file), "--out", str(tmp_path / name)])
    assert "best of 3 trials" in capsys.readouterr().out
    assert (tmp_path / "one.toml").read_bytes() == (tmp_path / "two.toml").read_bytes()
    trials = read_json(tmp_path / "one.trials.json")["trials"]
    assert len(trials) == 3
    best = max(trials, key=lambda trial: (len(trial["scores"]), trial["scores"][-1]))
    study = read_study_file(tmp_path / "one.toml")
    assert study.settings == {"iterations": 9, "hidden": 8, **best["values"]}
    assert (list(study.run_seeds), study.costs) == ([0, 1, 2], {"first": 2.5})
    for trial in trials:
        assert 1e-4 <= trial["values"]["learning_rate"] <= 1e-1
        assert trial["values"]["batch"] in (1, 2, 3, 4)
        assert trial["values"]["encode"] in (0, 8)
    with pytest.raises(SystemExit):  # what is there is not written over
        main(["tune", str(file), "--out", str(tmp_path / "one.toml")])


@pytest.mark.skipif(sys.platform == "win32", reason="needs the signals of POSIX")
def test_an_interrupt_ends_a_search_in_one_line_and_leaves_no_result(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra tune: pip install 'apil[tune]'")
    file.write_text(_FILE.replace("trials = 3", "trials = 100_000"))
    typed = [sys.executable, "-m", "apil", "tune", str(file), "--out", str(tmp_path / "out.toml")]
    with subprocess.Popen(
        typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_heed_interrupts
    ) as search:
        assert search.stdout is not None
        assert "of 100,000" in search.stdout.readline()  # it has begun
        search.send_signal(signal.SIGINT)
        said = search.communicate(timeout=60)[0]
    assert search.returncode == 130
    assert "stopped; nothing was written" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out.toml").exists()


def _heed_interrupts() -> None:
    """Whoever runs the tests in the background may have them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_score_is_what_a_study_with_these_seeds_would_report(file: Path) -> None:
    """Measuring a training on its way does not change it."""
    search, values = read_search(file), {"learning_rate": 1e-2, "batch": 2, "encode": 8}
    scores: list[float] = []

    def note(rung: int, score: float) -> bool:
        scores.append(score)
        return False

    search.score(values, note)
    assert len(scores) == len(RUNGS)
    cells = search.cells(values)
    assert {cell.config.seed for cell in cells} == {50, 51}
    found = []
    for cell in cells:
        trainer = Trainer([cell.config])
        trainer.train()
        found.append(evaluate(trainer.trained_agents(), 20)[0]["success_alone"])
    assert scores[-1] == pytest.approx(sum(found) / len(found))


def test_a_trial_that_is_given_up_trains_no_further(file: Path) -> None:
    rungs: list[int] = []

    def give_up(rung: int, score: float) -> bool:
        rungs.append(rung)
        return rung == 2

    read_search(file).score({"learning_rate": 1e-2, "batch": 1, "encode": 0}, give_up)
    assert rungs == [1, 2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "first_seed = 50",
            "first_seed = 2",
            r"tries seeds 2 to 3, and the study reports 0 to 2: .* another first_seed",
        ),
        ("trials = 3", "trails = 3", r"Unknown key of \[tune\] 'trails'. Did you mean 'trials'\?"),
        ("trials = 3", "trials = 0", "trials is 0"),
        ("low = 1, high = 4", "low = 4, high = 1", r"\[search\] batch is .*low below high"),
        ("low = 1e-4,", "low = 0,", "above 0 with log"),
        ("encode = [0, 8]", "encode = 8", "give a list of choices"),
        ("encode = [0, 8]", "size = [0, 8]", r"Unknown setting in \[search\] 'size'"),
        ("encode = [0, 8]", 'encode = [0, "much"]', "encode"),
        ("[search]", "[searched]", r"A search has a table \[search\]"),
    ],
)
def test_a_mistake_names_the_file_and_what_is_allowed(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(_FILE.replace(old, new))
    with pytest.raises(ApilError, match=message) as refused:
        read_search(file)
    assert str(refused.value).startswith(str(file))


def test_the_example_can_be_searched() -> None:
    search = read_search(Path(__file__).parents[2] / "examples" / "tune.toml")
    assert set(search.space) == {"learning_rate", "hidden", "updates"}


def test_a_study_survives_the_way_through_toml() -> None:
    values = {"a": 1e-5, "b": [1, 2.5, 'x"y\\'], "c": [{"d": True, "e f": "é"}], "t": {"u-v": 0.1, "w": [1]}}
    assert tomllib.loads(as_toml(values)) == values
