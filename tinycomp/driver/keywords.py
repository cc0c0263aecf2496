"""Keyword arguments of :func:`tinycomp.compile`: a bridge for deprecated ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from tinycomp.errors import TinycompWarning

_P = ParamSpec("_P")
_R = TypeVar("_R")


def taking_deprecated(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function accept the deprecated keywords."""

    @functools.wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        moved = {name: options.pop(name) for name in _DEPRECATED if name in options}
        if moved:
            target = args[1] if len(args) > 1 else options.get("target", "c")
            options["options"] = _with_moved(moved, target, options.get("options"))
        return function(*args, **options)

    return call


_DEPRECATED = ("winograd", "requantize", "tuning")
"""Options of the target ``c`` that :func:`tinycomp.compile` still takes as keywords, for one release."""


def _with_moved(moved: Mapping[str, Any], target: Any, options: Any) -> Any:
    """Return the options of the targets, with the deprecated keywords among those of the target ``c``."""
    old = ", ".join(f"{name}={value!r}" for name, value in moved.items())
    new = ", ".join(f'"{name}": {value!r}' for name, value in moved.items())
    warnings.warn(
        f'compile({old}) is deprecated: these are options of the target c; write options={{"c": {{{new}}}}}',
        TinycompWarning,
        stacklevel=3,
    )
    targets = target if isinstance(target, (list, tuple)) else (target,)
    names = [getattr(each, "name", str(each).partition(":")[0]) for each in targets]
    if "c" not in names or not isinstance(options or {}, Mapping):
        return options
    given = (options or {}).get("c", {})
    return {**(options or {}), "c": {**moved, **given} if isinstance(given, Mapping) else given}
