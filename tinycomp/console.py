"""The console that everything is printed to: names of models are shown as what they are, never obeyed as commands."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tinycomp.errors import visible


class SafeConsole(Console):
    """A console that escapes control characters in what it prints; its own codes for colours stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, their texts made visible."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text, lines=True)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)
