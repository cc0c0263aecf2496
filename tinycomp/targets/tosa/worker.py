"""Write TOSA files and run them in TOSA's reference model, for a process that does not have these tools itself.

Run as a script by the interpreter that has tosa-tools; it imports nothing of tinycomp. A request is a dict of arrays
as an ``.npz`` file behind its length in eight bytes, and so is the answer; ``"do"`` says what is wanted.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

Arrays = dict[str, Any]
_CAMEL = {"ARGMAX": "ArgMax", "MATMUL": "MatMul"}
_ENUMS = {"acc_type": "DType", "rounding_mode": "RoundingMode", "nan_mode": "NanPropagationMode", "mode": "ResizeMode"}
_DTYPES = {"int8": "INT8", "int16": "INT16", "int32": "INT32", "float32": "FP32", "bool": "BOOL"}


def serialize(request: Arrays) -> Arrays:
    """Return the TOSA file of a program."""
    ts = importlib.import_module("tosa_serializer")
    program = json.loads(request.pop("").tobytes())
    serializer = ts.TosaSerializer("", ts.ConstMode.EMBED, *program["version"], False)
    block = serializer.currRegion.currBasicBlock
    for name, shape, dtype in program["tensors"]:
        data = request.get(name)
        if dtype == "shape":
            block.addShape(name, shape[0], data)
            _add(ts, block, "CONST_SHAPE", [], [name], {})
        else:
            block.addTensor(name, shape, getattr(ts.DType, _DTYPES[dtype]), data)
            if data is not None:
                _add(ts, block, "CONST", [], [name], {})
    for name in program["inputs"]:
        block.addInput(name)
    for op, inputs, outputs, attributes in program["operators"]:
        _add(ts, block, op, inputs, outputs, attributes)
    for name in program["outputs"]:
        block.addOutput(name)
    return {"tosa": np.frombuffer(bytes(serializer.serialize()), np.uint8)}


def _add(ts: Any, block: Any, op: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> None:
    attribute = ts.TosaSerializerAttribute()
    name = _CAMEL.get(op) or "".join(word.capitalize() for word in op.split("_"))
    members = {k: getattr(getattr(ts, _ENUMS[k]), v) if k in _ENUMS else v for k, v in attributes.items()}
    getattr(attribute, f"{name}Attribute")(**members)
    block.addOperator(getattr(ts.Op, op), inputs, outputs, attribute)


def run(request: Arrays) -> Arrays:
    """Return the results of a TOSA file for operands, both by their places."""
    model = importlib.import_module("tosa_reference_model")
    file = request.pop("tosa").tobytes()
    operands = [request[str(place)] for place in range(len(request))]
    results, status = model.run(file, operands)
    if status != model.GraphStatus.TOSA_VALID:
        raise RuntimeError(f"the reference model answers {status.name}")
    return {str(place): array for place, array in enumerate(results)}


def _receive(stream: BinaryIO) -> Arrays | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    data = stream.read(int.from_bytes(head, "little"))
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {"" if name == "about" else name: arrays[name] for name in arrays.files}


def _send(stream: BinaryIO, answer: Arrays) -> None:
    data = io.BytesIO()
    np.savez(data, **answer)
    stream.write(len(data.getvalue()).to_bytes(8, "little") + data.getvalue())
    stream.flush()


def main() -> None:
    """Answer requests until there are no more; whatever the tools print goes to the standard error."""
    actions: dict[str, Callable[[Arrays], Arrays]] = {"serialize": serialize, "run": run}
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while (request := _receive(sys.stdin.buffer)) is not None:
            try:
                answer = actions[str(request.pop("do"))](request)
            except Exception as error:  # the answer says what happened
                answer = {"error": np.array(f"{type(error).__name__}: {error}")}
            _send(answers, answer)


if __name__ == "__main__":
    main()
