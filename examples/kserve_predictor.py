"""A module behind KServe's own server, as a predictor of an InferenceService. Needs `pip install kserve`.

The module has loaded before the server says that it is ready; runs are awaited, so that the event loop goes on.
`tinycomp serve digits` speaks the same protocol without KServe.

    python examples/kserve_predictor.py --model_name digits --http_port 8080
    curl localhost:8080/v2/models/digits
"""

from __future__ import annotations

import argparse
import logging
import uuid

import kserve
from kserve import InferOutput, InferRequest, InferResponse

import tinycomp
from tinycomp.data import digits_model

DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "uint8": "UINT8"}


class Predictor(kserve.Model):
    """A model of KServe around a module."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.load()

    def load(self) -> bool:
        """Load the module: here the digits, elsewhere `tinycomp.load("/mnt/models/model.tcm")`."""
        self.module = tinycomp.compile(digits_model())
        self.ready = True
        return self.ready

    async def predict(self, payload: InferRequest, headers=None, response_headers=None) -> InferResponse:
        """Run the module on the inputs of a request."""
        try:
            results = await self.module.run_async({each.name: each.as_numpy() for each in payload.inputs})
        except tinycomp.TinycompError as error:
            raise kserve.errors.InvalidInput(str(error)) from error
        outputs = []
        for name, array in results.items():
            output = InferOutput(name, list(array.shape), DATATYPES[array.dtype.name])
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        return InferResponse(response_id=payload.id or str(uuid.uuid4()), model_name=self.name, infer_outputs=outputs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[kserve.model_server.parser], conflict_handler="resolve")
    parser.add_argument("--model_name", default="digits")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    kserve.ModelServer(http_port=options.http_port, enable_grpc=options.enable_grpc).start(
        [Predictor(options.model_name)]
    )
