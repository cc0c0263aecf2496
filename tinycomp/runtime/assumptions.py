"""Modules that were compiled for what a model says beside its operators: defaults of inputs, and declared sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tinycomp.errors import (
    DeclaredShapeError,
    DeviceFault,
    ExecutionError,
    FeedError,
    TimeLimitError,
    TinycompError,
    TinycompWarning,
)
from tinycomp.runtime.module import Module, ModuleParts, as_arguments
from tinycomp.runtime.spec import TensorSpec, given_by_name

if TYPE_CHECKING:
    from tinycomp.runtime.binding import Binding
    from tinycomp.runtime.profile import Profile

_T = TypeVar("_T")


def module_of(parts: ModuleParts) -> Module:
    """Return the module that is made of ``parts``."""
    return Module(parts) if parts.general is None else AssumingModule(parts)


class AssumingModule(Module):
    """A module with inputs that may be left out as constants, which relies on sizes that only the model declares.

    Who gives other values for such inputs gets the results of another module, in which they are values of the run, and
    which relies on nothing. The same happens once a run has shown that a declaration is wrong. That module is made when
    it is first needed, and may be slower.
    """

    _made: Module | None = None
    _is_refuted = False

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return names, dtypes and shapes of the inputs, in the model's order."""
        return self._parts.interface

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Return the values of the inputs that may be left out."""
        has_defaults = len(self._parts.interface) > len(self._parts.inputs)
        return self._parts.defaults or (self.general.defaults if has_defaults else {})

    @property
    def general(self) -> Module:
        """Return the module that assumes nothing of what the model says beside its operators."""
        with self._lock:
            if self._made is None:
                assert self._parts.general is not None
                self._made = self._parts.general()
            return self._made

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the model on arrays in input order, or by name; see :class:`Module`."""
        count = len(self._parts.inputs)
        if not named and len(args) == count and self.inputs[:count] == self._parts.inputs:
            return self._try(lambda: super(AssumingModule, self).__call__(*args), lambda: self.general(*args))
        results = tuple(self.run(given_by_name(self.inputs, args, named)).values())
        return results[0] if self._single else results

    def run(
        self, feeds: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the model on arrays by input name; see :class:`Module`."""
        run, given = super().run, feeds
        if isinstance(feeds, Mapping) and not self._input_set.issuperset(feeds):
            chosen, given = self._chosen((), feeds)
            if chosen is not self:
                return chosen.run(given, outputs=outputs, timeout=timeout)
        return self._try(
            lambda: run(given, outputs=outputs, timeout=timeout),
            lambda: self.general.run(given, outputs=outputs, timeout=timeout),
        )

    def bind(self, inputs: Any, outputs: Any = None) -> Binding:
        """Fix the arrays that the model reads and writes; see :class:`Module`."""
        chosen, given = self._chosen(*as_arguments(inputs))
        return super().bind(given, outputs) if chosen is self else chosen.bind(given, outputs)

    def profile(self, feeds: Mapping[str, Any] | Sequence[Any] | Any, runs: int = 20) -> Profile:
        """Time every step; see :class:`Module`."""
        chosen, given = self._chosen(*as_arguments(feeds))
        profile = super().profile
        return self._try(lambda: profile(given, runs), lambda: self.general.profile(given, runs), chosen is not self)

    def close(self) -> None:
        """Wait for the runs in progress, and close the devices that the module has opened."""
        super().close()
        if self._made is not None:
            self._made.close()

    def _try(self, run: Callable[[], _T], instead: Callable[[], _T], is_refuted: bool = False) -> _T:
        """Return what a run of this module gives, or of the general one if a declaration is wrong."""
        if is_refuted or self._is_refuted:
            return instead()
        try:
            return run()
        except DeclaredShapeError as error:
            self._refute(error)
        except (ExecutionError, FeedError) as error:
            if isinstance(error, (DeviceFault, TimeLimitError)) or error.where.startswith("input"):
                raise
            try:
                results = instead()
            except TinycompError:  # it was not for a declaration
                raise error from None
            self._refute(error)
            return results
        return instead()

    def _refute(self, error: TinycompError) -> None:
        self._is_refuted = True
        warnings.warn(f"{error} The declaration is ignored from now on.", TinycompWarning, stacklevel=5)

    def _chosen(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[Module, dict[str, Any]]:
        """Return the module for these inputs, and by name those that it needs."""
        given = given_by_name(self.inputs, args, named)
        others = {name for name in given if name not in self._input_set and given[name] is not self.defaults[name]}
        if others or self._is_refuted:
            return self.general, given
        return self, {name: value for name, value in given.items() if name in self._input_set}
