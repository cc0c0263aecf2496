"""Every operator of the C target against the host's kernels and onnxruntime, row-major and channels last."""

from __future__ import annotations

import collections

import pytest

from tests.targets.c.cases import ALL
from tests.targets.c.harness import Case, check
from tinycomp.ir.graph import COMPOSITE, TINYCOMP
from tinycomp.ops.distance import DOMAIN
from tinycomp.targets.c import TABLE

BY_OP: dict[str, list[Case]] = collections.defaultdict(list)
for _case in ALL:
    BY_OP[_case.op].append(_case)


def failures(cases: list[Case], channels_last: bool) -> list[str]:
    """One operator has hundreds of cases: they run as one test that lists every failure."""
    found = []
    for case in cases:
        try:
            check(case, channels_last)
        except Exception as error:  # collected, so that one bug does not hide another
            found.append(f"{case}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("op", sorted(BY_OP.keys() - {"Identity"}))  # one alone is not worth a region
def test_row_major(op):
    found = failures(BY_OP[op], channels_last=False)
    assert not found, f"{len(found)} of {len(BY_OP[op])} cases fail:\n" + "\n\n".join(found[:5])


@pytest.mark.parametrize("op", sorted(op for op in BY_OP if any(c.can_be_channels_last() for c in BY_OP[op])))
def test_between_channels_last_neighbours(op):
    cases = [c for c in BY_OP[op] if c.can_be_channels_last()]
    found = failures(cases, channels_last=True)
    assert not found, f"{len(found)} of {len(cases)} cases fail:\n" + "\n\n".join(found[:5])


ELSEWHERE = {
    "Col2Im", "ConstantOfShape", "Det", "Dropout", "GridSample", "If", "Loop", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Range", "RegexFullMatch", "RoiAlign", "RotaryEmbedding", "Shape", "Size",
    "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
}  # fmt: skip
"""What folds away where sizes are known (test_sizes.py), or has a file of its own here or beside the definitions."""


OTHERS = (COMPOSITE, TINYCOMP, DOMAIN, "com.microsoft", "ai.onnx.ml")
"""Domains whose operators have tests of their own."""


def test_every_operator_has_cases():
    operators = {op for domain, op in TABLE if domain not in OTHERS}
    assert operators - ELSEWHERE <= set(BY_OP)
    assert operators >= ELSEWHERE
