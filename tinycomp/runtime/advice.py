"""Advice: what to change so that a model has fewer regions, or more of its work in them; as data and as text."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from tinycomp.records import dataclass, field

_WIDTH = 80


@dataclass(frozen=True)
class Advice:
    """One change, with what a trial of it has shown.

    Attributes:
        kind: What is changed: ``"shapes"``, ``"policy"``, ``"place"`` (options), ``"definition"``, ``"padding"``,
            ``"float"``, ``"quantise"`` (the model), ``"rule"``, ``"composite"`` (the target); several are joined by
            ``" + "``.
        target: The target that gets the nodes.
        nodes: Source names of the nodes in the way.
        text: Why they are in the way, in one sentence.
        change: What to do: the line of code, the option, or the edit of the model.
        regions_before: Regions of the model, of all targets, without the change.
        regions_after: The same with the change.
        macs_before: Multiply-accumulates in regions of :attr:`target` without the change; symbolic sizes count as 1.
        macs_after: The same with the change.
    """

    kind: str
    target: str
    nodes: tuple[str, ...]
    text: str
    change: str
    regions_before: int
    regions_after: int
    macs_before: int
    macs_after: int
    _arguments: Callable[[], dict[str, Any]] = field(repr=False, compare=False)

    def apply(self) -> dict[str, Any]:
        """Return the arguments with which :func:`tinycomp.compile` compiles the model with the change.

        They hold copies: neither the model nor the targets are changed. A target that has been given a rule still has
        the code generator that knows nothing of it.
        """
        return self._arguments()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        public = [f.name for f in dataclasses.fields(self) if not f.name.startswith("_")]
        return {name: getattr(self, name) for name in public}

    def __str__(self) -> str:
        regions = f"regions {self.regions_before} -> {self.regions_after}"
        macs = f"MACs on {self.target} {self.macs_before:,} -> {self.macs_after:,}"
        return "\n".join((f"{self.kind}: {self.text}", f"  {self.change}", f"  {regions}, {macs}"))


@dataclass(frozen=True)
class AdviceList(Sequence[Advice]):
    """Advice in order: the smallest change first, of equal changes the one that gains most.

    Attributes:
        items: The advice.
        trials: How many partitions were tried.
        cut: Which limit ended the search early; empty if none did.
    """

    items: tuple[Advice, ...] = ()
    trials: int = 0
    cut: str = ""

    @overload
    def __getitem__(self, index: int) -> Advice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Advice]: ...

    def __getitem__(self, index: int | slice) -> Advice | Sequence[Advice]:
        return self.items[index]

    def __iter__(self) -> Iterator[Advice]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {"advice": [each.to_dict() for each in self.items], "trials": self.trials, "cut": self.cut}

    def __str__(self) -> str:
        """Return the advice as text of at most 80 columns, as far as names and code can be broken."""
        lines = [f"No advice after {self.trials} trial(s): no change that was tried gains a region or work."]
        if self.items:
            lines = [f"{len(self.items)} change(s) gain regions or work; {self.trials} trial(s)."]
        for number, each in enumerate(self.items, 1):
            first, *rest = str(each).split("\n")
            lines += ["", *_wrapped(f"{number}. {first}", "   ")]
            lines += [line for row in rest for line in _wrapped(f" {row}", "     ")]
        if self.cut:
            lines += ["", *_wrapped(f"The search ended early: {self.cut}.", "")]
        return "\n".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
