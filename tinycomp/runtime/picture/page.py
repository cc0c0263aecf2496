"""The page of a report: one HTML file that asks nothing of the network; style, scripts and data are inside.

Names come out of strangers' files. They are written as JSON in an element that is not executed, drawn on a canvas or
set as text, never as markup; and the page allows no script and no style but its own, by their hashes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from tinycomp.errors import visible
from tinycomp.runtime.picture.view import Reason, View

_SCRIPTS = ("layout.js", "theme.js", "picture.js", "table.js", "charts.js", "details.js", "page.js")
"""Parts of one script, in this order."""


def page(views: Sequence[View]) -> str:
    """Return the page of a report, or of two side by side."""
    style = _asset("page.css")
    scripts = "\n".join(_asset(name) for name in _SCRIPTS)
    script = f'(() => {{\n"use strict";\n{scripts}\n}})();\n'
    data = json.dumps([_shown(_view_data(view)) for view in views], separators=(",", ":"))
    title = " and ".join(str(view.report["model"]) or "model" for view in views)
    return Template(_asset("page.html")).substitute(
        title=html.escape(visible(f"{title} - tinycomp")),
        policy=f"default-src 'none'; img-src data: blob:; style-src {_hash(style)}; script-src {_hash(script)}",
        style=style,
        script=script,
        data=data.replace("<", "\\u003c"),
    )


@functools.cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shown(data: Any) -> Any:
    """Return data with what cannot be seen in texts escaped."""
    if isinstance(data, str):
        return visible(data, lines=True)
    if isinstance(data, dict):
        return {key: _shown(value) for key, value in data.items()}
    return [_shown(value) for value in data] if isinstance(data, (list, tuple)) else data


def _view_data(view: View) -> dict[str, Any]:
    """Return a view as the scripts read it; repeated reasons and names of targets are numbered."""
    report, diagram, profile = view.report, view.diagram, view.profile
    measured = None if profile is None else {"runs": profile.runs, "seconds": profile.seconds, "title": profile.title}
    reasons: dict[tuple[Any, ...], int] = {}
    nodes = [
        {
            "kind": node.kind, "op": node.op, "label": node.label, "target": node.target, "sources": node.sources,
            "parent": -1 if node.parent is None else node.parent, "reads": node.reads, "writes": node.writes,
            "takes": node.takes, "gives": node.gives, "attributes": dict(node.attributes), "macs": node.macs,
            "layer": layer, "tier": facts.tier, "seconds": facts.seconds, "calls": facts.calls, "arena": facts.arena,
            "reasons": [reasons.setdefault(_key(reason), len(reasons)) for reason in facts.reasons],
        }
        for node, facts, layer in zip(diagram.nodes, view.facts, view.layers, strict=True)
    ]  # fmt: skip
    return {
        "model": report["model"] or "model",
        "targets": report["targets"],
        "headline": view.headline,
        "notes": report["notes"],
        "totals": report["totals"],
        "inputs": diagram.inputs,
        "outputs": diagram.outputs,
        "values": [[value.name, value.type, value.bytes, int(value.constant)] for value in diagram.values],
        "nodes": nodes,
        "reasons": [list(key) for key in reasons],
        "calls": [
            {
                "step": call.step, "target": call.target, "kernel": call.kernel, "algorithm": call.algorithm,
                "nodes": call.nodes, "seconds": call.seconds, "gflops": call.gflops, "peak": call.share_of_peak,
                "bytes": call.bytes,
            }
            for call in view.calls
        ],
        "arenas": [
            {
                "region": arena.region, "size": arena.size,
                "calls": [[call.kernel, ", ".join(call.sources)] for call in arena.calls],
                "blocks": [[block.offset, block.size, block.first, block.last] for block in arena.blocks],
            }
            for arena in diagram.arenas
        ],
        "profile": measured,
        "accuracy": None if view.accuracy is None else {**view.accuracy.to_dict(), "verdict": view.accuracy.verdict()},
    }  # fmt: skip


def _key(reason: Reason) -> tuple[Any, ...]:
    return tuple(reason[name] for name in ("stage", "target", "rule", "text", "progress"))
