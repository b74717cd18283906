"""The prose is plain: what users read has none of the words that make it odd, and no trace of a merge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_WORDS = {
    "anew": "again, start over",
    "mend(s|ed|ing)?": "fix, repair",
    "reckon(s|ed|ing)?": "estimate, compute",
    "gone on with": "resumed",
    "whom of": "which",
    "got for nothing": "cheap to recompute",
    "told": "reported, given, shown",
    "(what|who) is to be": "what to",
    "(hitherto|thereof|therein|whence|thence|lest|nought|aught)": "a word of today",
}
"""What is not written, and what is written in its place."""
_IN_PAGES = {
    "DAGGER": "DAgger",
    "(INTRUN|EXTRUN|BEHVUN|MODLUN|ERRPRED|TWODIFDETM|TWORAND|DETM)": "IntrUn, TwoDifDetm and so on",
}
"""The same, of pages alone, with their letters as they are."""
_TEXTS = sorted(
    [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md"), *_ROOT.glob("benchmarks/*.md")]
    + [path for kind in ("py", "toml", "jinja", "js") for path in (_ROOT / "src" / "apil").rglob(f"*.{kind}")]
)


@pytest.mark.parametrize("word", _WORDS)
def test_no_odd_words(word: str) -> None:
    found = [f"{path.relative_to(_ROOT)}: {hit[0]}" for path in _TEXTS for hit in _hits(word, path)]
    assert found == [], f"write: {_WORDS[word]}"


@pytest.mark.parametrize("word", _IN_PAGES)
def test_no_odd_words_in_pages(word: str) -> None:
    pages = [path for path in _TEXTS if path.suffix == ".md"]
    found = [path.name for path in pages if re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"))]
    assert found == [], f"write: {_IN_PAGES[word]}"


def _hits(word: str, path: Path) -> list[re.Match[str]]:
    return list(re.finditer(rf"\b{word}\b", path.read_text(encoding="utf-8"), re.IGNORECASE))


def test_no_conflict_is_left_in_a_page() -> None:
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [path.name for path in _TEXTS if marks.search(path.read_text(encoding="utf-8"))] == []
