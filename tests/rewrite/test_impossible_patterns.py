"""A pattern that no node can ever match is refused where it is written."""

from __future__ import annotations

import pytest

from tinycomp.errors import PatternError
from tinycomp.ops.signatures import lacks_attribute, misfit, signature, takes_operands, unknown_operator
from tinycomp.rewrite import P

X = P.any


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda: P.Rleu(X), 'P.Rleu: there is no operator "Rleu". Did you mean "Relu"?'),
        (lambda: P.Conv2D(X, X), 'Did you mean "Conv"?'),
        (lambda: P.op(["Relu", "Clp"], X), 'P.Clp: there is no operator "Clp". Did you mean "Clip"?'),
        (lambda: P.repeat("Reluu", X), 'Did you mean "Relu"?'),
        (lambda: P.dominates(X, "Addd", "Concat"), 'Did you mean "Add"?'),
        (lambda: P["ai.onnx.ml"].Scalar(X), 'there is no operator "Scalar". Did you mean "Scaler"?'),
        (
            lambda: P.Conv(X, X, stride=[2, 2]),
            'P.Conv(stride=…): there is no attribute "stride"; expected one of auto_pad, dilations, group,'
            ' kernel_shape, pads, strides. Did you mean "strides"?',
        ),
        (
            lambda: P.op(["Add", "Relu"], X, alpha=1.0),
            'P.Add or Relu(alpha=…): there is no attribute "alpha"; expected one of axis, broadcast, consumed_inputs',
        ),
        (
            lambda: P.Conv(X, X, strides=2),
            "P.Conv(strides=…): the attribute never has this value; expected several whole numbers, such as [1, 1]; "
            "found 2",
        ),
        (lambda: P.Conv(X, X, group={1, "all"}), "expected a whole number; found 'all'"),
        (lambda: P.Gelu(X, approximate=1), "expected a text; found 1"),
        (lambda: P.Relu(X, X), "P.Relu: the operator never has that many operands; expected 1; found 2"),
        (
            lambda: P.Conv(X),
            "P.Conv: the operator always has more operands; expected 2 to 3; found 1. Write P.any for an operand that"
            " does not matter, ... for any further ones.",
        ),
    ],
)
def test_what_can_never_match_is_refused(write, text):
    with pytest.raises(PatternError) as caught:
        write()
    assert text in str(caught.value)


def test_what_an_older_or_another_operator_has_is_allowed():
    P.Pad(X, pads=[0, 0])  # an attribute until version 11
    P.Clip(X, max=6.0)
    P.op(["LeakyRelu", "Relu"], X, alpha=0.1)
    P.op(["Conv", "Relu"], X)
    P.Conv(X, ...)
    P.Concat(X, X, X, axis=1)
    P["com.vendor"].Anything(X, whatever=7)
    P.composite("npu.conv", X)
    P.Conv(X, X, strides=P.attr("s"), pads=lambda pads: True, group={1, 2}, dilations=None)
    P.If(X, then_branch=P.Relu(X))


def test_signatures_hold_for_all_versions():
    pad = signature("Pad", "")
    assert {"mode", "paddings", "pads", "value"} == set(pad.attributes)
    assert (pad.least, pad.most) == (1, 4)
    assert unknown_operator("Relu", "") is None
    assert unknown_operator("Quack", "com.vendor") is None
    assert unknown_operator("QuackOp", "") == "Operators of other domains are written with these: com.vendor::Op."
    assert not lacks_attribute("Op", "com.vendor", "anything")
    assert misfit("Op", "com.vendor", "anything", 7) is None
    assert takes_operands("Op", "com.vendor", 7, more=False)
