"""The small form in notebooks: well-formed markup without scripts, every name escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np

import tinycomp
from tests.host_only import host_only
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model


class Reader(HTMLParser):
    """Reads markup whose elements are all closed in order."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_modules_and_reports_show_themselves() -> None:
    module = tinycomp.compile(digits_model(), ["npu_sim", "c"], place={"softmax": "host"})
    module.profile(digits()[0][:2], runs=1)
    markup = module._repr_html_()
    read = Reader(markup)
    for words in (
        "image: float32[N, 1, 8, 8]",
        "npu_sim_0",
        "3.03 M",
        " ms",
        'placed by "softmax": host',
        "For N = 2.",
    ):
        assert words in read.text
    assert module.report()._repr_html_() in markup
    assert "of the time" in markup  # in the title of a step
    assert len(markup) < 6000


def test_long_reports_stay_small_and_names_are_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>\"'"
    nodes = [host_only(f"v{i}", f"v{i + 1}", name=f"{evil}{i}") for i in range(200)]
    model = make_model(nodes, {"v0": np.ones((3, 4), np.float32)}, {}, ["v200"])
    model.graph.name = evil
    report = tinycomp.compile(model).report()
    read = Reader(report._repr_html_())
    assert read.tags <= {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "small"}
    assert evil in read.text
    assert "and 188 more" in read.text
    assert len(report._repr_html_()) < 60_000
