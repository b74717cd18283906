"""The report of a study again, from the records in its folder alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from apil.errors import ApilError
from apil.files import locked, read_json
from apil.studies.equal import report_pooled
from apil.studies.folder import MARK, reporting
from apil.studies.interactions import write_comparison
from apil.studies.report import build_report


def rebuild_report(folder: str | Path, workers: int = 1) -> list[Path]:
    """Writes tables, figures and `report.html` of a study again; returns the pages that were written.

    It trains nothing and needs no run folders. The folder may be that of any study: of a task, of a study file with
    several tasks, of the benchmark `budget` or of `whom`. Figures whose records are not in it stay as they were drawn.
    """
    folder = Path(folder)
    if not (folder / MARK).is_file():
        raise ApilError(f"No '{MARK}' in '{folder}': give the folder that a study was written to.")
    with locked(folder), reporting(folder):
        return _rebuilt(folder, workers)


def _rebuilt(folder: Path, workers: int) -> list[Path]:
    name = str(read_json(folder / MARK).get("task", ""))
    benchmark = _BENCHMARKS.get(name)
    if benchmark is not None and (folder / "about.json").is_file():
        benchmark(folder)
        return [folder / "report.html"]
    inside = sorted(path.parent for path in folder.glob(f"*/{MARK}"))
    if not inside:
        build_report(folder, workers)
        return [folder / "report.html"]
    for task in inside:
        build_report(task, workers)
    if (folder / "comparison.json").is_file():
        write_comparison(_tasks(folder), folder, name)
    else:
        report_pooled(folder)
    return [path / "report.html" for path in (folder, *inside)]


def _tasks(folder: Path) -> list[str]:
    """The tasks of a study file, in its order."""
    return list(dict.fromkeys(task for task, _ in read_json(folder / "comparison.json")["strata"]))


def _budget(folder: Path) -> None:
    from apil.studies.budget.compare import Comparison
    from apil.studies.budget.records import Runs, read_runs
    from apil.studies.budget.report import write_report

    write_report(folder, Comparison(Runs(read_runs(folder))), read_json(folder / "about.json"))


def _whom(folder: Path) -> None:
    from apil.studies.whom.compare import Whom
    from apil.studies.whom.records import read_points
    from apil.studies.whom.report import write_report

    about = read_json(folder / "about.json")
    write_report(folder, Whom(read_points(folder), about), about)


_BENCHMARKS: dict[str, Callable[[Path], None]] = {"budget": _budget, "whom": _whom}
