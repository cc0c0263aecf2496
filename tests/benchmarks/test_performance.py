"""The page about performance, its parts, and the command that measures everything."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import all as everything
from benchmarks import output, page, performance, scaling, suites
from benchmarks.models import make_row
from tests.benchmarks.test_contest import result
from tests.benchmarks.test_decode import decode_row
from tests.benchmarks.test_sizes import sizes_row

ENGINES = ["tinycomp", "onnxruntime"]


def figures(name: str, rows: list[dict], command: str = "", **more: object) -> dict:
    machine = {"processor": "P", "cores": 2, "load": 0.1, "system": "S", "python": "3", "versions": {"tinycomp": "1"}}
    effort = {"rounds": 3}
    return {"name": name, "command": command or name, "effort": effort, "machine": machine, "rows": rows, **more}


def model_row(threads: int = 1) -> dict:
    row = make_row("net", [result("tinycomp", [1.0], [1]), result("onnxruntime", [2.0], [1])])
    row["engines"]["tinycomp"]["memory"] = {"peak": 50e6, "added": 10e6}
    row["engines"]["onnxruntime"]["memory"] = {"peak": 100e6, "added": 40e6}
    return row | {"threads": threads}


def kernel_row(isa: str, seconds: float) -> dict:
    rates = {"gflops": 1.0, "gigabytes_per_second": 1.0, "share_of_peak": 0.5, "share_of_copy": 0.0, "copy": 0.0}
    head = {"family": "gemm", "shape": "1x1x1", "algorithm": "", "isa": isa}
    return {**head, "minimum": seconds, "median": seconds, **rates}


def scaling_row(value: int, seconds: float) -> dict:
    row = make_row("perceptron", [result("tinycomp", [seconds], [1]), result("onnxruntime", [seconds], [1])])
    return {**row, "axis": "depth", "value": value}


LOADS = {
    "seconds": {engine: {"median": 0.1, "minimum": 0.1} for engine in ENGINES},
    "first": {"tinycomp": {"median": 0.2, "minimum": 0.1}, "onnxruntime": {"median": 0.1, "minimum": 0.05}},
}
ALL = {
    "models": figures("models", [model_row(1), model_row(2)], engines=ENGINES),
    "loading": figures(
        "loading", [{"model": "net", **LOADS, "phases": {"import": 0.05}, "saved": LOADS}], engines=ENGINES
    ),
    "sizes": figures("sizes", [sizes_row()], engines=ENGINES),
    "decode": figures("decode", [decode_row()], engines=ENGINES),
    "kernels": figures(
        "kernels", [kernel_row("avx2", 1e-6), kernel_row("scalar", 9e-6)], peaks={"avx2": 1e11, "scalar": 1e10}
    ),
    "scaling": figures("scaling", [scaling_row(2, 1.0), scaling_row(8, 16.0)], engines=ENGINES),
}


def test_the_page_has_every_part_with_its_command_and_effort() -> None:
    text = performance.text(ALL)
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Whole models", "## Loading and memory, 1 thread", "## Loading in fresh processes",
        "## Loading what was saved, in fresh processes",
        "## Sizes that change", "## Decoders, token by token", "## Kernels, avx2", "## How time grows",
    ]  # fmt: skip
    assert "P, 2 cores; Python 3, tinycomp 1.\n\n| command |" in text
    assert "| `models` | rounds 3 | 0.1 |" in text
    assert "1 thread. Geometric means of medians: onnxruntime / ours 2.000 over 1" in text
    assert "2 threads. Geometric means" in text
    assert "| net | 100.0+200.0 (100.0+100.0) | 100.0+100.0 (100.0+50.0) | 1.00 (1.00) | 1.50 (1.33) |" in text
    assert "Not measured: call-overhead." in text
    assert "Rough figures" not in text


def test_a_page_of_a_short_pass_says_so_first() -> None:
    text = performance.text({"models": figures("models", [model_row()], "models --quick", engines=ENGINES)})
    assert text.startswith("> **Rough figures.**")


def test_figures_of_different_machines_are_not_mixed() -> None:
    other = figures("kernels", [], peaks={"scalar": 1.0})
    other["machine"]["processor"] = "Q"
    with pytest.raises(ValueError, match="different machines: P, Q"):
        performance.text({"models": ALL["models"], "kernels": other})


def test_numbers_of_threads_stand_side_by_side() -> None:
    lines = performance.whole_models([model_row(1), model_row(2)], ENGINES).splitlines()
    head = "tinycomp, ms, {} | onnxruntime / ours"
    assert lines[0] == f"| model | {head.format('1 thread')} | {head.format('2 threads')} | error |"
    assert lines[2] == "| net | 1000.000 (1000.000) | 2.00 (2.00) | 1000.000 (1000.000) | 2.00 (2.00) | 0.0e+00 |"


def test_loading_and_memory_are_told_for_every_engine() -> None:
    assert "| net | 100+100 | 100+100 | 50 | 100 |" in performance.loading_and_memory([model_row()], ENGINES)


def test_an_engine_that_failed_leaves_its_cells_empty() -> None:
    row = model_row()
    row["engines"]["onnxruntime"] = {"error": "E"}
    row["ratios"] = {}
    assert "| net | 100+100 |  | 50 |" in performance.loading_and_memory([row], ENGINES)
    assert "| net | 1000.000 (1000.000) |  |" in performance.whole_models([row], ENGINES)


def test_shapes_of_a_kernel_share_a_line() -> None:
    rows = [kernel_row("avx2", 1e-6), kernel_row("scalar", 9e-6)]
    other = {"shape": "2x2x2", "gflops": 3.0, "share_of_peak": 0.25}
    table = performance.kernel_families([*rows, kernel_row("avx2", 1e-6) | other], ["avx2", "scalar"])
    assert "| gemm | 2 | 1.0 to 3.0 | 25% to 50% |  | 9.0 |" in table
    moved = kernel_row("avx2", 1e-6) | {"copy": 1.0, "share_of_copy": 0.5}
    assert performance.kernel_families([moved], ["avx2"]).endswith("| gemm | 1 |  |  | 50% |")


def test_the_slope_is_that_of_the_logarithms() -> None:
    assert scaling.slope(ALL["scaling"]["rows"]) == "2.00"
    assert scaling.slope(ALL["scaling"]["rows"][:1]) == ""
    assert performance.slopes(ALL["scaling"]["rows"]) == "| family | depth |\n|---|--:|\n| perceptron | 2.00 (2 to 8) |"
    assert "| perceptron | depth | 2, 8 | 1e+03 (1e+03), 1.6e+04 (1.6e+04) |" in scaling.table(
        ALL["scaling"]["rows"], ENGINES
    )


@pytest.mark.parametrize("family", scaling.FAMILIES)
def test_generated_models_have_the_measures_that_they_are_given(family: str) -> None:
    import onnx

    def sizes(**changed: int) -> tuple[int, int]:
        model, shape = scaling.FAMILIES[family](scaling.Measures(size=8, width=16, **changed))
        onnx.checker.check_model(model, full_check=True)
        return len(onnx.load_from_string(model).graph.node), shape[0]

    shallow, deep = sizes(depth=1), sizes(depth=3, batch=5)
    assert shallow[0] < deep[0]
    assert (shallow[1], deep[1]) == (1, 5)


def test_every_family_changes_one_measure_at_a_time() -> None:
    found = list(scaling.points(4))
    for family, axis, measures in found:
        usual = scaling.Measures(size=measures.size) if axis == "threads" else scaling.Measures()
        changed = {name for name, value in vars(measures).items() if value != getattr(usual, name)}
        assert changed <= {axis}, family
    assert {m.threads for _, axis, m in found if axis == "threads"} == {1, 2, 4}
    assert {m.threads for _, axis, m in scaling.points(1) if axis == "threads"} == {1}


def test_a_table_escapes_bars_and_aligns_figures() -> None:
    assert page.table(["a", "b"], [["x|y", 1]]) == "| a | b |\n|---|--:|\n| x\\|y | 1 |"
    assert page.heading(["a", "b"], left=(1,)).endswith("|--:|---|")


def test_everything_is_measured_into_one_folder() -> None:
    options = argparse.Namespace(quick=True, output=Path("figures"), prototype=Path("p"))
    commands = {command[0]: command for command in everything.commands(options)}
    assert list(commands) == ["kernels", "models", "scaling", "call-overhead", "loading", "sizes", "decode"]
    assert {name for name, command in commands.items() if "--prototype" in command} == {"kernels"}
    assert all(command[-3:] == ["--quick", "--output", "figures"] for command in commands.values())
    for name in ("models", "loading"):
        assert commands[name][commands[name].index("--suite") + 1] == "quick"


def test_the_tiny_models_belong_to_the_suite_where_they_are_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(suites.VARIABLE, raising=False)
    assert suites.members("headline") == list(suites.HEADLINE)
    (tmp_path / f"{suites.TINY[1]}.onnx").write_bytes(b"")
    monkeypatch.setenv(suites.VARIABLE, str(tmp_path))
    assert suites.members("headline") == [*suites.HEADLINE, str(tmp_path / f"{suites.TINY[1]}.onnx")]
    (tmp_path / f"{suites.TINY_INT8[0]}.onnx").write_bytes(b"")
    made = [f"{name}-int8" for name in suites.INT8]
    assert suites.members("int8") == [*made, str(tmp_path / f"{suites.TINY_INT8[0]}.onnx")]


def test_files_are_written_and_read_again(tmp_path: Path) -> None:
    found = figures("call-overhead", [])
    output.save(tmp_path / "new", found, "| table |")
    assert output.load(tmp_path / "new", "call-overhead") == found
    assert (tmp_path / "new" / "call_overhead.md").read_text(encoding="utf-8") == "| table |\n"
    assert output.load(tmp_path, "models") is None


def test_the_command_is_told_without_the_folders_of_this_machine() -> None:
    told = output.command_line("models", ["/a/b/net.onnx", "--threads", "2", "--output", "/c/d"])
    assert told == "python -m benchmarks models net.onnx --threads 2 --output d"


def test_without_matplotlib_there_is_no_plot_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    output.save(tmp_path, figures("models", [model_row()]), "", lambda figure: None)
    assert output.NO_PLOT in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models.json", "models.md"]


def test_plots_are_drawn_where_matplotlib_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws the plots")
    from benchmarks import kernels, models

    output.plot(lambda figure: models.draw(ALL["models"], figure), tmp_path / "models.png")
    output.plot(lambda figure: kernels.draw(ALL["kernels"]["rows"], figure), tmp_path / "kernels.png")
    output.plot(lambda figure: scaling.draw(ALL["scaling"]["rows"], ENGINES, figure), tmp_path / "scaling.png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 3


def test_the_documentation_has_a_place_for_the_page() -> None:
    text = (page.DOCS / performance.PAGE.file).read_text(encoding="utf-8")
    assert "<!-- performance: begin -->" in text
    assert "<!-- performance: end -->" in text
