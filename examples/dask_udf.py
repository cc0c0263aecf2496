"""A module inside a function that Dask applies to the partitions of a data frame.

A module can be pickled, so Dask sends it to its workers like any other argument; on a cluster, `client.scatter(module,
broadcast=True)` sends it once. Needs `pip install "dask[dataframe]"`.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import tinycomp
from tinycomp.data import digits, digits_model


def classify(frame: pd.DataFrame, module: tinycomp.Module) -> pd.DataFrame:
    """Guess the digit in each row's image."""
    images = np.stack(frame["image"].to_list()).astype(np.float32).reshape(-1, 1, 8, 8)
    return frame[["digit"]].assign(guess=module(images).argmax(axis=1))


def main() -> None:
    """Classify the digits in two processes."""
    images, labels = digits()
    frame = pd.DataFrame({"image": list(images.reshape(-1, 64)), "digit": labels.astype(np.int64)})
    module = tinycomp.compile(digits_model(), threads=1)
    with dask.config.set({"dataframe.convert-string": False}):  # would make texts of the images
        partitions = dd.from_pandas(frame, npartitions=4)
        guesses = partitions.map_partitions(classify, module, meta={"digit": "int64", "guess": "int64"})
        found = guesses.compute(scheduler="processes", num_workers=2)
    print(f"{(found.guess == found.digit).mean():.0%} of {len(found)} digits are right")


if __name__ == "__main__":
    main()
