"""Modules with inputs that may be left out: their values are constants, until somebody gives others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.runtime.module import Module, ModuleParts, as_arguments
from tinycomp.runtime.spec import TensorSpec, given_by_name

if TYPE_CHECKING:
    from tinycomp.runtime.binding import Binding
    from tinycomp.runtime.profile import Profile


def module_of(parts: ModuleParts) -> Module:
    """Return the module that is made of ``parts``."""
    return Module(parts) if parts.general is None else ModuleWithDefaults(parts)


class ModuleWithDefaults(Module):
    """A module that was compiled for the values that some of its inputs have if they are left out.

    Who gives other values for them gets the results of another module, in which all of these inputs are values of the
    run: it is made when it is first needed, and may be slower.
    """

    _made: Module | None = None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return names, dtypes and shapes of the inputs, in the model's order."""
        return self._parts.interface

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Return the values of the inputs that may be left out."""
        return self._parts.defaults or self.general.defaults

    @property
    def general(self) -> Module:
        """Return the module that takes other values for the inputs that may be left out."""
        with self._lock:
            if self._made is None:
                assert self._parts.general is not None
                self._made = self._parts.general()
            return self._made

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model on arrays in input order, or by name; see :class:`Module`."""
        count = len(self._parts.inputs)
        if not named and len(args) == count and self.inputs[:count] == self._parts.inputs:
            return super().__call__(*args)
        results = tuple(self.run(given_by_name(self.inputs, args, named)).values())
        return results[0] if self._single else results

    def run(
        self, feeds: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the model on arrays by input name; see :class:`Module`."""
        if not isinstance(feeds, Mapping) or self._input_set.issuperset(feeds):
            return super().run(feeds, outputs=outputs, timeout=timeout)
        chosen, given = self._chosen((), feeds)
        run = super().run if chosen is self else chosen.run
        return run(given, outputs=outputs, timeout=timeout)

    def bind(self, inputs: Any, outputs: Any = None) -> Binding:
        """Fix the arrays that the model reads and writes; see :class:`Module`."""
        chosen, given = self._chosen(*as_arguments(inputs))
        return super().bind(given, outputs) if chosen is self else chosen.bind(given, outputs)

    def profile(self, feeds: Mapping[str, Any] | Sequence[Any] | Any, runs: int = 20) -> Profile:
        """Time every step; see :class:`Module`."""
        chosen, given = self._chosen(*as_arguments(feeds))
        return super().profile(given, runs) if chosen is self else chosen.profile(given, runs)

    def close(self) -> None:
        """Wait for the runs in progress, and close the devices that the module has opened."""
        super().close()
        if self._made is not None:
            self._made.close()

    def _chosen(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Module, dict[str, Any]]:
        """Return the module for these inputs, and by name those that it needs."""
        given = given_by_name(self.inputs, args, named)
        others = {name for name in given if name not in self._input_set and given[name] is not self.defaults[name]}
        if others:
            return self.general, given
        return self, {name: value for name, value in given.items() if name in self._input_set}
