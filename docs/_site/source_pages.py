"""A page of the site for every source file that a page links to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

_LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".def": "c", ".toml": "toml", ".yml": "yaml"}
_FOLDER = "source"


def _link(app: Sphinx, doctree: nodes.document) -> None:
    """Let links to files lead to their pages, where otherwise the file would be copied and downloaded."""
    docname = app.env.docname
    for node in list(doctree.findall(addnodes.download_reference)):
        path = (Path(app.srcdir) / Path(docname).parent / node["reftarget"]).resolve().relative_to(app.srcdir)
        if path.suffix not in _LANGUAGES:
            continue
        target = f"{_FOLDER}/{path.as_posix()}"
        _linked(app).add(path.as_posix())
        uri = relative_uri(app.builder.get_target_uri(docname), app.builder.get_target_uri(target))
        node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for name in sorted(_linked(app)):
        path = Path(app.srcdir) / name
        code = app.builder.highlighter.highlight_block(  # type: ignore[attr-defined]
            path.read_text(encoding="utf-8"), _LANGUAGES[path.suffix], linenos=False
        )
        yield f"{_FOLDER}/{name}", {"title": name, "body": f"<h1>{name}</h1>\n{code}"}, "page.html"


def _linked(app: Sphinx) -> set[str]:
    linked: set[str] = app.env.__dict__.setdefault("linked_sources", set())
    return linked


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("doctree-read", _link, priority=100)  # before the files are collected
    app.connect("html-collect-pages", _pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
