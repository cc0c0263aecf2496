"""Names in docstrings lead to where the reference has them, whatever module they are imported from."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> Any:
    """Return a reference to the one object with the last part of the name, or None where there is none, or several."""
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].rpartition(".")[2]
    domain = env.get_domain("py")
    assert isinstance(domain, PythonDomain)
    found = {(o.docname, o.node_id): full for full, o in domain.objects.items() if full.rpartition(".")[2] == name}
    if len(found) != 1 or not node["reftarget"].startswith(("tinycomp.", name)):
        return None
    ((docname, anchor), full), *_ = found.items()
    return make_refnode(app.builder, node["refdoc"], docname, anchor, content, full)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("missing-reference", _resolve)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
