"""The targets of one compilation: found by name, with the options, policies and placements that the caller gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinycomp.arguments import fits
from tinycomp.errors import OptionError, TargetError, did_you_mean, shown
from tinycomp.target import Placement, Policy, Target, find_all
from tinycomp.target.options import declared
from tinycomp.target.placement import HOST, Which

AnyTarget = str | Target
ALL = "*"
"""The key of the policy for every target in a dict of policies."""


def resolve_targets(
    target: AnyTarget | Sequence[AnyTarget], options: Mapping[str, Any] | None = None
) -> tuple[Target, ...]:
    """Return targets in priority order from names and Target objects.

    Both arguments are those of :func:`tinycomp.compile`.

    Raises:
        TargetError: If a name is unknown, two targets share one, a target cannot work on this machine, or ``"host"``
            is one of several.
        OptionError: If options are given for another target, or a target does not have them.
    """
    wanted = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
    if any(isinstance(each, str) and each == HOST for each in wanted) and len(wanted) > 1:
        raise TargetError(
            f'"{HOST}" means no target at all', expected=f'"{HOST}" alone, or targets without it',
            found=", ".join(map(str, wanted)),
            hint="Leave it out: nodes that no target takes run on the host anyway.",
        )  # fmt: skip
    targets = find_all(t for t in wanted if not (isinstance(t, str) and t == HOST))
    for each in targets:
        if not isinstance(each, Target):
            raise TargetError("not a target", expected="a name or a tinycomp.Target", found=shown(each))
    names = [t.name for t in targets]
    if len(set(names)) != len(names):
        raise TargetError("two targets share a name", found=", ".join(names), hint="List every target once.")
    for each in targets:
        each.require()
    return tuple(targets if options is None else _with_options(targets, options))


def _with_options(targets: Sequence[Target], options: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the targets with the options given under their names."""
    names = [t.name for t in targets]
    if not isinstance(options, Mapping):
        raise OptionError(
            "options are given by target", where="options", expected='a dict such as {"c": {"winograd": False}}',
            found=shown(options),
        )  # fmt: skip
    for name in options:
        if name not in names:
            raise OptionError(
                f'there are options for "{name}", which is not a target of this compilation', where="options",
                expected=f"options for {', '.join(names) or 'none: everything runs on the host'}",
                hint=did_you_mean(str(name), names),
            )  # fmt: skip
    for target in targets:
        values = options.get(target.name, {})
        if target.options is not None and isinstance(values, type(target.options)):
            values = vars(values)
        if not isinstance(values, Mapping):
            raise OptionError(
                "not a dict of options", where=f"target {target.name}", expected="a dict of options by name",
                found=shown(values),
            )  # fmt: skip
        yield target.with_options(**values) if values else target


def in_precision(targets: Sequence[Target], precision: str) -> tuple[Target, ...]:
    """Return targets with their option ``precision`` set; targets without such an option or value stay as they are."""
    options = [declared(t.options).get("precision") for t in targets]
    return tuple(
        target if option is None or not fits(precision, option.hint) else target.with_options(precision=precision)
        for target, option in zip(targets, options, strict=True)
    )


def steered(
    targets: Sequence[Target], policy: Policy | Mapping[str, Policy] | None, place: Mapping[Which, str] | None
) -> tuple[tuple[Target, ...], Policy | None]:
    """Return targets with the policies and the placement of one compilation, and the policy for all of them.

    Raises:
        OptionError: If a policy or place names another target, or has the wrong type.
    """
    names = [t.name for t in targets]
    common, own = (policy.get(ALL), policy) if isinstance(policy, Mapping) else (policy, {})
    for name, each in own.items():
        if name not in (*names, ALL):
            raise OptionError(
                f'there is a policy for "{name}", which is not a target of this compilation', where="policy",
                expected=f"policies for {', '.join((*names, ALL))}", hint=did_you_mean(str(name), names),
            )  # fmt: skip
        if not isinstance(each, Policy):
            raise OptionError("not a policy", where=f"policy, {name}", expected="a Policy", found=shown(each))
    if common is not None and not isinstance(common, Policy):
        raise OptionError(
            "not a policy", where="policy", expected="a Policy, or a dict of policies by target", found=shown(common)
        )
    placement = Placement() if place is None else Placement.read(place, names)
    return tuple(t.under(own.get(t.name), placement) for t in targets) if own or place else tuple(targets), common
