"""Inputs and outputs of modules that lie on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import FeedError
from tinycomp.runtime.binding import Binding, check_bindable, copied_into
from tinycomp.runtime.device.interface import DeviceBuffer
from tinycomp.runtime.device.plan import DevicePlan
from tinycomp.runtime.plan import Plan
from tinycomp.runtime.spec import TensorSpec, check_feed, misfit


def check_device_feed(spec: TensorSpec, value: Any) -> Any:
    """Return what :func:`check_feed` returns, or a buffer on a device as it is.

    Raises:
        FeedError: If the value does not fit.
    """
    return _fitting(spec, value, "input") if isinstance(value, DeviceBuffer) else check_feed(spec, value)


def buffers_in(specs: Sequence[TensorSpec], targets: Sequence[Any]) -> dict[int, DeviceBuffer]:
    """Return the buffers on devices among what is given for results, by index.

    Raises:
        FeedError: If one cannot hold its result.
    """
    pairs = enumerate(zip(specs, targets, strict=True))
    return {i: _fitting(spec, target, "output") for i, (spec, target) in pairs if isinstance(target, DeviceBuffer)}


def _fitting(spec: TensorSpec, buffer: DeviceBuffer, kind: str) -> DeviceBuffer:
    if buffer.dtype != spec.numpy_dtype or not spec.admits(buffer.shape):
        raise misfit(spec, "does not fit", f"{buffer.dtype.name} with shape {buffer.shape}", kind=kind)
    return buffer


def run_into(plan: Plan, feeds: Sequence[Any], outputs: Mapping[int, DeviceBuffer]) -> list[Any]:
    """Run a plan with regions on devices, with buffers for results by index of the output.

    Raises:
        FeedError: If a buffer for a result shares memory with an input or another one.
    """
    assert isinstance(plan, DevicePlan), plan
    _check_apart(plan, feeds, [outputs.get(index) for index in range(len(plan.outputs))])
    return plan.run(feeds, outputs)


def bind_devices(
    plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any] | None, check_sizes: Callable[[Sequence[Any]], None]
) -> Binding:
    """Bind a plan to arrays and buffers, as :func:`tinycomp.runtime.binding.bind_plan` does.

    Args:
        plan: A plan with regions on devices.
        inputs: One array or buffer per input.
        outputs: Likewise for the outputs, or None to allocate arrays.
        check_sizes: Refuses inputs whose sizes disagree.

    Raises:
        FeedError: If one does not fit, or an output shares memory with another array or buffer.
    """
    assert isinstance(plan, DevicePlan), plan
    for spec, value in zip(plan.inputs, inputs, strict=True):
        _check(spec, value, "input")
    check_sizes(inputs)
    results = plan.run(inputs) if outputs is None else list(outputs)
    if len(results) != len(plan.outputs):
        raise FeedError("wrong number of outputs", expected=str(len(plan.outputs)), found=str(len(results)))
    for spec, value in zip(plan.outputs, results, strict=True):
        _check(spec, value, "output")
    _check_apart(plan, inputs, results)
    buffers = buffers_in(plan.outputs, results)
    names = [spec.name for spec in plan.outputs]
    arrays = {name: each for i, (name, each) in enumerate(zip(names, results, strict=True)) if i not in buffers}

    def run() -> None:
        copied_into(plan.outputs, plan.run(inputs, buffers), arrays)

    return Binding(run, inputs, results)


def _check(spec: TensorSpec, value: Any, kind: str) -> None:
    if isinstance(value, DeviceBuffer):
        _fitting(spec, value, kind)
    else:
        check_bindable(spec, value, kind)


def _check_apart(plan: DevicePlan, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    specs = (*plan.inputs, *plan.outputs)
    values = (*inputs, *outputs)
    for index in range(len(inputs), len(values)):
        for other in range(index):
            if _overlap(values[index], values[other]):
                raise FeedError(
                    "shares its memory with another one", where=f'output "{specs[index].name}"',
                    expected="memory of its own", found=f'memory of "{specs[other].name}"',
                    hint="Bind another array or buffer, or let bind() allocate the outputs.",
                )  # fmt: skip


def _overlap(a: Any, b: Any) -> bool:
    if isinstance(a, DeviceBuffer) and isinstance(b, DeviceBuffer):
        apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        return a.device is b.device and a.handle is b.handle and not apart
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and bool(np.may_share_memory(a, b))
