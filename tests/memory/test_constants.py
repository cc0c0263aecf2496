"""Where constants lie: packed ones in files, those that a run reads in memory of the module's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinycomp.errors import TinycompWarning
from tinycomp.memory import constants as module
from tinycomp.memory.constants import LARGE, Constants, is_large, spilled
from tinycomp.memory.mapped import is_foreign, map_file, mapping_of
from tinycomp.runtime.native.program import ABSENT, Instruction, Operand, Program
from tinycomp.runtime.regions import read_while_running, settled


def foreign(tmp_path: Path, array: np.ndarray, skip: int = 1) -> np.ndarray:
    """The array in a file, at an address that is no multiple of its element size if ``skip`` is none."""
    path = tmp_path / f"file{skip}"
    path.write_bytes(b"\0" * skip + array.tobytes())
    with path.open("rb") as file:
        return map_file(file, path)[skip:].view(array.dtype).reshape(array.shape)


def program(*constants: np.ndarray) -> Program:
    """A product with constant 0 as packed weights, then a gather from constant 1, which a run reads."""
    place = [Operand("constant", i) for i in range(len(constants))]
    calls = (
        Instruction("gemm_f32", (Operand("arena"), Operand("input"), place[0], ABSENT, ABSENT), {}),
        Instruction("gather", (Operand("output"), place[1], Operand("arena")), {}),
    )
    return Program("p", (), (), constants, 0, calls)


BIG = np.arange(LARGE, dtype=np.float32).reshape(256, -1)
SMALL = np.arange(12, dtype=np.float32)


def test_what_is_only_packed_is_not_read_in_a_run() -> None:
    assert read_while_running(program(BIG, BIG)) == {1}


def test_packed_weights_stay_in_the_file_they_came_from(tmp_path: Path) -> None:
    source = foreign(tmp_path, BIG)
    place = settled(program(source, SMALL), Constants())
    assert place.constants[0] is source
    assert place.constants[1] is SMALL


def test_computed_weights_go_to_a_file_without_a_name() -> None:
    place = settled(program(BIG, BIG.copy()), Constants())
    assert mapping_of(place.constants[0]) is not None
    assert not is_foreign(place.constants[0])
    np.testing.assert_array_equal(place.constants[0], BIG)
    assert mapping_of(place.constants[1]) is None  # a run reads it: it is the one copy


@pytest.mark.parametrize("array", [BIG, SMALL], ids=["large", "small"])
def test_what_a_run_reads_leaves_files_of_others(tmp_path: Path, array: np.ndarray) -> None:
    source = foreign(tmp_path, array)
    constants = Constants()
    place = settled(program(BIG, source), constants)
    own = place.constants[1]
    assert not is_foreign(own)
    assert own.flags.aligned
    np.testing.assert_array_equal(own, array)
    again = foreign(tmp_path, array)  # another mapping of the same file is another place
    assert constants.own(source) is own
    assert constants.own(source.reshape(array.shape)) is own
    assert constants.own(again) is not own
    assert settled(place, constants).constants[1] is own


def test_many_arrays_share_one_file() -> None:
    arrays = [BIG, BIG.T, np.full((300, 300), 3, np.int8), np.ones(LARGE, np.float64)]
    copies = spilled(arrays)
    assert len({id(mapping_of(copy)) for copy in copies}) == 1
    for copy, array in zip(copies, arrays, strict=True):
        assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
        assert copy.flags.aligned
        assert not copy.flags.writeable
        np.testing.assert_array_equal(copy, array)


def test_some_arrays_are_not_worth_a_file() -> None:
    assert is_large(BIG)
    assert not is_large(SMALL)
    assert not is_large(np.broadcast_to(np.float32(1), (1000, 1000)))
    assert not is_large(np.full(LARGE, "text", object))


def test_without_room_the_weights_stay_and_a_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_folders", lambda: iter([str(tmp_path / "missing")]))
    with pytest.warns(TinycompWarning, match=rf"{BIG.nbytes} bytes of weights stay in memory.*No such file.*CACHE"):
        (kept,) = spilled([BIG])
    assert kept is BIG


def test_the_second_folder_serves_where_the_first_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_folders", lambda: iter([str(tmp_path / "missing"), str(tmp_path)]))
    (copy,) = spilled([BIG])
    assert mapping_of(copy) is not None
    assert [*tmp_path.iterdir()] == []
