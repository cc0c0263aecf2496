"""PyTorch models: as graphs, and by way of ``torch.compile``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp.errors import OptionError, TinycompWarning, UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="PyTorch's ONNX exporter needs onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore:(?!a part of the model)::torch", "ignore::DeprecationWarning")


class Network(torch.nn.Module):
    """A convolution with batch normalisation, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 5)
        torch.nn.init.uniform_(self.norm.running_var)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.last(y), y


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(model, **options):
    from tinycomp.pytorch import backend

    made = []

    def spy(graph, examples, **kwargs):
        made.append(backend(graph, examples, **kwargs))
        return made[-1]

    return torch.compile(model, backend=spy, options=options or None), made


def check(found, wanted) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_one_module_serves_all_batches_and_follows_its_parameters() -> None:
    model = Network().eval()
    run, made = compiled(model)
    with torch.no_grad():
        for batch in (2, 5, 7, 1):
            x = torch.randn(batch, 3, 9, 9)
            check(run(x), model(x))
        assert len(made) == 2 + 1  # a first size, all others, and 1, which PyTorch keeps apart
        x = torch.randn(4, 3, 9, 9)
        model.last.weight.add_(1.0)
        check(run(x), model(x))
        model.norm.running_mean.mul_(2.0)
        check(run(x), model(x))
        other = torch.randn(3, 9, 9, 4).permute(3, 0, 1, 2)
        check(run(other), model(other))


def test_modules_that_share_their_code_keep_their_parameters_apart() -> None:
    models = [torch.nn.Linear(4, 3).eval() for _ in range(3)]
    x = torch.randn(2, 4)
    with torch.inference_mode():
        for model in models:
            run, _ = compiled(model)
            torch.testing.assert_close(run(x), model(x))


def test_results_are_no_copies() -> None:
    def f(x):
        return x * 2.0

    run, made = compiled(f)
    x = torch.ones(4)
    seen = []
    run(x)
    inner = made[0]._modules[()][2]

    class Spy:
        def __call__(self, *arrays):
            seen.append(arrays)
            result = inner(*arrays)
            seen.append(result)
            return result

    made[0]._modules[()] = (*made[0]._modules[()][:2], Spy())
    y = run(x)
    assert np.shares_memory(seen[0][0], x.numpy())
    assert np.shares_memory(seen[1], y.numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int64", "bool"])
def test_types(dtype: str) -> None:
    x = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(torch, dtype))

    def f(x):
        return x.T.contiguous(), torch.where(x > 0, x, x)

    run, _ = compiled(f)
    for ours, theirs in zip(run(x), f(x), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_the_entry_point_is_found() -> None:
    from torch._dynamo.backends.registry import lookup_backend

    if "tinycomp" not in torch.compiler.list_backends():
        pytest.skip("tinycomp is not installed with its entry points")
    assert lookup_backend("tinycomp").__module__ == "tinycomp.pytorch"


def test_what_cannot_be_compiled_is_an_error_or_runs_in_pytorch() -> None:
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]])

    def f(x):
        return torch.linalg.eigvalsh(x) + 1

    run, _ = compiled(f)
    with pytest.raises(Exception, match="linalg_eigh"):
        run(x)
    torch.compiler.reset()
    run, _ = compiled(f, fallback=True)
    with pytest.warns(TinycompWarning, match="a part of the model runs in PyTorch.*linalg_eigh"):
        torch.testing.assert_close(run(x), f(x))


class Cache(torch.nn.Module):
    """A cache in a buffer, of which each call writes one row."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 4, 3))
        self.last = torch.nn.Linear(3, 3)

    def forward(self, x, position, calls):
        self.rows.index_copy_(1, position, self.last(x))
        calls[0].add_(1)
        return self.rows.sum(1) * calls[0]


def test_what_the_graph_writes_to_is_written_to() -> None:
    model, position = Cache().eval(), torch.tensor([0])
    plain, counts = copy.deepcopy(model), [torch.zeros(2, 1), torch.zeros(2, 1)]
    run, made = compiled(model)
    with torch.no_grad():
        for step in range(3):
            x = torch.randn(1, 1, 3)
            check([run(x, position + step, counts[0])], [plain(x, position + step, counts[1])])
            check([model.rows, counts[0]], [plain.rows, counts[1]])
        assert len(made) == 1
        shared = torch.zeros(1, 1, 3)
        with pytest.raises(Exception, match=r"arguments share memory, .*; found arguments \d and \d"):
            run(shared, position, shared[0])
    with pytest.raises(UnsupportedError, match=r"the model writes to its arguments or buffers.*found rows"):
        tinycomp.from_torch(model, (x, position, counts[0]))


WRITES = {
    "data": lambda model: model.weight.data.neg_(),
    "an element of data": lambda model: model.weight.data.__setitem__((1, 2), 7.0),
    "numpy": lambda model: model.weight.detach().numpy().__setitem__(0, 5.0),
    "other data": lambda model: setattr(model.bias, "data", torch.ones(3)),
}


@pytest.mark.parametrize(
    ("inference", "writes"), [(False, ["an element of data", "other data"]), (True, ["data", "numpy"])]
)
def test_writes_that_pytorch_does_not_count_are_followed(inference: bool, writes: list[str]) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
        run, made = compiled(model)
        run(x)
        for name in writes:
            WRITES[name](model)
            assert torch.allclose(run(x), model(x), atol=1e-5), name
        (module,) = [module for *_, module in made[0]._modules.values()]
        run(x)
        assert [module] == [module for *_, module in made[0]._modules.values()]  # nothing was written to


def test_parameters_that_are_said_to_be_frozen_are_compared_by_their_versions() -> None:
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    run, _ = compiled(model, frozen=True)
    with torch.no_grad():
        before = run(x)
        model.weight.data.add_(1.0)
        assert torch.equal(run(x), before)
        model.weight.add_(1.0)
        check([run(x)], [model(x)])


def views(x, c):
    """Results that lie in arguments, one of which is written to, and in each other."""
    y, z = x * 2, torch.relu(x)
    first, last = z.chunk(2)
    c.add_(1.0)
    return (
        x.view(-1), x[0], x.t(), x[1:, ::2], x.unsqueeze(0), x.detach(), x.view(torch.int32), c[1:], c, y, y[0], y.t(),
        y.expand(2, *y.shape), z[:3], z[1:], first, last, x.t() * 3, (x.t() * 5)[0], y + c,
    )  # fmt: skip


def test_results_that_are_views_are_views() -> None:
    run, made = compiled(views)
    for rows in (4, 6, 8):
        pairs = []
        for call in (run, views):
            given = [torch.arange(rows * 4.0).reshape(rows, 4) - 3, torch.zeros(rows, 4)]
            pairs.append([*given, *call(*given)])
        for write in range(len(pairs[0])):
            for values in pairs:
                values[write].add_(write) if write != 14 else values[write][0].add_(write)  # which overlaps itself
            for ours, theirs in zip(*pairs, strict=True):
                assert torch.equal(ours, theirs), write
    assert len(made) == 2


def test_a_graph_that_makes_nothing_runs_in_pytorch() -> None:
    x = torch.ones(4)
    run, made = compiled(lambda x: (x.add_(1), x[1:])[1])
    assert run(x).data_ptr() == x[1:].data_ptr()
    assert x.tolist() == [2, 2, 2, 2]
    assert not made[0]._modules


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (torch.nn.BatchNorm1d(3), r"a normalisation in training mode renews .*; found aten.batch_norm.*model.eval\(\)"),
        (torch.nn.InstanceNorm1d(3, track_running_stats=True), "a normalisation in training mode.*aten.instance_norm"),
        (torch.nn.Dropout(0.5), "random numbers of PyTorch's generator; found aten.dropout"),
        (lambda x: x + torch.rand_like(x), "random numbers of PyTorch's generator; found aten.rand_like"),
    ],
)
def test_what_training_alone_has_is_refused_or_runs_in_pytorch(model, message: str) -> None:
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        run, _ = compiled(model)
        with pytest.raises(Exception, match=message):
            run(x)
        torch.compiler.reset()
        run, _ = compiled(model, fallback=True)
        torch.manual_seed(1)
        with pytest.warns(TinycompWarning, match="a part of the model runs in PyTorch"):
            found = run(x)
        torch.manual_seed(1)
        assert torch.equal(found, model(x))


def test_training_is_refused() -> None:
    model = torch.nn.Linear(2, 2)
    run, _ = compiled(model)
    with pytest.raises(Exception, match="needs gradients, which tinycomp does not compute"):
        run(torch.ones(1, 2))


def test_unknown_options_and_targets() -> None:
    x = torch.ones(3)
    run, _ = compiled(torch.relu, targets="c")
    with pytest.raises(Exception, match=r'there is no option "targets".*target'):
        run(x)
    run, made = compiled(torch.relu, target="host")
    torch.testing.assert_close(run(x), x)
    assert made[-1]._modules[()][2].report().to_dict()["hosts"]


def test_graphs_with_named_sizes() -> None:
    model = Network()
    model.norm.eval()  # a frozen layer
    batch = torch.export.Dim("batch")
    graph = tinycomp.from_torch(model, torch.randn(2, 3, 9, 9), dynamic_shapes=({0: batch},))
    assert [part.training for part in model.modules()] == [True, True, False, True]
    module = tinycomp.compile(graph)
    assert module.inputs[0].shape == ("batch", 3, 9, 9)
    x = torch.randn(5, 3, 9, 9)
    with torch.no_grad():
        check([torch.from_numpy(r) for r in module(x.numpy())], model.eval()(x))
    program = torch.export.export(model.eval(), (x,))
    check([torch.from_numpy(r) for r in tinycomp.compile(tinycomp.from_torch(program))(x)], model(x))


@pytest.mark.parametrize(
    ("where", "arguments"),
    [("model", (3,)), ("example_inputs", (torch.nn.ReLU(), 1.5)), ("kwargs", (torch.nn.ReLU(), (), [1]))],
)
def test_arguments_of_other_types_are_refused_by_name(where: str, arguments: tuple[Any, ...]) -> None:
    named = dict(zip(("model", "example_inputs", "kwargs"), arguments, strict=False))
    with pytest.raises(OptionError, match=f"^{where}: the option does not take this value"):
        tinycomp.from_torch(**named)
