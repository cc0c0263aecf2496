"""Every example runs, in a folder and a process of its own, and says what it found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
"""More than any example takes by far, even on a busy machine."""
SECONDS_OF_A_CLUSTER = 300
"""The same where a cluster starts first."""
RESULTS = {
    "blob_target": "loaded: ",
    "attention": "parameters of both: query, key, mask, value",
    "dask_udf": "99% of 200 digits are right",
    "detector": "2 regions, 2 nodes on the host",
    "language_model": "int4 by gptq: 149,289 bytes, perplexity ",
    "quantised_conv": "8 nodes with a pad became one npu.qconv_arithmetic, exact",
    "quantize_digits": "int8: 98% right",
    "spark_udf": "99% of 200 digits are right",
    "stop_fusion": "up to 1 layers in one",
    "while_loop": "the code generator was called 2 times",
}
NEEDS = {
    "dask_udf": ("dask.dataframe", "pyarrow"),
    "openvino_target": ("openvino",),
    "spark_udf": ("pyspark", "pyarrow"),
}
"""What an example runs beside."""
SERVERS = {"bentoml_service", "kserve_predictor"}
"""Examples that run until they are stopped; see ``test_serving.py``."""
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem not in SERVERS]


def run(path: Path, folder: Path, **variables: str) -> str:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Threads of numpy's own that wait for a processor take turns with those of other tests.
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
        timeout=SECONDS_OF_A_CLUSTER if path.stem in NEEDS else SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.long
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path):
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package, reason=f"the example needs {package}")
    if path.stem == "spark_udf" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    output = run(path, tmp_path).strip()
    assert output
    assert RESULTS.get(path.stem, "") in output


def test_barriers_without_the_folder_of_models(tmp_path: Path):
    output = run(ROOT / "examples" / "stop_fusion.py", tmp_path, TINYCOMP_MODELS=str(tmp_path))
    assert output.startswith("digits_int8")
    assert RESULTS["stop_fusion"] in output


def test_the_compiler_of_blobs_is_called_once(tmp_path: Path):
    output = run(ROOT / "examples" / "blob_target.py", tmp_path)
    assert [line.rpartition(", ")[2] for line in output.splitlines()[:3]] == [
        "1 calls of the compiler",
        "0 calls of the compiler",
        "0 calls of the compiler",
    ]
    assert "stream, region stream_0: the target refuses the blob in the saved module;" in output


@pytest.mark.long
def test_the_own_target_reads_digits_and_gives_its_reasons(tmp_path: Path):
    output = run(ROOT / "examples" / "own_target.py", tmp_path)
    share = float(output.partition("%")[0])
    assert share > 95
    assert "dsp.conv_relu: expected group=1, found 32" in output
    assert "Softmax" in output
