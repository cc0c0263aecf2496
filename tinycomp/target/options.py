"""Options of targets: choices of the user about how a target computes, declared by the target itself.

A target names a frozen dataclass; its fields are the options::

    @dataclass(frozen=True)
    class NpuOptions:
        \"\"\"How the NPU computes.

Attributes:
            rows: Rows of a tile.
            mode: What matters more.
        \"\"\"

        rows: int = 16
        mode: Literal["fast", "exact"] = "fast"

    npu = Target("npu", options=NpuOptions)

Every field has a default; its annotation says which values it takes, its line in the docstring what it does. The class
may refuse values in ``__post_init__``. The metadata of a field may hold ``help``, instead of the docstring's line;
``words``, values by what stands for them on the command line; ``form``, what to call the values; ``saved``, False for
what saved modules shall not remember (they remember booleans, numbers, strings and None); and ``file``, True where a
value is the path of a file whose contents count, for the cache of modules.

Users choose with ``compile(model, "npu", options={"npu": {"rows": 8}})``, with ``npu.with_options(rows=8)``, or, also
on the command line, with the name ``npu:rows=8,mode=exact``. Code generators and checks with a second parameter are
given the options. If the class has a method ``for_plan(threads)``, code generators get what that returns: it is called
for every plan, whose regions may so share what they spend, and again on what it has returned itself. If it has an
attribute ``tolerance`` that is not None, regions are compared with the reference by that. An option that is called
``precision`` follows ``compile(precision=...)`` where it takes the value.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from tinycomp.arguments import fits, is_same, joined, values_of
from tinycomp.errors import OptionError, TargetError, did_you_mean, shown
from tinycomp.records import dataclass, field

_CONSTANTS: Mapping[str, Any] = types.MappingProxyType({"true": True, "false": False, "none": None})
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Option:
    """Describe one option of a target.

    Attributes:
        name: The field's name.
        hint: Its type.
        default: Its default.
        help: What it does.
        words: Values by the words that stand for them in a text; empty where values are written as they are.
        form: What to call its values; empty for what the type says.
        saved: Whether saved modules remember it.
        file: Whether a text is the path of a file whose contents count.
    """

    name: str
    hint: Any
    default: Any
    help: str = ""
    words: Mapping[str, Any] = field(default_factory=dict)
    form: str = ""
    saved: bool = True
    file: bool = False

    @property
    def values(self) -> str:
        """Return the values as they are written in a text, such as ``never|auto|always``."""
        return "|".join(self.words) or self.form or "|".join(_written(self.hint))

    def written(self, value: Any) -> str:
        """Return how a value is written in a text."""
        word = next((word for word, meaning in self.words.items() if is_same(meaning, value)), None)
        return word or (str(value).lower() if isinstance(value, bool) or value is None else str(value))

    def read(self, text: str, where: str) -> Any:
        """Return the value that a text stands for.

        Raises:
            OptionError: If it stands for none that the option takes.
        """
        readings = [self.words[text]] if text in self.words else [] if self.words else [*readings_of(text)]
        for value in readings[:: -1 if self.hint is Any else 1]:
            if fits(value, self.hint):
                return value
        raise _refusal(f"{where}, option {self.name}", self.values, text)


def declared(options: Any) -> Mapping[str, Option]:
    """Return the options that the class of ``options`` declares, by name; none for None."""
    kind: Any = type(options)
    return {} if options is None else _declared_by(kind)


@functools.cache
def _declared_by(kind: Any) -> Mapping[str, Option]:
    hints, helps, default = typing.get_type_hints(kind), _attributes(kind.__doc__ or ""), kind()
    return {
        f.name: Option(f.name, hints[f.name], getattr(default, f.name), **{"help": helps.get(f.name, ""), **f.metadata})
        for f in dataclasses.fields(kind)
        if f.init
    }


def defaults_of(kind: Any, where: str) -> Any:
    """Return an instance with the defaults of a class that declares options; an instance is one already.

    Raises:
        TargetError: If it is not a frozen dataclass whose fields all have defaults.
    """
    params = getattr(kind, "__dataclass_params__", None)
    try:
        if params is not None and params.frozen:
            return kind() if isinstance(kind, type) else kind
    except TypeError:
        pass  # a field without a default
    raise TargetError(
        "the options are not declared as they should be", where=where,
        expected="a frozen dataclass whose fields all have defaults", found=shown(kind),
    )  # fmt: skip


def changed(options: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return options with some values changed.

    ``options`` is None where a target has none.

    Raises:
        OptionError: If there is no such option, or it does not take the value.
    """
    for name, value in values.items():
        hint = _known(options, name, where).hint
        if not fits(value, hint):
            raise _refusal(f"{where}, option {name}", joined(values_of(hint)), shown(value))
    if options is None:
        return None
    try:
        return dataclasses.replace(options, **values)
    except (TypeError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"the options are refused: {error}", where=where, found=shown(dict(values))) from error


def read_options(options: Any, text: str, where: str) -> dict[str, Any]:
    """Return the values that a text such as ``rows=8,mode=exact`` gives to options, by name.

    Raises:
        OptionError: If it is not of that form, or names an option or a value that does not exist.
    """
    values = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise OptionError("cannot read an option", where=where, expected="OPTION=VALUE", found=part or "nothing")
        name = key.strip().replace("-", "_")
        values[name] = _known(options, name, where).read(value.strip(), where)
    return values


def saved_values(options: Any) -> dict[str, Any]:
    """Return what saved modules remember of options: the values that JSON has a form for."""
    values = {name: getattr(options, name) for name, option in declared(options).items() if option.saved}
    return {name: value for name, value in values.items() if isinstance(value, _PLAIN)}


def _known(options: Any, name: str, where: str) -> Option:
    known = declared(options)
    if name not in known:
        raise OptionError(
            f'there is no option "{name}"', where=where,
            expected=f"one of {', '.join(known)}" if known else "none: it has no options",
            hint=did_you_mean(name, known),
        )  # fmt: skip
    return known[name]


def _refusal(where: str, expected: str, found: str) -> OptionError:
    return OptionError("the option does not take this value", where=where, expected=expected, found=found)


def readings_of(text: str) -> Iterator[Any]:
    """Yield what a text may stand for, the likeliest first: true, false or none, a number, the text itself."""
    if text.lower() in _CONSTANTS:
        yield _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            yield kind(text)
        except ValueError:
            continue
    yield text


def _written(hint: Any) -> list[str]:
    """Return the values of a type as they are written in a text."""
    return [text.strip('"') if text[0] == '"' else text.lower() for text in values_of(hint)]


def _attributes(docstring: str) -> dict[str, str]:
    """Return the lines of a docstring's part "Attributes" by name, each as one line."""
    _, _, part = docstring.partition("Attributes:\n")
    lines = re.findall(r"^ +(\w+): (.*(?:\n +(?!\w+: )\S.*)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in lines}
