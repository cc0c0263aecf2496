"""The measured peak of the machine: a positive number, measured once, refused where the instruction set is missing."""

from __future__ import annotations

import pytest

from tinycomp.errors import UnsupportedError
from tinycomp.runtime.peak import peak_flops
from tinycomp.runtime.processor import available_isas


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_has_a_peak_that_stays(isa: str):
    first = peak_flops(isa)
    assert 1e7 < first < 1e13
    assert peak_flops(isa) == first


def test_an_instruction_set_that_cannot_run_here_is_refused():
    with pytest.raises(UnsupportedError, match='cannot run the instruction set "abacus"') as caught:
        peak_flops("abacus")
    assert available_isas()[-1] in (caught.value.expected or "")
