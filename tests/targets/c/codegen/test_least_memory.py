"""Programs for the fewest bytes: the same bits as for speed, in less memory, within a budget where one is given."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import tinycomp
from tests.fuzz.models import random_model
from tests.targets.c.codegen.image_chains import random_chain
from tests.targets.quantized_models import random_model as quantized_model
from tinycomp.data import digits_model
from tinycomp.errors import OptionError
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.program import Program
from tinycomp.runtime.report import Report


def module_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], memory: str | int) -> Module:
    shapes = {name: array.shape for name, array in feeds.items()}
    return tinycomp.compile(model, "c", shapes=shapes, threads=1, options={"c": {"memory": memory}})


def programs(module: Module) -> list[Program]:
    return [step.run.program for step in module.plan.steps if hasattr(step.run, "program")]


def arena(module: Module) -> int:
    return sum(program.arena_bytes for program in programs(module))


def results(module: Module, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    found = module(*[feeds[spec.name] for spec in module.inputs])
    return [found] if isinstance(found, np.ndarray) else list(found)


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Compare both programs; return the bytes of their arenas."""
    fast, least = (module_of(model, feeds, memory) for memory in ("fast", "least"))
    for expected, found in zip(results(fast, feeds), results(least, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)
    return arena(fast), arena(least)


@pytest.mark.parametrize("seed", range(12))
def test_chains_of_images(seed: int) -> None:
    fast, least = check(*random_chain(seed))
    assert least <= fast


def test_many_chains_take_less_memory() -> None:
    pairs = [tuple(arena(module_of(*random_chain(seed), memory)) for memory in ("fast", "least")) for seed in range(8)]
    assert sum(least < 0.95 * fast for fast, least in pairs) == 8


@pytest.mark.parametrize("seed", range(4))
def test_random_models(seed: int) -> None:
    sample = random_model(seed)
    check(sample.model, sample.feeds)
    check(*quantized_model(seed, integer_only=False))


def test_a_quantised_network_in_a_third_of_its_memory() -> None:
    feeds = {"image": np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}
    fast, least = check(digits_model(quantized=True), feeds)
    assert least < fast


def test_a_budget_is_kept_with_as_few_calls_as_it_takes() -> None:
    model, feeds = random_chain(18)
    fast, least = module_of(model, feeds, "fast"), module_of(model, feeds, "least")
    assert arena(least) < arena(fast)
    between = (arena(fast) + arena(least)) // 2
    some = module_of(model, feeds, between)
    assert arena(some) <= between
    counts = [sum(len(program.instructions) for program in programs(module)) for module in (fast, some, least)]
    assert counts == sorted(counts)
    np.testing.assert_array_equal(results(some, feeds)[0], results(fast, feeds)[0])
    assert arena(module_of(model, feeds, arena(fast))) <= arena(fast)


def test_several_threads_get_the_same() -> None:
    model, feeds = random_chain(17)
    shapes = {name: array.shape for name, array in feeds.items()}
    least = tinycomp.compile(model, "c", shapes=shapes, threads=2, options={"c": {"memory": "least"}})
    np.testing.assert_array_equal(results(least, feeds)[0], results(module_of(model, feeds, "fast"), feeds)[0])


def test_a_saved_module_says_what_lies_over_what() -> None:
    model, feeds = random_chain(18)
    module = module_of(model, feeds, "least")
    again = tinycomp.load(module.to_bytes())
    (before,), (after,) = programs(module), programs(again)
    assert after.blocks == before.blocks
    assert any(block.over is not None for block in before.blocks)
    np.testing.assert_array_equal(results(again, feeds)[0], results(module, feeds)[0])


def test_floats_of_four_bits_take_bytes() -> None:
    nodes = "a = Cast<to = 23>(x) y = Cast<to = 1>(a)"
    text = f'<ir_version: 11, opset_import: ["": 23]> m (float[3, 5] x) => (float[3, 5] y) {{ {nodes} }}'
    check(onnx.parser.parse_model(text), {"x": np.linspace(-4, 4, 15, dtype=np.float32).reshape(3, 5)})


def test_memory_is_a_word_or_a_number() -> None:
    model, feeds = random_chain(0)
    with pytest.raises(OptionError, match="memory"):
        module_of(model, feeds, "little")


def test_reports_hold_the_lives_of_buffers() -> None:
    model, feeds = random_chain(18)
    report = module_of(model, feeds, "least").report()
    (region,) = report.regions
    assert len(region.calls) > 3
    assert region.peak is not None
    assert max(buffer.offset + buffer.bytes for buffer in region.buffers) <= region.arena
    used = [sum(b.bytes for b in region.buffers if b.first <= at <= b.last) for at in range(len(region.calls))]
    assert used.index(max(used)) == region.peak
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again.regions[0].buffers == region.buffers
    assert again.regions[0].calls == region.calls
