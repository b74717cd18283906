"""Pictures for a browser: boards as SVG, pixels as PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from html import escape

from apil.types import Picture, Sketch

CELL = 40
"""Units of a cell of a board."""
_METRE, _MARGIN = 30.0, 36.0
"""Units of a metre of a map, and around it."""
_FREE, _WALL, _GOAL, _AGENT, _EXIT = "#eef1f4", "#4a5560", "#f2b705", "#0b66c3", "#1f9d6b"


def encoded(picture: Picture) -> tuple[str, bytes] | None:
    """The type and content of a picture; None where it has words alone."""
    if picture.sketch is not None:
        return "image/svg+xml", chart(picture.sketch).encode()
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


def chart(sketch: Sketch) -> str:
    """A map as SVG, north up."""
    east, north = ([place[axis] for place in sketch.places] for axis in (0, 1))
    wide = (max(east) - min(east)) * _METRE + 2 * _MARGIN
    high = (max(north) - min(north)) * _METRE + 2 * _MARGIN
    at = [((x - min(east)) * _METRE + _MARGIN, (max(north) - y) * _METRE + _MARGIN) for x, y in sketch.places]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}">']
    parts.append(f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>')
    for a, b in sketch.lines:
        parts.append(_line([at[a], at[b]], "#c8d0d8", 2))
    parts.append(_line([at[place] for place in sketch.way], _AGENT, 4))
    parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="#9aa6b2"/>' for x, y in at]
    for place, word in sketch.labels:
        x, y = at[place]
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="12" fill="{_EXIT}"/>')
        parts.append(
            f'<text x="{x:.0f}" y="{y + 5:.0f}" font-family="sans-serif" font-size="14" font-weight="bold" '
            f'text-anchor="middle" fill="#ffffff">{escape(word)}</text>'
        )
    if sketch.goal is not None:
        x, y = at[sketch.goal]
        parts.append(_mark("G", round(x), round(y) - 10))
    x, y = at[sketch.agent]
    ahead = (x + 24 * math.sin(sketch.heading), y - 24 * math.cos(sketch.heading))
    parts.append(_line([(x, y), ahead], _AGENT, 5))
    parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="11" fill="{_AGENT}" stroke="#ffffff" stroke-width="2"/>')
    return "".join([*parts, "</svg>"])


def _line(points: Sequence[tuple[float, float]], colour: str, width: int) -> str:
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round"/>'
