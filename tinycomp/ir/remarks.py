"""Remarks: what a pass decided about a node, and why; the raw material of reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remark:
    """One decision of one pass.

    Attributes:
        stage: Name of the pass, such as ``merge-composite``.
        sources: Source names of the nodes concerned.
        target: The target concerned, or an empty text.
        rule: The pattern, operator rule or policy that decided.
        reason: Why not, as one clause for the reader.
        progress: Share of the pattern that had matched, between 0 and 1; near misses are shown first.
    """

    stage: str
    sources: tuple[str, ...]
    target: str
    rule: str
    reason: str
    progress: float = 0.0
