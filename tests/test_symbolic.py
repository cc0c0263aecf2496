"""Sizes as expressions: arithmetic, text, limits and straight-line code agree with plain numbers."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tinycomp import symbolic
from tinycomp.symbolic import (
    Expression,
    Formulas,
    UndecidedError,
    assuming,
    bounds,
    broadcast,
    broadcast_shapes,
    define,
    definitions,
    dimension,
    element,
    evaluate,
    has_elements,
    if_zero,
    maximum,
    minimum,
    naming,
    parse,
    rounded_up,
    size,
    substitute,
    symbol,
)

NAMES = ("n", "m", "batch size", "None", "größe", "min", 'a"b\\')
POINTS = st.fixed_dictionaries({name: st.integers(0, 9) | st.integers(0, 5000) for name in NAMES})


def _call(function, *sides):
    """Apply an operation to an expression and to its values at a point, given as a function of the point."""

    def value(point):
        return function(*[side[1](point) for side in sides])

    try:
        return function(*[side[0] for side in sides]), value
    except ZeroDivisionError:
        return sides[0]


def _if_zero(test, then, otherwise):
    return if_zero(test, then, otherwise) if isinstance(test, Expression) else then if test == 0 else otherwise


def _extend(pairs):
    binary = st.sampled_from([operator.add, operator.sub, operator.mul, minimum, maximum])
    divisors = st.integers(1, 12).map(lambda number: (number, lambda point: number))
    return st.one_of(
        st.tuples(binary, pairs, pairs).map(lambda t: _call(*t)),
        st.tuples(st.sampled_from([operator.floordiv, operator.mod]), pairs, pairs | divisors).map(lambda t: _call(*t)),
        st.tuples(pairs, pairs, pairs).map(lambda t: _call(_if_zero, *t)),
    )


_leaves = st.sampled_from(NAMES).map(lambda name: (symbol(name), operator.itemgetter(name))) | st.integers(-9, 300).map(
    lambda number: (number, lambda point: number)
)
PAIRS = st.recursive(_leaves, _extend, max_leaves=8)
"""A size, and the function of a point that it should be."""
SIZES = PAIRS.map(operator.itemgetter(0))


def at(pair, point):
    """Return both values at a point; points at which something is divided by 0 or less are left out."""
    try:
        wanted = pair[1](point)
        return evaluate(pair[0], point), wanted
    except ZeroDivisionError:
        assume(False)


@given(PAIRS, POINTS)
def test_an_expression_has_the_value_of_what_made_it(pair, point):
    found, wanted = at(pair, point)
    assert found == wanted


@given(PAIRS, PAIRS, POINTS)
def test_equal_expressions_have_equal_values(a, b, point):
    (x, _), (y, _) = at(a, point), at(b, point)
    if a[0] == b[0]:
        assert x == y
        assert hash(a[0]) == hash(b[0])
        assert str(a[0]) == str(b[0])
    if isinstance(difference := a[0] - b[0], int):
        assert x - y == difference


@given(SIZES, SIZES, SIZES)
def test_sums_and_products_are_canonical(a, b, c):
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a + b) * c == a * c + b * c
    assert a - a == 0
    assert str((a + b) * c) == str(c * b + a * c)


@pytest.fixture
def naming_everything(monkeypatch):
    monkeypatch.setattr(symbolic, "_SHORT", 6)
    monkeypatch.setattr(symbolic, "_SHALLOW", 0)


@pytest.mark.usefixtures("naming_everything")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(PAIRS, POINTS)
def test_parts_with_names_are_as_good_as_the_whole(pair, point):
    found, wanted = at(pair, point)
    with naming():
        short = symbolic._part(pair[0])
        texts = {name: str(part) for name, part in definitions(short).items()}
        assert evaluate(short, point) == found == wanted
        assert size(dimension(short)) == short
    with naming():
        for name, text in texts.items():
            define(name, parse(text))
        again = parse(str(short))
    for value in (short, again) if not isinstance(short, int) else ():
        assert value.symbols <= pair[0].symbols
        low, high = bounds(value)
        assert low is None or low <= wanted
        assert high is None or wanted <= high
        assert evaluate(substitute(value, {"n": point["n"]}), point) == wanted
        formulas = Formulas(NAMES)
        number = formulas.add(value)
        try:
            assert run_formulas(formulas, point)[number] == wanted
        except ZeroDivisionError:
            assume(False)


@given(SIZES)
def test_text_is_read_back(value):
    assert parse(str(value)) == value
    assert str(parse(str(value))) == str(value)


def test_a_sign_in_front_of_a_quotient():
    half = symbol("a") // 2
    assert str(symbol("m") - half) == "-(a//2) + m"
    assert evaluate(parse(str(symbol("m") - half)), {"a": 3, "m": 5}) == 4
    assert str(half - symbol("m")) == "a//2 - m"


@given(SIZES)
def test_a_dimension_is_read_back(value):
    written = dimension(value)
    assert size(written) == value
    assert isinstance(written, int) == isinstance(value, int)


@pytest.mark.parametrize(
    "name",
    ["batch size", "?", "n#1", "n + 1 # 2", "3", "-1", "2*3", '"q"', "None", "True", "if", "lambda", "", " ", "n +",
     "f(n)", "n.shape", "é", "\U0001f600", "a\0b", "a\nb", "unk__12", "N/2", "n ** 2", "n // 0", "min",
     "x" * 20_000, "(" * 300 + "n" + ")" * 300],
)  # fmt: skip
def test_texts_that_are_no_expressions_name_symbols(name):
    opaque = size(name)
    assert isinstance(opaque, Expression)
    assert opaque.name == name
    assert dimension(opaque) == name
    if len(name) < 1000:
        assert parse(str(opaque)) == opaque
        assert parse(str(opaque * 2 + 1)) == opaque * 2 + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("n", symbol("n")), ("2*n + 1", 2 * symbol("n") + 1), ("n + n", 2 * symbol("n")), (" n - 1 ", symbol("n") - 1)],
)
def test_texts_that_are_expressions(text, value):
    assert size(text) == value


@pytest.mark.parametrize(
    "text",
    ["*".join(["(a+b+c+d+e)"] * 80), "%".join("nabcdefghijklmopqrstuvwxyz"), "(n+1)//" * 300 + "m", "n+" * 9000 + "n",
     f"min({', '.join(f'a{i}' for i in range(900))})", "9" * 5000 + "*n"],
    ids=["terms", "remainders", "depth", "length", "operands", "digits"],
)  # fmt: skip
def test_texts_that_would_take_for_ever(text):
    with pytest.raises(ValueError, match="expression of sizes"):
        parse(text)
    assert size(text) == symbol(text)


@given(
    PAIRS,
    st.fixed_dictionaries({name: st.tuples(st.integers(0, 6), st.integers(0, 6) | st.none()) for name in NAMES}),
    st.data(),
)
def test_limits_are_kept(pair, widths, data):
    ranges = {name: (low, None if width is None else low + width) for name, (low, width) in widths.items()}
    point = {name: data.draw(st.integers(low, 40 if high is None else high)) for name, (low, high) in ranges.items()}
    with assuming(ranges):
        low, high = bounds(pair[0])
    value, _ = at(pair, point)
    assert low is None or low <= value
    assert high is None or value <= high


def test_a_text_is_read_anew_under_other_assumptions():
    with assuming({"short": (0, 64)}):
        assert size("min(short, 512)") == parse("min(short, 512)") == symbol("short")
    assert size("min(short, 512)") == parse("min(short, 512)") == minimum(symbol("short"), 512) != symbol("short")


@pytest.mark.parametrize(("top", "limits"), [(5, (0, 5)), (0, (0, 0)), (20, (2, 20))])
def test_limits_of_quotients(top, limits):
    with assuming({"m": (1, 10), "n": (0, 0)}):
        assert bounds((symbol("n") + top) // symbol("m")) == limits


N, M = symbol("n"), symbol("m")


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (N % 4, (0, 3)),
        (4 - N % 4, (1, 4)),
        ((8 - N % 8) % 8, (0, 7)),
        (N % 4 + M % 3, (0, 5)),
        (N - (7 * N) // 8, (0, None)),
        (N - minimum(N, M), (0, None)),
        (maximum(N, M) - N, (0, None)),
        (minimum(N, M) - N, (None, 0)),
    ],
    ids=str,
)
def test_limits_of_what_a_division_or_a_minimum_leaves(value, limits):
    assert bounds(value) == limits


def test_a_limit_beyond_every_size_is_none():
    assert minimum(N, 2**63 - 1) == N == maximum(N, -(2**63))
    assert minimum(2**62, 2**63 - 1) == 2**62


def test_the_least_and_the_greatest_of_numbers_are_numbers():
    assert (minimum(3), minimum(4, -2, 9), maximum(4, -2, 9), maximum(0, 0)) == (3, -2, 9, 0)


def test_a_size_that_is_filled_up_is_one_that_is_rounded_up():
    assert N + (8 - N % 8) % 8 == rounded_up(N, 8) == 8 * ((N + 7) // 8)
    assert (-N) // 8 == -((N + 7) // 8)
    assert maximum(0, rounded_up(N, 8) - minimum(2, rounded_up(N, 8))) + minimum(2, rounded_up(N, 8)) == rounded_up(
        N, 8
    )


@given(SIZES, SIZES, POINTS)
def test_decisions_hold_for_all_sizes(a, b, point):
    for decide in (operator.ge, operator.gt, operator.le, operator.lt):
        try:
            decided = decide(a, b)
        except UndecidedError:
            continue
        try:
            assert decided == decide(evaluate(a, point), evaluate(b, point))
        except ZeroDivisionError:
            assume(False)


@given(PAIRS, POINTS, st.sets(st.sampled_from(NAMES)))
def test_numbers_may_be_put_in_one_after_another(pair, point, first):
    wanted, _ = at(pair, point)
    try:
        half = substitute(pair[0], {name: point[name] for name in first})
        assert evaluate(half, point) == wanted
    except ZeroDivisionError:
        assume(False)


def run_formulas(formulas: Formulas, point) -> list[int]:
    """Compute all values as the C runtime does."""
    values = [point[name] for name in formulas.symbols]
    for name, operands in formulas.operations:
        if name == "constant":
            values.append(operands[0])
            continue
        a, b, *more = (values[i] for i in operands)
        if name == "divide" and b <= 0:
            raise ZeroDivisionError
        functions = {"add": operator.add, "multiply": operator.mul, "divide": operator.floordiv, "min": min, "max": max}
        values.append((b if a == 0 else more[0]) if name == "ifzero" else functions[name](a, b))
    return values


@given(st.lists(SIZES, min_size=1, max_size=5), POINTS)
def test_straight_line_code_computes_the_same(sizes, point):
    formulas = Formulas(NAMES)
    numbers = [formulas.add(value) for value in sizes]
    assert len(set(formulas.operations)) == len(formulas.operations)
    try:
        values, wanted = run_formulas(formulas, point), [evaluate(value, point) for value in sizes]
    except ZeroDivisionError:
        assume(False)
    assert [values[number] for number in numbers] == wanted


def test_straight_line_code_of_unknown_symbols():
    with pytest.raises(KeyError, match="m"):
        Formulas(["n"]).add(symbol("n") + symbol("m"))


@given(st.integers(0, 5000), st.integers(1, 70))
def test_rounded_up(number, multiple):
    assert evaluate(rounded_up(symbol("n"), multiple), {"n": number}) == -(-number // multiple) * multiple


DIMS = st.sampled_from([1, 1, 0, 3, symbol("n"), symbol("m"), symbol("n") + 1, minimum(symbol("n"), 3)])
SMALL = st.fixed_dictionaries({"n": st.sampled_from([0, 1, 3]), "m": st.sampled_from([0, 1, 3])})


@settings(max_examples=400)
@given(st.lists(st.lists(DIMS, max_size=3), min_size=1, max_size=3), SMALL)
def test_shapes_broadcast_as_in_numpy(shapes, point):
    numbers = [tuple(evaluate(dim, point) for dim in shape) for shape in shapes]
    try:
        wanted = np.broadcast_shapes(*numbers)
    except ValueError:
        assume(False)
    assert tuple(evaluate(dim, point) for dim in broadcast_shapes(*shapes)) == wanted


@given(SMALL, st.sampled_from([0, 1, 3]))
def test_what_is_cut_to_a_size_broadcasts_with_the_whole(point, cut):
    n, k = symbol("n"), symbol("k")
    part = minimum(n, k)
    number = min(point["n"], cut)
    assume(number == point["n"] or 1 in (number, point["n"]))
    found = evaluate(broadcast(part, n), {**point, "k": cut})
    assert found == np.broadcast_shapes((number,), (point["n"],))[0]


def test_elements_may_be_negative():
    end, n = element("ends", 1), symbol("n")
    assert has_elements(n + 2 * end, None, 3)
    assert not has_elements(n, None, 3)
    with pytest.raises(UndecidedError):
        assert end >= 0
    assert maximum(end, 0) >= 0
    assert minimum(maximum(end + n, 0), 7) <= 7


@pytest.mark.parametrize("name", ["ends", "an end", "a.b", "min", 'a"b'])
def test_elements_are_read_back_as_they_are_printed(name):
    value = 3 * element(name, 10) + symbol("n")
    assert parse(str(value)) == value
    assert size(dimension(element(name, 0))) == element(name, 0)
    assert str(element("ends", 1)) == "ends[1]"
