"""The pages: templates, style and scripts, all from this package. They hold nothing of a run by themselves."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

_HERE = Path(str(files("apil.people")))
_STATIC = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


@cache
def _page(name: str) -> str:
    found = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined)
    return found.get_template(f"{name}.html.jinja").render()


async def _teach(request: Request) -> Response:
    return HTMLResponse(_page("teach"))


async def _owner(request: Request) -> Response:
    return HTMLResponse(_page("owner"))


async def _start(request: Request) -> Response:
    return HTMLResponse(_page("start"))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    known = {path.name: path for path in (_HERE / "static").iterdir()}
    if name not in known:
        return Response(status_code=404)
    return Response(known[name].read_bytes(), media_type=_STATIC[name.rpartition(".")[2]])


def page_routes() -> list[Route]:
    return [
        Route("/", _start),
        Route("/teach", _teach),
        Route("/owner", _owner),
        Route("/static/{name}", _static),
    ]
