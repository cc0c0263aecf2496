"""The arguments of ``tinycomp.compile``: targets and shapes, and what is said about wrong ones."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import tinycomp
from tests.partition_tools import graph_of, target_of
from tinycomp.data import digits, digits_model
from tinycomp.errors import (
    FallbackError,
    FeedError,
    ModelError,
    OptionError,
    PatternError,
    TargetError,
    TinycompWarning,
    TuningError,
)
from tinycomp.target import find

BODY = "%a = Neg(%x)\n%y = Sinh(%a)"


def test_strict_cuts_long_lists_short():
    graph = graph_of("\n".join(f"%a{i} = Sinh(%{f'a{i - 1}' if i else 'x'})" for i in range(12)), "a11")
    with pytest.raises(FallbackError, match=r"12 node\(s\) would run .*; and 2 more\. Compile"):
        tinycomp.compile(graph, target_of("npu", "Neg"), strict=True)


def test_shapes_make_one_plan_for_one_size():
    images, _ = digits()
    module = tinycomp.compile(digits_model(), shapes={"image": (3, 1, 8, 8)})
    assert module.inputs[0].shape == (3, 1, 8, 8)
    np.testing.assert_array_equal(module(images[:3]), tinycomp.compile(digits_model())(images[:3]))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"target": "cc"}, TargetError,
            'there is no target "cc"; expected one of c, ethos_u, npu_sim, tosa. Did you mean "c"?'),
        ({"target": 3}, TargetError, "not a target; expected a name or a tinycomp.Target; found 3"),
        ({"target": None}, TargetError, "a name or a tinycomp.Target; found None"),
        ({"target": ["c", 3]}, TargetError, "found 3"),
        ({"target": ["host", "c"]}, TargetError,
            'means no target at all; expected "host" alone, or targets without it; found host, c.'),
        ({"target": ["c", "c"]}, TargetError, "two targets share a name; found c, c. List every target once."),
        ({"threads": 0}, TargetError, "not a number of threads; expected a whole number from 1 to 1024; found 0"),
        ({"threads": 1025}, TargetError, "found 1025"),
        ({"threads": "2"}, OptionError,
            "threads: the option does not take this value; expected int or None; found '2'"),
        ({"passes": "simplfy"}, PatternError, 'there is no pass "simplfy". Did you mean "simplify"?'),
        ({"passes": [3]}, PatternError,
            "not a pass; expected a list of passes; found 3. Use tinycomp.driver.pipeline.parse_passes"),
        ({"shapes": [2, 4]}, ModelError,
            'shapes: not shapes by name; expected a dict such as {"x": (2, 4)}; found [2, 4]'),
        ({"options": {"c": {"tuning": 3}}}, TuningError,
            "tuning: not a tuning log; expected a tinycomp.targets.c.tuning.log.TuningLog or its path"),
        ({"options": {"c": {"winogrd": False}}}, OptionError,
            'target c: there is no option "winogrd"; expected one of winograd, requantize, memory, precision, tuning.'),
        ({"options": {"c": {"winograd": 1}}}, OptionError,
            'target c, option winograd: the option does not take this value; expected True, False or "auto"; found 1'),
        ({"options": {"c": {"requantize": "fixed"}}}, OptionError,
            'requantize: the option does not take this value; expected "float" or "fixed_point"; found \'fixed\''),
        (
            {"options": {"C": {}}},
            OptionError,
            'options: there are options for "C", which is not a target of this compilation; expected options for c.'
            ' Did you mean "c"?',
        ),
        ({"options": {"c": {}}, "target": "host"}, OptionError,
            "expected options for none: everything runs on the host"),
        ({"options": ["c"]}, OptionError,
            'options: options are given by target; expected a dict such as {"c": {"winograd": F'),
        ({"options": {"c": 3}}, OptionError,
            "target c: not a dict of options; expected a dict of options by name; found 3"),
        ({"target": "c:winograd"}, OptionError,
            "target c: cannot read an option; expected OPTION=VALUE; found winograd"),
        ({"target": "c:winograd=yes"}, OptionError,
            "target c, option winograd: the option does not take this value; expected never|auto|always; found yes"),
        ({"memory_limit": -1}, OptionError, "memory_limit: not a limit; expected bytes, a number above 0, or None"),
        ({"shapes": {"y": (2, 4)}}, ModelError, 'shapes names the input "y", which the model does not have'),
        ({"shapes": {"x": (2,)}}, ModelError, "expected 2 dimensions as in float32[2, 4]; found [2]"),
    ],
)  # fmt: skip
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        tinycomp.compile(graph_of(BODY, "y"), **options)


def test_a_saved_module_is_no_model(tmp_path):
    path = tmp_path / "m.tcm"
    tinycomp.compile(graph_of(BODY, "y")).save(path)
    with pytest.raises(ModelError, match=r"open a saved module with tinycomp\.load"):
        tinycomp.compile(path)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda x: x[:1], 'returned a wrong array for "a"; expected float32[2, 4]; found float32[1, 4]'),
        (lambda x: x.astype(np.float64), "expected float32[2, 4]; found float64[2, 4]"),
    ],
)
def test_what_a_code_generator_s_function_returns_is_checked(wrong, text):
    target = target_of("npu", "Neg")
    target.codegen(lambda region: wrong)
    module = tinycomp.compile(graph_of(BODY, "y"), target)
    with pytest.raises(TargetError, match=r"^npu, region npu_0: the region's code returned a wrong array") as caught:
        module(np.ones((2, 4), np.float32))
    assert text in str(caught.value)


def test_a_target_without_a_code_generator_is_refused_when_compiling():
    with pytest.raises(TargetError, match=r"target npu: the target has no code generator\. Add one with @npu\.codegen"):
        tinycomp.compile(digits_model(), target_of("npu", "Relu"))


def test_only_graphs_are_exported():
    module = tinycomp.compile(graph_of(BODY, "y"))
    with pytest.raises(ModelError, match=r"not a graph; expected a tinycomp\.Graph; found Module\. Graphs come from"):
        tinycomp.to_onnx(module)


def test_run_wants_names():
    module = tinycomp.compile(graph_of(BODY, "y"))
    with pytest.raises(FeedError, match=r"arrays by name: x; found ndarray\. Pass arrays by position to the module"):
        module.run(np.ones((2, 4), np.float32))


def digits_int8(**options):
    return pickle.dumps(tinycomp.compile(digits_model(quantized=True), **options))


@pytest.mark.parametrize(
    "moved", [{"winograd": False}, {"requantize": "fixed_point"}, {"winograd": True, "tuning": None}]
)
def test_options_of_the_c_target_are_still_taken_with_a_warning(moved):
    text = ", ".join(f'"{name}": {value!r}' for name, value in moved.items())
    text = f'is deprecated: these are options of the target c; write options={{"c": {{{text}}}}}'
    with pytest.warns(TinycompWarning, match=re.escape(text)):
        old = digits_int8(target="c", **moved)
    assert old == digits_int8(options={"c": moved}) != digits_int8()


@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
def test_options_that_moved_are_no_matter_where_the_c_target_has_no_part():
    assert not tinycomp.compile(digits_model(), "host", winograd=False).report().regions
    both = digits_int8(target=[find("c")], winograd=False, options={"c": {"winograd": True}})
    assert both == digits_int8(target="c:winograd=always")


def test_an_option_that_does_not_exist_is_answered_with_one_that_does():
    with pytest.raises(
        OptionError, match=r'^compile has no option "optons"; expected one of .*\. Did you mean "options"\?'
    ):
        tinycomp.compile(digits_model(), optons={})
