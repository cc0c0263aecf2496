"""The measured peak of the machine: a positive number, measured once, refused where the instruction set is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tinycomp.errors import TargetError, UnsupportedError
from tinycomp.runtime.native.processor import available_isas, peak_flops, peak_int8, peak_read


@pytest.mark.parametrize("peak", [peak_flops, peak_int8])
@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_has_a_peak_that_stays(isa: str, peak: Callable[[str], float]):
    first = peak(isa)
    assert 1e7 < first < 1e13
    assert peak(isa) == first


@pytest.mark.parametrize("peak", [peak_flops, peak_int8])
def test_an_instruction_set_that_cannot_run_here_is_refused(peak: Callable[[str], float]):
    with pytest.raises(UnsupportedError, match='cannot run the instruction set "abacus"') as caught:
        peak("abacus")
    assert available_isas()[-1] in (caught.value.expected or "")


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_read_at_some_speed(isa: str, threads: int):
    first = peak_read(isa, threads, 1 << 20)
    assert 1e7 < first < 1e13
    assert peak_read(isa, threads, 1 << 20) == first


def test_memory_cannot_be_read_by_nobody_or_not_at_all():
    with pytest.raises(TargetError, match="threads"):
        peak_read(available_isas()[0], 0, 1 << 20)
    with pytest.raises(TargetError, match="cannot read 0 bytes"):
        peak_read(available_isas()[0], 1, 0)
