"""`apil study r2r` from the command line, in generated houses: made in steps, with what was found kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from apil.cli import main


def _study(monkeypatch: pytest.MonkeyPatch, out: Path, data: Path, *words: str) -> None:
    small = (
        "--iterations",
        "5",
        "--episodes",
        "6",
        "--workers",
        "1",
        "--seeds",
        "1",
        "--maps",
        "0",
        "--log-every",
        "1",
    )
    monkeypatch.setattr(sys, "argv", ["apil", "study", "r2r", "--data", str(data), "--out", str(out), *small, *words])
    main()


def test_a_study_in_steps_keeps_its_thresholds_and_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path
) -> None:
    out = tmp_path / "study"
    _study(monkeypatch, out, houses_data, "--teachers", "detm", "--queries", "dagger", "apil", "intrun")
    found = (out / "calibration.json").read_bytes()
    assert set(json.loads(found)["thresholds"]) == {"intrun"}
    runs = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/checkpoint-*")}
    _study(monkeypatch, out, houses_data, "--teachers", "detm", "--queries", "bc")
    assert (out / "calibration.json").read_bytes() == found, "what another step found is not lost"
    _study(monkeypatch, out, houses_data, "--teachers", "detm", "rand", "--so-far")
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    summary = json.loads((out / "summary.json").read_text())
    assert {(cell["teacher"], cell["query"]) for cell in summary["cells"]} == {
        ("detm", query) for query in ("dagger", "apil", "intrun", "bc")
    }
    figures = {"success_alone", "success_with_help", "spl", "ndtw", "navigation_error", "query_rate"}
    for cell in summary["cells"]:
        for split in ("val_unseen", "val_seen"):
            assert figures <= cell["splits"][split].keys()
            assert all({"mean", "low", "high"} <= cell["splits"][split][name].keys() for name in figures)
    assert [set(entry) for entry in summary["teachers"]] == [{"teacher", "success", "final_distance"}]
    report = (out / "report.html").read_text()
    assert "map_1" not in report


def test_with_one_teacher_a_run_of_intrun_serves_behvun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path
) -> None:
    """The two rules are the same there; with two teachers they are not."""
    out = tmp_path / "study"
    teachers = ("--teachers", "rand", "twodifdetm")
    _study(monkeypatch, out, houses_data, *teachers, "--queries", "intrun", "behvun")
    assert {path.name.rsplit("-", 2)[0] for path in (out / "runs").iterdir()} == {
        "rand-intrun",
        "twodifdetm-intrun",
        "twodifdetm-behvun",
    }
    cells = {(c["teacher"], c.pop("query")): c for c in json.loads((out / "summary.json").read_text())["cells"]}
    assert cells["rand", "behvun"] == cells["rand", "intrun"]
    monkeypatch.setattr(
        sys, "argv", ["apil", "train", "--task", "r2r", "--data", str(houses_data), "--teacher", "rand"]
    )
    threshold = json.loads((out / "calibration.json").read_text())["thresholds"]["behvun"]["threshold"]
    words = ["--query", "behvun", "--threshold", str(threshold), "--iterations", "5", "--log-every", "1"]
    sys.argv += [*words, "--as-printed", "--out", str(tmp_path / "own")]
    main()
    ours = json.loads((tmp_path / "own" / "metrics.jsonl").read_text().splitlines()[-1])
    theirs = next((out / "runs").glob("rand-intrun-*")) / "metrics.jsonl"
    assert ours["answers"] == json.loads(theirs.read_text().splitlines()[-1])["answers"]


def test_finished_runs_count_wherever_the_data_lie_and_are_never_thrown_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their records are all that is left when the weights were deleted: other --episodes cannot evaluate them again."""
    out = tmp_path / "study"
    only = ("--teachers", "detm", "--queries", "bc")
    _study(monkeypatch, out, houses_data, *only)
    for path in out.glob("runs/*/checkpoint-*"):
        path.unlink()
    records = {path: path.read_bytes() for path in out.glob("runs/*/*") if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        _study(monkeypatch, out, houses_data, *only, "--episodes", "7")
    assert stop.value.code == 2
    assert "give --episodes as before" in capsys.readouterr().err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(houses_data)
    _study(monkeypatch, out, elsewhere, *only)
    assert "1 finished before and kept" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in records} == records
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["task"], summary["public_data"]) == ("r2r", False)
    table = (out / "table_r2r.md").read_text()
    assert "nothing here compares with the paper's numbers" in table
    assert "bc, paper" not in table


def test_thresholds_of_other_settings_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, houses_data: Path
) -> None:
    out = tmp_path / "study"
    only = ("--teachers", "detm", "--queries", "intrun")
    _study(monkeypatch, out, houses_data, *only)
    path = out / "calibration.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({"settings": "another", "thresholds": {"intrun": {"threshold": 0.5, "how": "?"}}}))
    _study(monkeypatch, out, houses_data, *only)
    assert json.loads(path.read_text()) == made


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--budget", "0.1"), "--budget does not go with a study of 'r2r'"),
        (("--episodes", "-3"), "episodes is -3"),
    ],
)
def test_what_a_study_of_r2r_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    houses_data: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, str],
    told: str,
) -> None:
    with pytest.raises(SystemExit) as stop:
        _study(monkeypatch, tmp_path / "study", houses_data, *words)
    assert stop.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "study").exists()
