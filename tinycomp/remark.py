"""Remarks: reasons for refusals as data, which predicates return, passes collect and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinycomp.records import dataclass


@dataclass(frozen=True, slots=True)
class Remark:
    """Say no, with a reason; false in conditions.

    A predicate fills in the reason alone (:func:`reject`), the matcher where and how far it came, a pass the rest.

    Attributes:
        stage: Name of the pass, such as ``merge-composite``.
        sources: Source names of the nodes concerned; of a match that failed, those that had matched, root first.
        target: The target concerned, or an empty text.
        rule: The pattern, operator rule or policy that decided.
        reason: Why not, as one clause for the reader.
        progress: Share of the pattern that had matched, between 0 and 1; near misses are shown first.
        where: Label of the node at which a match failed, or an empty text.
        remedy: What would mend it, or an empty text.
    """

    stage: str = ""
    sources: tuple[str, ...] = ()
    target: str = ""
    rule: str = ""
    reason: str = ""
    progress: float = 0.0
    where: str = ""
    remedy: str = ""

    FORM = {"stage": str, "target": str, "rule": str, "text": str, "progress": Any, "remedy?": str}  # noqa: RUF012

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        subject = self.rule or self.target
        return f"{subject}: {self._text}" if subject else self._text

    @property
    def _text(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return the form that reports have in JSON, where the node stands above its remarks."""
        return {
            "stage": self.stage,
            "target": self.target,
            "rule": self.rule,
            "text": self._text,
            "progress": self.progress,
            **({"remedy": self.remedy} if self.remedy else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Remark:
        """Rebuild a remark from the result of :meth:`to_dict`."""
        remedy = data.get("remedy", "")
        reason = data["text"].removesuffix(f"; {remedy}") if remedy else data["text"]
        return cls(data["stage"], (), data["target"], data["rule"], reason, data["progress"], remedy=remedy)


Verdict = bool | Remark
"""The answer of a predicate: True, or ``reject("reason")``."""


def reject(reason: str) -> Remark:
    """Say no with a reason, in a predicate.

    >>> channels = 12
    >>> print(channels % 16 == 0 or reject(f"output channels must be a multiple of 16, got {channels}"))
    output channels must be a multiple of 16, got 12
    """
    return Remark(reason=reason)
