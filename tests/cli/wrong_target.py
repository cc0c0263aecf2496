"""A target whose second region is wrong: it forgets to clamp."""

from __future__ import annotations

from tinycomp.target import Target

TARGET = Target("wrong", description="wrong on purpose")
TARGET.accept("Relu")


@TARGET.codegen
def build(region):
    wrong = region.op != "wrong_0"
    return lambda x: x.copy() if wrong else x.clip(0)
