"""The page of a report in a browser: clicking, searching, opening and closing, and names that mean harm."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from onnx import helper
from PIL import Image

import tinycomp
from tests.browser import Browser, browser, is_installed
from tests.host_only import host_only, relu_or_host_only
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.quantization import compare_layers
from tinycomp.runtime.diagram import Diagram, DiagramNode, DiagramValue
from tinycomp.runtime.picture.page import page
from tinycomp.runtime.picture.view import make_view
from tinycomp.runtime.report import Report

pytestmark = pytest.mark.skipif(not is_installed(), reason="chromium or chromedriver is not installed")
DOWN, ENTER, ESCAPE = "\ue015", "\ue007", "\ue00c"
EVIL = "</script><script>window.hacked=1</script><img src=x onerror=hacked=1>\u202e${hacked=1}"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report() -> Report:
    images = digits()[0]
    model = tinycomp.quantize(digits_model(), [images[:20]])
    module = tinycomp.compile(model, ["npu_sim", "c"], place={"softmax": "host"}, shapes={"image": (4, 1, 8, 8)})
    module.profile(images[:4], runs=2)
    return module.report()


@pytest.fixture
def shown(window: Browser, report: Report, tmp_path: Path) -> Iterator[Browser]:
    report.save_html(tmp_path / "report.html")
    window.open(tmp_path / "report.html")
    yield window
    assert window.complaints() == []


def run(window: Browser, body: str, *arguments: object) -> object:
    """Evaluate with the first picture as ``p`` and a way to find nodes by operator or label."""
    find = "const find = (name) => p.graph.nodes.find((n) => n.op === name || n.label === name);"
    return window.run(f"const p = tinycomp.pictures[0]; {find} {body}", *arguments)


def centre_of(window: Browser, name: str, x: float = 0.5) -> tuple[float, float]:
    """Where a node stands in the window; ``x`` is a share of its width, or pixels from its right edge if negative."""
    place = run(
        window,
        "const {box} = find(arguments[0]); const at = p.canvas.getBoundingClientRect();"
        "const [x, y] = arguments[1] < 0 ? [box.x + box.w + arguments[1], box.y + 15]"
        " : [box.x + box.w * arguments[1], box.y + box.h / 2];"
        "const [sx, sy] = p.toScreen(x, y); return [sx + at.left, sy + at.top];",
        name,
        x,
    )
    assert isinstance(place, list)
    return place[0], place[1]


def test_the_picture_is_not_blank(shown: Browser) -> None:
    image = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
    place = shown.run(
        "const b = tinycomp.pictures[0].canvas.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]"
    )
    picture = image.crop(tuple(map(int, place)))
    colours = picture.getcolors(1 << 20)
    assert colours is not None
    most = max(count for count, _ in colours)
    assert len(colours) > 200
    marks = shown.run("return [...tinycomp.theme.targets, ''].map((target) => tinycomp.theme.mark(target))")
    assert marks == ["circle", "square", "ring"]  # what colours tell, marks tell, too
    assert most < 0.9 * picture.width * picture.height


def test_a_click_tells_everything_about_a_node(shown: Browser) -> None:
    shown.click(*centre_of(shown, "Softmax"))
    text = str(shown.run("return document.getElementById('details').innerText"))
    for words in (
        "Softmax",
        "stays on the host, numpy tier",
        "softmax",
        "float32[4, 10]",
        'placed by "softmax": host',
        "% of the model",
    ):
        assert words in text
    assert text.index("npu_sim · policy") < text.index("c · policy")  # in the order in which targets are asked
    dense = run(shown, "p.select(find('dense')); return document.getElementById('details').innerText")
    for words in ("output channels must be a multiple of 16, got 10", "qgemm", "1.92 k", "constant"):
        assert words in str(dense)
    shown.type(ESCAPE)


def test_composites_open_and_close_by_mouse_and_key(shown: Browser) -> None:
    before = run(shown, "return p.seen.length")
    run(shown, "p.centre(find('c.qdense'), 1)")
    shown.click(*centre_of(shown, "c.qdense", -13))
    assert run(shown, "return p.seen.length") == before + 5
    assert run(
        shown, "const b = find('dense').box, o = find('c.qdense').box; return b.y > o.y && b.y + b.h < o.y + o.h"
    )
    run(shown, "p.select(find('c.qdense')); p.canvas.focus()")
    shown.type(ENTER)
    assert run(shown, "return p.seen.length") == before
    shown.click(*centre_of(shown, "c.qdense"), times=2)
    assert run(shown, "return p.seen.length") == before + 5
    shown.run("tinycomp.commands.regions()")
    assert run(shown, "return p.seen.length") == 4


def test_search_finds_what_is_folded_away(shown: Browser) -> None:
    shown.type("/")
    shown.type("dense/weight")
    assert shown.run("return document.getElementById('found').textContent") == "1 found"
    shown.type(ENTER)
    assert run(shown, "return p.selected.label") == "dense/weight/dequantize"
    assert run(shown, "return find('c.qdense').isOpen && p.isInView(p.selected)")
    shown.type(ESCAPE)
    assert run(shown, "return p.matches") is None


def test_arrows_follow_the_data(shown: Browser) -> None:
    run(shown, "p.select(find('flatten')); p.canvas.focus()")
    labels = []
    for _ in range(3):
        shown.type(DOWN)
        labels.append(run(shown, "return p.selected.op"))
    assert labels == ["c.qdense", "DequantizeLinear", "Softmax"]


def test_the_table_is_sorted_filtered_and_follows(shown: Browser) -> None:
    rows = "return [...document.querySelectorAll('.rows .row')].map((r) => r.innerText.split('\\n').filter(Boolean))"
    shown.run("tinycomp.showTab('nodes'); tinycomp.tabs.get('nodes').content.sortBy(5)")
    macs = shown.run(rows)
    assert any("Conv" in cell for cell in macs[0])
    shown.run("tinycomp.tabs.get('nodes').content.setQuery('softmax numpy')")
    (row,) = shown.run(rows)
    assert row[:2] == ["softmax", "Softmax"]
    shown.run("document.querySelector('.rows .row').click()")
    assert run(shown, "return p.selected.op") == "Softmax"


def test_the_timeline_and_the_arena_lead_to_nodes(shown: Browser) -> None:
    assert run(shown, "return p.data.profile.runs") == 2
    for tab in ("time", "memory"):
        shown.run("tinycomp.showTab(arguments[0])", tab)
        x, y, text = shown.run(  # of the widest, as a step may be narrower than a pixel
            "const chart = tinycomp.tabs.get(arguments[0]).content; const at = chart.canvas.getBoundingClientRect();"
            "const width = (item) => item.end - item.start;"
            "const item = chart.placed.filter((i) => i.nodes.length).sort((a, b) => width(a) - width(b)).pop();"
            "return [at.left + (item.start + item.end) / 2 * chart.w, at.top + item.top + item.height / 2, item.text]",
            tab,
        )
        run(shown, "p.select(null)")
        shown.click(x, y)
        assert run(shown, "return p.selected !== null")
        assert tab == "memory" or run(shown, "return p.selected.op") == text
    blocks = run(shown, "return p.data.arenas.flatMap((a) => a.blocks.map((b) => [...b, a.size]))")
    assert isinstance(blocks, list)
    for offset, size, first, last, whole in blocks:
        assert first <= last
        assert offset + size <= whole


def test_layers_beside_the_float_model_are_a_chart_and_heat(window: Browser, tmp_path: Path) -> None:
    images = digits()[0][:4]
    model = tinycomp.quantize(digits_model(), [images])
    accuracy = compare_layers(digits_model(), model, [images], target="c")
    report = tinycomp.compile(model, "c").report()
    dataclasses.replace(report, accuracy=accuracy).save_html(tmp_path / "report.html")
    window.open(tmp_path / "report.html")
    window.run("tinycomp.showTab('accuracy')")
    assert "No layer loses more than 12 dB" in str(
        window.run("return document.getElementById('panel-accuracy').innerText")
    )
    place = window.run(
        "const chart = tinycomp.tabs.get('accuracy').content; const at = chart.canvas.getBoundingClientRect();"
        "const item = chart.placed.find((i) => i.text.startsWith('widen/relu'));"
        "return [at.left + (item.start + item.end) / 2 * chart.w, at.top + item.top + item.height / 2]"
    )
    assert isinstance(place, list)
    window.click(*place)
    assert run(window, "return p.data.accuracy.layers[p.selected.layer].name") == "widen/relu:0"
    details = str(window.run("return document.getElementById('details').innerText"))
    assert "rounding alone" in details
    assert "up to 0 steps" in details
    window.run("tinycomp.setHeat('loss')")
    assert run(window, "return p.graph.maxima.loss") > 0
    assert window.complaints() == []


def test_heat_and_the_dark_scheme_change_the_picture(shown: Browser) -> None:
    pixels = "p.paint(); return p.canvas.toDataURL()"
    plain = run(shown, pixels)
    run(shown, "p.canvas.focus()")
    shown.type("hh")  # by time, by MACs
    assert shown.run("return document.getElementById('heat').value") == "macs"
    hot = run(shown, pixels)
    shown.type("d")
    dark = run(shown, pixels)
    assert len({plain, hot, dark}) == 3
    assert shown.run("return document.documentElement.dataset.scheme") == "dark"


def test_two_reports_stand_side_by_side(window: Browser, report: Report, tmp_path: Path) -> None:
    other = tinycomp.compile(digits_model(), ["npu_sim", "c"], shapes={"image": (4, 1, 8, 8)}).report()
    report.save_html(tmp_path / "both.html", other)
    window.open(tmp_path / "both.html")
    window.run("const p = tinycomp.pictures[0]; p.select(p.graph.nodes.find((n) => n.label === 'softmax'))")
    assert window.run("return tinycomp.pictures.map((p) => p.selected.target)") == ["", "c"]
    changes = window.run("return tinycomp.tabs.get('differences').content.rows.map((r) => [r.source, r.change])")
    assert ["softmax", "moved"] in changes
    assert ["pool", ""] in changes
    assert window.complaints() == []


def test_names_run_no_scripts(window: Browser, tmp_path: Path) -> None:
    x = np.ones((3, 4), np.float32)
    nodes = [
        host_only("x", EVIL, name=EVIL),
        helper.make_node("Relu", [EVIL], ["y"], name="r"),
    ]
    model = make_model(nodes, {"x": x}, {}, ["y"])
    model.graph.name = EVIL
    module = tinycomp.compile(model)
    module.profile(x, runs=1)
    module.report().save_html(tmp_path / "evil.html", module.report())
    window.open(tmp_path / "evil.html")
    window.run(
        "const p = tinycomp.pictures[0]; p.select(p.graph.nodes[0]);"
        "for (const name of tinycomp.tabs.keys()) tinycomp.showTab(name)"
    )
    assert window.run("return [window.hacked, document.scripts.length, document.images.length]") == [None, 2, 0]
    shown = str(window.run("return document.getElementById('details').innerText"))
    assert "</script><script>window.hacked=1" in shown
    assert "\\u202e" in shown
    assert window.complaints() == []


def test_the_page_asks_nothing_of_the_network(report: Report, tmp_path: Path) -> None:
    report.save_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert not re.findall(r"""(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org)""", text)
    assert "default-src 'none'" in text


def big_diagram(count: int, seed: int = 0) -> Diagram:
    """Chains with branches and values that are read far below."""
    random = Random(seed)
    values = [DiagramValue("x", "float32[1]", 4)]
    nodes = [DiagramNode("region", "c_0", "c_0", "c", (), None, (0,), (1,), (2,), (count + 2,))]
    values += [DiagramValue("y", "float32[1]", 4), DiagramValue("x", "float32[1]", 4)]
    for index in range(count):
        near = [max(2, index + 2 - random.randrange(3)) for _ in range(random.choice((1, 1, 2)))]
        far = [random.randrange(2, index + 3)] if random.random() < 0.02 else []
        nodes.append(
            DiagramNode(
                "operator", "Add", f"n{index}", "c", (f"n{index}",), 0, tuple(dict.fromkeys(near + far)), (index + 3,)
            )
        )
        values.append(DiagramValue(f"v{index}", "float32[1]", 4))
    return Diagram(tuple(values), tuple(nodes), (0,), (1,))


def test_three_thousand_nodes_are_laid_out_without_overlap(window: Browser, tmp_path: Path) -> None:
    report = Report("big", ("c",), (), ()).to_dict()
    view = make_view(report, "big", big_diagram(3000), None)
    (tmp_path / "big.html").write_text(page([view]), "utf-8")
    window.open(tmp_path / "big.html")
    for columns in (False, True):
        boxes = run(
            window,
            "if (p.wraps !== arguments[0]) p.setWrap(arguments[0]); p.paint();"
            "return p.seen.map((n) => [n.box.x, n.box.y, n.box.w, n.box.h])",
            columns,
        )
        assert isinstance(boxes, list)
        assert len(boxes) == 3001
    assert overlapping(np.array(boxes[1:])) == 0  # in columns
    assert window.complaints() == []


def overlapping(boxes: np.ndarray) -> int:
    """How many pairs of boxes overlap."""
    x, y, w, h = (column[:, None] for column in boxes.T)
    apart = (x + w <= x.T + 1e-6) | (x.T + w.T <= x + 1e-6) | (y + h <= y.T + 1e-6) | (y.T + h.T <= y + 1e-6)  # noqa: SIM300
    return int((~apart).sum() - len(boxes)) // 2


@pytest.mark.parametrize("seed", range(6))
def test_layers_go_down_and_boxes_stay_apart(window: Browser, report: Report, tmp_path: Path, seed: int) -> None:
    if seed == 0:
        report.save_html(tmp_path / "report.html")
        window.open(tmp_path / "report.html")
    random = Random(seed)
    count = random.randrange(2, 60)
    boxes = [{"w": random.randrange(1, 200), "h": random.randrange(0, 90)} for _ in range(count)]
    wires = []
    for index in range(count - 1):
        to = sorted(random.sample(range(index + 1, count), min(count - index - 1, random.randrange(4))))
        wires.append({"from": index, "x": boxes[index]["w"] / 2, "to": [{"box": box, "x": None} for box in to]})
    wires = [wire for wire in wires if wire["to"]]
    made = window.run("return tinycomp.layered(arguments[0], arguments[1], [], [], false)", boxes, wires)
    sizes = np.array([[x, y, box["w"], box["h"]] for x, y, box in zip(made["x"], made["y"], boxes, strict=True)], float)
    assert overlapping(sizes[(sizes[:, 2] > 0) & (sizes[:, 3] > 0)]) == 0
    for wire in wires:
        for target in wire["to"]:
            assert made["y"][wire["from"]] + boxes[wire["from"]]["h"] < made["y"][target["box"]]
    assert (sizes[:, 0] >= -1e-6).all()
    assert (sizes[:, 0] + sizes[:, 2] <= made["w"] + 1e-6).all()


def test_a_report_without_its_graph_shows_its_rows(window: Browser, report: Report, tmp_path: Path) -> None:
    bare = Report.from_dict(json.loads(json.dumps(report.to_dict())) | {"notes": ["kept"]})
    assert bare.diagram is None
    bare.save_html(tmp_path / "bare.html")
    window.open(tmp_path / "bare.html")
    kinds = run(window, "return p.graph.root.children.map((n) => n.kind)")
    assert kinds == ["region"] * len(report.regions) + ["operator"] * len(report.hosts)
    assert "kept" in str(window.run("return document.getElementById('details').innerText"))
    assert dataclasses.replace(bare, notes=()).view().profile is None


def test_a_model_without_nodes_has_a_page(window: Browser, tmp_path: Path) -> None:
    model = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": np.ones(3, np.float32)}, {}, ["y"])
    tinycomp.compile(model).report().save_html(tmp_path / "empty.html")
    (tmp_path / "nothing.html").write_text(page([make_view(Report("", (), (), ()).to_dict(), "", None, None)]), "utf-8")
    for name in ("empty.html", "nothing.html"):
        window.open(tmp_path / name)
        assert run(window, "p.paint(); return p.w > 0")
        assert window.complaints() == []


@pytest.mark.long
def test_inversions_are_counted(window: Browser, report: Report, tmp_path: Path) -> None:
    report.save_html(tmp_path / "report.html")
    window.open(tmp_path / "report.html")
    random = Random(1)
    for count in (0, 1, 2, 9, 64, 100):
        numbers = [random.randrange(20) for _ in range(count)]
        wanted = sum(numbers[i] > numbers[j] for j in range(count) for i in range(j))
        assert window.run("return tinycomp.inversions(Float64Array.from(arguments[0]))", numbers) == wanted


@pytest.mark.long
def test_bodies_of_control_flow_are_boxes_in_a_box(window: Browser, tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    nodes = [
        relu_or_host_only("z"),
        helper.make_node("Neg", ["z"], ["y"], name="neg"),
    ]
    model = make_model(nodes, {"x": x, "c": np.array(True)}, {}, ["y"])
    tinycomp.compile(model, "host").report().save_html(tmp_path / "if.html")
    window.open(tmp_path / "if.html")
    inside = """
        const holds = (a, b) => a.x <= b.x && a.y <= b.y && a.x + a.w >= b.x + b.w && a.y + a.h >= b.y + b.h;
        return p.graph.nodes.every((n) => n.scope.index < 0 || holds(n.scope.box, n.box))"""
    assert run(window, inside)
    follow = "return p.graph.neighbours(find(arguments[0]), arguments[1]).map((n) => n.op)"
    assert run(window, follow, "Relu", True) == ["Neg"]
    assert run(window, follow, "Neg", False) == ["If"]
    assert run(window, follow, "Relu", False) == []  # the graph's own input
    assert run(window, "return find('If').inner.wires.length") >= 3
    assert window.complaints() == []
