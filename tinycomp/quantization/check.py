"""Find the layers of a quantised model that a target's quantisation rules do not allow."""

from __future__ import annotations

from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes
from tinycomp.driver.report import make_report
from tinycomp.errors import QuantizationError
from tinycomp.frontend import Shapes
from tinycomp.runtime.rows import ViolationRow
from tinycomp.target import Target, find
from tinycomp.target.quantization import Rules


def rules_of(target: Target) -> Rules:
    """Return what a target says of quantisation.

    Raises:
        QuantizationError: If that is nothing.
    """
    rules = target.quantization_rules
    if not rules:
        raise QuantizationError(
            "the target says nothing about quantisation", where=f"target {target.name}",
            expected="a target with rules for operators such as Conv", hint="Name another, or none.",
        )  # fmt: skip
    return rules


def violations(model: Model, target: Target | str, *, shapes: Shapes | None = None) -> list[ViolationRow]:
    """Return what layers of a model do that a target's quantisation rules do not allow, and what would mend it.

    Nothing is compiled. Layers in float are no violations; the report of the compiled model says why they stay outside.

    Args:
        model: As for :func:`tinycomp.compile`.
        target: The target, or its name.
        shapes: Shapes for inputs.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If the target says nothing about quantisation.

    Example:
        >>> from tinycomp.data import digits_model
        >>> violations(digits_model(quantized=True), "tosa")
        []
    """
    found = find(target)
    rules_of(found)
    passes = [*optimisation_passes([found]), *partitioning_passes([found])]
    graph = Pipeline(passes)(load_graph(model, shapes))
    return make_report(graph, graph.name, [found.name]).violations()
