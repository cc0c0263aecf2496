"""Options of targets: declared by a dataclass, checked, read from texts, seen by code generators and checks, saved."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

import tinycomp
from tests.partition_tools import graph_of
from tinycomp.cli import main
from tinycomp.errors import ArtifactError, OptionError, TargetError, VerifyError
from tinycomp.rewrite import P, reject
from tinycomp.runtime.archive import Archive
from tinycomp.target import Target, Tolerance
from tinycomp.target.options import declared, read_options, saved_values

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 4


@dataclass(frozen=True)
class NpuOptions:
    """How the NPU computes.

    Attributes:
        rows: Rows of a tile, of which
            it has a few.
        mode: What matters more.
        scale: Multiplies.
    """

    rows: int = 16
    mode: Literal["fast", "exact"] = "fast"
    scale: float | None = 1.0
    spare: bool = field(default=False, metadata={"help": "Keep some.", "words": {"never": False, "ever": True}})
    folder: str = field(default="", metadata={"form": "DIR", "saved": False})
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rows % 4:
            raise ValueError(f"{self.rows} rows are no multiple of 4")
        if self.rows < 0:
            raise OptionError("there are no such tiles", where="rows")


def npu() -> Target:
    """A target that takes Relu, Neg in the exact mode, and Abs twice in tiles of 8 rows; it multiplies by scale."""
    target = Target("npu", options=NpuOptions)
    target.accept("Relu")

    @target.op("Neg")
    def _(node, options):
        return options.mode == "exact" or reject(f"not in the mode {options.mode}")

    @target.composite
    def twice(x):
        return P.Abs(P.Abs(x))

    @twice.check
    def _in_tiles_of_8(match, options):
        return options.rows == 8 or reject(f"tiles of {options.rows} rows")

    @target.codegen
    def build(region, options):
        return lambda x: np.maximum(x, 0) * np.float32(options.scale)

    return target


RELU = graph_of("%y = Relu(%x)", "y")


def test_options_reach_the_code_generator():
    target = npu()
    modules = [
        tinycomp.compile(RELU, target),
        tinycomp.compile(RELU, target, options={"npu": {"scale": 2.0}}),
        tinycomp.compile(RELU, target, options={"npu": NpuOptions(scale=3)}),
        tinycomp.compile(RELU, target.with_options(scale=4.0)),
        tinycomp.compile(RELU, target.with_options(scale=4.0), options={"npu": {"rows": 8}}),
    ]
    assert [float(module(X).max()) for module in modules] == [3, 6, 9, 12, 12]
    assert target.options == NpuOptions()


def test_options_reach_rules_and_checks():
    graph = graph_of("%a = Neg(%x)\n%b = Abs(%a)\n%y = Abs(%b)", "y")
    report = tinycomp.compile(graph, npu()).report()
    assert "not in the mode fast" in str(report.why("a")[0].reasons[0])
    assert "tiles of 16 rows" in str(report.why("b")[0].reasons[0])
    assert not report.regions
    report = tinycomp.compile(graph, npu(), options={"npu": {"mode": "exact", "rows": 8}}).report()
    assert [(row.composites, row.singles) for row in report.regions] == [({"npu.twice": 1}, {"Neg": 1})]


def test_a_configured_copy_goes_its_own_way():
    target = npu()
    copy = target.with_options(mode="exact", rows=8)
    assert (copy.options, target.options) == (NpuOptions(8, "exact"), NpuOptions())
    copy.accept("Sinh")
    copy.composite(lambda x: P.Cosh(P.Cosh(x)), name="cosh")
    assert ("", "Sinh") not in target.rules
    assert [c.name for c in target.composites] == ["twice"]
    assert [c.name for c in copy.composites] == ["twice", "cosh"]


def test_a_code_generator_with_one_parameter_needs_no_options():
    target = Target("plain")
    target.accept("Relu")
    target.codegen(lambda region: lambda x: np.maximum(x, 0))
    assert target.options is None
    np.testing.assert_array_equal(tinycomp.compile(RELU, target)(X), np.maximum(X, 0))
    with pytest.raises(
        OptionError, match=r'target plain: there is no option "rows"; expected none: it has no options$'
    ):
        target.with_options(rows=8)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"row": 8},
            'target npu: there is no option "row"; expected one of rows, mode, scale, spare, folder, sizes.'
            ' Did you mean "rows"?',
        ),
        ({"rows": "8"}, "target npu, option rows: the option does not take this value; expected int; found '8'"),
        ({"rows": True}, "expected int; found True"),
        ({"mode": "slow"}, """expected "fast" or "exact"; found 'slow'"""),
        ({"scale": "1"}, "expected float or None; found '1'"),
        ({"spare": 1}, "expected True or False; found 1"),
        ({"sizes": (1, "2")}, "found (1, '2')"),
        ({"rows": 6}, "target npu: the options are refused: 6 rows are no multiple of 4; found {'rows': 6}"),
        ({"rows": -4}, "rows: there are no such tiles"),
    ],
)
def test_wrong_values(values, text):
    with pytest.raises(OptionError, match=re.escape(text)):
        npu().with_options(**values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rows=8", {"rows": 8}),
        ("mode=exact, scale=2", {"mode": "exact", "scale": 2}),
        ("scale=none", {"scale": None}),
        ("spare=ever,folder=5", {"spare": True, "folder": "5"}),
    ],
)
def test_texts(text, values):
    assert read_options(NpuOptions(), text, "") == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here: cannot read an option; expected OPTION=VALUE; found nothing"),
        ("rows", "found rows"),
        ("rows=many", "here, option rows: the option does not take this value; expected int; found many"),
        ("mode=slow", "expected fast|exact; found slow"),
        ("spare=true", "expected never|ever; found true"),
        ("folder=a,b", "cannot read an option; expected OPTION=VALUE; found b"),
        ("flder=a", 'here: there is no option "flder"; expected one of rows, '),
    ],
)
def test_texts_that_are_refused(text, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        read_options(NpuOptions(), text, "here")


def test_options_describe_themselves():
    rows = [(o.name, o.values, o.written(o.default), o.help) for o in declared(NpuOptions()).values()]
    assert rows == [
        ("rows", "int", "16", "Rows of a tile, of which it has a few."),
        ("mode", "fast|exact", "fast", "What matters more."),
        ("scale", "float|none", "1.0", "Multiplies."),
        ("spare", "never|ever", "never", "Keep some."),
        ("folder", "DIR", "", ""),
        ("sizes", "tuple", "()", ""),
    ]
    assert declared(None) == {}


class Unfrozen:
    rows = 8


@dataclass(frozen=True)
class WithoutDefault:
    rows: int


@pytest.mark.parametrize("kind", [Unfrozen, WithoutDefault, 3])
def test_other_declarations_are_refused(kind):
    with pytest.raises(
        TargetError, match=r"^target x: the options are not declared .* a frozen dataclass whose fields"
    ):
        Target("x", options=kind)


def packed(module) -> bytes:
    return module.__reduce__()[1][0]


def test_saved_modules_remember_options():
    module = tinycomp.compile(RELU, npu(), options={"npu": {"scale": 2.0, "folder": "here"}})
    saved = {"rows": 16, "mode": "fast", "scale": 2.0, "spare": False}
    assert Archive.from_bytes(packed(module)).manifest["options"] == {"npu": saved}
    assert saved_values(None) == {}
    for given in (npu(), npu().with_options(scale=5.0)):
        np.testing.assert_array_equal(tinycomp.load(packed(module), targets=[given])(X), np.maximum(X, 0) * 2)


DAMAGED = [3, {"npu": 3}, {"npu": {"rows": "8"}}, {"npu": {"columns": 8}}, {"npu": {"rows": 6}}]


@pytest.mark.parametrize("options", DAMAGED)
def test_damaged_options_are_refused(options):
    archive = Archive.from_bytes(packed(tinycomp.compile(RELU, npu())))
    archive.manifest["options"] = options
    with pytest.raises(ArtifactError, match=r"the description is damaged; .*found "):
        tinycomp.load(archive.to_bytes(), targets=[npu()])


@dataclass(frozen=True)
class Counting:
    """Options that know for how many threads a plan is."""

    plans: int = 0
    threads: int = 0

    def for_plan(self, threads):
        return Counting(self.plans + 1, threads)


def test_the_code_generator_is_given_what_the_options_become_for_a_plan():
    seen = []
    target = Target("npu", options=Counting)
    target.accept("Relu")
    target.codegen(lambda region, options: seen.append(options) or (lambda x: x))
    tinycomp.compile(graph_of("%a = Relu(%x)\n%b = Sinh(%a)\n%y = Relu(%b)", "y"), target, threads=2)
    assert len(seen) == 2
    assert seen[0] is seen[1]
    assert seen[0].threads == 2


def test_the_command_line_lists_options(capsys):
    assert main(["targets", "c", "c:winograd=always", "npu_sim", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["targets"]
    assert [[(o["name"], o["values"], o["value"], o["default"]) for o in row["options"]] for row in rows[:2]] == [
        [
            ("winograd", "never|auto|always", value, "auto"),
            ("requantize", "float|fixed_point", "float", "float"),
            ("memory", "fast|least|BYTES", "fast", "fast"),
            ("precision", "f32|bf16", "f32", "f32"),
            ("tuning", "FILE", "none", "none"),
        ]
        for value in ("auto", "always")
    ]
    assert rows[2]["options"] == []
    assert main(["targets", "c", "npu_sim"]) == 0
    out = capsys.readouterr().out
    assert "Options of c, given as in -t c:winograd=never" in out
    assert "npu_sim has no options." in out


@dataclass(frozen=True)
class PreciseOptions:
    """A target that may compute less exactly.

    Attributes:
        precision: What it computes in.
    """

    precision: Literal["f32", "bf16"] = "f32"

    @property
    def tolerance(self) -> Tolerance | None:
        return Tolerance(rtol=0.1) if self.precision == "bf16" else None


def test_the_option_precision_follows_the_compilation():
    target, seen = Target("precise", options=PreciseOptions, tolerance=Tolerance(rtol=1e-3)), []
    target.accept("Relu")
    target.codegen(lambda region, options: seen.append(options.precision) or (lambda x: np.maximum(x, 0) * 1.05))
    tinycomp.compile(RELU, target, precision="bf16", verify=True)
    assert set(seen) == {"bf16"}
    for precision in (None, "f32", "f16"):
        seen.clear()
        tinycomp.compile(RELU, target, precision=precision)
        assert set(seen) == {"f32"}
        with pytest.raises(VerifyError, match="the region differs from the numpy kernels"):
            tinycomp.compile(RELU, target, precision=precision, verify=True)
    assert tinycomp.compile(RELU, npu(), precision="bf16").report().regions
