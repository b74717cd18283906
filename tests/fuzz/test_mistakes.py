"""Mistakes that ended in a traceback, in a run that cannot be opened, or never: each is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz_cases import Copied, Forged, Note, Put, Table
from fuzz_judge import GOOD, REFUSED, TINY, Case, Change, Found, Made, make, play, typed
from safetensors import safe_open
from safetensors.torch import load_file

STUDY = """
tasks = ["grid"]
teachers = ["first+last"]
settings = {iterations = 2, hidden = 4, persona = 3, models = 2, batch = 2}
seeds = 1
episodes = 2
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("mistakes"))


def _played(made: Made, tmp_path: Path, words: Sequence[str], *changes: Change) -> Found:
    return play(Case(tuple(words), changes), made, tmp_path / "case")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --sigma inf", "sigma is inf: "),
        ("train --epsilon inf", "epsilon is inf: "),
        ("train --gap 1e308", "gap is 1e+308: "),
        ("train --batch 9223372036854775808", "batch is 9223372036854775808: "),
        ("train --models 9223372036854775808", "models is 9223372036854775808: "),
        ("train --seed 9223372036854775808", "seed is 9223372036854775808: "),
        ("train --iterations 1000000000000", "iterations is 1000000000000: "),
        ("train --query ensembledagger --query-options tau=x", "tau is 'x': "),
        (f"train --out {'a' * 4000}", "out is 'aaa"),
        (f"train --out {'b/' * 600}", "out is 'b/b/"),
        (f"evaluate {'a' * 4000}", "run is 'aaa"),
        ("train --batch 1000000 --models 10000", "Runs of these sizes "),
        ("train --task maze --horizon 1000000", "horizon is 1000000: "),
        ("evaluate run --episodes 1000000000000", "episodes is 1000000000000: "),
        ("study grid --seeds 1000000000000", "seeds is 1000000000000: "),
        ("study grid --workers 1000000000", "workers is 1000000000: "),
        ("calibrate --seeds 1000000000", "seeds is 1000000000: "),
        ("data houses --houses 1000000000000", "houses is 1000000000000: "),
        ("data houses --seed 9223372036854775808", "seed is 9223372036854775808: "),
        ("replay run --episodes 1000000000", "episodes is 1000000000: "),
    ],
)
def test_a_number_or_path_out_of_bounds(made: Made, tmp_path: Path, words: str, message: str) -> None:
    found = _played(made, tmp_path, words.split(), Copied("grid"))
    assert found.verdict == REFUSED
    assert found.why.startswith(f"apil: {message}")


@pytest.mark.parametrize("threshold", [10**400, -1, "0.1", None, float("nan"), [0.1]])
def test_a_calibration_with_an_odd_threshold(made: Made, tmp_path: Path, threshold: object) -> None:
    file = Put("odd.json", json.dumps({"grid": {"intrun": {"threshold": threshold, "how": "odd"}}}))
    found = _played(made, tmp_path, ["train", "--query", "intrun", "--calibration", "odd.json"], file)
    assert found.verdict == REFUSED
    assert "odd.json" in found.why


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('rules = [{query = "never", label = "a\\u0000b"}]', "odd.toml: rules 1: label is "),
        ("rules = [{query = 'never', label = '$\\frac{$'}]", "odd.toml: rules 1: label is '$\\frac{$': "),
        ('rules = [{query = "never", label = "a/b"}]', "label is 'a/b': give a name that can be the name of a folder"),
        ('rules = ["never"]\ncosts = {first = inf}', "odd.toml: costs is inf: "),
        ('rules = [{query = "every", options = {k = [1, 2]}}]', "odd.toml: rules 1: options is [1, 2]: "),
        ('rules = [{query = "every", options = {k = 2020-01-02}}]', "odd.toml: rules 1: options is "),
        ('rules = [{query = "every", options = {j = 3}}]', "odd.toml: Unknown option of the query policy 'every' 'j'."),
        ('rules = [{query = "bc", threshold = 0.1}]', "odd.toml: rules 1: 'bc' has no threshold"),
        ('rules = ["never"]\nhorizon = -1', "odd.toml: Unknown setting 'horizon'."),
    ],
)
def test_a_study_file_with_an_odd_value(made: Made, tmp_path: Path, more: str, message: str) -> None:
    found = _played(made, tmp_path, ["study", "odd.toml"], Put("odd.toml", STUDY + more))
    assert found.verdict == REFUSED
    assert message in found.why


@pytest.mark.parametrize("rule", ['"never"', '{query = "random", threshold = 0.0}', '{query = "bc", label = "$x^$_$"}'])
def test_a_study_without_answers_or_with_formulas_is_made(made: Made, tmp_path: Path, rule: str) -> None:
    """Nothing was asked, so there is no success for an answer; a label is no formula for the figures."""
    words = ["study", "odd.toml", "--out", "new", "--workers", "1"]
    assert _played(made, tmp_path, words, Put("odd.toml", f"{STUDY}rules = [{rule}]")) == Found(GOOD)


@pytest.mark.parametrize(
    ("name", "how", "value", "verdict"),
    [
        # The checkpoint before it is used in its place.
        ("meter.counts", "empty", 0.0, GOOD),
        ("meter.counts", "all", 1e18, GOOD),
        ("meter.sums.steps", "all", 0.0, GOOD),
        ("meter.sums.asked", "value", float("nan"), GOOD),
        ("meter.answers", "int64", 0.0, GOOD),
        ("policy.w1", "transposed", 0.0, REFUSED),
        ("policy.w1", "value", float("inf"), REFUSED),
        ("policy.w2", "double", 0.0, REFUSED),
    ],
)
def test_a_forged_checkpoint_is_not_used(
    made: Made, tmp_path: Path, name: str, how: str, value: float, verdict: str
) -> None:
    """Its checksums fit what is in it."""
    tensors = load_file(max(made.grid.glob("checkpoint-*.safetensors")))
    forged = Forged(sorted(tensors).index(name), how, 0, value)
    words = ["train", "--resume", "run", "--iterations", "4"]
    assert _played(made, tmp_path, words, Copied("grid"), forged).verdict == verdict


@pytest.mark.parametrize("iteration", [-1, 0, 10**12])
@pytest.mark.parametrize("words", ["evaluate run --episodes 2", "train --resume run"])
def test_a_forged_iteration_is_not_used(made: Made, tmp_path: Path, iteration: int, words: str) -> None:
    note = Note("iteration", iteration, sealed=True)
    assert _played(made, tmp_path, words.split(), Copied("grid"), note).verdict == GOOD


@pytest.mark.parametrize(
    ("name", "how", "value"),
    [
        ("neighbours", "value", 1e9),
        ("neighbours", "front", 0.0),
        ("next_slots", "value", 100.0),
        ("distances", "value", float("nan")),
        ("position", "value", float("inf")),
        ("heading", "back", 0.0),
        ("captions", "value", 1e4),
        ("objects", "value", -1.0),
        ("room", "all", 1e3),
        ("train/start", "value", -2.0),
        ("train/goal", "all", 1e9),
        ("val_seen/path", "value", 1e9),
        ("val_unseen/tokens", "value", 3e4),
        ("train/path_index", "value", 1e9),
        ("train/tokens", "float", 0.0),
    ],
)
def test_compiled_data_out_of_bounds(made: Made, tmp_path: Path, name: str, how: str, value: float) -> None:
    with safe_open(made.houses / "r2r.safetensors", framework="pt") as opened:
        changed = Table(sorted(opened.keys()).index(name), how, 0, value)
    for words in (["data", "show", "run"], ["train", *typed({"task": "r2r", "data": "run", **TINY})]):
        found = _played(made, tmp_path, words, Copied("houses"), changed)
        assert found.verdict == REFUSED
        assert f"({name} " in found.why
