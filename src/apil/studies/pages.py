"""HTML pages from templates: every value is escaped, and the page needs nothing from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from apil.studies.text import printable


@dataclass(frozen=True)
class Shown:
    """A figure on a page."""

    name: str
    title: str
    caption: str
    picture: bytes
    """SVG."""
    note: str = ""
    chart: dict[str, Any] | None = None
    """Data that the page draws instead of the picture."""

    @property
    def svg(self) -> str:
        return b64encode(self.picture).decode()


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _apart(entry: str) -> tuple[str, str]:
    """A table entry without its interval, and the interval."""
    mean, bracket, rest = entry.partition(" [")
    bounds, _, mark = rest.partition("]")
    return mean + mark, f"[{bounds}]" if bracket else ""


_TEMPLATES = Environment(
    loader=PackageLoader("apil.studies"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["apart"] = _apart


def page(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(f"{template}.html.jinja").render(**values)
