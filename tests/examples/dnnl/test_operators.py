"""Every operator of the table on oneDNN against the host, on row-major operands and on those of a convolution."""

from __future__ import annotations

import pytest
from tinycomp_dnnl.lowering import OPERATORS, VIEWS

from tests.examples.dnnl.cases import ALL, is_image
from tests.examples.dnnl.harness import behind_convolution, check, needs_dnnl
from tests.targets.c.harness import Case

pytestmark = needs_dnnl


@pytest.mark.parametrize("case", ALL, ids=str)
def test_operator(case: Case) -> None:
    check(case.model(), case.feeds)


@pytest.mark.parametrize("case", [c for c in ALL if is_image(c)], ids=str)
def test_operator_behind_a_convolution(case: Case) -> None:
    check(*behind_convolution(case))


def test_the_table_covers_every_operator() -> None:
    assert OPERATORS.keys() - {*VIEWS} <= {case.op for case in ALL}
