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
from tinycomp.export_c import to_c
from tinycomp.export_c.ethos_u import driver_call, source_of
from tinycomp.runtime.blob import Blob

STREAM = b"COP1" + bytes(range(28))
WEIGHTS = np.arange(50, dtype=np.uint8)
DRIVER = """
#pragma once
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


def test_a_part_of_a_project_has_its_memory_in_that_of_the_run(tmp_path: Path):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    part = source_of(blob(), "region")
    assert (part.scratch_bytes, part.libraries) == (96 + 32, ("ethosu_core_driver",))
    run = STUB[STUB.index("int main") : STUB.index("arena[REGION_ARENA_BYTES]")] + "scratch[128];\n"
    run += STUB[STUB.index("  unsigned char operand") :]
    run = run.replace("region_run((", "region((").replace("{result}, arena, fast)", "{result}, NULL, scratch)")
    stub = STUB[: STUB.index("int main")].replace('#include "region.h"\n', "")
    for name, text in {"ethosu_driver.h": DRIVER, "test.c": stub + part.text + run}.items():
        (tmp_path / name).write_text(text)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", "-fsanitize=address,undefined"]
    subprocess.run([compiler, *flags, "test.c", "-o", "test"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "test"], check=True, capture_output=True, text=True)
    assert done.stdout == "0 11 13 15 17 19 0\n"


PLAYER = """
#include <stdint.h>
#include <string.h>
#include "ethosu_driver.h"
static struct ethosu_driver only;
struct ethosu_driver *ethosu_reserve_driver(void) { return &only; }
void ethosu_release_driver(struct ethosu_driver *driver) { (void)driver; }
static const signed char operand[] = {OPERAND}, result[] = {RESULT};

/* Gives the results that are known if it is given the operand that belongs to them. */
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *data, const int size, uint64_t *const base,
                     const size_t *base_size, const int count, void *argument) {
  unsigned char *arena = (unsigned char *)(uintptr_t)base[ARENA];
  if (memcmp(data, "COP1", 4) || size != STREAM || count <= ARENA || base_size[ARENA] < IN + sizeof(operand) ||
      (uintptr_t)arena % 16 || memcmp(arena + IN, operand, sizeof(operand)) || driver != &only || argument) {
    return -1;
  }
  memcpy(arena + OUT, result, sizeof(result));
  return 0;
}
"""


@needs_vela
def test_a_project_whose_layers_run_on_the_device(tmp_path: Path):
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler")
    targets = ["ethos_u:accelerator=ethos-u55-128", "c:requantize=fixed_point"]
    module = tinycomp.compile(digits_model(quantized=True), targets, shapes={"image": (1, 1, 8, 8)}, threads=1)
    feed = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype(np.float32)
    slots = [*module.plan.slots]
    slots[module.plan.input_slots[0]] = feed
    for step in module.plan.steps:
        operands = [slots[slot] for slot in step.reads]
        results = step.run(operands)
        for slot, result in zip(step.writes, results, strict=True):
            slots[slot] = result
        if step.tier == "ethos_u":
            known = {"OPERAND": operands[0], "RESULT": results[0]}
    (made,) = module.blobs.values()
    places = {"IN": "input_offset", "OUT": "output_offset", "ARENA": "scratch_region"}
    values = {name: ",".join(map(str, np.asarray(data).reshape(-1))) for name, data in known.items()}
    values |= {name: str(int(made.arrays[field].reshape(-1)[0])) for name, field in places.items()}
    project = to_c(module, name="digits", feeds=[feed])
    project.write(tmp_path)
    (tmp_path / "ethosu_driver.h").write_text(DRIVER)
    (tmp_path / "driver.c").write_text(PLAYER)
    defined = [f"-D{name}={value}" for name, value in {**values, "STREAM": str(len(made.data))}.items()]
    subprocess.run(["gcc", "-I.", *defined, "-c", "driver.c"], cwd=tmp_path, check=True)
    flags = ["CFLAGS=-O1 -g -Werror -I. -fsanitize=address,undefined", "LDLIBS=driver.o -lm"]
    built = subprocess.run(["make", "-s", "check", *flags], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "0 of 10 results differ" in built.stdout
    assert "ethosu_core_driver" in project.files["CMakeLists.txt"]


def test_other_blobs_and_names_are_refused():
    with pytest.raises(UnsupportedError, match="ethos_u"):
        driver_call(blob("npu"), "region")
    with pytest.raises(UnsupportedError, match="an identifier in lower case"):
        driver_call(blob(), "A region")
