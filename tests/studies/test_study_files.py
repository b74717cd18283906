"""A study of your own: the file, its mistakes, and what comes out."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from apil.errors import ApilError
from apil.runs.bill import member_names
from apil.runs.calibration import load_calibration
from apil.settings.run import LEARNING
from apil.studies.files import own_plan, read_study_file
from apil.studies.folder import claimed
from apil.studies.run import study
from apil.studies.statistics import area_under, improvement, needed, stratified_estimate

_EXAMPLE = Path(__file__).parents[2] / "examples" / "study.toml"


def _made_tiny(text: str) -> str:
    """The same study in a few seconds."""
    for name, value in (("seeds", 2), ("episodes", 4), ("iterations", 6)):
        text, found = re.subn(rf"^{name} = \d+", f"{name} = {value}", text, flags=re.MULTILINE)
        assert found == 1
    return text + "log_every = 2\nbatch = 2\n"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, made tiny, with a second task."""
    folder = tmp_path_factory.mktemp("own")
    text = _made_tiny(_EXAMPLE.read_text()).replace('tasks = ["maze"]', 'tasks = ["maze", "grid"]')
    (folder / "study.toml").write_text(text)
    study(folder / "study.toml", out=folder / "out", workers=1)
    return folder / "out"


def test_the_example_gives_the_tables_figures_and_report_of_a_study(out: Path) -> None:
    assert {path.name for path in out.iterdir()} >= {"report.html", "table_comparison.md", "comparison.json", "maze"}
    names = {path.name for path in (out / "maze").iterdir()}
    for table in ("uncertainty", "queries", "teachers", "interactions", "costs"):
        assert f"table_{table}.md" in names
    assert {"report.html", "figure_query_rate.svg", "summary.json", "metrics.csv"} <= names
    page = (out / "maze" / "report.html").read_text()
    assert page.index("<figure") == page.index('<figure id="figure_success_answers"')
    assert "entropy@0.1" in page
    assert "behavioural" in page
    assert "A budget, the share of training steps" in page


def test_the_bill_has_the_costs_of_the_study_and_what_the_last_answers_bought(out: Path) -> None:
    found = json.loads((out / "maze" / "bill.json").read_text())
    spent = json.loads((out / "maze" / "interactions.json").read_text())
    totals = {(entry["teacher"], entry["query"]): entry["total_cost"] for entry in spent["entries"]}
    assert found["source"] == "training"
    for entry in found["entries"]:
        assert entry["total"] == pytest.approx(totals[entry["teacher"], entry["query"]])
        assert entry["select"] == "environment"
        assert [own["level"] for own in entry["to"]] == found["levels"]
    assert "The bill" in (out / "maze" / "report.html").read_text()
    table = (out / "maze" / "table_bill.md").read_text()
    assert "cost to 90%" in table
    assert "the last 100 answers" in table


def test_interactions_areas_and_costs_are_those_of_the_run_folders(out: Path) -> None:
    found = json.loads((out / "maze" / "interactions.json").read_text())
    entry = next(e for e in found["entries"] if e["query"] == "entropy@0.1")
    folders = sorted((out / "maze" / "runs").glob("twodifdetm-entropy-*"))
    answers: dict[str, list[int]] = {"first": [], "last": []}
    areas = []
    for folder in folders:
        rows = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
        for k, name in enumerate(answers):
            answers[name].append(sum(row["identity"] == k for row in rows))
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        points = np.linspace(0, entry["area_to"], 200_001)
        at = {m["answers"]: m["success"] for m in metrics}  # of rows with as many answers, the last
        areas.append(np.interp(points, list(at), list(at.values())).mean())
    for name, price in (("first", 1.0), ("last", 2.5)):
        assert entry["answers"][name]["mean"] == pytest.approx(np.mean(answers[name]))
        assert entry["cost"][name]["mean"] == pytest.approx(price * np.mean(answers[name]))
    assert entry["area"]["mean"] == pytest.approx(np.mean(areas), abs=1e-3)


def test_a_study_that_is_run_again_keeps_its_runs(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (out / "comparison.json").read_bytes()
    study(out.parent / "study.toml", out=out, workers=1)
    assert "12 finished before and kept, 0 trained before and evaluated now, 0 resumed" in capsys.readouterr().out
    assert (out / "comparison.json").read_bytes() == before


def test_what_is_finished_of_a_study_can_be_looked_at_while_it_runs(out: Path, tmp_path: Path) -> None:
    copied = tmp_path / "out"
    shutil.copytree(out, copied)
    for path in (copied / "grid/runs").glob("*-entropy-*"):
        shutil.rmtree(path)
    for path in (copied / "maze/runs").glob("*-1-*"):
        shutil.rmtree(path)
    with claimed(copied, "study", "apil study study.toml"):  # as the process that trains holds it
        found = study(out.parent / "study.toml", out=copied, workers=1, so_far=True)
    assert set(found) == {"maze", "grid"}
    rules = {entry["query"] for entry in json.loads((copied / "comparison.json").read_text())["rules"]}
    assert "entropy@0.1" not in rules
    assert {"dagger", "apil", "random@0.1"} <= rules
    assert {records.seeds for records in found.values()} == {1}, "those that all have"
    for path in (copied / "grid/runs").glob("*-random-*"):
        shutil.rmtree(path)
    with pytest.raises(ApilError, match=r"Too little is finished to compare rules with 'random@0\.1'"):
        study(out.parent / "study.toml", out=copied, workers=1, so_far=True)


_RULE = _EXAMPLE.parent / "own_rule.py"


def test_a_rule_of_your_own_is_one_file_and_reaches_the_workers(tmp_path: Path) -> None:
    assert len(_RULE.read_text().splitlines()) <= 30
    (tmp_path / "study.toml").write_text(
        'tasks = ["grid"]\nteachers = ["detm", "twodifdetm"]\nseeds = 1\nepisodes = 2\n'
        'rules = ["dagger", { query = "part", budget = 0.3 }]\n[settings]\niterations = 3\nlog_every = 1\n'
    )
    environment = {**os.environ, "APIL_PLUGINS": str(_RULE)}
    command = [sys.executable, "-m", "apil.cli", "study", "study.toml", "--out", "out", "--workers", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| part@0.3 |" in (tmp_path / "out" / "grid" / "table_interactions.md").read_text()
    typed = "apil study study.toml --out out"
    for folder in (tmp_path / "out", tmp_path / "out" / "grid"):
        assert json.loads((folder / "study.json").read_text())["command"] == f"APIL_PLUGINS=own_rule.py {typed}"


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        ("", "apil study x.toml"),
        ("rules/own.py, my.rules", "APIL_PLUGINS=rules/own.py,my.rules apil study x.toml"),
        ("{here}/rules/own.py", "APIL_PLUGINS=rules/own.py apil study x.toml"),
        ("{here}/../other/own.py", "APIL_PLUGINS=own.py apil study x.toml"),
        ("{here}/my rules.py", "APIL_PLUGINS='my rules.py' apil study x.toml"),
    ],
)
def test_the_command_that_is_recorded_names_its_plugins(
    given: str, recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APIL_PLUGINS", given.format(here=tmp_path))
    with claimed(Path("out"), "x", "apil study x.toml"):
        pass
    assert json.loads(Path("out/study.json").read_text()) == {"task": "x", "command": recorded}


# Mistakes.

_SOUND = 'tasks = ["grid"]\nteachers = ["detm"]\nrules = ["apil", "dagger"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = [", "is not TOML"),
        ('teachers = ["detm"]\nrules = ["apil"]', "tasks is missing: give a list of tasks"),
        (_SOUND.replace('["detm"]', "[]"), "'teachers' is empty: give a list with at least one entry"),
        (_SOUND + "sedes = 3", "Unknown setting 'sedes'. Did you mean 'seeds'\\?"),
        (_SOUND + "seeds = 0", "seeds is 0: give a whole number from 1"),
        (_SOUND + 'seeds = "many"', "seeds is 'many'"),
        (_SOUND + 'baseline = "bc"', "Unknown baseline 'bc'. Known: apil, dagger"),
        (_SOUND + "reach = [1.5]", "reach 1 is 1.5: give a list of shares above 0"),
        (_SOUND + "reach = 0.5", "reach is 0.5: give a list of shares"),
        (_SOUND + "[costs]\nfirst = -1", "costs is -1: give each member a finite price"),
        (_SOUND + "[settings]\nbatchs = 1", "Unknown key of \\[settings\\] 'batchs'. Did you mean 'batch'"),
        (_SOUND + "[settings]\nbatch = 0", "batch is 0: give a whole number from 1"),
        (_SOUND + '[settings]\nbatch = "x"', "batch is 'x': give a whole number"),
        (_SOUND.replace('"dagger"', '"dager"'), "Unknown query policy 'dager'"),
        (_SOUND.replace('"dagger"', '"apil"'), "Two rules are called 'apil'"),
        (_SOUND.replace('"dagger"', "3"), "rules 2 is 3: give a list of rules"),
        (_SOUND.replace('"dagger"', '{query = "entropy", buget = 1}'), "rules 2: Unknown setting 'buget'"),
        (
            _SOUND.replace('"dagger"', '{query = "entropy", budget = "x"}'),
            "rules 2: budget is 'x': give a share above 0",
        ),
        (_SOUND.replace('"dagger"', '{query = "entropy", budget = 2}'), "rules 2: budget is 2: give a share above 0"),
        (_SOUND.replace('"dagger"', '{query = "dagger", budget = 0.1}'), "'dagger' cannot keep a budget"),
        (_SOUND.replace('"dagger"', '{query = "dagger", threshold = 0.1}'), "'dagger' has no threshold"),
        (_SOUND.replace('"dagger"', '"entropy"'), "No threshold is known for 'entropy' on 'grid'"),
        (_SOUND.replace('"grid"', '"gird"'), "Unknown task 'gird'"),
        (_SOUND.replace('"detm"', '"detmm"'), "Unknown teacher 'detmm'"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ApilError, match=message) as caught:
        study(path, out=tmp_path / "out")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_options_that_the_file_decides_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_SOUND)
    with pytest.raises(ApilError, match=f"seeds does not go with a study file: leave it out, or set it in {path}"):
        study(path, seeds=3)
    with pytest.raises(ApilError, match="There is no study file"):
        study(tmp_path / "none.toml")


def test_a_plan_is_every_rule_with_every_teacher_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'tasks = ["maze"]\nteachers = ["detm", "rand"]\nseeds = 3\n'
        'rules = ["intrun", {query = "intrun", budget = 0.2}, {query = "every", label = "clock", options = {k = 4}}]\n'
    )
    wanted = read_study_file(path)
    cells = own_plan(wanted, wanted.tasks[0], load_calibration(None), path)
    assert len({cell.folder for cell in cells}) == len(cells) == 2 * 3 * 3
    assert [rule.label for rule in wanted.rules] == ["intrun", "intrun@0.2", "clock"]
    by_rule: dict[str, Any] = {cell.query: cell.config for cell in cells}
    assert by_rule["intrun"].query.threshold is not None
    assert (by_rule["intrun@0.2"].query.threshold, by_rule["intrun@0.2"].query.budget) == (None, 0.2)
    assert by_rule["clock"].query.options == {"k": 4}
    assert by_rule["clock"].learner.batch == LEARNING["batch"]
    path.write_text("as_printed = true\n" + path.read_text())
    printed = own_plan(read_study_file(path), wanted.tasks[0], load_calibration(None), path)[0].config
    assert (printed.learner.batch, printed.learner.replay, printed.learner.updates) == (16, 0, 1)


def test_members_that_share_a_name_are_told_apart() -> None:
    assert member_names(("uniform", "first", "uniform")) == ["uniform", "first", "uniform-2"]


# Statistics, against calculations of another kind.


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 30])
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    middle = np.sort(values)[count // 4 : count - count // 4].mean()
    found = stratified_estimate([values[:1], values[1:]])
    assert found.mean == pytest.approx(middle)
    assert found.low <= found.mean <= found.high


def test_a_stratified_interval_is_that_of_an_independent_bootstrap() -> None:
    rng = np.random.default_rng(0)
    strata = [rng.normal(center, 0.1, 12) for center in (0.0, 10.0)]
    found = stratified_estimate(strata, resamples=4000)
    drawn = [np.sort(np.concatenate([rng.choice(s, 12) for s in strata]))[6:18].mean() for _ in range(4000)]
    np.testing.assert_allclose([found.low, found.high], np.quantile(drawn, (0.025, 0.975)), atol=0.01)
    # Strata far apart: were runs drawn from all alike, the mean would swing by whole units.
    assert found.high - found.low < 0.2
    assert not stratified_estimate([[math.nan], []]).known


def test_the_probability_of_improvement_is_the_mann_whitney_statistic() -> None:
    rng = np.random.default_rng(1)
    ours = [rng.integers(0, 6, 9).astype(float) for _ in range(3)]
    theirs = [rng.integers(0, 5, 7).astype(float) for _ in range(3)]
    found = improvement(ours, theirs)
    expected = np.mean([stats.mannwhitneyu(x, y).statistic / (9 * 7) for x, y in zip(ours, theirs, strict=True)])
    assert found.mean == pytest.approx(expected)
    assert 0 <= found.low < found.mean < found.high <= 1
    assert improvement([[1.0, 1.0]], [[1.0]]).mean == 0.5
    assert improvement([[2.0, 3.0]], [[1.0]]).low == 1.0
    with pytest.raises(ApilError, match="2 strata cannot be compared with 1"):
        improvement([[1.0], [2.0]], [[1.0]])


def test_an_area_is_the_mean_height_of_the_curve() -> None:
    answers, success = np.array([10.0, 30.0, 30.0, 50.0]), np.array([0.2, 0.4, 0.6, 0.8])
    # Flat 0.2 to 10; up to 0.6 (the last row at 30 counts) by 30; up to 0.8 by 50; flat to 100.
    expected = (10 * 0.2 + 20 * 0.4 + 20 * 0.7 + 50 * 0.8) / 100
    assert area_under(answers, success, 100.0) == pytest.approx(expected)
    assert area_under(answers, success, 20.0) == pytest.approx((10 * 0.2 + 10 * 0.3) / 20)
    assert math.isnan(area_under(np.zeros(2), np.ones(2), 0.0))


def test_interactions_to_a_level_are_those_of_the_first_row_that_reached_it() -> None:
    answers, success = np.array([10.0, 20.0, 30.0]), np.array([0.2, 0.6, 0.5])
    assert needed(answers, success, 0.5) == 20.0
    assert math.isnan(needed(answers, success, 0.7))
