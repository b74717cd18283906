"""Puts the repository's pages on the site as they are.

Pages are written for the repository: they link to results, examples and sources outside of docs/. The site has each of
these under its path in the repository (docs/ itself is the root, README.md the front page), and links are rewritten to
lead there. Folders that are linked to become lists of their files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notebook_pages import page_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "benchmarks/README.md")
_SECTIONS = {"Tutorials": "tutorials", "How-to guides": "guide", "Method": "method", "Decisions": "decisions"}
"""Sections of the navigation that take every page of a folder."""
_ASSET = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|alternate|prev|next)\b)[^>]*?\shref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:url\(|@import )["']?((?:https?:)?//[^"')\s]+)"""
)


def site_path(path: str) -> str:
    """Where a path of the repository is on the site."""
    path = {"README.md": "index.md"}.get(path, path)
    if path.startswith("docs/notebooks/"):
        path = path.replace(".ipynb", ".md")
    return (path.removeprefix("docs/") + "/index.md") if (ROOT / path).is_dir() else path.removeprefix("docs/")


def in_repository(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if uri == "index.md":
        return "README.md"
    outside = (ROOT / uri).parent.is_dir() and not (ROOT / "docs" / uri).exists()
    return uri if outside else f"docs/{uri}"


def target(page: str, link: str) -> str | None:
    """The path that a page of the repository links to; None where the link leads elsewhere."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return found if ":" not in link and not found.startswith("..") and (ROOT / found).exists() else None


def rewritten(markdown: str, page: str) -> str:
    """The text of a page of the repository with the links that it needs on the site."""
    here = posixpath.dirname(site_path(page))

    def lead(link: re.Match[str]) -> str:
        found = target(page, link[2])
        return link[0] if found is None else link[1] + posixpath.relpath(site_path(found), here or ".") + link[3]

    return _LINK.sub(lead, markdown)


def listing(folder: str) -> str:
    """A page for a folder that is linked to: its files, by their titles where they have one."""
    names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file() and path.name[0] not in "._")
    return f"# {folder}\n\n" + "".join(f"- [{_title(ROOT / folder / name)}]({name})\n" for name in names)


def outside_assets(html: str) -> list[str]:
    """Scripts, styles, fonts and pictures that a page would load from another host."""
    return [next(filter(None, found)) for found in _ASSET.findall(html)]


def _title(path: Path) -> str:
    first = re.match(r"# (.*)", path.read_text(encoding="utf-8")) if path.suffix == ".md" else None
    return first[1] if first else path.name


def _text(path: str) -> str:
    if (ROOT / path).is_dir():
        return listing(path)
    return (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") else ""


def _linked(pages: list[str]) -> Iterator[str]:
    """Pages and all that they link to, and so on."""
    seen, todo = set(pages), [*pages]
    while todo:
        page = todo.pop()
        yield page
        joined = (page + "/index.md") if (ROOT / page).is_dir() else page
        targets = [target(joined, link[2]) for link in _LINK.finditer(_text(page))]
        found = {path for path in targets if path is not None} - seen
        seen |= found
        todo += sorted(found)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds to the navigation what it does not name."""
    nav: list[dict[str, Any]] = config.nav or []
    named = set(re.findall(r"[\w./-]+\.md", str(nav)))
    for section in nav:
        for title, folder in _SECTIONS.items():
            if title in section:
                pages = sorted(f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md"))
                section[title] += [page for page in pages if page not in named]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is outside of docs/ and linked to."""
    from mkdocs.structure.files import File, InclusionLevel

    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text, pictures = page_of(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    for path in _linked([*_PAGES, *docs]):
        uri = site_path(path)
        if files.get_file_from_path(uri) is None:
            content = {"content": listing(path)} if (ROOT / path).is_dir() else {"abs_src_path": str(ROOT / path)}
            files.append(File.generated(config, uri, inclusion=InclusionLevel.NOT_IN_NAV, **content))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Makes the links of a page lead to where things are on the site."""
    return rewritten(markdown, in_repository(page.file.src_uri))


def on_post_build(config: MkDocsConfig) -> None:
    """Refuses a site that loads anything from another host."""
    from mkdocs.exceptions import PluginError

    for page in sorted(Path(config.site_dir).rglob("*")):
        found = outside_assets(page.read_text(encoding="utf-8")) if page.suffix in (".html", ".css") else []
        if found:
            raise PluginError(f"{page} loads {found[0]} from another host: put it into docs/.")
