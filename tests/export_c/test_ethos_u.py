"""The call of Ethos-U's driver as C, built against a driver that does nothing but look at what it is given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.targets.tosa_tools import needs_vela
from tinycomp.data import digits_model
from tinycomp.errors import UnsupportedError
from tinycomp.export_c.ethos_u import driver_call
from tinycomp.runtime.blob import Blob

STREAM = b"COP1" + bytes(range(28))
WEIGHTS = np.arange(50, dtype=np.uint8)
DRIVER = """
#include <stddef.h>
#include <stdint.h>
struct ethosu_driver { int reserved; };
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *driver);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *data, const int size, uint64_t *const base,
                     const size_t *base_size, const int count, void *argument);
"""
STUB = """
#include "ethosu_driver.h"
#include "region.h"
#include <stdio.h>
#include <string.h>

static struct ethosu_driver only;
struct ethosu_driver *ethosu_reserve_driver(void) { only.reserved++; return &only; }
void ethosu_release_driver(struct ethosu_driver *driver) { driver->reserved--; }

/* Adds the first weights to the operand, as a stream might. */
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *data, const int size, uint64_t *const base,
                     const size_t *base_size, const int count, void *argument) {
  if (driver->reserved != 1 || size != 32 || memcmp(data, "COP1", 4) || (uintptr_t)data % 16 || count != 3 ||
      argument || base_size[0] != 50 || base_size[1] != 96 || base_size[2] != 32 || base[0] % 16) {
    return -1;
  }
  const unsigned char *weights = (const unsigned char *)(uintptr_t)base[0];
  unsigned char *arena = (unsigned char *)(uintptr_t)base[1];
  for (int i = 0; i < 5; i++) {
    arena[64 + i] = (unsigned char)(arena[16 + i] + weights[10 + i]);
  }
  return arena[16] == 255 ? 7 : 0;
}

int main(int argc, char **argv) {
  static _Alignas(16) unsigned char arena[REGION_ARENA_BYTES], fast[REGION_FAST_BYTES];
  unsigned char operand[5] = {1, 2, 3, 4, 5}, result[5] = {0};
  (void)argv;
  operand[0] = argc > 1 ? 255 : 1;
  const int failed = region_run((const void *const[]){operand}, (void *const[]){result}, arena, fast);
  printf("%d %d %d %d %d %d %d\\n", failed, result[0], result[1], result[2], result[3], result[4], only.reserved);
  return 0;
}
"""


def blob(target: str = "ethos_u") -> Blob:
    numbers = {
        "weight_region": 0, "scratch_region": 1, "scratch_fast_region": 2, "scratch_size": 96, "scratch_fast_size": 32,
        "input_region": 1, "input_offset": 16, "input_bytes": 5, "output_region": 1, "output_offset": 64,
        "output_bytes": 5,
    }  # fmt: skip
    arrays = {name: np.array([number]) for name, number in numbers.items()}
    return Blob(STREAM, arrays={"weights": WEIGHTS, **arrays}, target=target)


def test_the_driver_is_given_stream_weights_and_memory(tmp_path: Path):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    files = {"ethosu_driver.h": DRIVER, "test.c": STUB, **driver_call(blob(), "region")}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I.",
        '-DREGION_STREAM_ATTRIBUTES=__attribute__((section("npu")))',
    ]
    subprocess.run([compiler, *flags, "region.c", "test.c", "-o", "test"], cwd=tmp_path, check=True)
    ran, refused = (
        subprocess.run([tmp_path / "test", *more], check=True, capture_output=True, text=True).stdout
        for more in ([], ["fail"])
    )
    assert ran == "0 11 13 15 17 19 0\n"
    assert refused == "7 0 0 0 0 0 0\n"


@needs_vela
def test_the_stream_of_a_model_compiles(tmp_path: Path):
    module = tinycomp.compile(digits_model(quantized=True), ["ethos_u", "c"], shapes={"image": (1, 1, 8, 8)})
    (made,) = module.blobs.values()
    for name, text in {"ethosu_driver.h": DRIVER, **driver_call(made, "digits")}.items():
        (tmp_path / name).write_text(text)
    built = [shutil.which("gcc") or "cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", "-c", "digits.c"]
    subprocess.run(built, cwd=tmp_path, check=True)
    assert made.arrays["input_bytes"].tolist() == [64]
    assert made.arrays["output_bytes"].tolist() == [10]


def test_other_blobs_and_names_are_refused():
    with pytest.raises(UnsupportedError, match="ethos_u"):
        driver_call(blob("npu"), "region")
    with pytest.raises(UnsupportedError, match="an identifier in lower case"):
        driver_call(blob(), "A region")
