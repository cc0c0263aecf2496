"""A module as a service of BentoML, which collects requests into batches. Needs `pip install bentoml`.

bentoml serve bentoml_service:Digits --working-dir examples --port 3000
curl localhost:3000/classify -H 'content-type: application/json' -d '{"images": [[[[0, …]]]]}'
"""

from __future__ import annotations

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

import tinycomp
from tinycomp.data import digits_model

Images = Annotated[np.ndarray, DType("float32"), Shape((-1, 1, 8, 8))]


@bentoml.service(name="digits", workers=1, traffic={"timeout": 10})
class Digits:
    """Guesses digits."""

    def __init__(self) -> None:
        self.module = tinycomp.compile(digits_model())

    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=32, max_latency_ms=1000)
    def classify(self, images: Images) -> np.ndarray:
        """Return the probabilities of each digit."""
        return self.module(images)
