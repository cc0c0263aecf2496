"""The steps of an exported project as C: the body of its run, and the parameters of the calls in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinycomp.export_c.actions import (
    Action,
    Call,
    Calls,
    Condition,
    Copy,
    Fill,
    Find,
    If,
    Loop,
    Place,
    Sized,
    Source,
    Word,
)
from tinycomp.export_c.names import Names
from tinycomp.records import dataclass, field, replace
from tinycomp.runtime.csource.source import c_comment, c_number
from tinycomp.runtime.native.library import kernel_named
from tinycomp.symbolic import Expression, Formulas, Size


def _number(value: float, kind: type) -> str:
    return c_number(value, "float32" if kind is float else "int64")


def _params(call: Call) -> str:
    fields = kernel_named(call.kernel).fields
    parts = [
        f".{name} = {_number(value, fields[name])}"
        for name, value in call.params.items()
        if fields[name] is float or value
    ]
    return f"{{{', '.join(parts)}}}" if parts else "{0}" if fields else ""


_LONGEST_PERIOD = 24
"""Calls in a row that are recognised when they come again."""
_FEWEST_SAVED = 3
"""Calls that a loop must save."""


@dataclass
class Printer:
    """Writes actions as C.

    Attributes:
        names: What the project calls things.
        calls: What it does.
        params: Names of parameters, by kernel and value.
        loops: How many loops there are so far, which names their variables.
    """

    names: Names
    calls: Calls
    params: dict[tuple[str, str], str] = field(default_factory=dict)
    loops: int = 0

    def __post_init__(self) -> None:
        self._formulas = Formulas((*self.calls.sizes, *self.calls.found))
        self._computed = 0  # of the formulas
        self._ahead: list[str] = []  # lines that must stand in front of the action at hand
        self.expanded: list[str] = []  # kernels of whose parameters only those are kept that differ

    def parameters(self) -> list[str]:
        """Return the parameters of all calls as constants, each once, and what expands those that are kept in part."""
        by_kernel: dict[str, dict[str, Call]] = {}
        for call in self.calls.calls:
            if call.sized is None and (value := _params(call)):
                by_kernel.setdefault(call.kernel, {}).setdefault(value, call)
        lines: list[str] = []
        for kernel, calls in by_kernel.items():
            few = _Few.of(kernel, [call.params for call in calls.values()])
            if few is not None:
                self.expanded.append(kernel)
                lines += few.lines()
            for value, call in calls.items():
                name = self.params[kernel, value] = f"parameters_{len(self.params)}"
                held = f"tc_{kernel}_params {name} = {value}" if few is None else few.constant(name, call.params)
                lines.append(f"static const {held};")
        return lines

    def sizes(self, indent: str) -> list[str]:
        """Return lines that read and check the sizes of a run."""
        lines = []
        for number, (name, (least, most)) in enumerate(self.calls.sizes.items()):
            lines += [
                f"{indent}const int64_t {self._value(number)} = sizes->{self.names.sizes[name]};",
                *self._unless(indent, f"{self._value(number)} < {least} || {self._value(number)} > {most}", "SIZES"),
            ]
        return lines

    def shapes(self, indent: str) -> list[str]:
        """Return lines that say what shapes the results have."""
        lines = [
            f"{indent}  shapes->{port.name}[{axis}] = {self._size(dim)};"
            for port in self.names.outputs
            if port.is_sized
            for axis, dim in enumerate(port.dims)
        ]
        lines = [f"{indent}if (shapes) {{", *lines, f"{indent}}}"] if lines else []
        return [*self._before(indent), *lines]

    def _value(self, number: int) -> str:
        """Return what a value is called."""
        if number < len(self.calls.sizes):
            return f"size_{number}"
        shown = len(self._formulas.symbols)
        if number < shown:
            return f"found_{number - len(self.calls.sizes)}"
        name, operands = self._formulas.operations[number - shown]
        return str(operands[0]) if name == "constant" else f"value_{number - shown}"

    def _size(self, size: Size) -> str:
        """Return an expression for a size; what it is computed from goes in front of the action at hand."""
        if isinstance(size, int):
            return str(size)
        number = self._formulas.add(size)
        for index in range(self._computed, len(self._formulas.operations)):
            name, operands = self._formulas.operations[index]
            if name != "constant":
                self._ahead += self._computation(index, name, [self._value(each) for each in operands])
        self._computed = len(self._formulas.operations)
        return self._value(number)

    def _computation(self, index: int, name: str, operands: Sequence[str]) -> list[str]:
        to, (a, b, *rest) = self._value(len(self._formulas.symbols) + index), operands
        if name == "divide":
            floor = f"{a} / {b} - ({a} % {b} < 0)"
            return [*self._unless("", f"{b} <= 0", "SIZES"), f"const int64_t {to} = {floor};"]
        value = {
            "add": f"{a} + {b}", "multiply": f"{a} * {b}", "min": f"{a} < {b} ? {a} : {b}",
            "max": f"{a} > {b} ? {a} : {b}", "ifzero": f"{a} == 0 ? {b} : {''.join(rest)}",
        }[name]  # fmt: skip
        return [f"const int64_t {to} = {value};"]

    def _unless(self, indent: str, wrong: str, status: str) -> list[str]:
        status = status if self.names.sizes else "FAILED"
        return [f"{indent}if ({wrong}) {{", f"{indent}  return {self.names.macro}_{status};", f"{indent}}}"]

    def _before(self, indent: str) -> list[str]:
        """Return the lines that must stand in front of the action at hand."""
        lines, self._ahead = [indent + line for line in self._ahead], []
        return lines

    def actions(self, steps: Sequence[Action], indent: str) -> list[str]:
        """Return lines for some actions; calls that come again and again, in steady strides, are a loop."""
        lines: list[str] = []
        at = 0
        while at < len(steps):
            period, times = _repetition(steps, at)
            if times > 1:
                index = self._variable("i")
                lines.append(f"{indent}for (ptrdiff_t {index} = 0; {index} < {times}; {index}++) {{")
                for here, following in zip(steps[at : at + period], steps[at + period :], strict=False):
                    if isinstance(here, Call) and isinstance(following, Call):
                        lines += self._call(here, f"{indent}  ", index, following)
                    elif isinstance(here, Copy) and isinstance(following, Copy):
                        lines.append(f"{indent}  {self._copy(here, index, following)}")
                lines.append(f"{indent}}}")
                at += period * times
            else:
                action = self._action(steps[at], indent)
                lines += [*self._before(indent), *action]
                at += 1
        return lines

    def _variable(self, kind: str) -> str:
        self.loops += 1
        return f"{kind}{self.loops}"

    def _action(self, step: Action, indent: str) -> list[str]:
        if isinstance(step, Call):
            return self._call(step, indent) if step.sized is None else self._sized_call(step, step.sized, indent)
        if isinstance(step, Word):
            to, value = self._pointer(step.place), self._size(step.value)
            return [f"{indent}memcpy({to}, &(int64_t){{{value}}}, sizeof(int64_t));"]
        if isinstance(step, Find):
            return self._find(step, indent)
        if isinstance(step, Condition):
            wrong = self._unless(indent, f"{self._size(step.value)} != 0", "SIZES" if step.is_shown else "FAILED")
            return [indent + c_comment(step.text), *wrong]
        if isinstance(step, Fill):
            return [f"{indent}memset({self._pointer(step.place)}, {step.value}, {self._bytes(step.nbytes)});"]
        if isinstance(step, Copy):
            return [indent + self._copy(step)]
        if isinstance(step, Source):
            return self._source(step, indent)
        return self._if(step, indent) if isinstance(step, If) else self._loop(step, indent)

    def _bytes(self, nbytes: Size) -> str:
        return str(nbytes) if isinstance(nbytes, int) else f"(size_t){self._size(nbytes)}"

    def _find(self, step: Find, indent: str) -> list[str]:
        name = self._value(len(self.calls.sizes) + self.calls.found.index(step.symbol))
        most = self._size(step.most)
        return [
            f"{indent}int64_t {name};",
            f"{indent}memcpy(&{name}, {self._pointer(step.place)}, sizeof({name}));",
            *self._unless(indent, f"{name} < 0 || {name} > {most}", "FAILED"),
        ]

    def _sized_call(self, step: Call, sized: Sized, indent: str) -> list[str]:
        """Return lines for a call that is planned in every run."""
        fields, name = kernel_named(step.kernel).fields, f"TC_NAME(tc_{step.kernel})"
        values = [
            f".{key} = " + (self._size(value) if isinstance(value, Expression) else _number(value, fields[key]))
            for key, value in step.params.items()
            if fields[key] is float or value != 0
        ]
        pack = "NULL" if sized.state.base == "absent" else f"TC_NAME(tc_{step.kernel}_pack)"
        spaces = ", ".join(f"{{TC_{space.upper()}, 0, 0}}" for space in sized.spaces)
        state = "NULL" if step.state is None else f"weights + {step.state}"
        inside = f"{indent}  "
        return [
            indent + "{ " + c_comment(": ".join([step.kernel, *([", ".join(step.sources)] if step.sources else [])])),
            *(
                [f"{inside}const tc_{step.kernel}_params parameters = {{{', '.join(values) or '0'}}};"]
                if fields
                else []
            ),
            f"{inside}static const tc_sized kernel = {{TC_NAME(tc_{step.kernel}_prepare), {pack}, {name}, "
            f"{len(step.operands)}}};",
            f"{inside}static const tc_operand places[] = {{{spaces}}};",
            f"{inside}const int64_t bytes[] = {{{', '.join(map(self._size, sized.nbytes))}}};",
            *(f"{inside}operands[{number}] = {self._pointer(place)};" for number, place in enumerate(step.operands)),
            f"{inside}call.params = {'&parameters' if fields else 'NULL'};",
            f"{inside}call.state = {state};",
            f"{inside}call.scratch = {self._pointer(step.scratch)};",
            f"{inside}if (!tc_run_sized(&kernel, &call, places, bytes, {self._pointer(sized.state)}, "
            f"{sized.state_bytes}, {sized.scratch_bytes}) || failure) {{",
            f"{inside}  return {self.names.macro}_FAILED;",
            f"{inside}}}",
            f"{indent}}}",
        ]

    def _pointer(self, place: Place, moved: str = "") -> str:
        return _pointer(place, self._size(place.offset), self.names, moved)

    def _moving(self, places: Sequence[Place], nexts: Sequence[Place], index: str) -> list[str]:
        """Return places in a loop, given those of the next round."""
        return [
            self._pointer(place, f" + {after.offset - place.offset} * {index}" if after != place else "")
            for place, after in zip(places, nexts, strict=True)
        ]

    def _copy(self, step: Copy, index: str = "", following: Copy | None = None) -> str:
        after = following or step
        to, source = self._moving([step.to, step.source], [after.to, after.source], index)
        return f"memcpy({to}, {source}, {self._bytes(step.nbytes)});"

    def _call(self, step: Call, indent: str, index: str = "", following: Call | None = None) -> list[str]:
        """Return lines for a call; in a loop, ``following`` is the one that comes in its place in the next round."""
        value = self.params.get((step.kernel, _params(step)))
        what = ": ".join([step.kernel, *([", ".join(step.sources)] if step.sources else [])])
        places = [*step.operands, step.scratch]
        nexts = places if following is None else [*following.operands, following.scratch]
        texts = self._moving(places, nexts, index)
        return [
            f"{indent}{c_comment(what)}",
            *(f"{indent}operands[{number}] = {text};" for number, text in enumerate(texts[:-1])),
            f"{indent}call.params = {self._kept(step.kernel, value)};",
            indent + ("call.state = NULL;" if step.state is None else f"call.state = weights + {step.state};"),
            f"{indent}call.scratch = {texts[-1]};",
            f"{indent}TC_NAME(tc_{step.kernel})(&call, 0, {step.units});",
            f"{indent}if (failure) {{",
            f"{indent}  return {self.names.macro}_FAILED;",
            f"{indent}}}",
        ]

    def _kept(self, kernel: str, name: str | None) -> str:
        """Return a pointer to parameters that are kept under a name."""
        if name is None:
            return "NULL"
        return f"expand_{kernel}(&whole.{kernel}, &{name})" if kernel in self.expanded else f"&{name}"

    def _source(self, step: Source, indent: str) -> list[str]:
        def array(name: str, kind: str, places: Sequence[Place]) -> str:
            items = ", ".join(map(self._pointer, places)) or "NULL"
            return f"{indent}  {kind} {name}[] = {{{items}}};"

        name = f"{self.names.prefix}_part_{step.number}"
        return [
            indent + "{ " + c_comment(", ".join(step.sources) or name),
            array("inputs", "const void *const", step.inputs),
            array("outputs", "void *const", step.outputs),
            array("constants", "const void *const", step.constants),
            f"{indent}  if ({name}(inputs, outputs, constants, {self._pointer(step.scratch)})) {{",
            f"{indent}    return {self.names.macro}_FAILED;",
            f"{indent}  }}",
            f"{indent}}}",
        ]

    def _if(self, step: If, indent: str) -> list[str]:
        one, other = (self.actions(body, f"{indent}  ") for body in step.bodies)
        return [
            indent + c_comment("if: " + ", ".join(step.sources)),
            f"{indent}if (*(const unsigned char *)({self._pointer(step.condition)})) {{",
            *one,
            f"{indent}}} else {{",
            *other,
            f"{indent}}}",
        ]

    def _loop(self, step: Loop, indent: str) -> list[str]:
        trip, limit, goes_on = self._variable("trip"), self._variable("limit"), self._variable("goes_on")
        lines = [
            indent + c_comment("loop: " + ", ".join(step.sources)),
            f"{indent}int64_t {limit} = INT64_MAX, {trip} = 0;",
        ]
        if step.limit.base != "absent":
            lines.append(f"{indent}memcpy(&{limit}, {self._pointer(step.limit)}, sizeof({limit}));")
        begins = (
            "1" if step.condition.base == "absent" else f"*(const unsigned char *)({self._pointer(step.condition)})"
        )
        lines.append(f"{indent}unsigned char {goes_on} = {begins};")
        lines += [
            f"{indent}for (; {goes_on} && {trip} < {limit}; {trip}++) {{",
            *self._rows_end(step, f"{indent}  ", f"{trip} >= {step.trips}"),
            f"{indent}  memcpy({self._pointer(step.trip)}, &{trip}, sizeof({trip}));",
            *self.actions(step.body, f"{indent}  "),
            f"{indent}  {goes_on} = *(const unsigned char *)({self._pointer(step.goes_on)});",
            *(f"{indent}  " + self._copy(row, trip, replace(row, to=row.to.at(row.nbytes))) for row in step.rows),
            f"{indent}}}",
            *self._rows_end(step, indent, f"{trip} != {step.trips}"),
        ]
        return lines

    def _rows_end(self, step: Loop, indent: str, wrong: str) -> list[str]:
        """Return the check that there are as many trips as the results have rows."""
        if step.trips is None:
            return []
        return [f"{indent}if ({wrong}) {{", f"{indent}  return {self.names.macro}_FAILED;", f"{indent}}}"]


_FEWEST_BYTES = 1024
"""Bytes that keeping a part of the parameters must save."""
_INTEGERS = tuple(
    (f"{sign}int{size}_t", size // 8, low, high)
    for size in (8, 16, 32, 64)
    for sign, low, high in (("", -(1 << size - 1), (1 << size - 1) - 1), ("u", 0, (1 << size) - 1))
)
"""Types with their bytes and their range, narrow ones first."""


@dataclass(frozen=True)
class _Few:
    """The parameters of a kernel that its calls do not share, as a struct of narrow numbers.

    Attributes:
        kernel: The kernel.
        common: The parameters that all calls share.
        types: Names and C types of the others, wide ones first.
    """

    kernel: str
    common: Mapping[str, float]
    types: Mapping[str, str]

    @classmethod
    def of(cls, kernel: str, params: Sequence[Mapping[str, float]]) -> _Few | None:
        """Return how to keep so many calls' parameters in fewer bytes; None if that does not save enough."""
        fields = kernel_named(kernel).fields
        found: list[tuple[int, str, str]] = []
        common = {name: params[0][name] for name in fields}
        for name, kind in fields.items():
            values = [each[name] for each in params]
            if all(value == values[0] for value in values):
                continue
            del common[name]
            if kind is float:
                found.append((4, name, "float"))
            else:
                fits = (each for each in _INTEGERS if each[2] <= min(values) and max(values) <= each[3])
                ctype, nbytes, _, _ = next(fits)
                found.append((nbytes, name, ctype))
        found.sort(key=lambda each: -each[0])
        whole = sum(4 if kind is float else 8 for kind in fields.values())
        narrow = sum(nbytes for nbytes, _, _ in found)
        if (len(params) - 1) * whole - len(params) * narrow < _FEWEST_BYTES:
            return None
        return cls(kernel, common, {name: ctype for _, name, ctype in found})

    def lines(self) -> list[str]:
        """Return the struct, what all calls share, and the function that makes parameters of both."""
        signature = f"const void *expand_{self.kernel}(tc_{self.kernel}_params *p, const few_{self.kernel} *few)"
        shared = {name: value for name, value in self.common.items() if value}
        fields = kernel_named(self.kernel).fields
        values = ", ".join(f".{name} = {_number(value, fields[name])}" for name, value in shared.items()) or "0"
        return [
            f"typedef struct few_{self.kernel} {{",
            *(f"  {ctype} {name};" for name, ctype in self.types.items()),
            f"}} few_{self.kernel};",
            "#ifdef __GNUC__",
            f"static __attribute__((noinline)) {signature};",
            "#endif",
            f"static {signature} {{",
            f"  static const tc_{self.kernel}_params common = {{{values}}};",
            "  *p = common;",
            *(f"  p->{name} = few->{name};" for name in self.types),
            "  return p;",
            "}",
        ]

    def constant(self, name: str, params: Mapping[str, float]) -> str:
        """Return the definition of one call's part."""
        fields = kernel_named(self.kernel).fields
        values = ", ".join(_number(params[each], fields[each]) for each in self.types)
        return f"few_{self.kernel} {name} = {{{values}}}"


def _repetition(steps: Sequence[Action], at: int) -> tuple[int, int]:
    """Return how many calls from one on come again, and how often they come in all."""
    best, saved = (1, 1), _FEWEST_SAVED - 1
    for period in range(1, min(_LONGEST_PERIOD, (len(steps) - at) // 2) + 1):
        times = 1
        while at + (times + 1) * period <= len(steps) and all(
            _follows(steps, at + offset, period, times) for offset in range(period)
        ):
            times += 1
        if (times - 1) * period > saved:
            best, saved = (period, times), (times - 1) * period
    return best


def _apart(step: Action) -> tuple[tuple[Any, ...], tuple[Place, ...]] | None:
    """Return what a step of a loop must have in common with others, and its places; None if it is in no loop."""
    if isinstance(step, Copy):
        numbers = (step.nbytes, step.to.offset, step.source.offset)
        return ((step.nbytes,), (step.to, step.source)) if all(isinstance(n, int) for n in numbers) else None
    if isinstance(step, Call) and step.sized is None:
        return (step.kernel, step.params, step.state, step.units), (*step.operands, step.scratch)
    return None


def _follows(steps: Sequence[Action], at: int, period: int, times: int) -> bool:
    """Tell whether a call ``times`` periods later is the same one, as much further on as all of them are."""
    same = [_apart(steps[place]) for place in (at, at + period, at + times * period)]
    first, second, last = same
    if first is None or second is None or last is None or not first[0] == second[0] == last[0]:
        return False
    triples = zip(first[1], second[1], last[1], strict=True)
    return all(
        (one.base, one.index) == (other.base, other.index) == (two.base, two.index)
        and other.offset - one.offset == times * (two.offset - one.offset)
        for one, two, other in triples
    )


def _pointer(place: Place, offset: str, names: Names, moved: str = "") -> str:
    """Return an expression for a place; ``moved`` adds bytes to it, such as ``" + i * 64"``."""
    if place.base == "absent":
        return "NULL"
    if place.base == "arena":
        return f"arena + {offset}{moved}"
    if place.base == "weights":
        return f"(void *)(uintptr_t)(weights + {offset}{moved})"
    if place.base == "input":
        base = f"(void *)(uintptr_t){names.inputs[place.index].name}"
    else:
        base = f"(void *){names.outputs[place.index].name}"
    return f"(unsigned char *){base} + {offset}{moved}" if offset != "0" or moved else base
