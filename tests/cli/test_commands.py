"""Each command on models that are at hand: what it prints, writes and answers."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.cli import exits
from tinycomp.cli.commands import verify
from tinycomp.cli.commands.demo import _draw
from tinycomp.data import digits, digits_model
from tinycomp.driver.dump import read_dump
from tinycomp.ir.text.parser import parse_graph
from tinycomp.target import lookup


@pytest.fixture
def wrong_target(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(lookup, "BUILT_IN", {**lookup.BUILT_IN, "wrong": "tests.cli.wrong_target:TARGET"})
    return "wrong"


@pytest.mark.long
def test_demo(call) -> None:
    result = call("demo")
    assert result.code == exits.OK
    assert "The float32 digits classifier on c" in result.out
    assert "The int8 digits classifier on npu_sim, c" in result.out
    assert result.out.count("of 200 held-out digits are right") == 2
    assert "The same digits on the C target" in result.out
    rows = call("demo", "--json").json["models"]
    assert [(row["model"], row["targets"]) for row in rows] == [
        ("float32", ["c"]),
        ("int8", ["npu_sim", "c"]),
        ("int8", ["c"]),
    ]
    assert rows[0]["bytes"] > 2 * rows[2]["bytes"]
    assert rows[2]["accuracy"] > rows[0]["accuracy"] - 0.02
    assert "What to try next:" in result.out


@pytest.mark.long
def test_demo_as_json(call) -> None:
    (row,) = call("demo", "--int8", "-t", "host", "--json").json["models"]
    assert row["model"] == "int8"
    assert row["targets"] == ["host"]
    assert row["accuracy"] > 0.97
    assert row["seconds_per_image"] > 0
    assert row["report"]["totals"]["nodes"]["offloaded"] == 0


def test_demo_draws_the_digits() -> None:
    images, labels = digits()
    lines = _draw(images, labels, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines[0]) > len(_draw(images, labels, 40).splitlines()[0])
    assert len(lines) == 9
    assert lines[-1].split() == [str(n) for n in labels[:4]]


def test_compile_and_run_a_saved_module(call, tmp_path, image) -> None:
    path, results = tmp_path / "x.tcm", tmp_path / "out.npz"
    compiled = call("compile", "digits", "-o", path, "--verify", "--strict")
    assert compiled.code == exits.OK
    assert f"Wrote {path}" in compiled.out
    assert call("run", path, "--input", image, "-o", results).code == exits.OK
    with np.load(results) as stored:
        np.testing.assert_array_equal(stored["probabilities"], tinycomp.load(path)(np.load(image)))


def test_compile_as_json(call) -> None:
    data = call("compile", "digits", "--shape", "image=1,1,8,8", "--json").json
    assert data["output"] is None
    assert data["report"]["totals"]["nodes"]["host"] == 0


def test_compile_strictly_names_what_falls_back(call) -> None:
    result = call("compile", "digits", "-t", "host", "--strict")
    assert result.code == exits.FAILED
    assert "would run on the host" in result.error
    assert "stem/conv" in result.error


def test_compile_dumps_every_pass_and_opt_reads_them(call, tmp_path) -> None:
    assert call("compile", "digits", "--dump", tmp_path).code == exits.OK
    dumps = sorted(tmp_path.glob("*.tir"))
    assert dumps[0].name == "00-input.tir"
    assert len(dumps) > 5
    for path in (dumps[0], dumps[-1]):
        assert call("opt", path).code == exits.OK


def test_compile_emits_text(call, tmp_path) -> None:
    result = call("compile", "digits", "--emit", "tir", "-o", tmp_path / "x.tir")
    assert result.code == exits.OK
    assert "tinycomp.region::c_0" in (tmp_path / "x.tir").read_text()
    assert call("compile", "digits", "--emit", "tir").out.startswith("graph @digits")


def test_compile_emits_kernel_calls(call) -> None:
    result = call("compile", "digits", "--emit", "program", "--shape", "image=1,1,8,8")
    assert result.code == exits.OK
    assert result.out.startswith("program c_0")
    assert "conv2d_f32(" in result.out


def test_compile_emits_no_kernel_calls_for_the_host(call) -> None:
    result = call("compile", "digits", "-t", "host", "--emit", "program")
    assert result.code == exits.USAGE
    assert "there is no region with a native program" in result.error


def test_compile_emits_onnx_that_other_runtimes_read(call, tmp_path, image) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "x.onnx"
    assert call("compile", "digits", "--emit", "onnx", "-o", path).code == exits.OK
    array = np.load(image)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": array})
    np.testing.assert_allclose(found, tinycomp.compile(path)(array), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", ["c", "npu_sim"])
def test_emitted_onnx_holds_functions_only_on_request(call, tmp_path, image, target) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = "digits-int8" if target == "npu_sim" else "digits"
    flat, functions = tmp_path / "flat.onnx", tmp_path / "functions.onnx"
    assert call("compile", model, "-t", target, "--emit", "onnx", "-o", flat).code == exits.OK
    assert call("compile", model, "-t", target, "--emit", "onnx", "--keep-functions", "-o", functions).code == exits.OK
    assert [n.domain for n in onnx.load(flat).graph.node if n.domain] == []
    assert not onnx.load(flat).functions
    assert {entry.domain for entry in onnx.load(flat).opset_import} == {""}
    assert onnx.load(functions).functions
    onnx.checker.check_model(onnx.load(flat), full_check=True)
    feeds = {"image": np.load(image)}
    options = onnxruntime.SessionOptions()
    # As it stands: merged kernels of quantised layers saturate on x86 without VNNI.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (found,) = onnxruntime.InferenceSession(str(flat), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(
        found, tinycomp.compile(functions, target)(**feeds), rtol=1e-4, atol=1e-2 if target == "npu_sim" else 1e-6
    )
    assert call("compile", model, "--keep-functions").code == exits.USAGE


def test_compile_emits_onnx_only_into_a_file(call) -> None:
    result = call("compile", "digits", "--emit", "onnx")
    assert result.code == exits.USAGE
    assert "hint: Add -o FILE.onnx." in result.error


def test_run_is_the_same_for_the_same_seed(call) -> None:
    first, second, third = (call("run", "digits", "--random", s, "--json").json["outputs"] for s in (1, 1, 2))
    assert first == second != third


def test_run_leaves_defaults_alone(call, two_inputs) -> None:
    row = call("run", two_inputs, "--random", "0", "--json").json["outputs"]["sum"]
    assert row["min"] in (7, 8)
    assert row["dtype"] == "int64"


def test_run_with_all_inputs_in_one_file(call, two_inputs, tmp_path) -> None:
    np.savez(tmp_path / "feeds.npz", ids=np.int64([1, 2, 3]), offset=np.int64([10, 20, 30]))
    row = call("run", two_inputs, "--input", tmp_path / "feeds.npz", "--json").json["outputs"]["sum"]
    assert row["first"] == [11, 22, 33]


def test_run_prints_a_table(call, image) -> None:
    result = call("run", "digits", "--input", f"image={image}")
    assert "probabilities" in result.out
    assert "float32[1, 10]" in result.out


def test_bench(call) -> None:
    pytest.importorskip("onnxruntime")
    result = call("bench", "digits", "--runs", "20", "--peer", "onnxruntime", "--threads", "1", "--profile", "--json")
    assert result.code == exits.OK
    data = result.json
    ours, peer = data["timings"]
    assert (ours["name"], peer["name"]) == ("tinycomp", "onnxruntime")
    assert ours["runs"] == peer["runs"] == 20
    assert 0 < ours["minimum"] <= ours["median"]
    assert data["peer_over_tinycomp"] == pytest.approx(peer["median"] / ours["median"])
    assert data["threads"] == 1
    assert data["profile"]["rows"]


def test_bench_writes_a_trace(call, tmp_path) -> None:
    result = call("bench", "digits", "--runs", "10", "--trace", tmp_path / "trace.json")
    assert result.code == exits.OK
    assert "trace.json" in result.out
    assert "of peak" not in result.out
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {"stem/conv", "softmax"} <= {node for event in events for node in event["args"].get("nodes", [])}


def test_bench_prints_median_and_minimum(call) -> None:
    result = call("bench", "digits", "--seconds", "0.05")
    assert result.code == exits.OK
    assert "median" in result.out
    assert "minimum" in result.out


def test_report(call, tmp_path) -> None:
    page = tmp_path / "report.html"
    result = call("report", "digits-int8", "-t", "npu_sim", "--html", page)
    assert result.code == exits.OK
    assert "npu_sim_0" in result.out
    assert "On the host" in result.out
    assert "npu_sim_0" in page.read_text(encoding="utf-8")


def test_report_as_json(call) -> None:
    data = call("report", "digits", "--json").json
    assert data["regions"][0]["target"] == "c"
    assert data["totals"]["macs"]["share"] == 1


def test_report_why(call) -> None:
    offloaded = call("report", "digits", "--why", "residual/1/conv")
    assert offloaded.code == exits.OK
    assert re.fullmatch(
        r"residual/1/conv runs in the region c_0\.\n  computed by conv2d(_winograd)?_f32(, .*)?\n", offloaded.out
    )
    refused = call("report", "digits-int8", "-t", "npu_sim", "--why", "softmax")
    assert "runs on the host, numpy tier" in refused.out
    assert "npu_sim" in refused.out
    reasons = call("report", "digits-int8", "-t", "npu_sim", "-t", "c", "--why", "softmax", "--json").json["reasons"]
    assert [(r["stage"], r["target"], r["text"]) for r in reasons] == [
        ("expand-functions", "npu_sim", "ReduceMax: no rule for ReduceMax"),
        ("annotate-target", "npu_sim", "no rule for Softmax"),
    ]
    wrong = call("report", "digits", "--why", "residual/1/cnv")
    assert wrong.code == exits.USAGE
    assert 'hint: Did you mean "residual/1/conv"?' in wrong.error


def test_report_advises(call) -> None:
    result = call("report", "digits", "-t", "npu_sim", "--advise")
    assert result.code == exits.OK
    assert 'pad the channels of "dense" from 10 to 16' in result.out
    assert max(map(len, result.out.splitlines())) <= 80
    data = call("report", "digits", "-t", "npu_sim", "--advise", "--json").json
    assert [(row["kind"], row["regions_before"], row["regions_after"]) for row in data["advice"]] == [("padding", 1, 2)]
    assert (data["trials"] > 0, data["cut"]) == (True, "")


def test_a_saved_module_gives_no_advice(call, tmp_path) -> None:
    path = tmp_path / "digits.tcm"
    call("compile", "digits", "-o", path)
    result = call("report", path, "--advise")
    assert result.code == exits.USAGE
    assert "there is no model to try changes on" in result.error


@pytest.mark.parametrize("against", [[], ["--against", "numpy"]])
@pytest.mark.parametrize("model", ["digits", "digits-int8"])
def test_verify(call, model: str, against: list[str]) -> None:
    result = call("verify", model, "-t", "npu_sim", "-t", "c", "--regions", *against, "--json")
    assert result.code == exits.OK
    assert result.json["ok"] is True
    assert result.json["first_difference"] is None
    assert result.json["regions"]
    assert result.json["reference"] == ("the numpy kernels" if against else "onnxruntime")


def test_verify_names_the_first_region_that_differs(call, wrong_target, tmp_path) -> None:
    result = call("verify", "digits", "-t", wrong_target, "--regions", "--against", "numpy", "--save", tmp_path)
    assert result.code == exits.FAILED
    assert "The first to differ is region wrong_1." in result.out
    assert [n.op_type for n in onnx.load(tmp_path / "wrong_1.onnx").graph.node] == ["Relu"]
    with np.load(tmp_path / "wrong_1.npz") as feeds:
        assert all(array.min() < 0 for array in feeds.values())


@pytest.mark.parametrize("when", ["never", "always"])
def test_verify_compares_regions_as_the_model_was_compiled(call, monkeypatch, when: str) -> None:
    used = []
    monkeypatch.setattr(verify, "compare_regions", lambda graph, lowering, feeds: used.append(lowering.targets) or [])
    call("verify", "digits", "--regions", "-t", f"c:winograd={when}")
    assert [targets["c"].options.winograd for targets in used] == [when == "always"]


def test_verify_says_when_there_is_no_region(call) -> None:
    assert "No region was compared." in call("verify", "digits", "-t", "host", "--regions").out


def test_verify_without_regions_says_how_to_go_on(call, wrong_target) -> None:
    result = call("verify", "digits", "-t", wrong_target)
    assert result.code == exits.FAILED
    assert "The first to differ is output probabilities. Add --regions to see where it starts." in result.out


def test_verify_as_strictly_as_asked(call) -> None:
    assert call("verify", "digits", "--rtol", "1e-12", "--atol", "0").code == exits.FAILED


def test_verify_compares_layers_with_those_of_the_float_model(call, tmp_path) -> None:
    page, images = tmp_path / "layers.html", tmp_path / "images.npy"
    np.save(images, digits()[0][:8])
    result = call("verify", "digits-int8", "--layers", "digits", "--data", images, "--html", page, "--json")
    assert result.code == exits.OK, result.err
    layers = result.json["layers"]
    assert layers["first"] is None
    assert layers["first_on_target"] is None
    assert [row["name"] for row in layers["layers"]][1] == "stem/relu:0"
    assert all(row["apart"] <= 1 and row["where"] == "c_0" for row in layers["layers"][1:4])
    assert '"verdict":"No layer loses more than 12 dB' in page.read_text()
    shown = call("verify", "digits-int8", "--layers", "digits", "--slack", "-20", "--input", images)
    assert 'The first layer to depart from the float model is "image" (input)' in " ".join(shown.out.split())


def test_verify_shows_no_layers_without_a_float_model(call, tmp_path) -> None:
    result = call("verify", "digits-int8", "--html", tmp_path / "page.html")
    assert result.code == exits.USAGE
    assert "there are no layers without a float model where: --html hint: Add --layers MODEL." in result.error


def test_verify_without_onnxruntime(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinycomp.cli.commands.verify.available", lambda: False)
    monkeypatch.setattr("tinycomp.cli.peer.available", lambda: False)
    assert call("verify", "digits", "--json").json["reference"] == "the numpy kernels"
    result = call("verify", "digits", "--against", "onnxruntime")
    assert result.code == exits.USAGE
    assert "onnxruntime is not installed" in result.error


def test_opt_writes_text_that_it_reads_again(call, tmp_path) -> None:
    path = tmp_path / "x.tir"
    result = call("opt", "digits", "--passes", "simplify,fold-constants", "-o", path, "--timing")
    assert result.code == exits.OK
    assert "fold-constants" in result.err
    again = call("opt", path, "-o", tmp_path / "y.onnx", "--json")
    assert again.json["written"] == [str(tmp_path / "y.onnx")]
    onnx.checker.check_model(str(tmp_path / "y.onnx"))
    images, _ = digits()
    model = tinycomp.compile(tmp_path / "y.onnx", "host")
    np.testing.assert_allclose(model(images), tinycomp.compile(digits_model())(images), rtol=1e-4, atol=1e-6)


def test_opt_writes_constants_of_each_graph_beside_it(call, tmp_path) -> None:
    for model in ("digits", "digits-int8"):
        written = call("opt", model, "-o", tmp_path / f"{model}.tir", "--json").json["written"]
        assert written == [str(tmp_path / f"{model}{suffix}") for suffix in (".tir", ".tca")]
    images, _ = digits()
    assert tinycomp.compile(read_dump(tmp_path / "digits.tir"))(images[:2]).shape == (2, 10)


def test_opt_prints_one_graph_on_stdout_and_the_others_on_stderr(call) -> None:
    result = call("opt", "digits", "--passes", "inline-functions,simplify", "--print-after", "all")
    assert result.out.startswith("graph @digits")
    assert "// after pass 1, inline-functions\ngraph @digits" in result.err
    assert "// after pass 2, simplify\ngraph @digits" in result.err


def test_opt_passes_take_options(call) -> None:
    passes = "merge-composite{target=c},annotate-target{targets=c},merge-regions{targets=c},partition-graph{targets=c}"
    result = call("opt", "digits", "--passes", passes, "--json")
    assert result.code == exits.OK
    assert "tinycomp.region::c_0" in result.json["graph"]
    assert result.json["timings"][0]["name"] == "merge-composite"


def test_opt_on_a_text_without_constants(call, tmp_path) -> None:
    path = tmp_path / "x.tir"
    path.write_text('graph @main opset {"" = 17} (%x: float32[2]) -> (%y) { %y = Relu(%x) %z = Abs(%x) }')
    result = call("opt", path, "--passes", "eliminate-dead-code")
    assert result.code == exits.OK
    assert [n.op for n in parse_graph(result.out).nodes] == ["Relu"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--passes", "simplfy"], 'hint: Did you mean "simplify"?'),
        (["--passes", "simplify{x=1}"], 'the pass simplify has no option "x"'),
        (["--passes", "simplify", "--print-after", "fold"], "There are: simplify."),
        (["-o", "x.txt"], "expected: a name that ends in .tir or .onnx"),
    ],
)
def test_opt_refuses_what_it_does_not_know(call, arguments: list[str], text: str) -> None:
    result = call("opt", "digits", *arguments)
    assert result.code == exits.USAGE
    assert text in result.error


def test_opt_lists_the_passes(call) -> None:
    rows = {row["name"]: row for row in call("opt", "--list", "--json").json["passes"]}
    assert rows["merge-composite"]["options"] == ["target", "policy"]
    assert all(row["summary"] and "`" not in row["summary"] for row in rows.values())
    assert "merge-composite" in call("opt", "--list").out


def test_opt_needs_a_model_unless_it_lists(call) -> None:
    assert "no model is given" in call("opt").error


def test_targets(call) -> None:
    rows = {row["name"]: row for row in call("targets", "--json").json["targets"]}
    assert "Conv" in rows["c"]["operators"]
    assert "conv" in rows["c"]["composites"]
    assert rows["npu_sim"]["description"]
    assert '"host" stands for none' in call("targets").out


def test_one_target_in_full(call) -> None:
    result = call("targets", "c")
    assert result.code == exits.OK
    assert "Softmax" in result.out
    assert call("targets", "d").code == exits.USAGE


def test_rules_of_quantisation_are_listed(call) -> None:
    assert "How tosa wants layers quantised" in call("targets", "tosa").out
    (row,) = call("targets", "tosa", "--json").json["targets"]
    assert row["quantization"]["Max"]["equal_scales"] is True
    assert row["quantization"]["Conv"]["activations"] == ["int8", "uint8"]
    assert not call("targets", "c", "--json").json["targets"][0]["quantization"]


def test_a_target_that_does_not_load_hides_no_other(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "BUILT_IN", {**lookup.BUILT_IN, "gone": "no_such_package:TARGET"})
    rows = {row["name"]: row for row in call("targets", "--json").json["targets"]}
    assert "does not load" in rows["gone"]["error"]
    assert rows["c"]["error"] == ""


def test_verify_regions_beside_inputs_that_cannot_be_made_up(call, tmp_path) -> None:
    path, header = tmp_path / "strings.onnx", '<ir_version: 8, opset_import: ["": 17]>'
    text = "g (float[2] x, string[2] s) => (float[2] y, string[2] t) { y = Relu(x)  t = Identity(s) }"
    onnx.save(onnx.parser.parse_model(header + text), path)
    refused = call("verify", path, "--regions")
    assert refused.code == exits.USAGE
    assert "cannot make up values for this input" in refused.error
    np.savez(tmp_path / "feeds.npz", x=np.float32([-1, 1]), s=np.array(["a", "b"]))
    result = call("verify", path, "--regions", "--against", "numpy", "--input", tmp_path / "feeds.npz", "--json")
    assert result.code == exits.OK, result.err
    assert [o["name"] for o in result.json["outputs"]] == ["y", "t"]


def test_rounding_as_tflite_does_and_a_limit_of_memory(call, monkeypatch) -> None:
    used = []
    monkeypatch.setattr(verify, "compare_regions", lambda graph, lowering, feeds: used.append(lowering.targets) or [])
    call("verify", "digits-int8", "--regions", "-t", "c:requantize=fixed_point")
    assert [targets["c"].options.requantize for targets in used] == ["fixed_point"]
    result = call("compile", "digits", "--shape", "image=100,1,8,8", "--memory-limit", "1000")
    assert result.code == exits.USAGE
    assert "more memory would be needed than the budget allows" in result.error


def test_placements_and_policies(call) -> None:
    def where(*options: str) -> dict[str, str]:
        data = call("report", "digits-int8", "-t", "npu_sim", "-t", "c", *options, "--json").json
        rows = {source: row["target"] for row in data["regions"] for source in row["sources"]}
        return rows | {source: "host" for row in data["hosts"] for source in row["sources"]}

    plain = where()
    assert (plain["pool"], plain["softmax"]) == ("npu_sim", "c")
    assert where("--place", "pool=c", "--place", "MaxPool=npu_sim")["pool"] == "c"
    assert where("--place", "softmax=host")["softmax"] == "host"
    assert where("--policy", "npu_sim:exclude=MaxPool")["pool"] == "c"
    assert where("--policy", "exclude=MaxPool")["pool"] == "host"
    both = where("--policy", "npu_sim:exclude=MaxPool", "--policy", "npu_sim:min-nodes=1", "--policy", "min_nodes=1")
    assert both["pool"] == "c"


def test_a_model_can_be_partitioned_as_it_stands(call) -> None:
    def nodes(*options: str) -> dict[str, int]:
        return call("report", "digits", "-t", "npu_sim", *options, "--json").json["totals"]["nodes"]

    stands = nodes("--no-optimize")
    assert stands["offloaded"] + stands["host"] == len(tinycomp.from_onnx(digits_model()).nodes)
    assert nodes()["offloaded"] + nodes()["host"] < stands["offloaded"] + stands["host"]
    text = call("compile", "digits", "--no-optimize", "--emit", "tir").out
    assert "BatchNormalization" in text
    assert "BatchNormalization" not in call("compile", "digits", "--emit", "tir").out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--place", "pool"), "cannot read a place"),
        (("--place", "pool=gpu"), '"gpu" is not a target of this compilation'),
        (("--policy", "npu_sim:min_node=2"), 'Did you mean "min_nodes"?'),
        (("--policy", "gpu:min_nodes=2"), 'there is a policy for "gpu"'),
        (("--place", "softmax=npu_sim"), "1 node(s) cannot run where they were placed"),
    ],
)
def test_placements_and_policies_that_cannot_be(call, options, text) -> None:
    result = call("report", "digits-int8", "-t", "npu_sim", "-t", "c", *options)
    assert result.code != exits.OK
    assert text in result.error
