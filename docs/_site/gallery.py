"""The gallery of reports: ten models are compiled, and the page of each report becomes part of the site."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import tinycomp
from tinycomp.data import digits, digits_model

FOLDER = "docs/gallery"
_BOTH = ("npu_sim", "c")


@dataclass(frozen=True)
class Entry:
    """A report of the gallery.

    Attributes:
        name: Its file, and that of its picture.
        title: What the reader knows the model as.
        text: What there is to see.
        targets: In order of priority.
        runs: How often the model is run for its times; 0 for no times.
        place: Where nodes are put, as for ``tinycomp.compile``.
        model: Returns the model; by default one of those that ONNX's own tests use, with its name.
    """

    name: str
    title: str
    text: str
    targets: tuple[str, ...] = _BOTH
    runs: int = 0
    place: Mapping[Any, str] = field(default_factory=dict)
    model: Callable[[], Any] | None = None

    def save(self, path: Path) -> None:
        """Compile the model, run it if times are wanted, and write the page of its report."""
        light = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{self.name}.onnx"
        module = tinycomp.compile(self.model() if self.model else light, list(self.targets), place=dict(self.place))
        if self.runs:
            rng = np.random.default_rng(0)
            feeds = {}
            for spec in module.inputs:
                shape = [size if isinstance(size, int) else 1 for size in spec.shape or ()]
                feeds[spec.name] = rng.standard_normal(shape).astype(np.float32)
            module.profile(feeds, runs=self.runs)
        module.report().save_html(path)


ENTRIES = (
    Entry(
        "digits", "Digits, int8", "Quantised layers on a simulated accelerator, the last product on the C target, the "
        "softmax on the host. Select it to see why it is there.",
        runs=50, place={"softmax": "host"}, model=lambda: tinycomp.quantize(digits_model(), [digits()[0][:50]]),
    ),
    Entry(
        "resnet50", "ResNet-50", "One region on the C target, with the time of every kernel call. Press h for heat, "
        "and open the timeline.", ("c",), 3,
    ),
    Entry(
        "squeezenet", "SqueezeNet", "An accelerator that cannot concatenate gives the work away eight times.", runs=2,
    ),
    Entry(
        "shufflenet", "ShuffleNet", "Grouped convolutions are refused, each with its reason: filter the table by host.",
        ("npu_sim",),
    ),
    Entry("inception_v1", "Inception v1", "Branches that run one after the other, and what each costs.", ("c",), 3),
    Entry("inception_v2", "Inception v2", "The same idea on two targets: thick wires are what is copied between them."),
    Entry("densenet121", "DenseNet-121", "The hard case: every layer reads all earlier ones, in 126 regions."),
    Entry("bvlc_alexnet", "AlexNet", "Few layers, most of the weights in the last three.", ("c",), 3),
    Entry("zfnet512", "ZFNet-512", "Local response normalisation cuts the accelerator's part."),
    Entry("vgg19", "VGG-19", "Twenty billion multiplications in a row: heat by MACs."),
)  # fmt: skip
"""What the gallery shows, in order."""


class Gallery(Directive):
    """Lists the reports, each with its picture: ``{gallery}``."""

    def run(self) -> list[nodes.Node]:
        """Return a list with a picture, a link and a sentence for each report."""
        cards = nodes.bullet_list(classes=["gallery"])
        for entry in ENTRIES:
            page = f"gallery/{entry.name}.html"
            picture = nodes.image(uri=f"gallery/{entry.name}.png", alt=f"The graph of {entry.title}")
            cards += nodes.list_item(
                "",
                nodes.paragraph("", "", nodes.reference("", "", picture, refuri=page)),
                nodes.paragraph("", "", nodes.reference("", entry.title, refuri=page)),
                nodes.paragraph("", entry.text),
            )
        return [cards]


def save_missing(folder: Path) -> None:
    """Write the reports that are not in a folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in ENTRIES:
        path = folder / f"{entry.name}.html"
        if not path.exists():
            entry.save(path)


def _save_reports(app: Sphinx, error: Exception | None) -> None:
    """Save them in a process of their own: that of autodoc has imported modules in ways of its own."""
    if error is None and app.builder.format == "html":
        subprocess.run([sys.executable, __file__, Path(app.outdir) / FOLDER], check=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("gallery", Gallery)
    app.connect("build-finished", _save_reports)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    save_missing(Path(sys.argv[1]))
