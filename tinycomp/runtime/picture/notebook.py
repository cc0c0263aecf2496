"""The small form of modules and reports that notebooks show: markup without scripts, every name escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tinycomp.errors import visible
from tinycomp.runtime.spec import TensorSpec
from tinycomp.runtime.tables import milliseconds, si

_COLOURS = ("#0072b2", "#009e73", "#9a5fb0", "#b08a00", "#56707f", "#7a5c3e")
_HOST = "#c4500a"
_MARKS = "●■▲◆⬟✚"
_HOST_MARK = "○"
_ROWS = 12
"""The most rows of a table."""
_STEPS = 120
"""The most steps in the strip."""


def module_html(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], report: str) -> str:
    """Return a module: what it takes and gives, and its report, which is markup already."""
    sides = " → ".join(", ".join(f"<code>{_safe(spec)}</code>" for spec in side) for side in (inputs, outputs))
    return f"<div><div>{sides}</div>{report}</div>"


def report_html(report: Mapping[str, Any], headline: str) -> str:
    """Return a report: its headline, its steps as a strip, the largest ones as a table, and why nodes stayed behind.

    Args:
        report: The report as data.
        headline: It in one line.
    """
    steps = sorted((*report["regions"], *report["hosts"]), key=lambda row: tuple(row["position"]))
    places = {target: place for place, target in enumerate(report["targets"])}
    key = "seconds" if "seconds" in report["totals"] else "macs"
    parts = [f"<div><b>{_safe(headline)}</b></div>", _strip(steps, places, key)]
    parts.append(
        _table(
            ("step", "runs on", "nodes", "MACs", "time"), _figures(report["regions"], places), len(report["regions"])
        )
    )
    if report["hosts"]:
        rows = ((_mark("", places), row["name"], row["op"], _why(row)) for row in report["hosts"][:_ROWS])
        parts.append(_table(("on the host", "operator", "why"), (_cells(*row) for row in rows), len(report["hosts"])))
    parts += [f"<div><small>{_safe(note)}</small></div>" for note in report["notes"]]
    return f'<div style="max-width: 900px">{"".join(parts)}</div>'


def _strip(steps: Sequence[Mapping[str, Any]], places: Mapping[str, int], key: str) -> str:
    """Return the steps from left to right, as wide as their share of the time or of the work, at least a hair."""
    whole = sum(step[key] or 0 for step in steps)
    boxes = []
    for step in steps[:_STEPS]:
        target = step.get("target", "")
        share = (step[key] or 0) / whole if whole else 1 / len(steps)
        name = step.get("symbol") or step["name"]
        title = f"{name}: {target or 'host'}, {share:.1%} of the {'time' if key == 'seconds' else 'MACs'}"
        boxes.append(
            f'<span title="{_safe(title)}" style="flex: {share:.6f} 1 8px; min-width: 8px; background: '
            f'{_colour(target, places)}; color: #fff; text-align: center; overflow: hidden">'
            f"{_symbol(target, places)}</span>"
        )
    return f'<div style="display: flex; gap: 1px; height: 20px; margin: 4px 0">{"".join(boxes)}</div>'


def _figures(rows: Sequence[Mapping[str, Any]], places: Mapping[str, int]) -> Iterable[str]:
    for row in rows[:_ROWS]:
        mark = _mark(row["target"], places)
        yield _cells(mark, row["symbol"], row["target"], row["nodes"], si(row["macs"]), milliseconds(row["seconds"]))


def _why(row: Mapping[str, Any]) -> str:
    reasons = row["reasons"]
    if not reasons:
        return ""
    subject = reasons[0]["rule"] or reasons[0]["target"]
    return f"{subject}: {reasons[0]['text']}" if subject else str(reasons[0]["text"])


def _table(heads: Sequence[str], rows: Iterable[str], count: int) -> str:
    head = "".join(f'<th style="text-align: left">{_safe(name)}</th>' for name in heads)
    more = f"<div><small>… and {count - _ROWS} more</small></div>" if count > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{more}"


def _cells(mark: str, first: object, *others: object) -> str:
    """Return a row; the mark is markup."""
    cells = [f"{mark} {_safe(first)}", *map(_safe, others)]
    row = "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells)
    return f"<tr>{row}</tr>"


def _mark(target: str, places: Mapping[str, int]) -> str:
    return f'<span style="color: {_colour(target, places)}">{_symbol(target, places)}</span>'


def _colour(target: str, places: Mapping[str, int]) -> str:
    return _COLOURS[places.get(target, 0) % len(_COLOURS)] if target else _HOST


def _symbol(target: str, places: Mapping[str, int]) -> str:
    return _MARKS[places.get(target, 0) % len(_MARKS)] if target else _HOST_MARK


def _safe(text: object) -> str:
    return html.escape(visible(str(text)))
