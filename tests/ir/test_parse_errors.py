from __future__ import annotations

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graphs import decorated_graphs
from tinycomp.errors import ParseError
from tinycomp.ir import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph

HEAD = 'graph @main opset {"" = 17} (%x: float32[2, 4]) -> (%y) {\n'


def error_of(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    return caught.value


def in_body(statement: str) -> str:
    return f"{HEAD}  {statement}\n}}"


def test_the_message_shows_the_line_and_a_caret() -> None:
    assert str(error_of(in_body("%y = Add(%x, %xx)"))) == (
        'line 2, column 16: there is no value "xx" in graph main up to here. Did you mean "x"?\n'
        "2 |   %y = Add(%x, %xx)\n"
        "  |                ^^^"
    )


def test_errors_survive_pickling() -> None:
    error = error_of(in_body("%y = Add(%x, %xx)"))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.snippet) == (ParseError, str(error), error.snippet)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("%y = Relu(%x", 'unexpected text; expected ")"; found "}"'),
        ("%y = Relu(%x) {a = }", 'found "}"'),
        ("%y = Relu(%x) {a = 1, a = 2}", '"a" is given twice'),
        ("%y Relu(%x)", 'expected "="; found "Relu"'),
        ('%y = Relu("x)', "a text in quotes does not end on its line"),
        ("%y = Relu(%x) & 3", "the character '&' begins nothing"),
        ("%x = Relu(%x)", 'the value name "x" is taken'),
        ("%y, %y = Split(%x)", "a node has two results of one name"),
        ('%"" = Relu(%x)', "the name of a value is empty"),
        ("%y: float23[2] = Relu(%x)", 'there is no dtype "float23". Did you mean "float32"?'),
        ("%y: list<int8[1]> = Relu(%x)", 'there is no kind of type "list"; expected seq, optional or map'),
        ("%y: map<?, int8[1]> = Relu(%x)", "the keys of a map have no type; expected an integer type or string"),
        ("%y: float32[-2] = Relu(%x)", "a dimension is negative: -2"),
        ("%y: float32[2 = Relu(%x)", 'expected "]"; found "="'),
        ("%y = const [1, 2]", "a constant needs a tensor type"),
        ("%y, %z = const float32[2] [1, 2]", "a constant has one name"),
        ("%y: float32[2] = const [1, 2, 3]", "float32[2] has 2 elements, the literal has 3"),
        ("%y: float32[N] = const [1]", "a literal needs a static shape, not float32[N]"),
        ("%y: int8[1] = const [1.5]", "1.5 is not an element of int8"),
        ("%y: int8[1] = const [200]", "an element is out of range for int8"),
        ("%y: int64[1] = const [99999999999999999999]", "the literal does not fit"),
        ('%y: float32[1] = const hex "00"', "1 bytes do not fill float32[1]"),
        ('%y: float32[1] = const hex "zz"', "the literal does not fit"),
        ('%y: string[1] = const hex "00"', "strings are written as a list"),
        ('%y = Relu(%x) {a = "\\q"}', "the text in quotes has a wrong escape"),
        ('%y = Relu(%x) {a = b"\\u0100"}', "a bytes text has a character above 255"),
        ("%y = Relu(%x) {a = dense seq<int8[1]> [1]}", "an array needs a tensor type"),
        ("%y = Relu@x(%x)", "expected an operator version"),
        ("%y = Relu@99999999999(%x)", "an operator version is not a whole number in range"),
        ("%y = Relu(%x) {a = " + "9" * 500 + "}", "the number is too long; expected at most 100 digits"),
        ("%y = MatMul(%x, %x)", "the type of a result cannot be inferred: the operands do not fit the operator"),
        ("%y: int8[9] = const #0123456789abcdef", "the elements of constant #0123456789abcdef are not at hand"),
    ],
)
def test_wrong_statements(statement: str, message: str) -> None:
    error = error_of(in_body(statement))
    assert message in str(error)
    line, shown = error.snippet.splitlines()
    assert line.endswith(statement) or line == "3 | }"
    assert shown.strip("| ^") == ""
    assert "^" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected "graph"; found the end of the text'),
        ("graph main", 'expected "@"; found "main"'),
        (HEAD, "expected a result such as %y, or _ for a skipped one; found the end of the text"),
        (in_body("%y = Relu(%x)") + " graph", "there is more text after the graph"),
        (in_body("%z = Relu(%x)"), 'there is no value "y" in graph main'),
        (HEAD.replace("17", '"17"') + "}", "an opset version is not a whole number"),
        ("graph @m metadata {a = 1} () -> () {}", "a metadata value is not a text"),
        ("graph @m (%x: int8[1], %x: int8[1]) -> () {}", 'the value name "x" is taken'),
    ],
)
def test_wrong_graphs(text: str, message: str) -> None:
    assert message in str(error_of(text))


def test_a_missing_large_constant_names_its_hash_and_the_way_out() -> None:
    error = error_of(in_body("%y: int8[9] = const #0123456789abcdef"))
    assert error.found == "no store of constants"
    assert "parse_graph(text, constants=...)" in error.hint
    with pytest.raises(ParseError, match="are not at hand; found 0 other constants"):
        parse_graph(in_body("%y: int8[9] = const #0123456789abcdef"), constants={})


@pytest.mark.parametrize(
    "deep",
    [
        "%y = Relu(%x) {a = " + "[" * 5000 + "]" * 5000 + "}",
        "%y: " + "seq<" * 5000 + "int8[1]" + ">" * 5000 + " = Relu(%x)",
    ],
    ids=["lists", "types"],
)
def test_deep_nesting_is_an_error_not_a_crash(deep: str) -> None:
    assert "are nested too deeply; expected at most 64 levels" in str(error_of(in_body(deep)))


def test_deep_bodies_are_an_error_not_a_crash() -> None:
    deep = "graph @g () -> () { () = f() body = " * 5000
    assert "bodies are nested too deeply" in str(error_of(deep))


@pytest.mark.long
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(decorated_graphs(max_nodes=4), st.data())
def test_a_damaged_text_is_read_or_refused_but_never_crashes(graph: Graph, data: st.DataObject) -> None:
    text = print_graph(graph)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    filling = data.draw(st.one_of(st.just(""), st.sampled_from(list('%_"(){}[]=@:;,|#-09ab\n\\')), st.text(max_size=3)))
    refusal = None
    try:
        parse_graph(text[:start] + filling + text[end:])
    except ParseError as error:
        refusal = error
    assert refusal is None or "^" in refusal.snippet
