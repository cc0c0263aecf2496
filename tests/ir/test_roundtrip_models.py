"""Every real model at hand survives: import, verify, print, parse, compare, print again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.models import all_models
from tinycomp.frontend.onnx_import import import_model
from tinycomp.ir.equality import difference
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.ir.verify import verify

_RESULT_TYPE = re.compile(r"^( *%\S+): \w+\[[^]]*\] = (?!const)", re.MULTILINE)


@pytest.mark.rows(4)
@pytest.mark.parametrize("path", all_models(), ids=lambda path: path.stem)
def test_a_model_survives_a_round_trip(path: Path) -> None:
    graph = import_model(path)
    verify(graph)
    store: dict[str, np.ndarray] = {}
    text = print_graph(graph, constants=store)
    back = parse_graph(text, constants=store, infer=graph.infer)
    verify(back)
    assert difference(graph, back, sources=True) is None
    assert print_graph(back) == text
    assert difference(graph, graph.clone(), sources=True) is None


@pytest.mark.parametrize("path", all_models()[:2], ids=lambda path: path.stem)
def test_types_of_a_model_can_be_inferred_from_the_text_alone(path: Path) -> None:
    """Without the types of results the parser infers the very types that the importer found."""
    graph = import_model(path)
    store: dict[str, np.ndarray] = {}
    text = print_graph(graph, constants=store)
    bare, count = _RESULT_TYPE.subn(r"\1 = ", text)
    assert count == len(graph)
    back = parse_graph(bare, constants=store, infer=graph.infer)
    assert difference(graph, back) is None
