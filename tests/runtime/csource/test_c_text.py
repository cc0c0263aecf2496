"""Whatever a model calls its values, C text stays what it was meant to be."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.csource.c_sources import SIGNATURE
from tinycomp.errors import TargetError
from tinycomp.runtime.csource.region import CRegion, Origin
from tinycomp.runtime.csource.source import CSource, c_comment, c_identifier, c_number, c_string
from tinycomp.runtime.spec import TensorSpec

HOSTILE = [
    "", "*/ int main; /*", '"; system("x"); "', "a\nb", "a\\\nb", "??/", "*??/\n/", "*\\\n/", "**//", "/*/*/", "//",
    "int", "printf", "NULL", "_", "__x", "1st", "a__b", "..", "../../x", "é", "\ud800", "\0", "\r", "\u2028", "%s%n",
    "x" * 1_000_000, "#define x y", "'",
]  # fmt: skip
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(st.sampled_from('*/\\?\n"ab_1é')), st.text())
ORIGIN = Origin("text", "region", "")


def bytes_of(declarations: list[str], expressions: list[str], kind: str, dtype: str) -> np.ndarray:
    """Compile expressions and return their values."""
    stores = "\n".join(f"  y[{i}] = {text};" for i, text in enumerate(expressions))
    head = "\n".join(["#include <math.h>", *declarations])
    source = CSource(f"{head}\nstatic int f({SIGNATURE}) {{\n  {kind} *y = outputs[0];\n{stores}\n  return 0;\n}}", "f")
    (values,) = CRegion(source, [], [TensorSpec("y", dtype, (len(expressions),))], ORIGIN)([])
    return values


@given(NAMES)
def test_a_comment_is_one_line_that_ends_where_it_should(name: str) -> None:
    comment = c_comment(name)
    assert comment.startswith("/* ")
    assert comment.find("*/") == len(comment) - 2
    assert comment.find("/*", 1) == -1
    assert comment.isascii()
    assert comment.isprintable()
    assert len(comment) < 250


@given(NAMES, NAMES)
def test_identifiers_are_plain_and_differ_where_names_do(one: str, other: str) -> None:
    first, second = c_identifier(one), c_identifier(other)
    assert re.fullmatch(r"v_[A-Za-z0-9_]{0,80}", first)
    assert (first == second) == (one == other)


def test_no_name_can_pose_as_another() -> None:
    assert len({c_identifier(name) for name in HOSTILE}) == len(HOSTILE)
    made = c_identifier("a/b").removeprefix("v_")
    assert c_identifier(made) != c_identifier("a/b")


def test_a_string_has_the_bytes_of_the_text() -> None:
    texts = [*(t for t in HOSTILE if len(t) < 100), "".join(map(chr, range(128))), "??=??(??/"]
    for number, text in enumerate(texts):
        assert c_string(text).isascii(), number
        assert "\n" not in c_string(text)
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    declarations = [f"static const char s{i}[] = {c_string(text)};" for i, text in enumerate(texts)]
    places = [f"s{i}[{j}]" for i, data in enumerate(wanted) for j in range(len(data))]
    sizes = [f"sizeof s{i} - 1" for i in range(len(texts))]
    assert bytes_of(declarations, places, "unsigned char", "uint8").tobytes() == b"".join(wanted)
    assert bytes_of(declarations, sizes, "int", "int32").tolist() == [len(data) for data in wanted]


@pytest.mark.parametrize(("dtype", "kind"), [("float32", "float"), ("float64", "double")])
def test_every_number_is_read_back_exactly(dtype: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 200, dtype=np.uint64).view(dtype)
    info = np.finfo(dtype)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        info.max,
        info.tiny,
        info.smallest_subnormal,
        -info.smallest_subnormal,
        0.1,
        1e22,
    ]
    values = np.array([*bits[~np.isnan(bits)], *special], dtype)
    found = bytes_of([], [c_number(v, dtype) for v in values], kind, dtype)
    assert found.tobytes() == values.tobytes()
    assert np.isnan(bytes_of([], [c_number(np.nan, dtype)], kind, dtype)[0])


def test_integers_of_all_sizes() -> None:
    values = [0, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63) + 1, -(2**63)]
    assert bytes_of([], [c_number(v, "int64") for v in values], "long long", "int64").tolist() == values
    assert bytes_of([], [c_number(2**64 - 1, "uint64")], "unsigned long long", "uint64").tolist() == [2**64 - 1]
    assert (c_number(True, "bool"), c_number(np.int8(-3), "int8")) == ("1", "(-3)")


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_larger_integers_are_refused(value: int) -> None:
    with pytest.raises(TargetError, match=f"^c_number: the number does not fit into 64 bits; found {value}$"):
        c_number(value, "int64")
