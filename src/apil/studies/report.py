"""The report of a study: tables, figures and one self-contained page, made from the saved records alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from apil.files import remove, write_bytes
from apil.studies.bill import bill_tables
from apil.studies.extras import Extras, extras_of
from apil.studies.figures import ANSWER_PLATES, OVER_TRAINING, PLATES, Plate, render
from apil.studies.findings import findings
from apil.studies.headline import headline
from apil.studies.pages import Shown, page
from apil.studies.paper import READINGS
from apil.studies.records import CURVES, StudyRecords, in_order, read_study
from apil.studies.tables import Table, all_tables, compared_note, comparison_block, setting
from apil.studies.text import spelled
from apil.studies.workers import worker_pool

_EARLIER = "figure_interactions"
"""A figure that reports had before: success in training, with help, looked like what was learned."""
_ENDINGS = ("png", "svg", "json")
Drawn = Sequence[tuple[Plate, Mapping[str, bytes]]]
"""Figures, each with its pictures, and the data of its chart, by file ending."""


def build_report(folder: Path, workers: int = 1, extras: Extras | None = None) -> list[Path]:
    """Write every table, figure and `report.html` of a study into its folder; returns what was written.

    Without `extras` those of the study's task are added. Figures that the study has no records for are removed. Where
    the records over training are missing, as in a repository, the figures that need them stay as they were drawn.
    """
    study = read_study(folder, extras)
    extras = extras or extras_of(study.task)
    plates = list(extras.plates(PLATES))
    if study.points:
        plates = [*ANSWER_PLATES, *(plate for plate in plates if plate.name not in OVER_TRAINING)]
    tables = [*extras.tables(study), *all_tables(study), *bill_tables(folder)]
    figures = _render_all(plates, study, workers)
    kept = {} if (folder / CURVES).is_file() else _kept(folder, figures)
    figures = [(plate, kept.get(plate.name, formats)) for plate, formats in figures]
    contents = {f"{table.name}.md": table.markdown().encode() for table in tables}
    for plate, formats in figures:
        contents |= {f"{plate.name}.{ending}": data for ending, data in formats.items()}
    contents["report.html"] = _page(folder, study, extras, tables, figures, kept)
    for name, data in contents.items():
        write_bytes(folder / name, data)
    for name in (_EARLIER, *(plate.name for plate in (*PLATES, *ANSWER_PLATES, *plates))):
        for ending in _ENDINGS:
            if f"{name}.{ending}" not in contents:
                remove(folder / f"{name}.{ending}")
    return [folder / name for name in contents]


def _render_all(plates: Sequence[Plate], study: StudyRecords, workers: int) -> Drawn:
    """Drawing takes longest: other processes begin with the first figures, this one with the last."""
    if workers == 1:
        return [(plate, render(plate, study)) for plate in plates]
    with worker_pool(workers - 1) as pool:
        elsewhere = [(plate, pool.submit(render, plate, study)) for plate in plates]
        here = {plate.name: render(plate, study) for plate, drawn in reversed(elsewhere) if drawn.cancel()}
        return [(plate, here[plate.name] if plate.name in here else drawn.result()) for plate, drawn in elsewhere]


def _kept(folder: Path, figures: Drawn) -> dict[str, dict[str, bytes]]:
    """The pictures of the figures that cannot be drawn now and were drawn before, by name."""
    return {
        plate.name: {ending: path.read_bytes() for ending, path in _files(folder, plate) if path.is_file()}
        for plate, formats in figures
        if not formats and (folder / f"{plate.name}.svg").is_file()
    }


def _files(folder: Path, plate: Plate) -> list[tuple[str, Path]]:
    return [(ending, folder / f"{plate.name}.{ending}") for ending in _ENDINGS]


def _page(
    folder: Path,
    study: StudyRecords,
    extras: Extras,
    tables: Sequence[Table],
    figures: Drawn,
    kept: Collection[str],
) -> bytes:
    out = folder.name if folder.is_absolute() else folder.as_posix()
    made_by = f"apil study {study.task} --seeds {study.seeds} --iterations {study.iterations} --out {out}"
    compared, distance = comparison_block(study)
    shown = shown_figures(study, figures)
    first = headline(study, [each.name for each in shown])
    leading = next((each for each in shown if each.name == first.figure), shown[0] if shown else None)
    found = sorted(folder.glob(extras.examples.files)) if extras.examples else []
    pictures = [path for path in found if not path.is_symlink()]
    return page(
        "report",
        title=f"Learning from several teachers: {study.label}",
        headline=first,
        leading=leading,
        study=study,
        setting=setting(study),
        command=study.command or made_by,
        findings=findings(study, extras),
        comparison=extras.comparison(study),
        compared=compared,
        compared_note=compared_note(study),
        nearest=_nearest(study, distance),
        tables=tables,
        figures=[each for each in shown if each is not leading],
        about_examples=extras.examples,
        examples=[Shown(path.stem, f"Example {k}", "", path.read_bytes()) for k, path in enumerate(pictures, 1)],
        thresholds=[_threshold(study, query) for query in in_order(study.thresholds)],
        readings=(*extras.readings, *READINGS),
        kept=[plate.title for plate, _ in figures if plate.name in kept],
    ).encode()


def shown_figures(study: StudyRecords, figures: Drawn) -> list[Shown]:
    """The figures that could be drawn, as a page shows them."""
    return [
        Shown(plate.name, plate.title, plate.caption, formats["svg"], plate.note, _chart(plate, study, formats))
        for plate, formats in figures
        if formats
    ]


def _chart(plate: Plate, study: StudyRecords, formats: Mapping[str, bytes]) -> dict[str, Any] | None:
    if "json" in formats:
        found: dict[str, Any] = json.loads(formats["json"])
        return found
    chart = plate.chart(study)
    return chart.data if chart else None


def _nearest(study: StudyRecords, distance: Mapping[str, float]) -> str:
    """Which trainer comes nearest to the paper's Table 1."""
    if not distance:
        return ""
    query = min(distance, key=lambda name: distance[name])
    count = 2 * len(study.teachers)
    compared = (
        ""
        if len(distance) == len(study.queries)
        else f" (of {', '.join(map(spelled, distance))}, which have all teachers)"
    )
    gap = f"{distance[query]:.3f} bits"
    return f"Nearest to the paper{compared}: {spelled(query)}, whose {count} means are {gap} from it on average."


def _threshold(study: StudyRecords, query: str) -> str:
    """A threshold, and the query rate over whole runs with Detm, on which thresholds are found, beside APIL's."""
    note = study.thresholds[query]
    ours, apil = (study.cell("detm", name).figure("query_rate_total") for name in (query, "apil"))
    known = ours.known and apil.known
    came = f" Query rate in this study's runs with Detm: {ours.mean:.3f}; APIL {apil.mean:.3f}." if known else ""
    return f"{spelled(query)}: {note.value:.4g}. {note.how}{came}"
