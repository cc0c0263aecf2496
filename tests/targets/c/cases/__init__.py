"""The table of operators under test: what each takes, in the shapes, dtypes, attributes and versions that matter."""

from __future__ import annotations

from tests.targets.c.cases import (
    attention,
    conversion,
    elementwise,
    images,
    indexing,
    movement,
    products,
    quantized,
    recurrent,
    reductions,
)
from tests.targets.c.harness import Case

ALL: list[Case] = [
    *elementwise.unary(),
    *elementwise.binary(),
    *elementwise.dtypes(),
    *products.products(),
    *attention.attentions(),
    *quantized.integer_operators(),
    *recurrent.recurrents(),
    *images.convolutions(),
    *images.pools(),
    *reductions.normalisations(),
    *reductions.reductions(),
    *movement.movement(),
    *indexing.indexing(),
    *conversion.gathers(),
    *conversion.quantisations(),
    *conversion.casts(),
    *conversion.bit_casts(),
    *conversion.resizes(),
    *conversion.transposed_convolutions(),
]
