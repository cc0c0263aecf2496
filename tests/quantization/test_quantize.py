"""tinycomp.quantize: what comes out runs everywhere and is as good as it should be; what cannot be done is said."""

from __future__ import annotations

import weakref

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import Network, Picture, by_onnxruntime, decibels, images, residual
from tinycomp.data import digits, digits_model
from tinycomp.errors import QuantizationError

IMAGES, LABELS = digits()
CALIBRATION = [IMAGES[start : start + 20] for start in range(0, 100, 20)]
VARIANTS = {
    "default": {},
    "int8": {"activations": "int8"},
    "int8 symmetric": {"activations": "int8", "symmetric": True},
    "uint8 symmetric": {"symmetric": True},
    "per tensor": {"per_channel": False},
    "reduced": {"reduce_range": True},
    "percentile": {"method": "percentile", "percentile": 99.99},
    "entropy": {"method": "entropy"},
    "mse": {"method": "mse"},
    "equalised": {"equalize": True},
    "mixed": {"keep_float": ["last 3 conv", "dense"]},
}


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_digits_are_read_as_well_by_every_runtime(name):
    model = tinycomp.quantize(digits_model(), CALIBRATION, **VARIANTS[name])
    exact = tinycomp.compile(digits_model())(IMAGES)
    (reference,) = by_onnxruntime(model, {"image": IMAGES})
    assert (reference.argmax(axis=1) == LABELS).mean() >= 0.98
    assert decibels(exact, reference) > 30
    np.testing.assert_allclose(tinycomp.compile(model)(IMAGES), reference, atol=0.1)
    assert decibels(reference, tinycomp.compile(model, "host")(IMAGES)) > 30


def test_onnxruntime_runs_it_with_its_integer_kernels():
    # With 7 bits no 16-bit sum saturates, whatever the processor.
    model = tinycomp.quantize(digits_model(), CALIBRATION, reduce_range=True)
    (found,) = by_onnxruntime(model, {"image": IMAGES}, optimised=True)
    (reference,) = by_onnxruntime(model, {"image": IMAGES})
    assert decibels(reference, found) > 30


def test_it_is_smaller():
    assert tinycomp.quantize(digits_model(), CALIBRATION).ByteSize() < 0.5 * digits_model().stat().st_size


def test_inputs_and_outputs_stay():
    model, source = tinycomp.quantize(residual(), images()), residual()
    assert list(model.graph.input) == list(source.graph.input)
    assert list(model.graph.output) == list(source.graph.output)


def test_the_scale_of_the_input_spans_what_was_seen():
    picture = Picture(tinycomp.quantize(residual(), images(3)))
    first = next(n for n in picture.nodes if n.op_type == "QuantizeLinear" and n.input[0] == "x")
    seen = np.stack(images(3))
    scale, zero = picture.affine(first)
    assert scale == pytest.approx((seen.max() - seen.min()) / 255, rel=1e-6)
    assert zero == np.rint(-seen.min() / scale)


def test_calibration_is_the_same_however_it_is_divided():
    whole = np.concatenate(images(4))
    models = [
        tinycomp.quantize(residual(), data, method="mse").SerializeToString(deterministic=True)
        for data in ([whole], [whole[:3], whole[3:]])
    ]
    scales = [Picture(onnx.load_model_from_string(m)).constants["x_scale"] for m in models]
    np.testing.assert_array_equal(*scales)


def test_a_generator_will_do_for_calibration_and_nothing_is_kept():
    made: list[weakref.ref[np.ndarray]] = []

    def stream():
        for number in range(8):
            (image,) = images(1, seed=number)
            made.append(weakref.ref(image))
            yield image
            del image
            assert sum(ref() is not None for ref in made) <= 2

    tinycomp.quantize(residual(), stream(), method="entropy")
    assert len(made) == 8
    assert not any(ref() is not None for ref in made)


def test_an_input_that_is_empty_says_nothing_about_means():
    net = Network("N", 3)
    past = net.graph.add_input("past", tinycomp.ir.TensorType("float32", ("M", 3)))
    model = net.done(*(net.op("Gemm", x, net.const(3, 5), net.const(5)) for x in (net.x, past)))
    rows = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    calibration = [{"x": rows, "past": rows[:0]}, {"x": rows, "past": rows}]
    quantized = tinycomp.compile(tinycomp.quantize(model, calibration))(rows, rows)
    exact = tinycomp.compile(model)(rows, rows)
    for found, expected in zip(quantized, exact, strict=True):
        assert decibels(expected, found) > 30


def test_bias_correction_helps():
    net = Network(2, 3, 8, 8)
    graph = net.done(net.conv(net.op("Relu", net.conv(net.x, 16, bias=False)), 8, bias=False))
    data = [np.abs(image) for image in images(8)]
    exact = tinycomp.compile(graph, "host")(data[0])
    found = {}
    for corrected in (False, True):
        options = {"per_channel": False, "bias_correction": corrected, "reduce_range": True}
        model = tinycomp.quantize(graph, data, **options)
        error = by_onnxruntime(model, {"x": data[0]})[0] - exact
        found[corrected] = np.abs(error.mean(axis=(0, 2, 3))).mean()
    assert found[True] < 0.5 * found[False]


def uneven() -> onnx.ModelProto:
    """Two layers; channels differ by a factor of up to 1000 in the first, and as much the other way in the second."""
    net = Network(2, 3, 8, 8)
    factors = np.geomspace(1, 1000, 16).astype(np.float32)
    x = net.conv(net.x, 16, name="first")
    (first,) = (n for n in net.graph.nodes)
    for index in (1, 2):
        array = first.inputs[index].const
        scaled = net.graph.add_const(array * factors.reshape(-1, *[1] * (array.ndim - 1)))
        net.graph.set_input(first, index, scaled)
    y = net.conv(net.op("Relu", x), 8, name="second")
    second = next(n for n in net.graph.nodes if n.sources == ("second",))
    net.graph.set_input(second, 1, net.graph.add_const(second.inputs[1].const / factors.reshape(1, -1, 1, 1)))
    return net.done(y)


def test_equalisation_rescues_one_scale_for_all():
    model, data = uneven(), images(4)
    exact = tinycomp.compile(model, "host")(data[0])
    plain, equalised = (
        decibels(exact, by_onnxruntime(tinycomp.quantize(model, data, **options), {"x": data[0]})[0])
        for options in ({"per_channel": False}, {"per_channel": False, "equalize": True})
    )
    assert plain < 15
    assert equalised > plain + 15


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize(
    "spelling", ["h = Mul(c, l)  y = Div(h, six)", "h = Div(l, six)  y = Mul(c, h)", "h = Mul(c, l)  y = Mul(h, sixth)"]
)
def test_a_hard_swish_written_as_several_operators_is_rounded_as_one(spelling, opset):
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[2,3,8,8] x) => (float[2,4,8,8] y)
        <float[4,3,1,1] w = {{0.5, 1, 0.2, -0.3, 2, 0.7, 1, 1, 1, 0.1, 0.6, -2}}, float zero = {{0.0}},
         float three = {{3.0}}, float six = {{6.0}}, float sixth = {{0.16666667}}>
        {{ c = Conv(x, w)  a = Add(c, three)  l = Clip(a, zero, six)  {spelling} }}"""
    )
    quantized = tinycomp.quantize(model, images(3))
    operators = [node.op_type for node in quantized.graph.node if "Linear" not in node.op_type]
    assert operators == ["Conv", "HardSwish"]
    assert sum(node.op_type == "QuantizeLinear" for node in quantized.graph.node) == 3
    assert decibels(tinycomp.compile(model)(images(1)[0]), tinycomp.compile(quantized)(images(1)[0])) > 30


@pytest.mark.parametrize("opset", [11, 12])
def test_old_opsets_are_converted(opset):
    net = Network(2, 3, 8, 8, opset=opset)
    graph = net.done(net.op("Relu", net.conv(net.x, 4)))
    model = tinycomp.quantize(graph, images())
    assert model.opset_import[0].version >= 13
    by_onnxruntime(model, {"x": images()[0]})


def test_gemm_with_factors():
    net = Network(4, 8)
    graph = net.done(net.op("Gemm", net.x, net.const(8, 6), net.const(6), alpha=0.5, beta=2.0, name="gemm"))
    data = [np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)]
    model = tinycomp.quantize(graph, data)
    assert Picture(model).is_quantized("gemm")
    exact = tinycomp.compile(graph, "host")(data[0])
    assert decibels(exact, by_onnxruntime(model, {"x": data[0]})[0]) > 30


class TestRefusals:
    """Every message says where, what was expected, what was found, and what to do."""

    @pytest.mark.parametrize(
        ("calibration", "message"),
        [
            ([], "calibration: no calibration data; expected inputs that the model will see; found none"),
            (iter([]), "uses it up; give a list"),
            ({"x": images()[0]}, "not an iterable of inputs; expected arrays by name: x; found dict"),
            (images()[0], r"found an array of shape \[2, 3, 8, 8\]. Give an iterable of inputs"),
            ("folder", "not an iterable of inputs"),
            (7, "found int"),
            ([images()[0], "text"], "calibration input 1: not the inputs of the model"),
            ([{"y": images()[0]}], 'calibration input 0: .*"y"'),
            ([images()[0].astype(np.float64)], "calibration input 0, .*float64"),
            ([images(channels=4)[0]], r"calibration input 0, .*4"),
            ([images()[0], images()[0][:0]], r"calibration input 1: .*must have elements.*x of shape \[0,"),
            ([images()[0], images()[0] * np.nan], r'calibration input 1, "x": calibration data must be finite.*nan at'),
        ],
    )
    def test_bad_calibration_data(self, calibration, message):
        with pytest.raises(QuantizationError, match=message):
            tinycomp.quantize(residual(), calibration)

    def test_a_value_inside_that_is_not_finite(self):
        net = Network(2, 3, 8, 8)
        graph = net.done(net.conv(net.op("Exp", net.x, name="exp"), 4))
        with pytest.raises(QuantizationError, match='calibration input 1, value "exp:0": a value is not finite'):
            tinycomp.quantize(graph, [images()[0], images()[0] + np.float32(200)])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"method": "max"}, "found 'max'. Did you mean \"minmax\""),
            ({"activations": "int16"}, "expected one of uint8, int8; found 'int16'"),
            ({"keep_float": 3}, "keep_float: not a way to name layers; expected names.*; found 3"),
            ({"percentile": 99.0}, "percentile: only one method has a percentile.*found 99.0 with method='minmax'"),
            ({"method": "percentile", "percentile": 0.999}, "not a share of the values; expected a number above 50"),
            ({"keep_float": "frist"}, 'no layer is called "frist".*Did you mean "first"'),
            ({"keep_float": "last 9 conv"}, "asks for more layers than there are; expected at least 9; found 4"),
            ({"keep_float": "last gru"}, "The model has layers of Add, Conv"),
            ({"keep_float": [3]}, "not a way to name layers"),
            ({"keep_float": ["Conv", "Gemm"]}, "nothing to quantise.*found all of them kept in float"),
        ],
    )
    def test_bad_options(self, options, message):
        with pytest.raises(QuantizationError, match=message):
            tinycomp.quantize(residual(), images(), **options)

    def test_a_model_that_is_quantised_already(self):
        with pytest.raises(QuantizationError, match="the model is quantised already; expected a model in float32"):
            tinycomp.quantize(digits_model(quantized=True), CALIBRATION)

    def test_a_model_without_products(self):
        net = Network(2, 3)
        with pytest.raises(QuantizationError, match="there is nothing to quantise"):
            tinycomp.quantize(net.done(net.op("Relu", net.x)), [np.zeros((2, 3), np.float32)])


@pytest.mark.parametrize("shown", [False, True])
def test_progress(capsys, shown):
    tinycomp.quantize(residual(), images(3), progress=shown)
    err = capsys.readouterr().err
    assert ("calibrating" in err) == ("3/3" in err) == shown
