"""Regions that run on a device of their target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.lazy import cached_property
from tinycomp.memory.locks import Lock
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.device.instances import DeviceSet, Instance
from tinycomp.runtime.device.interface import DeviceProgram, FaultPolicy, told
from tinycomp.runtime.plan import Run
from tinycomp.runtime.regions import PerShape
from tinycomp.runtime.spec import TensorSpec
from tinycomp.symbolic import Expression, evaluate, has_elements, size

Shape = tuple[int, ...]


class DeviceRegion:
    """A region on the devices of its target: a program, or one for each set of sizes that comes.

    Args:
        made: What the code generator returned, or what builds it for given shapes of operands.
        symbol: Name of the region.
        sources: Source names of its nodes.
        inputs: What it takes.
        outputs: What it gives.
        devices: Where it may run.
        faults: What happens when it fails; None for what its program says.
        reference: Makes what computes it on the numpy kernels.
        alone: Makes what computes it with operands and results on the host.
        blob: What the program was loaded from, for the saved module.
    """

    def __init__(
        self,
        made: DeviceProgram | PerShape,
        symbol: str,
        sources: Sequence[str],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        devices: DeviceSet,
        faults: FaultPolicy | None,
        reference: Callable[[], Run],
        alone: Callable[[DeviceRegion], Run],
        blob: Blob | None = None,
    ) -> None:
        self._made = made
        self.symbol = symbol
        self.sources = tuple(sources)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.devices = devices
        self.blob = blob
        self._faults = faults
        self._reference = reference
        self._alone = alone
        self._loaded: dict[int, tuple[Instance, Any]] = {}
        self._lock = Lock()

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Run the region by itself, with operands and results on the host."""
        return self.alone(operands)

    @cached_property
    def alone(self) -> Run:
        """Return the step that runs the region by itself."""
        return self._alone(self)

    @cached_property
    def reference(self) -> Run:
        """Return the step that computes the region on the numpy kernels."""
        with self._lock:
            return self._reference()

    @property
    def per_shape(self) -> PerShape | None:
        """Return what builds the region for every set of sizes; None if one program serves all."""
        return self._made if isinstance(self._made, PerShape) else None

    @property
    def faults(self) -> FaultPolicy:
        """Return what happens when the region fails."""
        if self._faults is not None or isinstance(self._made, PerShape):
            return self._faults or FaultPolicy()
        return self._made.faults

    def at(self, shapes: tuple[Shape, ...]) -> Run:
        """Return the region for operands of these shapes: on a device, unless its code generator wanted otherwise."""
        return self if self.per_shape is None else self.per_shape.at(shapes)

    def loaded(self, instance: Instance) -> Any:
        """Return what the device made of the program, which it is asked for once.

        Raises:
            TargetError: If it fails.
        """
        assert isinstance(self._made, DeviceProgram), self.symbol
        with self._lock:
            known, loaded = self._loaded.get(instance.number, (None, None))
            if known is None:
                try:
                    loaded = instance.device.load(self._made)
                except TargetError:
                    raise
                except Exception as error:
                    raise TargetError(
                        f"the device does not load the program: {told(error)}",
                        where=f"{instance.device.name}, region {self.symbol}",
                    ) from error
                self._loaded[instance.number] = instance, loaded
            return loaded


def sizes_of(specs: Sequence[TensorSpec], arrays: Sequence[Any]) -> dict[str, int]:
    """Return the number of every size that has a name, as the shapes of arrays (or buffers) show it."""
    return {name: int(np.shape(arrays[index])[axis]) for name, (index, axis) in places_of(specs).items()}


def places_of(specs: Sequence[TensorSpec]) -> dict[str, tuple[int, int]]:
    """Return where sizes that have a name are seen: the index of an array, and an axis."""
    places: dict[str, tuple[int, int]] = {}
    for index, spec in enumerate(specs):
        for axis, dim in enumerate(spec.shape or ()):
            name = None if dim is None else getattr(size(dim), "name", None)
            if name is not None:
                places.setdefault(name, (index, axis))
    return places


def shape_of(spec: TensorSpec, sizes: Mapping[str, int]) -> Shape | None:
    """Return the shape of a value for sizes of a run, or None if it does not follow from them."""
    if spec.shape is None or None in spec.shape:
        return None
    try:
        return tuple([evaluate(size(dim), sizes) for dim in spec.shape if dim is not None])
    except (KeyError, ZeroDivisionError):
        return None


def follows_from(spec: TensorSpec, names: Sequence[str] | Mapping[str, Any]) -> bool:
    """Tell whether a value has a numeric dtype, and sizes that follow from those with these names."""
    if spec.numpy_dtype is None or spec.numpy_dtype.kind == "O" or spec.shape is None or None in spec.shape:
        return False
    sizes = [size(dim) for dim in spec.shape if dim is not None]
    return not has_elements(*sizes) and all(x.symbols <= {*names} for x in sizes if isinstance(x, Expression))
