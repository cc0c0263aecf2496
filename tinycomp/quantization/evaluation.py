"""Running a graph and looking at values inside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinycomp.compiler import compile as compile_model
from tinycomp.errors import FeedError, QuantizationError
from tinycomp.ir.graph import Graph, Value
from tinycomp.progress import Bar
from tinycomp.quantization.feeds import CalibrationData, Feeds


class Watch:
    """Runs a graph and returns chosen values, by name.

    Args:
        graph: The graph; it is left alone.
        values: Inputs of the graph, or results of its nodes.
        threads: Of the runs.
    """

    def __init__(self, graph: Graph, values: Sequence[Value], threads: int | None = None) -> None:
        self._fed = [v.name for v in values if v.producer is None]
        made = [v.name for v in values if v.producer is not None]
        copy = graph.clone()
        copy.set_outputs([copy.values[name] for name in made] or copy.outputs)
        # Winograd's algorithm rounds more; what is measured here should be the model's own numbers.
        self._module = compile_model(copy, threads=threads, winograd=False)
        self._made = made

    def __call__(self, feeds: Feeds, where: str) -> Feeds:
        """Return the values for one input.

        Raises:
            QuantizationError: If the input does not fit the model.
        """
        try:
            found = self._module.run(feeds)
        except FeedError as error:
            raise QuantizationError(
                error.message, where=f"{where}, {error.where}" if error.where else where, expected=error.expected,
                found=error.found, hint=error.hint,
            ) from error  # fmt: skip
        fed = {**self._module.defaults, **feeds}
        return {**{name: found[name] for name in self._made}, **{name: fed[name] for name in self._fed}}


def watched(watch: Watch, data: CalibrationData, bar: Bar, what: str) -> Iterator[tuple[str, Feeds, Feeds]]:
    """Yield what every input of the data is called in messages, the input, and the values for it."""
    with bar.over(what, data, len(data)) as inputs:
        for where, feeds in inputs:
            yield where, feeds, watch(feeds, where)
