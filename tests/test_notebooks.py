"""The notebooks run from top to bottom, with progress and figures inline, and are stored with what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from notebook_pages import page_of

from small_numbers import SMALL

_NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def _shown(notebook: Any) -> list[Any]:
    """The outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def _kinds(outputs: list[Any]) -> set[str]:
    return {kind for output in outputs for kind in output.get("data", {})}


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of what runs the kernel; the code runs in a process of its own
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = []
        for what, small in SMALL.items():
            cell.source = re.sub(what, small, cell.source)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = _shown(notebook)
    assert "image/png" in _kinds(shown)
    assert any("<progress" in output.get("data", {}).get("text/html", "") for output in shown)
    assert not [output for output in shown if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_it_ran(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run it from top to bottom"
    assert "image/png" in _kinds(_shown(notebook))
    assert "error" not in {output.output_type for output in _shown(notebook)}


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_of_the_site(path: Path) -> None:
    text, pictures = page_of(path)
    assert text.startswith("# ")
    assert "```python" in text
    assert pictures
    assert all(f"]({name})" in text and data.startswith(b"\x89PNG") for name, data in pictures.items())


def test_both_notebooks_are_there() -> None:
    assert [path.stem for path in _NOTEBOOKS] == ["grid", "own-environment"]
