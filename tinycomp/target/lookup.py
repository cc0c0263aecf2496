"""Finding targets by name: the built-in ones, and those of installed packages.

A package offers a target with an entry point in its own metadata::

    [project.entry-points."tinycomp.targets"]
    npu = "acme_npu:target"

What the entry point names is a target, or a function without arguments that returns one, which is called when the
target is asked for.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable
from types import MappingProxyType

from tinycomp.errors import TargetError, did_you_mean
from tinycomp.target.options import read_options
from tinycomp.target.target import Target

GROUP = "tinycomp.targets"
BUILT_IN = MappingProxyType(
    {
        "c": "tinycomp.targets.c:TARGET",
        "ethos_u": "tinycomp.targets.ethos_u:TARGET",
        "npu_sim": "tinycomp.targets.npu_sim:TARGET",
        "tosa": "tinycomp.targets.tosa:TARGET",
    }
)
"""Where the targets stand that come with tinycomp; like entry points, they are loaded when asked for."""

SELF_CONTAINED = frozenset({"c", "npu_sim"})
"""Those of them whose code generators start no other programs: what they make is decided by tinycomp's own files."""


def names() -> list[str]:
    """Return the names of all targets that can be found, built-in ones first."""
    return [*BUILT_IN, *sorted(set(_installed()) - BUILT_IN.keys())]


def find(name: Target | str) -> Target:
    """Return the target called ``name``, or ``name`` if it is a target; the built-in ones cannot be replaced.

    A name such as ``"c:winograd=never,requantize=fixed_point"`` stands for the target with these options.

    Raises:
        TargetError: If there is none, or its package does not load.
        OptionError: If it has no such options, or they do not take these values.
    """
    if not isinstance(name, str):
        return name
    plain, colon, text = name.partition(":")
    target = _find(plain)
    return target.with_options(**read_options(target.options, text, f"target {plain}")) if colon else target


def module_of(name: str) -> str:
    """Return the name of the module that a target of this name comes from; empty if there is none."""
    value = BUILT_IN.get(name) or _installed().get(name, "")
    return value.partition(":")[0].strip()


def _find(name: str) -> Target:
    if name in BUILT_IN:  # first of all, for looking through all packages takes longer than compiling a small model
        return _load(name, BUILT_IN[name])
    installed = _installed()
    if name not in installed:
        hint = did_you_mean(name, names()) or f'A package offers a target with the entry-point group "{GROUP}".'
        raise TargetError(f'there is no target "{name}"', expected=f"one of {', '.join(names())}", hint=hint)
    return _load(name, installed[name])


def find_all(targets: Iterable[Target | str]) -> list[Target]:
    """Return targets of which some are given by their names.

    Raises:
        TargetError: See :func:`find`.
    """
    return [find(target) for target in targets]


def _installed() -> dict[str, str]:
    """Return where the targets of installed packages stand, by name: ``"module:attribute"``."""
    from importlib.metadata import entry_points  # not before: it takes longer than to compile a small model

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def _load(name: str, value: str) -> Target:
    module, _, attribute = value.partition("[")[0].partition(":")
    try:
        target = operator.attrgetter(attribute.strip() or "target")(importlib.import_module(module.strip()))
    except (ImportError, AttributeError) as error:
        raise TargetError(
            f'the target "{name}" does not load: {error}', where=value, hint="Install its package again."
        ) from error
    if not isinstance(target, Target) and callable(target):
        try:
            target = target()
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(
                f'the target "{name}" cannot be made: {type(error).__name__}: {error}', where=value
            ) from error
    if not isinstance(target, Target):
        raise TargetError(
            f'the entry point "{name}" is not a target',
            where=value,
            expected="a tinycomp.Target, or a function that returns one",
            found=type(target).__name__,
        )
    return target
