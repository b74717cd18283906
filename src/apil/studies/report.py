"""The report of a study: tables, figures and one self-contained page, made from the saved records alone."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from apil.r2r.figures import ALL_PLATES, plates_of
from apil.r2r.findings import r2r_findings
from apil.r2r.tables import difference_block, r2r_tables
from apil.runs.files import write_bytes
from apil.studies.figures import OWN_PLATES, Plate, render
from apil.studies.paper import readings
from apil.studies.records import CellResult, StudyRecords, in_order, read_study
from apil.studies.statistics import Estimate
from apil.studies.tables import (
    Table,
    TableBlock,
    all_tables,
    comparison_block,
    members_truth,
    over_runs,
    seed_counts,
    setting,
    shown,
)
from apil.studies.workers import worker_pool

Rendered = Mapping[str, Mapping[str, bytes]]
"""By figure name, then by file ending."""


def build_report(folder: Path, workers: int = 1) -> list[Path]:
    """Write every table, figure and `report.html` of a study into its folder; returns what was written.

    Each file is replaced in one step, so a reader never sees half of one. Figures that the study no longer has the
    records for are removed.
    """
    study = read_study(folder)
    tables = [*r2r_tables(study), *all_tables(study)]
    figures = _render_all(study, workers)
    contents = {f"{table.name}.md": table.markdown().encode() for table in tables}
    for name, formats in figures.items():
        contents |= {f"{name}.{ending}": data for ending, data in formats.items()}
    out = folder.name if folder.is_absolute() else folder.as_posix()
    contents["report.html"] = page(study, tables, figures, out, _maps(folder)).encode()
    for name, data in contents.items():
        write_bytes(folder / name, data)
    for plate in (*ALL_PLATES, *OWN_PLATES):
        for old in folder.glob(f"{plate.name}.*"):
            if old.name not in contents:
                old.unlink()
    return [folder / name for name in contents]


def _render_all(study: StudyRecords, workers: int) -> Rendered:
    """Drawing takes longer than all the rest, so the figures are shared out over processes."""
    plates = _plates(study)
    if workers == 1:
        return {plate.name: render(plate, study) for plate in plates}
    with worker_pool(workers) as pool:
        drawn = pool.map(render, plates, [study] * len(plates))
        return {plate.name: formats for plate, formats in zip(plates, drawn, strict=True)}


def _plates(study: StudyRecords) -> Sequence[Plate]:
    """The figures of a study, in the order of the report."""
    return (*OWN_PLATES, *plates_of(study)) if study.interactions else plates_of(study)


def _maps(folder: Path) -> dict[str, bytes]:
    """The maps of example episodes that the study drew, by name."""
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("map_*.svg"))}


# What the figures say, in sentences.

_ALWAYS_ASK = ("bc", "dagger")
_NO_RULE = (*_ALWAYS_ASK, "random", "never")
"""Policies whose questions do not depend on what was learned."""


def findings(study: StudyRecords) -> list[str]:
    """The main results as sentences, each computed from the records."""
    if study.splits:
        apart = (_members_apart(study, teacher) for teacher in study.teachers)
        return [sentence for sentence in (*r2r_findings(study), *apart) if sentence]
    sentences = [_all_succeed(study)]
    for teacher in study.teachers:
        cells = [study.cell(teacher, query) for query in study.queries]
        sentences += [_asks_least(teacher, cells), _cheapest_of_best(teacher, cells), _saved(study, teacher)]
    sentences += [_misled(study, query) for query in study.queries if query not in _NO_RULE]
    sentences += [_members_apart(study, teacher) for teacher in study.teachers]
    return [sentence for sentence in sentences if sentence]


def _known(cells: Iterable[CellResult], figure: str) -> list[CellResult]:
    """The cells that have this figure, but for those that never asked: they learned nothing."""
    return [c for c in cells if c.query != "never" and c.figure(figure).known and c.figure("answers").mean != 0]


def _all_succeed(study: StudyRecords) -> str:
    alone = [cell.figure("success_alone") for cell in study.cells]
    if not alone or not all(figure.known and figure.low >= 1.0 for figure in alone):
        return ""
    silent = ", also one that never asked," if "never" in study.queries else ""
    return (
        f"Every agent{silent} reaches the goal alone in every evaluation episode: on this task success does "
        "not separate the query policies, only the number of questions does."
    )


def _asks_least(teacher: str, cells: Sequence[CellResult]) -> str:
    asking = sorted(_known(cells, "query_rate"), key=lambda cell: cell.figure("query_rate").mean)
    if len(asking) < 2:
        return ""
    least, rate = asking[0], asking[0].figure("query_rate")
    equals = [cell.query for cell in asking[1:] if cell.figure("query_rate").overlaps(rate)]
    tie = f" Not to be told apart from it: {', '.join(equals)}." if equals else ""
    return (
        f"{teacher}: at the end of training {least.query} asks least, at {shown(rate)} of the steps "
        f"(success alone {shown(least.figure('success_alone'))}).{tie}"
    )


def _cheapest_of_best(teacher: str, cells: Sequence[CellResult]) -> str:
    able = [cell for cell in _known(cells, "success_alone") if cell.figure("answers").known]
    if len(able) < 2 or all(cell.figure("success_alone").low >= 1.0 for cell in able):
        return ""
    best = max(able, key=lambda cell: cell.figure("success_alone").mean)
    success = best.figure("success_alone")
    equals = [cell for cell in able if cell.figure("success_alone").overlaps(success)]
    cheapest = min(equals, key=lambda cell: cell.figure("answers").mean)
    start = f"{teacher}: the best success alone is {shown(success)} ({best.query}, "
    start += f"{shown(best.figure('answers'), 0)} answers)."
    if cheapest is best:
        return f"{start} No policy with as good a success used fewer answers."
    return (
        f"{start} Of those not to be told apart from it, {cheapest.query} used the fewest answers: "
        f"{shown(cheapest.figure('answers'), 0)}, success alone {shown(cheapest.figure('success_alone'))}."
    )


def _saved(study: StudyRecords, teacher: str) -> str:
    """What APIL pays and gets, against asking at every step."""
    ours, every = study.cell(teacher, "apil"), study.cell(teacher, "dagger")
    if not (ours.figure("answers").known and every.figure("answers").mean > 0):
        return ""
    share = ours.figure("answers").mean / every.figure("answers").mean
    return (
        f"{teacher}: apil used {share:.1%} of the answers of dagger; success alone "
        f"{shown(ours.figure('success_alone'))} against {shown(every.figure('success_alone'))}."
    )


def _misled(study: StudyRecords, query: str) -> str:
    """Under which teachers a rule ends up asking more than under the single, consistent one."""
    base = study.cell("detm", query).figure("query_rate")
    if not base.known:
        return ""
    others = {teacher: study.cell(teacher, query).figure("query_rate") for teacher in study.teachers}
    more = [f"{teacher} ({shown(rate)})" for teacher, rate in others.items() if rate.low > base.high]
    if not more:
        return ""
    return f"{query} ends up asking more than under detm ({shown(base)}) when taught by {', '.join(more)}."


def _members_apart(study: StudyRecords, teacher: str) -> str:
    """How far apart the agent holds the members of a committee, over all query policies."""
    models = [model for model in study.models if model.teacher == teacher and len(model.members) > 1]
    found: dict[str, Estimate] = {}
    for query in in_order(model.query for model in models):
        found[query] = over_runs((model for model in models if model.query == query), lambda run: run.persona_js)
    known = sorted((figure.mean, query) for query, figure in found.items() if figure.known)
    if not known:
        return ""
    (low, lowest), (high, highest) = known[0], known[-1]
    span = f"{high:.3f} bits" if low == high else f"{low:.3f} ({lowest}) to {high:.3f} bits ({highest})"
    return (
        f"{teacher}: the behaviours learned for its members are {span} apart (0: the same, 1: nothing shared)"
        f"{members_truth(study, teacher)}."
    )


def _nearest(study: StudyRecords, distance: Mapping[str, float]) -> str:
    """Which trainer comes nearest to the paper's Table 1."""
    query = min(distance, key=lambda name: distance[name])
    count = 2 * len(study.teachers)
    compared = "" if len(distance) == len(study.queries) else f" (of {', '.join(distance)}, which have all teachers)"
    gap = f"{distance[query]:.3f} bits"
    return f"Nearest to the paper{compared}: {query}, whose {count} means are {gap} from it on average."


# The page.

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1c1c1e; --soft: #5c5c63; --paper: #fdfdfc; --line: #d9d9d6; --card: #f4f4f1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ea; --soft: #a4a4ad; --paper: #17181b; --line: #3a3b40; --card: #222327; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1.2rem 1rem 4rem; background: var(--paper);
  color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .4rem 0; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
h4 { font-size: .95rem; margin: 1.1rem 0 .3rem; }
p, ul, dl { margin: .5rem 0; } ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
.soft, figcaption, small { color: var(--soft); } .soft, figcaption { font-size: .9rem; }
pre, code { font: .88em ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--card); padding: .7rem .8rem; white-space: pre-wrap; border-radius: 6px; }
.scroll { overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .28rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
thead th { font-weight: 600; white-space: normal; vertical-align: bottom; min-width: 5.5rem; }
th:first-child, td:first-child { text-align: left; min-width: 0; }
tbody th { font-weight: 600; position: sticky; left: 0; background: var(--paper); }
td small { display: block; font-size: .8em; }
figure { margin: 1.2rem 0 2rem; }
img { display: block; width: 100%; max-width: 44rem; height: auto; background: #fff; border-radius: 6px; }
dt { font-weight: 600; margin-top: .9rem; } dd { margin: .15rem 0 0; }
"""


def document(title: str, sections: Iterable[str]) -> str:
    """An HTML page that needs nothing from elsewhere."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body></html>\n"
    )


def page(study: StudyRecords, tables: Sequence[Table], figures: Rendered, out: str, maps: Mapping[str, bytes]) -> str:
    """The whole report as one HTML page that needs nothing from elsewhere."""
    drawn = (_figure(plate.name, plate.title, plate.caption, figures[plate.name]) for plate in _plates(study))
    title = f"Learning from several teachers: the {study.task} study"
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        _introduction(study, out),
        _section("Main findings", _list(findings(study))),
        _section("Against the paper's numbers", _comparison(study)),
        _section("Tables", "".join(map(table_html, tables))),
        _section("Figures", "".join(drawn)),
        _section("Episodes from above", _episodes(maps)),
        _section("Thresholds in force", _thresholds(study)),
        _section("What differs from the paper, and why", _readings(study)),
    ]
    return document(title, sections)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>\n{body}</section>" if body else ""


def _list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>" if items else ""


def _introduction(study: StudyRecords, out: str) -> str:
    command = (
        study.command or f"apil study {study.task} --seeds {study.seeds} --iterations {study.iterations} --out {out}"
    )
    paragraphs = (
        "An agent learns a task from teachers who may disagree with each other and with themselves. A "
        "query policy decides at each step whether to ask them. This page compares query policies: how "
        "often they ask, what the agent learns about its teachers, and how well it does alone in the end.",
        setting(study),
        f"Teachers: {', '.join(study.teachers)}. Query policies: {', '.join(study.queries)}.",
        "Figures in brackets are 95 % bootstrap intervals of the mean over seeds. Two figures are called "
        "apart when their intervals do not overlap; with few seeds such intervals are too narrow, so take them "
        "for the spread that was seen, not for a test. “In the end” is the last tenth of training. To make this "
        "page again:",
    )
    return "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs) + f"<pre>{html.escape(command)}</pre>"


def _comparison(study: StudyRecords) -> str:
    block, distance = comparison_block(study)
    if not block.rows:
        return f"<p>The paper has no numbers for the task {html.escape(study.task)}.</p>"
    note = (
        "Learned intrinsic and extrinsic uncertainty against Table 1 of the paper. An entry says by how "
        "much our mean differs (bits), where the paper's number, rounding allowed for, is not in our "
        "interval. Rows name the query policy that trained the agent: the paper does not say which one it "
        "used."
    )
    if 1 in seed_counts(study):
        note += " One seed has no interval, so that nearly every figure of one seed is outside."
    nearest = f"<p>{html.escape(_nearest(study, distance))}</p>" if distance else ""
    return _second_table(study) + nearest + _notes([note]) + _block(block)


def _second_table(study: StudyRecords) -> str:
    """Success against the paper's Table 2, where the task is the paper's."""
    if not study.splits or not difference_block(study).rows:
        return ""
    note = (
        "Success of the agent alone against Table 2 of the paper, which is on the test split, whose goals are not "
        "public, and does not say how many runs it rests on. Both numbers are in the first table below."
    )
    return _notes([note]) + _block(difference_block(study))


def table_html(table: Table) -> str:
    """A table with its title and notes."""
    return f"<h3>{html.escape(table.title)}</h3>" + _notes(table.notes) + "".join(map(_block, table.blocks))


def _notes(notes: Sequence[str]) -> str:
    return '<div class="soft">' + _list(notes) + "</div>"


def _block(block: TableBlock) -> str:
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in block.header)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th>' + "".join(map(_entry, cells)) + "</tr>"
        for name, *cells in block.rows
    )
    return (
        f'<h4>{html.escape(block.heading)}</h4><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _entry(text: str) -> str:
    """A table entry, its interval small and below the mean."""
    mean, bracket, rest = text.partition(" [")
    bounds, _, mark = rest.partition("]")
    small = f"<small>[{html.escape(bounds)}]</small>" if bracket else ""
    return f"<td>{html.escape(mean + mark)}{small}</td>"


def _episodes(maps: Mapping[str, bytes]) -> str:
    """The maps of example episodes."""
    if not maps:
        return ""
    note = (
        "Episodes of an agent trained by apil, with help where it asks. Each map says which agent and how the episode "
        "ended. The episodes are spread evenly over the first that an evaluation takes; they were not chosen by how "
        "they end. Numbers at the agent's way count its steps; the circle is 3 m as the crow flies, while success is "
        "3 m along the shortest path. Paths on other floors are faint."
    )
    drawn = (
        _figure(name, f"Example {number}", "", {"svg": data}) for number, (name, data) in enumerate(maps.items(), 1)
    )
    return f"<p>{html.escape(note)}</p>" + "".join(drawn)


def _figure(name: str, title: str, caption: str, formats: Mapping[str, bytes]) -> str:
    if "svg" not in formats:
        return ""
    data = base64.b64encode(formats["svg"]).decode("ascii")
    return (
        f'<figure id="{name}"><img alt="{html.escape(title)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption><strong>{html.escape(title)}.</strong> {html.escape(caption)}</figcaption></figure>"
    )


def _thresholds(study: StudyRecords) -> str:
    queries = in_order(study.thresholds)
    return _list(
        [f"{q}: {study.thresholds[q].value:.4g}. {study.thresholds[q].how}{_came_of_it(study, q)}" for q in queries]
    )


def _came_of_it(study: StudyRecords, query: str) -> str:
    """The query rate over whole runs with DETM, on which thresholds are found, beside APIL's."""
    ours, apil = (study.cell("detm", name).figure("query_rate_total") for name in (query, "apil"))
    if not (ours.known and apil.known):
        return ""
    return f" In this study's runs with detm: {ours.mean:.3f}, apil {apil.mean:.3f}."


def _readings(study: StudyRecords) -> str:
    entries = (
        f"<dt>{html.escape(r.title)}</dt><dd>{html.escape(r.text)}</dd>"
        for r in readings("r2r" if study.splits else study.task)
    )
    return "<dl>" + "".join(entries) + "</dl>"
