"""A module inside a pandas UDF of Spark.

A module can be pickled, so Spark sends it to its executors with the function. It takes an iterator of series, so that
it is unpickled once per partition and not per batch. Needs `pip install pyspark pandas pyarrow`, and Java.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import IntegerType

import tinycomp
from tinycomp.data import digits, digits_model

module = tinycomp.compile(digits_model(), threads=1)


@pandas_udf(IntegerType())
def classify(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    """Guess the digit in each row's image."""
    for images in batches:
        array = np.stack(images.to_list()).astype(np.float32).reshape(-1, 1, 8, 8)
        yield pd.Series(module(array).argmax(axis=1))


def main() -> None:
    """Classify the digits on two cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    images, labels = digits()
    rows = [(image.reshape(-1).tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    frame = spark.createDataFrame(rows, "image array<float>, digit int").repartition(4)
    found = frame.select("digit", classify("image").alias("guess")).collect()
    spark.stop()
    right = sum(row.guess == row.digit for row in found)
    print(f"{right / len(found):.0%} of {len(found)} digits are right")


if __name__ == "__main__":
    main()
