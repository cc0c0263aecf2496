"""What PyTorch programs do with tensors, as tables: functions by arguments, models by writes; PyTorch judges.

A case runs twice, eagerly and compiled, on equal arguments. Results, arguments, parameters and buffers must agree in
kind, type, shape, content and in what shares memory, which later writes to each tensor show; or the case is refused
with an error of ours that names what and where.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tinycomp.errors import TinycompError

Pair = collections.namedtuple("Pair", "first second")


class Own(torch.Tensor):
    """A subclass that adds nothing."""


@dataclasses.dataclass
class Record:
    """Two tensors."""

    x: Any
    y: Any


torch.utils._pytree.register_dataclass(Record)


def of_numpy(writable: bool) -> torch.Tensor:
    array = np.arange(24, dtype=np.float32).reshape(4, 6) - 5
    array.setflags(write=writable)
    return torch.from_numpy(array)


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return base().clone()


def base(dtype: Any = torch.float32, *shape: int) -> torch.Tensor:
    shape = shape or (4, 6)
    count = int(np.prod(shape))
    return ((torch.arange(count) * 7) % 11 - 4).reshape(shape).to(dtype) / (1 if not dtype.is_floating_point else 2)


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "contiguous": base,
    "transposed": lambda: base(torch.float32, 6, 4).t(),
    "strided": lambda: base(torch.float32, 4, 12)[:, ::2],
    "behind others": lambda: base(torch.float32, 6, 6)[2:],
    "expanded": lambda: base(torch.float32, 1, 6).expand(4, 6),
    "overlapping": lambda: torch.arange(12.0).as_strided((4, 6), (1, 1)),
    "permuted": lambda: base(torch.float32, 6, 2, 4).permute(2, 0, 1),
    "channels last": lambda: base(torch.float32, 2, 3, 4, 2).contiguous(memory_format=torch.channels_last),
    "flipped": lambda: base().flip(0),
    "no dimensions": lambda: torch.tensor(1.5),
    "empty": lambda: torch.zeros(0, 6),
    "one element": lambda: torch.ones(1, 1),
    "NaN and infinity": lambda: torch.tensor([[float("nan"), float("inf"), -0.0], [1.0, -float("inf"), 2.0]]),
    "complex": lambda: torch.complex(base(), base() + 1),
    "conjugated": lambda: torch.complex(base(), base() + 1).conj(),
    "negated": lambda: torch.complex(base(), base() + 1).conj().imag,
    "part of complex": lambda: torch.complex(base(), base() + 1).real,
    "sparse": lambda: base().to_sparse(),
    "sparse rows": lambda: base().to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(base(), 0.5, 3, torch.quint8),
    "nested": lambda: torch.nested.nested_tensor([base(), base()[:2]], layout=torch.jagged),
    "meta": lambda: base().to("meta"),
    "of MKL-DNN": lambda: base().to_mkldnn(),
    "a parameter": lambda: torch.nn.Parameter(base()),
    "of a subclass": lambda: base().as_subclass(Own),
    "with gradients": lambda: base().requires_grad_(),
    "made in inference mode": inference,
    "of numpy": lambda: of_numpy(True),
    "float64": lambda: base(torch.float64),
    "float16": lambda: base(torch.float16),
    "bfloat16": lambda: base(torch.bfloat16),
    "float8": lambda: base().to(torch.float8_e4m3fn),
    "int64": lambda: base(torch.int64),
    "int8": lambda: base(torch.int8),
    "uint8": lambda: base(torch.int64).abs().to(torch.uint8),
    "uint16": lambda: base(torch.int64).abs().to(torch.uint16),
    "bool": lambda: base(torch.int64) > 0,
    "a number": lambda: 3,
    "a fraction": lambda: 2.5,
    "True": lambda: True,
    "None": lambda: None,
    "text": lambda: "text",
    "numpy's": lambda: np.arange(24, dtype=np.float32).reshape(4, 6),
    "a list": lambda: [base(), base() + 1],
    "a dict": lambda: {"x": base(), "y": base() + 1},
}


def set_to(x: Any) -> Any:
    x.set_(torch.ones(3))
    return x + 1


def resized(x: Any) -> Any:
    x.resize_(2, 2)
    return x + 1


def data_written(x: Any) -> Any:
    x.data.mul_(2)
    return x + 1


def with_data(x: Any) -> Any:
    y = x + 1
    y.data = x * 3
    return y


def broken(x: Any) -> Any:
    y = x * 2
    torch._dynamo.graph_break()
    y.add_(1)
    return y, x + y


def asked(x: Any) -> Any:
    return x * 2 if x.sum().item() > 0 else x * 3


def under_no_grad(x: Any) -> Any:
    with torch.no_grad():
        return x * 2


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "twice": lambda x: x + x,
    "relu": torch.relu,
    "itself": lambda x: x,
    "itself and more": lambda x: (x, x * 2, x),
    "flat": lambda x: (x.reshape(-1), x * 2),
    "its last": lambda x: (x[..., -1:], x * 2),
    "turned": lambda x: (x.mT, x + x),
    "detached": lambda x: (x.detach(), x * 2),
    "cloned": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "widened": lambda x: (x.unsqueeze(0).expand(3, *x.shape), x * 2),
    "parts": lambda x: (x * 2).chunk(2, -1),
    "unbound": lambda x: (x * 2).unbind(0),
    "made of views": lambda x: (lambda y: (y[0], y, y.mT, y.detach()))(x * 2),
    "added to": lambda x: x.add_(1),
    "a part added to": lambda x: (x[..., 1:].mul_(2), x + 1),
    "turned and added to": lambda x: (x.mT.add_(1), x * 2),
    "zeroed": lambda x: (x.zero_(), None),
    "filled by index": lambda x: x.__setitem__((..., 0), 7) or x + 1,
    "copied over": lambda x: x.copy_(x.flip(0)) * 2,
    "set": set_to,
    "resized": resized,
    "data written": data_written,
    "data replaced": with_data,
    "turned in place": lambda x: x.t_() + 1,
    "a dict": lambda x: {"y": x * 2, "none": None, "x": x},
    "a named tuple": lambda x: Pair(x * 2, (x, [x + 1])),
    "a record": lambda x: Record(x * 2, x),
    "nothing": lambda x: None,
    "a number beside": lambda x: (x * 2, 7, "text", x.shape),
    "summed": lambda x: x.sum(),
    "largest": lambda x: x.max(-1),
    "to float64": lambda x: x.to(torch.float64) * 2,
    "to its own type": lambda x: (x.to(x.dtype), x * 2),
    "parts of complex": lambda x: (torch.view_as_real(x), x * 2),
    "conjugated": lambda x: (x.conj(), x * 2),
    "where it is not 0": lambda x: x[x > 0],
    "asked": asked,
    "broken": broken,
    "under no_grad": under_no_grad,
    "as bytes": lambda x: (x.view(torch.uint8), x * 2),
    "sorted": lambda x: torch.sort(x, dim=-1),
    "of random numbers": lambda x: x + torch.rand_like(x),
    "dropped": lambda x: torch.dropout(x, 0.5, True),
    "of numpy": lambda x: torch.from_numpy(x.resolve_neg().numpy() * 2),
    "empty": lambda x: x[:0] * 2,
    "gradient": lambda x: torch.func.grad(lambda y: (y * y).sum())(x),
    "mapped": lambda x: torch.vmap(lambda y: y * 2 + 1)(x),
    "of each": lambda x: torch.utils._pytree.tree_map(lambda y: y * 2, x),
}


class Plain(torch.nn.Module):
    """Two layers, one of which may be tied or frozen, a buffer, and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.norm, self.drop = torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5)
        self.register_buffer("scale", torch.ones(6))
        self.plain, self.count = torch.ones(6), 1

    def forward(self, x: Any) -> Any:
        y = self.norm(self.first(x)).relu()
        return self.last(self.drop(y)) * self.scale + self.plain * self.count


class Tied(Plain):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.last.weight = self.first.weight


class Counting(Plain):
    """Writes to a buffer."""

    def forward(self, x: Any) -> Any:
        self.scale.add_(1)
        return super().forward(x)


class Returning(Plain):
    """Gives its parameters away."""

    def forward(self, x: Any) -> Any:
        return super().forward(x), self.first.weight, self.scale, self.last.weight.t()


class Weighted(torch.nn.Module):
    """Computes its weight from others, as parametrisations do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 6))
        self.last, self.norm = torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x))) * self.scale


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "plain": Plain, "tied": Tied, "counting": Counting, "returning": Returning, "weighted": Weighted,
}  # fmt: skip


def weight_of(model: Any) -> torch.Tensor:
    return model.last.weight


def loaded(model: Any, **options: Any) -> None:
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()}, **options)


def stepped(model: Any) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    for parameter in model.parameters():
        parameter.grad = None


def in_inference_mode(model: Any) -> None:
    with torch.inference_mode():
        weight_of(model).mul_(2)


def by_dlpack(model: Any) -> None:
    torch.from_dlpack(weight_of(model).detach()).mul_(-1)


def by_storage(model: Any) -> None:
    weight_of(model).untyped_storage().copy_(torch.full((36,), 0.25).untyped_storage())


def elsewhere(model: Any) -> None:
    weight_of(model).set_(torch.full((40,), 0.5).untyped_storage(), 2, (6, 6), (6, 1))


WRITES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda model: None,
    "add_": lambda model: weight_of(model).add_(1),
    "copy_": lambda model: weight_of(model).copy_(torch.eye(6)),
    "an element": lambda model: weight_of(model).__setitem__((0, 1), 9.0),
    "a view": lambda model: weight_of(model).t()[1:].mul_(3),
    "data.mul_": lambda model: weight_of(model).data.mul_(2),
    "an element of data": lambda model: weight_of(model).data.__setitem__((5, 5), 9.0),
    "data =": lambda model: setattr(weight_of(model), "data", torch.eye(6)),
    "data = strided": lambda model: setattr(weight_of(model), "data", torch.arange(36.0).reshape(6, 6).t()),
    "numpy": lambda model: weight_of(model).detach().numpy().__setitem__((0, 0), 5.0),
    "DLPack": by_dlpack,
    "storage": by_storage,
    "set_": elsewhere,
    "inference mode": in_inference_mode,
    "detach": lambda model: weight_of(model).detach().mul_(2),
    "init": lambda model: torch.nn.init.constant_(weight_of(model), 0.1),
    "foreach": lambda model: torch._foreach_add_([*model.parameters()], 1.0),
    "an optimiser": stepped,
    "another parameter": lambda model: setattr(model.last, "weight", torch.nn.Parameter(torch.eye(6))),
    "another layer": lambda model: setattr(model, "last", torch.nn.Linear(6, 6, bias=False)),
    "no bias": lambda model: setattr(model.last, "bias", None),
    "load_state_dict": loaded,
    "load_state_dict, assign": lambda model: loaded(model, assign=True),
    "double": lambda model: model.double(),
    "double and back": lambda model: model.double().float(),
    "bfloat16 and back": lambda model: model.bfloat16().float(),
    "apply": lambda model: model.apply(lambda part: None if not hasattr(part, "bias") else part.bias.fill_(1)),
    "requires_grad_(False)": lambda model: model.requires_grad_(False),
    "to meta": lambda model: model.to("meta"),
    "a buffer": lambda model: model.scale.mul_(3),
    "data of a buffer": lambda model: model.scale.data.mul_(3),
    "another buffer": lambda model: setattr(model, "scale", torch.full((6,), 2.0)),
    "a plain tensor": lambda model: hasattr(model, "plain") and model.plain.mul_(4),
    "data of a plain tensor": lambda model: hasattr(model, "plain") and model.plain.data.mul_(4),
    "another plain tensor": lambda model: setattr(model, "plain", torch.full((6,), 3.0)),
    "a number": lambda model: setattr(model, "count", 5),
    "running statistics": lambda model: getattr(model.norm, "running_mean", model.norm.weight).add_(1),
    "train": lambda model: model.train(),
    "train and eval": lambda model: model.train().eval(),
    "norm.train": lambda model: model.norm.train(),
    "pruning": lambda model: importlib.import_module("torch.nn.utils.prune").l1_unstructured(model.last, "weight", 0.5),
    "share_memory": lambda model: model.share_memory(),
}


class UnclearError(AssertionError):
    """A case whose failure is not one of ours."""


def tensors_of(*values: Any) -> list[torch.Tensor]:
    found = torch.utils._pytree.tree_leaves(values)
    return [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in found if is_tensor(each)]


def is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


def same(found: Any, wanted: Any, where: str) -> None:
    """Hold a value to PyTorch's, but for how its elements lie in memory."""
    ours, how = torch.utils._pytree.tree_flatten(found)
    theirs, wanted_how = torch.utils._pytree.tree_flatten(wanted)
    assert how == wanted_how, f"{where}: {how} and not {wanted_how}"
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b), f"{where}: {type(a)} and not {type(b)}"
        if not is_tensor(b):
            assert a == b, f"{where}: {a} and not {b}"
            continue
        a, b = map(torch.as_tensor, (a, b))
        facts = [(t.dtype, t.shape, t.device, t.layout, t.requires_grad, t.is_conj(), t.is_neg()) for t in (a, b)]
        assert facts[0] == facts[1], f"{where}: {facts[0]} and not {facts[1]}"
        if b.device.type == "cpu" and b.layout == torch.strided and not b.is_quantized:
            wide = torch.complex128 if b.is_complex() else torch.float64
            a, b = (t.detach().to(wide) for t in (a, b))
            close = torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
            assert close, f"{where}: {a.flatten()[:8].tolist()} and not {b.flatten()[:8].tolist()}"


def written(values: Any, write: int) -> bool:
    """Write to one of the tensors; tell whether that was possible."""
    try:
        with torch.no_grad():
            tensors_of(values)[write].add_(write + 1)
    except Exception:
        return False
    return True


def refused(error: BaseException) -> str:
    """Return what an error of ours says.

    Raises:
        UnclearError: If there is none.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, TinycompError):
            assert str(link).strip()
            return str(link)
        inner = getattr(link, "inner_exception", None)
        link = inner or link.__cause__ or link.__context__
    raise UnclearError(f"{type(error).__name__}: {error}") from error


def hold(run: Callable[..., Any], eager: Callable[..., Any], make: Callable[[], Any], state: Any = None) -> str:
    """Hold a compiled function to the eager one on equal arguments; return "" or what it was refused with."""
    given = [make(), make()]
    try:
        wanted = eager(given[1])
    except Exception as error:
        wanted = error
    try:
        found = run(given[0])
    except Exception as error:
        if isinstance(wanted, Exception):
            return ""
        return refused(error)
    if isinstance(wanted, (NotImplementedError, TypeError)):  # types that eager lacks; numpy's arrays become tensors
        return ""
    assert not isinstance(wanted, Exception), f"no error where PyTorch has {type(wanted).__name__}: {wanted}"
    same(found, wanted, "results")
    same(given[0], given[1], "arguments")
    sides = [(given[i], result) for i, result in enumerate((found, wanted))]
    if state is not None:
        same(state[0](), state[1](), "state")
        sides = [(*side, each()) for side, each in zip(sides, state, strict=True)]
    for write in range(len(tensors_of(sides[1]))):
        possible = [written(side, write) for side in sides]
        assert possible[0] == possible[1], f"write {write}"
        same(sides[0], sides[1], f"after write {write}")
    return ""


def compiled(function: Any, **options: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(function, backend="tinycomp", options=options or None)


def trial(function: str, argument: str) -> str:
    """Try a function of an argument, twice, so that what is kept serves as well."""
    plain, make = FUNCTIONS[function], ARGUMENTS[argument]
    run = compiled(lambda x: plain(x))
    with torch.no_grad():
        torch.manual_seed(1)
        first = hold(run, plain, make)
        return first or hold(run, plain, make)


def writing(model: str, write: str) -> str:
    """Write to a model's state between calls."""
    torch.manual_seed(0)
    ours = MODELS[model]().eval()
    with torch.no_grad():
        for part in (ours.norm, ours.first):
            for value in part.state_dict().values():
                value.add_(1)
    theirs = copy.deepcopy(ours)
    run = compiled(ours)
    state = [lambda: dict(ours.state_dict()), lambda: dict(theirs.state_dict())]

    def make() -> torch.Tensor:
        return base(ours.last.weight.dtype) if ours.last.weight.device.type == "cpu" else base().to("meta")

    with torch.no_grad():
        hold_state = [lambda: None] * 2
        said = hold(run, theirs, make, hold_state)
        assert not said, said
        for each in (ours, theirs):
            torch.manual_seed(2)
            WRITES[write](each)
        torch.manual_seed(3)
        said = hold(run, theirs, make, state if "meta" not in write else hold_state)
        return said or hold(run, theirs, make, state)


def everything() -> Iterator[tuple[Callable[[str, str], str], str, str]]:
    """Yield all cases."""
    yield from ((trial, *each) for each in itertools.product(FUNCTIONS, ARGUMENTS))
    yield from ((writing, *each) for each in itertools.product(MODELS, WRITES))


def short(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:300]
