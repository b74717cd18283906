"""The command line as its users see it: what is written, what is printed, and one line for every mistake."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_up_r2r import made_up_files, write_folder

from apil.cli import main
from apil.query import QUERY_POLICIES
from apil.r2r.compile import compile_world
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.settings.record import Option
from apil.tasks import TASKS
from apil.teachers import TEACHERS

_HEADER = "task,teacher,query,seed,iteration,query_rate,success,intrinsic,extrinsic,behavioral,model,total,answers"


def _apil(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own, as from a shell."""
    command = [sys.executable, "-m", "apil.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The same command in this process, in an empty folder: a process for each mistake would take seconds."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["apil", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return Outcome(int(str(code or 0)), printed.out, printed.err)

    return command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as `apil train` writes it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    start_run(RunSettings.of("grid", "twodifdetm", "apil", iterations=3), folder, progress=lambda done: None)
    return folder


def test_a_run_is_trained_and_evaluated_from_a_shell(tmp_path: Path) -> None:
    options = ("--teacher", "twodifdetm", "--iterations", "12", "--log-every", "5", "--out", "run")
    done = _apil("train", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "apil evaluate run" in done.stdout
    folder = tmp_path / "run"
    config = json.loads((folder / "config.json").read_text())
    assert [config[part]["name"] for part in ("task", "teachers", "query")] == ["grid", "twodifdetm", "slip"]
    assert (config["iterations"], config["learner"]["batch"], config["model"]["expectation"]) == (12, 4, "exact")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [5, 10, 12]
    assert all({"query_rate", "success", "intrinsic", "extrinsic", "model", "total", "answers"} <= set(r) for r in rows)
    assert list(folder.glob("*.safetensors"))
    done = _apil("evaluate", "run", "--episodes", "30", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["episodes"] == 30
    assert evaluation["success_alone"] == evaluation["success_greedy"] == evaluation["success_with_help"] == 1.0
    assert not evaluation["greedy"]
    for name in ("query_rate", "query_rate_with_help", "intrinsic", "extrinsic", "behavioral", "model", "total"):
        assert evaluation[name] >= 0
    model = evaluation["teacher_model"]
    assert model["members"] == ["first", "last"]
    assert {"personas", "persona_js", "mixture_js", "identity_mean", "identity_true"} <= set(model)


def test_evaluation_gives_the_same_bytes_again(run: Run, trained: Path, tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(trained, tmp_path / name)) for name in ("one", "two")]
    assert [run("evaluate", copy, "--episodes", "30").code for copy in copies] == [0, 0]
    first, second = ((copy / "evaluation.json").read_bytes() for copy in copies)
    assert first == second
    assert run("evaluate", copies[0], "--episodes", "30", "--greedy").code == 0
    sampled, greedy = (json.loads(text) for text in (second, (copies[0] / "evaluation.json").read_text()))
    assert greedy["greedy"]
    for name in ("success_alone", "success_greedy", "teacher_model"):
        assert greedy[name] == sampled[name]


def test_all_parts_are_listed(run: Run) -> None:
    listed = run("list")
    assert (listed.code, listed.err) == (0, "")
    for registry in (TASKS, TEACHERS, QUERY_POLICIES):
        for entry in registry:
            assert any(entry.name in line.split()[:1] and entry.summary in line for line in listed.out.splitlines())


_STUDY = (
    "study", "grid", "--seeds", "1", "--iterations", "20", "--teachers", "detm", "twodifdetm",
    "--queries", "apil", "dagger", "--workers", "1", "--log-every", "5", "--episodes", "20", "--out", "results",
)  # fmt: skip


def test_a_study_writes_its_records_tables_figures_and_report(tmp_path: Path) -> None:
    done = _apil(*_STUDY, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    out = tmp_path / "results"
    lines = (out / "metrics.csv").read_text().splitlines()
    assert lines[0] == _HEADER
    keys = [tuple(line.split(",")[:3]) + tuple(map(int, line.split(",")[3:5])) for line in lines[1:]]
    assert len(keys) == 4 * 4
    assert keys == sorted(keys)
    summary = json.loads((out / "summary.json").read_text())
    assert {(c["teacher"], c["query"]) for c in summary["cells"]} == {
        (t, q) for t in ("detm", "twodifdetm") for q in ("apil", "dagger")
    }
    assert "| DAgger |" in (out / "table_uncertainty.md").read_text()
    assert "<html" in (out / "report.html").read_text()
    png, svg = ({path.stem for path in out.glob(f"figure_*.{kind}")} for kind in ("png", "svg"))
    assert png == svg
    assert {"figure_uncertainty", "figure_query_rate", "figure_success_answers"} <= png


def test_a_study_writes_answers_if_asked_to_and_tells_other_code(run: Run, tmp_path: Path) -> None:
    small = [*_STUDY[:7], "detm", "--queries", "bc", "--iterations", "5", "--workers", "1", "--episodes", "10"]
    study = (*small, "--out", "results", "--answers")
    assert run(*study).code == 0
    runs = list((tmp_path / "results" / "runs").iterdir())
    assert len(runs) == 1
    rows = [json.loads(line) for line in (runs[0] / "answers.jsonl").read_text().splitlines()]
    assert [(row["iteration"], row["step"]) for row in rows] == [(i, t) for i in range(5) for t in range(8)]
    assert {(row["episode"], row["query"]) for row in rows} == {(0, "bc")}

    made_by = runs[0] / "environment.json"
    noted = json.dumps({**json.loads(made_by.read_text()), "code": "another"})
    made_by.write_text(noted)
    refused = run(*study)
    assert refused.code == 2
    assert "1 finished runs" in refused.err
    assert "--keep-old" in refused.err
    kept = run(*study, "--keep-old")
    assert kept.code == 0
    assert "1 finished before and kept" in kept.out
    more = [*small, "--out", "results", "--answers", "--keep-old", "--seeds", "2", "--so-far"]
    assert "1 of 2 runs" in run(*more).out
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 1, "nothing is run"
    none = run(*small, "--out", "other", "--so-far")
    assert none.code == 2
    assert "No run in" in none.err
    evaluated = run(*study, "--keep-old", "--episodes", "12")
    assert evaluated.code == 0
    assert "1 trained before and evaluated now" in evaluated.out
    assert json.loads((runs[0] / "evaluation.json").read_text())["episodes"] == 12
    assert made_by.read_text() == noted, "what made the run is not forgotten"


def test_help_is_quick_to_come_by() -> None:
    """Neither help nor the list needs what training needs."""
    script = (
        "import sys\n"
        "sys.argv = ['apil', 'study', '--help']\n"
        "from apil.cli import main\nfrom apil.cli.other import List, show_list\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "show_list(List())\n"
        "print(sorted({'torch', 'matplotlib', 'scipy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "--workers" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


# Mistakes.

_TINY = ("--iterations", "2")
_SMALL_STUDY = ("--seeds", "1", "--iterations", "2", "--episodes", "2", "--workers", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--task", "gird", *_TINY), "Unknown task 'gird'. Did you mean 'grid'? Known: grid, maze, r2r."),
        (
            ("train", "--teacher", "detmm", *_TINY),
            "Unknown teacher 'detmm'. Did you mean 'detm'? Known: detm, people, rand,",
        ),
        (("train", "--teacher", "first+lst", *_TINY), "Unknown committee member 'lst'. Did you mean 'last'?"),
        (
            ("train", "--query", "appil", *_TINY),
            "Unknown query policy 'appil'. Did you mean 'apil'? Known: always, apil, bc,",
        ),
        (("train", "--iterations", "0"), "iterations is 0"),
        (("train", "--iterations", "-3"), "iterations is -3"),
        (("train", "--batch", "0", *_TINY), "batch is 0"),
        (("train", "--learning-rate", "nan", *_TINY), "learning-rate is nan"),
        (("train", "--models", "0", *_TINY), "models is 0"),
        (("train", "--samples", "-1", "--expectation", "monte-carlo", *_TINY), "samples is -1"),
        (("train", "--threshold", "-1", "--query", "intrun", *_TINY), "threshold is -1"),
        (("train", "--log-every", "0", *_TINY), "log-every is 0"),
        (("train", "--sigma", "1", *_TINY), "sigma is 1"),
        (("train", "--weights", "0.5", "0.6", *_TINY), "sum to 1.1"),
        (("train", "--weights", "1", *_TINY), "1 weights for 2 members"),
        (("train", "--calibration", "missing.json", "--query", "intrun", *_TINY), "missing.json does not exist"),
        (("study", "gird", *_SMALL_STUDY), "Unknown task 'gird'"),
        (("study", "grid", "--teachers", "detmm", *_SMALL_STUDY), "Unknown teacher 'detmm'"),
        (("study", "grid", "--queries", "apil", "dager", *_SMALL_STUDY), "Unknown query policy 'dager'"),
        (("study", "grid", "--seeds", "0"), "seeds is 0"),
        (("study", "grid", "--seeds", "1", "--iterations", "0"), "iterations is 0"),
        (("study", "grid", "--seeds", "1", "--episodes", "0"), "episodes is 0"),
        (("study", "grid", "--seeds", "1", "--workers", "-1"), "workers is -1"),
        (("study", "grid", "--calibration", "missing.json", *_SMALL_STUDY), "missing.json does not exist"),
        (("calibrate", "--query", "bc", *_TINY), "'bc' has no threshold. Policies to calibrate: intrun"),
        (("calibrate", "--query", "intrnu", *_TINY), "Unknown query policy 'intrnu'. Did you mean 'intrun'?"),
        (("calibrate", "--seeds", "0"), "seeds is 0"),
        (("calibrate", "--task", "gird", *_TINY), "Unknown task 'gird'"),
        (("evaluate", "nowhere"), "There is no run folder nowhere"),
    ],
    ids=lambda value: "_".join(value[:4]) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_line_and_writes_nothing(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    _one_line(run(*arguments), message)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--width", "abc"), "Error parsing --width: invalid literal for int"),
        (("--width", "0"), "width is 0: give a whole number from 1"),
        (("--heads", "3"), "width 128 is not a multiple of heads 3"),
        (("--distance-weight", "nan"), "distance-weight is nan: give a number"),
        (("--widht", "2"), "apil train has no option --widht. Did you mean --width?"),
        (("--features", "smell"), "There is no feature 'smell'"),
        (("--features", ""), "There is no feature ''"),
        (("--features", "rooms,images"), "The data have no images: compile with --image-features, or leave it out"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_in_what_an_r2r_agent_is_to_be_writes_nothing(
    run: Run, tmp_path: Path, made_up_data: Path, arguments: tuple[str, ...], message: str
) -> None:
    _one_line(run("train", "--task", "r2r", "--data", made_up_data, *arguments, *_TINY), message)
    assert list(tmp_path.rglob("*")) == []


def test_features_that_the_data_lack_are_left_out_unless_they_are_typed(run: Run, tmp_path: Path) -> None:
    files = {name: value for name, value in made_up_files().items() if name.startswith(("conn", "anno", "capt"))}
    compile_world(write_folder(tmp_path / "raw", files), tmp_path / "data", lambda stage, done, total: None)
    train = ("train", "--task", "r2r", "--data", "data", "--batch", "2", "--width", "16", *_TINY)
    _one_line(run(*train, "--features", "captions,objects"), "The data have no objects: compile files with objects")
    assert run(*train, "--out", "typed", "--features", "captions,geometry").code == 0
    assert run(*train, "--out", "open").code == 0
    assert (
        json.loads((tmp_path / "open/config.json").read_text())["task"]["options"]["features"]
        == "captions,objects,rooms"
    )


def _one_line(outcome: Outcome, message: str) -> None:
    assert outcome.code == 2
    assert outcome.err.startswith("apil: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def test_a_mistake_from_a_shell_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = _apil("train", "--task", "gird", cwd=tmp_path)
    _one_line(Outcome(done.returncode, done.stdout, done.stderr), "Did you mean 'grid'?")


def test_evaluating_no_episodes_is_refused(run: Run, trained: Path) -> None:
    _one_line(run("evaluate", trained, "--episodes", "0"), "episodes is 0")
    assert not (trained / "evaluation.json").exists()


@pytest.mark.parametrize(
    "option", [("--split", "val_seen"), ("--sample",), ("--shuffle",), ("--draw", "2"), ("--data", "houses")]
)
def test_evaluating_another_task_with_an_option_of_r2r_is_refused(
    run: Run, trained: Path, option: tuple[str, ...]
) -> None:
    _one_line(run("evaluate", trained, "--episodes", "2", *option), f"{option[0]}")
    assert not (trained / "evaluation.json").exists()


def test_each_way_to_evaluate_an_r2r_agent_has_a_file_of_its_own(run: Run, tmp_path: Path, made_up_data: Path) -> None:
    options: dict[str, Option] = {"data": str(made_up_data), "width": 16, "heads": 2}
    config = RunSettings.of("r2r", "detm", "bc", iterations=1, batch=2, hidden=8, persona=4, models=2, options=options)
    start_run(config, tmp_path / "run", progress=lambda done: None)
    kept = tmp_path / "run/evaluation-val_unseen.json"
    assert run("evaluate", "run").code == 0
    before = kept.read_bytes()
    for arguments, name in (
        (("--sample",), "val_unseen-sampled"),
        (("--shuffle",), "val_unseen-shuffled"),
        (("--shuffle", "--sample", "--episodes", "1"), "val_unseen-shuffled-sampled-first-1"),
        (("--episodes", "1"), "val_unseen-first-1"),
    ):
        assert run("evaluate", "run", *arguments).code == 0
        found = json.loads((tmp_path / f"run/evaluation-{name}.json").read_text())
        assert found["greedy"] == ("--sample" not in arguments)
        assert found["episodes"] == (1 if "--episodes" in arguments else 2)
        assert kept.read_bytes() == before
    # As many as there are is the whole split.
    kept.unlink()
    assert run("evaluate", "run", "--episodes", "9").code == 0
    assert kept.read_bytes() == before


@pytest.mark.parametrize("command", [("train", *_TINY), ("study", "grid", *_SMALL_STUDY)], ids=["train", "study"])
def test_a_folder_that_holds_something_else_is_left_alone(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("dear to me")
    for out in (mine, mine / "thesis.tex", mine / "thesis.tex" / "deeper"):
        outcome = run(*command, "--out", out)
        _one_line(outcome, str(out))
        assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.tex"]
        assert (mine / "thesis.tex").read_text() == "dear to me"


def test_a_study_of_another_task_is_left_alone(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "results"
    out.mkdir()
    (out / "study.json").write_text('{"task": "maze"}')
    _one_line(run("study", "grid", *_SMALL_STUDY, "--out", out), "holds a study of 'maze', not of 'grid'")
    assert [path.name for path in out.iterdir()] == ["study.json"]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"grid": {"intrun": 0.1}}', '{"grid": {"intrun": {"threshold": "x", "how": ""}}}']
)
def test_a_bad_calibration_file_is_refused_by_every_command(run: Run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(content)
    for command in (
        ("train", "--query", "intrun", *_TINY, "--calibration", path),
        ("study", "grid", *_SMALL_STUDY, "--calibration", path),
        ("calibrate", "--query", "random", "--seeds", "1", *_TINY, "--out", path),
    ):
        _one_line(run(*command), str(path))
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_text() == content


@pytest.mark.parametrize("damage", ["weights", "config", "types", "empty"])
def test_a_damaged_run_folder_is_one_line(run: Run, trained: Path, tmp_path: Path, damage: str) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    if damage == "weights":
        for path in copy.glob("*.safetensors"):
            path.write_bytes(path.read_bytes()[:-100])
    elif damage == "config":
        (copy / "config.json").write_text('{"task": ')
    elif damage == "types":
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "model": {"hidden": "a hundred"}}))
    else:
        for path in copy.iterdir():
            path.unlink()
    outcome = run("evaluate", copy, "--episodes", "2")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("apil: ")
    # Warnings about single checkpoints may come first; every line is apil's own.
    assert all(line.startswith("apil: ") for line in outcome.err.splitlines())
    assert not (copy / "evaluation.json").exists()


def test_a_calibration_is_found_kept_and_used(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text('{"maze": {"intrun": {"threshold": 0.75, "how": "by hand"}}}')
    assert run("calibrate", "--query", "random", "--seeds", "1", "--iterations", "5", "--out", path).code == 0
    found = json.loads(path.read_text())
    assert found["maze"] == {"intrun": {"threshold": 0.75, "how": "by hand"}}
    threshold = found["grid"]["random"]["threshold"]
    assert 0 < threshold < 1
    assert run("train", "--query", "random", *_TINY, "--calibration", path, "--out", "run").code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["query"]["threshold"] == threshold


def test_a_budget_and_the_options_of_a_rule_can_be_typed(run: Run, tmp_path: Path) -> None:
    assert run("train", "--query", "entropy", "--budget", "0.25", *_TINY, "--out", "tenth").code == 0
    config = json.loads((tmp_path / "tenth" / "config.json").read_text())
    assert (config["query"]["budget"], config["query"]["threshold"]) == (0.25, None)
    assert run("train", "--query", "every", "--query-options", "k=3", *_TINY, "--out", "clock").code == 0
    assert json.loads((tmp_path / "clock" / "config.json").read_text())["query"]["options"] == {"k": 3}
    _one_line(
        run("train", "--query", "every", "--query-options", "k", *_TINY), "'k' is not an option: write name=value"
    )
    _one_line(run("train", "--query", "dagger", "--budget", "0.1", *_TINY), "'dagger' cannot keep a budget")
    _one_line(run("train", "--query", "margin", *_TINY), "No threshold is known for 'margin' on 'grid'")
