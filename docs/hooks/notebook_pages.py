"""Notebooks as pages of the site: their text, code and stored outputs; nothing is run."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def page_of(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures that it shows by their file names beside it."""
    pictures: dict[str, bytes] = {}
    parts = [f"[Download this notebook]({notebook.name}){{ download }}"]
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts += _shown(output, notebook.stem, pictures)
    heading = 1  # the title comes first, for the navigation
    return "\n\n".join([parts[heading], parts[0], *parts[heading + 1 :]]) + "\n", pictures


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode("".join(data["image/png"]))
        yield f"![{''.join(data.get('text/plain', 'a figure')).strip('<>')}]({file})"
        return
    text = "".join(output.get("text") or data.get("text/plain", "")).rstrip()
    if text:
        yield f"```text\n{text}\n```"
