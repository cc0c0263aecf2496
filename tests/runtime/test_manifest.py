"""A saved module with one part changed: an error names the member, or the part if the checksums are made right."""

from __future__ import annotations

import copy
import itertools
import re

import numpy as np
import pytest
from onnx import parser

import tinycomp
from tests.fuzz.artifact import _MANIFEST as MANIFEST
from tests.fuzz.artifact import _packed, _unpacked
from tinycomp.errors import ArtifactError, TinycompError
from tinycomp.memory.budget import limited

HEAD = '<ir_version: 9, opset_import: ["": 17]> '
MODELS = {
    "native": "g (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> "
    "{ a = Mul(x, w) b = Softmax(a) y = Add(b, x) }",
    "dynamic": "g (float[N, M] x) => (float[N, K] y) "
    "{ a = Transpose(x) s = Shape(x) z = ConstantOfShape(s) y = Add(z, x) }",
    "loop": "g (float[2, 3] x) => (y) { n = Constant<value_int = 3>() b = Cast<to = 9>(n) i = Size(x) "
    "y = Loop(i, b, x) <body = t (int64 i, bool k, float[2, 3] v) => (bool l, float[2, 3] u) "
    "{ l = Identity(k) u = Add(v, v) }> }",
    "host": "g (float[2, 3] x) => (y) { a = Relu(x) b = NonZero(a) c = Unique(a) y = Cast<to = 1>(b) }",
    "defaults": "g (float[2, 3] x, float[3] w) => (float[2, 3] y) <float[3] w = {1, 2, 3}> "
    "{ a = Mul(x, w) y = Softmax(a) }",
}
GONE = object()


def deep():
    data = []
    for _ in range(500):
        data = [data]
    return data


CHANGES = {
    "missing": lambda old: GONE,
    "null": lambda old: None,
    "of another type": lambda old: 7 if isinstance(old, str) else "text",
    "negative": lambda old: -3,
    "huge": lambda old: 10**30,
    "deep": lambda old: deep(),
    "true": lambda old: True,
    "fraction": lambda old: 1.5,
    "empty": lambda old: type(old)() if isinstance(old, (list, dict, str)) else "",
}


def parts(manifest):
    """Return one part of each kind: places that differ in an index or a hash alone are of one kind."""
    found, waiting = {}, [(manifest, ())]
    while waiting:
        value, path = waiting.pop()
        kind = tuple("*" if isinstance(p, int) or re.fullmatch("[0-9a-f]{32}", p) else p for p in path)
        found.setdefault(kind, (path, value))
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(each, (*path, key)) for key, each in items]
    return [place for kind, place in found.items() if kind]


def changed(manifest, path, new):
    manifest = copy.deepcopy(manifest)
    parent = manifest
    for key in path[:-1]:
        parent = parent[key]
    if new is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return manifest


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", MODELS)
def test_every_part_works_as_before_or_is_named(name, tmp_path):
    """What a program computes is its own affair where whoever edits it has made the checksums right."""
    feeds, file = {"x": np.full((2, 3), 2, np.float32)}, tmp_path / "edited.tcm"
    module = tinycomp.compile(parser.parse_model(HEAD + MODELS[name]), threads=1)
    expected = module.run(feeds)["y"]
    manifest, members = _unpacked(module.to_bytes())
    for (path, old), change in zip(parts(manifest), itertools.cycle(CHANGES), strict=False):
        edited = changed(manifest, path, CHANGES[change](old))
        if edited != manifest and path[0] != "records":
            file.write_bytes(_packed(edited, members, hidden=False))
            with pytest.raises(ArtifactError, match=f"^{file}: (members are .* edited; .*; found {MANIFEST}|.*format)"):
                tinycomp.load(file)
        file.write_bytes(_packed(edited, members))
        try:
            with limited(1 << 28, 10):
                found = tinycomp.load(file).run(feeds)["y"]
        except TinycompError as error:
            named = str(file) in error.where if isinstance(error, ArtifactError) else bool(error.where)
            if not named:
                raise AssertionError((path, change, str(error))) from error
        else:
            assert found.dtype == expected.dtype
            if path[0] != "records":
                np.testing.assert_array_equal(found, expected, f"{path}, {change}")


FIELDS = {
    "inputs[0].shape[1]": (1.5, "null or an integer of 64 bits, 0 or more or a text; found 1.5"),
    "report.regions[0].macs": (10**30, "an integer of 64 bits; found 1000000000000000000000000000000"),
    "arrays": (None, "an object; found None"),
    "threads": (0, "null or an integer of 64 bits, 1 or more; found 0"),
}


@pytest.fixture(scope="module")
def native():
    return _unpacked(tinycomp.compile(parser.parse_model(HEAD + MODELS["native"]), threads=1).to_bytes())


@pytest.mark.parametrize("field", FIELDS)
def test_errors_say_which_part_is_what(native, field, tmp_path):
    file, (new, expected) = tmp_path / "edited.tcm", FIELDS[field]
    path = tuple(int(part) if part.isdecimal() else part for part in re.findall(r"\w+", field))
    file.write_bytes(_packed(changed(native[0], path, new), native[1]))
    with pytest.raises(ArtifactError) as raised:
        tinycomp.load(file)
    assert f"{file}, {field}: the description is damaged; expected {expected}" in str(raised.value)
