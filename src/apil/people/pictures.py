"""Pictures for a browser: boards as SVG, pixels as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence

from apil.types import Picture

CELL = 40
"""Units of a cell of a board."""
_FREE, _WALL, _GOAL, _AGENT, _EXIT = "#eef1f4", "#4a5560", "#f2b705", "#0b66c3", "#1f9d6b"


def encoded(picture: Picture) -> tuple[str, bytes] | None:
    """The type and content of a picture; None where it has words alone."""
    if picture.cells:
        return "image/svg+xml", board(picture.cells).encode()
    if picture.pixels is not None:
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(picture.pixels).save(out, "PNG")
        return "image/png", out.getvalue()
    return None


def board(cells: Sequence[str]) -> str:
    """A board of cells as SVG."""
    wide, high = CELL * len(cells[0]), CELL * len(cells)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">']
    parts.append(f'<rect width="{wide}" height="{high}" fill="#ffffff"/>')
    for row, line in enumerate(cells):
        for column, mark in enumerate(line):
            x, y = column * CELL, row * CELL
            fill = _WALL if mark == "#" else _FREE
            parts.append(f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="5" fill="{fill}"/>')
            parts.append(_mark(mark, x + CELL // 2, y + CELL // 2))
    return "".join([*parts, "</svg>"])


def _mark(mark: str, x: int, y: int) -> str:
    if mark == "A":
        return (
            f'<circle cx="{x}" cy="{y}" r="13" fill="{_AGENT}"/><circle cx="{x - 5}" cy="{y - 3}" r="2.4" fill="#fff"/>'
            f'<circle cx="{x + 5}" cy="{y - 3}" r="2.4" fill="#fff"/>'
        )
    if mark == "G":
        flag = f"M{x - 7} {y + 13}V{y - 13}H{x + 11}L{x + 6} {y - 6}L{x + 11} {y + 1}H{x - 5}"
        return f'<path d="{flag}" fill="{_GOAL}" stroke="#7a5c00" stroke-width="2.5" stroke-linejoin="round"/>'
    if mark == "o":
        return f'<circle cx="{x}" cy="{y}" r="9" fill="{_EXIT}"/>'
    return ""
