"""`apil answers` and `apil.answers`: what they show, and what they export."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_parts import imported

import apil
from apil.cli import main
from apil.errors import ApilError
from apil.learning.rows import ANSWERED, EXECUTED, Kind, RowFormat
from apil.runs.agreement import agreements
from apil.runs.resolve import resolve
from apil.runs.store_file import Header, StoreFile
from apil.runs.stored import StoredAnswers
from apil.runs.stored_summary import summary
from apil.runs.train import start_run
from apil.settings import RunSettings
from apil.teachers.minari import read_episodes

SMALL: dict[str, Any] = {"hidden": 8, "persona": 4, "models": 3, "batch": 4, "replay": 16, "validation": 0.1}
CONFIG = RunSettings.of("grid", "twodifdetm", "always", iterations=20, **SMALL)


def quiet(done: int) -> None:
    pass


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers") / "run"
    start_run(CONFIG, folder, progress=quiet)
    return folder


def _made(features: Any, action: Any, identity: Any, kind: Kind = "floats", teachers: int = 2) -> StoredAnswers:
    """A store without a run."""
    table, taken = np.asarray(features, np.float32), np.asarray(action)
    continuous = taken.ndim == 2
    layout = RowFormat([(table.shape[1], kind)], taken.shape[1] if continuous else 4, continuous)
    rows = np.zeros(len(table), layout.dtype)
    rows["features0"] = np.packbits(table != 0, axis=-1) if kind == "bits" else table
    rows["action"], rows["identity"], rows["flags"] = taken, identity, ANSWERED
    layout.seal(rows)
    header = Header("made", layout, tuple("abcdefgh"[:teachers]), False)
    return StoredAnswers(Path("nowhere"), header, rows, np.arange(len(rows)))


def test_the_columns_are_those_of_answers_jsonl(run: Path) -> None:
    found = apil.answers(run)
    lines = [json.loads(line) for line in (run / "answers.jsonl").read_text().splitlines()]
    lines.sort(key=lambda row: (row["iteration"], row["episode"], row["step"]))
    assert len(found) == len(lines) > 50
    for name in ("iteration", "episode", "step", "identity", "action", "distance"):
        assert getattr(found, name).tolist() == [row[name] for row in lines], name
    assert found.teachers == ("first", "last")
    assert found.teacher.tolist() == [found.teachers[row["identity"]] for row in lines]
    assert found.version.tolist() == found.iteration.tolist()  # one update an iteration
    assert found.features.shape == (len(found), found.header.layout.features)
    assert found.valid[np.arange(len(found)), found.action].all()
    assert abs(found.held_out.sum() - len(found) / 10) <= 1
    assert not found.earlier.any()
    assert repr(found) == f"<{len(found)} answers on grid by first, last, in {run}>"


def test_the_tables_add_up(run: Path) -> None:
    found = apil.answers(run)
    made = summary(found)
    assert sum(made.by_teacher["answers"][name] for name in found.teachers) == made.by_teacher["answers"]["together"]
    assert sum(made.by_step["answers"].values()) == len(found)
    assert sum(made.by_step["share"].values()) == pytest.approx(1.0)
    assert made.by_teacher["executed"]["first"] == int(found.executed[found.identity == 0].sum())


def test_teachers_are_compared_where_the_features_are_the_same() -> None:
    """a says 0 and 1 in the first state, b says 0: half of the pairs agree. In the second state they agree."""
    found = _made([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [1, 1]], [0, 1, 0, 2, 2, 3], [0, 0, 1, 0, 1, 0], kind="bits")
    same, pairs = agreements(found)
    assert same
    assert [(pair.first, pair.second, pair.states, pair.value) for pair in pairs[:2]] == [
        ("a", "a", 1, 0.0),
        ("a", "b", 2, 0.75),
    ]
    assert pairs[2].states == 0
    assert np.isnan(pairs[2].value)
    assert pairs[1].low < 0.75 < pairs[1].high <= 1.0


def test_teachers_are_compared_in_states_nearby() -> None:
    """Two clouds far from each other, in which no state comes twice: b agrees with a in the first."""
    luck = np.random.default_rng(1)
    who = luck.integers(0, 2, 800)
    side = luck.integers(0, 2, 800)
    features = 10.0 * side[:, None] + 0.05 * luck.normal(size=(800, 3))
    same, pairs = agreements(_made(features, np.where(side == 1, who, 3), who))
    assert not same
    assert [round(pair.value, 2) for pair in pairs] == [1.0, pytest.approx(0.5, abs=0.05), 1.0]
    assert pairs[1].low < 0.5 < pairs[1].high
    assert all(pair.states > 300 for pair in pairs)
    far = 1000.0 * luck.normal(size=(50, 20))
    assert all(pair.states == 0 for pair in agreements(_made(far, np.zeros(50, int), np.arange(50) % 2))[1])


@pytest.mark.parametrize("again", [True, False])
def test_continuous_actions_are_compared_by_their_difference(again: bool) -> None:
    luck = np.random.default_rng(2)
    who, place = luck.integers(0, 2, 600), luck.integers(0, 5, 600)
    features = place[:, None] + (0.0 if again else 0.001) * luck.normal(size=(600, 2))
    action = np.stack([place + 0.3 * who, place + 0.5 * who], 1)
    same, pairs = agreements(_made(features, action, who))
    assert same == again
    assert [pair.value for pair in pairs] == [pytest.approx(value, abs=1e-5) for value in (0.0, 0.4, 0.0)]


def test_the_command_shows_tables_and_draws_a_figure(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["answers", str(run)])
    shown = capsys.readouterr().out
    for words in (
        "By teacher",
        "By step of the episode",
        "Agreement in similar states",
        "first and last",
        "answers.png",
    ):
        assert words in shown
    assert (run / "answers.png").read_bytes().startswith(b"\x89PNG")
    before = (run / "answers.png").read_bytes()
    main(["answers", str(run), "--figure", str(tmp_path / "again.png")])
    assert (tmp_path / "again.png").read_bytes() == before


def test_a_folder_that_cannot_be_written_gets_no_figure(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ApilError("Cannot write it: Read-only file system.")

    monkeypatch.setattr("apil.files.write_bytes", refuse)
    main(["answers", str(run)])
    assert "No figure: Cannot write it: Read-only file system. Give another place" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["answers", str(run), "--figure", "x.png"])


def test_what_keeps_no_answers_is_refused_in_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_run(RunSettings.of("grid", "detm", "bc", iterations=2), tmp_path / "printed", progress=quiet)
    (tmp_path / "empty").mkdir()
    for words, told in (
        ([str(tmp_path / "printed")], "keeps a store of answers, as all do unless"),
        ([str(tmp_path / "empty")], "config.json does not exist"),
        ([str(tmp_path / "nowhere")], "There is no run folder"),
        ([str(run), "--out", "x.csv", "--figure", "x.png"], "leave out --out or --figure"),
        ([str(run), "--figure", "x.svg"], "is no .png file"),
        ([str(run), "--out", str(tmp_path / "printed" / "config.json" / "x.csv")], "Cannot create"),
        ([str(run), "--out", str(tmp_path / "printed")], "is not empty"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["answers", *words])
        assert stopped.value.code == 2
        said = capsys.readouterr().err
        assert told in said
        assert said.count("\n") == 1


def test_a_run_without_answers_yet_is_shown_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    start_run(CONFIG.changed(query="random", threshold=0.0, iterations=2), folder, progress=quiet)
    main(["answers", str(folder)])
    assert capsys.readouterr().out.splitlines() == ["0 answers on grid", "The run: finished after 2 saved iterations"]
    assert apil.answers(folder).to_csv(tmp_path / "none.csv").read_text().count("\n") == 1


def test_csv_holds_every_number(run: Path, tmp_path: Path) -> None:
    found = apil.answers(run)
    told: list[int] = []
    path = found.to_csv(tmp_path / "deep" / "x.csv", told.append)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found) == told[-1]
    features = [[float(row[f"f{at}"]) for at in range(found.features.shape[1])] for row in rows]
    assert np.array_equal(np.array(features, np.float32), found.features)
    assert [row["teacher"] for row in rows] == found.teacher.tolist()
    assert [int(row["action"]) for row in rows] == found.action.tolist()
    assert [float(row["distance"]) for row in rows] == found.distance.tolist()
    assert [row["held_out"] == "true" for row in rows] == found.held_out.tolist()
    assert [entry.name for entry in path.parent.iterdir()] == ["x.csv"]


def test_csv_of_many_features_has_them_as_json(tmp_path: Path) -> None:
    luck = np.random.default_rng(0)
    found = _made(luck.normal(size=(9, 51)), luck.normal(size=(9, 2)), np.zeros(9, int))
    found.rows["distance"][3] = np.nan
    with found.to_csv(tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert np.array_equal(np.array([json.loads(row["features"]) for row in rows], np.float32), found.features)
    actions = np.array([[row["action0"], row["action1"]] for row in rows], np.float32)
    assert np.array_equal(actions, found.action)
    assert [row["distance"] for row in rows] == ["0"] * 3 + [""] + ["0"] * 5


@pytest.mark.parametrize("continuous", [False, True])
def test_parquet_holds_every_number(continuous: bool, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    luck = np.random.default_rng(0)
    action = luck.normal(size=(70, 2)) if continuous else luck.integers(0, 4, 70)
    found = _made(luck.normal(size=(70, 5)), action, np.arange(70) % 2)
    table = parquet.read_table(found.to_parquet(tmp_path / "x.parquet"))
    assert np.array_equal(np.array(table["features"].to_pylist(), np.float32), found.features)
    assert np.array_equal(np.array(table["action"].to_pylist(), found.action.dtype), found.action)
    assert table["teacher"].to_pylist() == found.teacher.tolist()
    assert table["held_out"].to_pylist() == found.held_out.tolist()


def test_parquet_says_what_to_install(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit) as stopped:
        main(["answers", str(run), "--out", str(tmp_path / "x.parquet")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "apil: pyarrow is not installed: pip install -c constraints.txt 'apil[parquet]'.\n"
    )
    assert not any(tmp_path.iterdir())


def test_an_export_that_fails_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(done: int) -> None:
        raise OSError(28, "No space left on device")

    found = apil.answers(run)
    (tmp_path / "x.csv").write_text("as it was")
    with pytest.raises(ApilError, match=r"Cannot write .*x.csv: No space left on device"):
        found.to_csv(tmp_path / "x.csv", fails)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as it was"]
    pytest.importorskip("minari", reason="needs the extra minari")
    with pytest.raises(ApilError, match="No space left on device"):
        found.to_minari(tmp_path / "data", fails)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_minari_has_the_answered_steps_and_makes_a_teacher(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari", reason="needs the extra minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    main(["answers", str(run), "--out", "minari"])
    found = apil.answers(run)
    episodes = list(read_episodes("grid/answers-v0"))
    assert sum(len(episode.actions) for episode in episodes) == len(found)
    assert np.concatenate([episode.answers for episode in episodes]).tolist() == found.action.tolist()
    assert np.concatenate([episode.teacher for episode in episodes]).tolist() == found.identity.tolist()
    assert np.array_equal(np.concatenate([episode.observations[:-1] for episode in episodes]), found.features)
    assert np.concatenate([episode.acted for episode in episodes]).tolist() == found.executed.tolist()
    assert apil.teachers.load_demonstrations("grid/answers-v0", what="answers", teacher="last") is not None
    assert found.to_minari(tmp_path / "folder") == tmp_path / "folder"
    with pytest.raises(ApilError, match="is not empty"):
        found.to_minari(tmp_path / "folder")


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("remembering") / "run"
    with imported("own_task"):
        given = {"iterations": 6, "batch": 6, "length": 4, "replay": 8, "threshold": 0.4}
        start_run(resolve("t-maze", "twodifdetm", "random", given, {}).settings, folder, progress=quiet)
        yield folder


def test_whole_episodes_are_exported_whole(remembering: Path, tmp_path: Path) -> None:
    pytest.importorskip("minari", reason="needs the extra minari")
    found = apil.answers(remembering)
    assert len(found.rows) > len(found)
    found.to_minari(tmp_path / "data")
    episodes = list(read_episodes(tmp_path / "data"))
    assert sum(len(episode.actions) for episode in episodes) == len(found.rows)
    assert sum(int(episode.asked.sum()) for episode in episodes) == len(found)
    assert all(episode.teacher[~episode.asked].tolist() == [-1] * int((~episode.asked).sum()) for episode in episodes)


def test_executed_answers_are_told_from_others() -> None:
    found = _made(np.zeros((3, 2)), [0, 1, 2], [0, 0, 1])
    found.rows["flags"][1] |= EXECUTED
    assert found.executed.tolist() == [False, True, False]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom apil.cli import main\ntry:\n    main(['answers', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'matplotlib', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--figure" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_store_is_not_changed_by_looking(run: Path, tmp_path: Path) -> None:
    before = (run / "answers.store").read_bytes()
    apil.answers(run).to_csv(tmp_path / "x.csv")
    header, _ = Header.read(run / "answers.store")
    StoreFile(run / "answers.store", header, None)
    assert (run / "answers.store").read_bytes() == before
