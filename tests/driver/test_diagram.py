"""Diagrams: the boxes of a graph, what flows between them, and the arenas of its regions."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.host_only import QUALIFIED, relu_or_host_only
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.runtime.diagram import Diagram
from tinycomp.runtime.module import Module


def diagram_of(module: Module) -> Diagram:
    describe = module.report().diagram
    assert describe is not None
    return describe()


@pytest.fixture(scope="module", params=["static", "dynamic"])
def module(request: pytest.FixtureRequest) -> Module:
    shapes = {"image": (4, 1, 8, 8)} if request.param == "static" else None
    return tinycomp.compile(digits_model(), ["npu_sim", "c"], place={"stem/*": "c", "softmax": "host"}, shapes=shapes)


def test_nodes_stand_behind_what_holds_them_and_what_they_read(module: Module) -> None:
    diagram = diagram_of(module)
    made: dict[int | None, set[int]] = {None: set(diagram.inputs)}
    for number, node in enumerate(diagram.nodes):
        assert node.parent is None or node.parent < number
        known = made[node.parent] | {v for v, value in enumerate(diagram.values) if value.constant} | {-1}
        assert set(node.reads) <= known
        made[node.parent] |= set(node.writes)
        made[number] = set(node.takes)
        assert not node.takes or len(node.takes) == len(node.reads)
        assert not node.gives or len(node.gives) == len(node.writes)
    assert set(diagram.outputs) <= made[None]
    kinds = [node.kind for node in diagram.nodes if node.parent is None]
    assert kinds == ["region", "region", "region", "operator"]


def test_positions_are_those_of_the_report(module: Module) -> None:
    report = module.report()
    rows = {row.position: row for row in (*report.regions, *report.hosts)}
    nodes = {node.position: node for node in diagram_of(module).nodes if node.position in rows}
    assert nodes.keys() == rows.keys()
    assert all(nodes[position].macs == row.macs for position, row in rows.items())
    assert all(nodes[row.position].op == row.symbol for row in report.regions)


def test_blocks_that_live_together_lie_apart(module: Module) -> None:
    arenas = diagram_of(module).arenas
    assert [arena.region for arena in arenas] == ["c_0", "c_1"]
    for arena in arenas:
        for index, one in enumerate(arena.blocks):
            assert 0 <= one.first <= one.last <= len(arena.calls)
            assert one.offset + one.size <= arena.size
            for other in arena.blocks[:index]:
                together = one.first <= other.last and other.first <= one.last
                apart = one.offset + one.size <= other.offset or other.offset + other.size <= one.offset
                assert apart or not together
    assert any(arena.blocks for arena in arenas)


def test_a_saved_module_has_the_same_diagram(module: Module) -> None:
    diagram = diagram_of(module)
    again = diagram_of(tinycomp.load(module.to_bytes()))
    assert [node.op for node in again.nodes] == [node.op for node in diagram.nodes]
    assert again.arenas == diagram.arenas


def test_a_native_module_is_described_from_its_text() -> None:
    module = tinycomp.compile(digits_model(), shapes={"image": (4, 1, 8, 8)})
    loaded = tinycomp.load(module.to_bytes())
    assert diagram_of(loaded) == diagram_of(module)
    loaded.profile(digits()[0][:4], runs=1)
    view = loaded.report().view()
    times = [f.seconds for f, node in zip(view.facts, view.diagram.nodes, strict=True) if node.op == "Conv"]
    assert all(seconds is not None and seconds > 0 for seconds in times)


def test_times_of_calls_are_shared_out_by_their_work() -> None:
    module = tinycomp.compile(digits_model(), shapes={"image": (4, 1, 8, 8)})
    profile = module.profile(digits()[0][:4], runs=1)
    view = module.report().view()
    inner = [n for n, node in enumerate(view.diagram.nodes) if all(n != other.parent for other in view.diagram.nodes)]
    shared = sum(view.facts[number].seconds or 0 for number in inner)
    assert shared == pytest.approx(sum(row.seconds for row in profile.rows if row.sources))
    (region,) = module.report().regions
    assert view.facts[0].seconds == region.seconds


def test_bodies_of_control_flow_hold_their_nodes() -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    module = tinycomp.compile(make_model([relu_or_host_only("y")], {"x": x, "c": np.array(True)}, {}, ["y"]))
    nodes = diagram_of(module).nodes
    control = next(number for number, node in enumerate(nodes) if node.kind == "control")
    bodies = [number for number, node in enumerate(nodes) if node.kind == "body"]
    assert sorted(nodes[number].op for number in bodies) == ["else_branch", "then_branch"]
    assert all(nodes[number].parent == control for number in bodies)
    (stayed,) = module.report().why("HostOnly")
    assert [n.op for n in nodes if n.position == stayed.position] == [QUALIFIED]
