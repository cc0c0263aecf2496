"""Ways to call what ``torch.compile`` has compiled: sizes, threads, modes, copies, states; eager PyTorch judges."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.threads import in_threads

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="PyTorch's ONNX exporter needs onnxscript")

from tests.pytorch.cases import Plain, base, compiled, hold, refused, same  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")]
WAYS: dict[str, Callable[[Any, Any], None]] = {}


def way(function: Callable[[Any, Any], None]) -> None:
    WAYS[function.__name__.replace("_", " ")] = function


def agree(run: Any, eager: Any, *shapes: tuple[int, ...]) -> None:
    for shape in shapes or [(4, 6)]:
        assert hold(run, eager, lambda shape=shape: base(torch.float32, *shape)) == ""


@way
def sizes_that_are_marked(run: Any, model: Any) -> None:
    def make(rows: int) -> Any:
        x = base(torch.float32, rows, 6)
        torch._dynamo.mark_dynamic(x, 0)
        return x

    for rows in (3, 5, 2, 9):
        assert hold(run, model, lambda rows=rows: make(rows)) == ""


@way
def sizes_that_change(run: Any, model: Any) -> None:
    agree(run, model, (4, 6), (3, 6), (1, 6), (7, 6), (0, 6), (4, 6))


@way
def compiled_twice(run: Any, model: Any) -> None:
    agree(torch.compile(run, backend="tinycomp"), model)


@way
def one_graph(run: Any, model: Any) -> None:
    agree(torch.compile(model, backend="tinycomp", fullgraph=True), copy.deepcopy(model))


@way
def compiled_in_place(run: Any, model: Any) -> None:
    other = copy.deepcopy(model)
    other.compile(backend="tinycomp")
    agree(other, model)


@way
def several_threads(run: Any, model: Any) -> None:
    run(base())

    def ask(number: int) -> None:
        with torch.no_grad():
            for turn in range(3):
                x = base() + number + turn
                same(run(x), model(x), f"thread {number}")

    in_threads(ask, range(4))


@way
def other_parameters(run: Any, model: Any) -> None:
    given = {name: value.detach() * 2 for name, value in model.named_parameters()}
    x = base()
    run(x)
    same(torch.func.functional_call(run._orig_mod, given, (x,)), torch.func.functional_call(model, given, (x,)), "")
    same(torch.func.functional_call(run, {f"_orig_mod.{n}": v for n, v in given.items()}, (x,)),
         torch.func.functional_call(model, given, (x,)), "")  # fmt: skip
    agree(run, model)


@way
def a_copy(run: Any, model: Any) -> None:
    agree(run, model)
    other = copy.deepcopy(run)
    other._orig_mod.last.weight.mul_(2)
    changed = copy.deepcopy(model)
    changed.last.weight.mul_(2)
    agree(other, changed)
    agree(run, model)


@way
def a_saved_state(run: Any, model: Any) -> None:
    agree(run, model)
    file = io.BytesIO()
    torch.save({name: value + 1 for name, value in model.state_dict().items()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    model.load_state_dict(state)
    run._orig_mod.load_state_dict(state)
    agree(run, model)


@way
def modes_in_turn(run: Any, model: Any) -> None:
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad, functools.partial(torch.set_grad_enabled, False)):
        with mode():
            found = run(base())
        found = found.clone()
        found.add_(1)
        same(found, model(base()) + 1, str(mode))


@way
def gradients(run: Any, model: Any) -> None:
    with torch.enable_grad(), pytest.raises(Exception, match="needs gradients, which tinycomp does not compute") as e:
        run(base())
    assert refused(e.value)
    eased = compiled(copy.deepcopy(model), fallback=True)
    x, y = base().requires_grad_(), base().requires_grad_()
    with torch.enable_grad():
        with pytest.warns(UserWarning, match="a part of the model runs in PyTorch"):
            eased(x).sum().backward()
        model(y).sum().backward()
    same(x.grad, y.grad, "gradient")


@way
def lower_precision(run: Any, model: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(Exception, match="autocast chooses other types") as error:
        run(base())
    assert refused(error.value)
    agree(run, model)


@way
def names_and_defaults(run: Any, model: Any) -> None:
    def plain(x: Any, *rest: Any, scale: Any = 2, **named: Any) -> Any:
        return {"y": x * scale + sum(rest), **{key: value + 1 for key, value in named.items()}}

    one = compiled(plain)
    x = base()
    for arguments, named in ([(x,), {}], [(x, x, 1), {}], [(x,), {"a": x, "b": x.t(), "scale": x}]):
        same(one(*arguments, **named), plain(*arguments, **named), str(named))


@way
def what_a_function_sees(run: Any, model: Any) -> None:
    seen = {"weight": torch.ones(6), "factor": 2}

    def plain(x: Any) -> Any:
        return x * seen["weight"] * seen["factor"]

    one = compiled(plain)
    for change in (
        lambda: None, lambda: seen["weight"].mul_(2), lambda: seen["weight"].data.mul_(2),
        lambda: seen.update(weight=torch.full((6,), 5.0)),
    ):  # fmt: skip
        change()
        agree(one, plain)
    seen["factor"] = 7
    assert "a number that changes is not a size of a tensor" in hold(one, plain, base)


@way
def another_order_of_memory(run: Any, model: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    one = compiled(net)
    for form in (torch.channels_last, torch.contiguous_format):
        torch.compiler.reset()  # else it takes strides for numbers that change
        net.to(memory_format=form)
        x = base(torch.float32, 2, 3, 5, 5).contiguous(memory_format=form)
        same(one(x), net(x), str(form))


@way
def a_result_that_comes_again(run: Any, model: Any) -> None:
    x = base()
    first = run(x)
    kept = first.clone()
    for _ in range(3):
        run(x + 1).add_(5)
    same(first, kept, "an earlier result")


@way
def layers_in_a_list(run: Any, model: Any) -> None:
    class Listed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
            self.more = torch.nn.ParameterList([torch.ones(6), torch.ones(6)])
            self.named = torch.nn.ModuleDict({"a": torch.nn.ReLU()})

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = self.named["a"](layer(x))
            return [x + each for each in self.more]

    ours = Listed()
    theirs = copy.deepcopy(ours)
    one = compiled(ours)
    for change in (lambda m: None, lambda m: m.layers.append(torch.nn.Identity()), lambda m: m.more[1].data.fill_(3)):
        change(ours)
        change(theirs)
        agree(one, theirs)


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", WAYS)
def test_a_way_to_call_is_as_in_pytorch(name: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours = Plain().eval()
    theirs = copy.deepcopy(ours)
    run = compiled(ours)
    try:
        with torch.no_grad():
            WAYS[name](run, theirs)
    finally:
        torch.set_num_threads(threads)
        torch.compiler.reset()
