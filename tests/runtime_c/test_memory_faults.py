"""Every allocation and thread of the C runtime fails once, below Python: a clear error each time, nothing lost, and
everything works afterwards. The C driver ``runtime_c/tests/faults.c`` does the same below the sanitizers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, single

# Stands before the allocator of the whole process, and fails and counts what the runtime's own code asks for: its calls
# are known by where they come from.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#define EXPORT __attribute__((visibility("default")))
#define OURS is_ours((char *)__builtin_return_address(0))

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static struct { char *begin, *end; } watched[64];
static int pieces, countdown = -1, live;

static int is_ours(char *from) {
  for (int i = 0; i < pieces; i++) {
    if (from >= watched[i].begin && from < watched[i].end) {
      return 1;
    }
  }
  return 0;
}

EXPORT void watch(char *from, char *to) {
  watched[pieces].begin = from;
  watched[pieces++].end = to;
}
EXPORT void fail_after(int calls) { countdown = calls; }
EXPORT int still_live(void) { return live; }

static int fails(int ours) { return ours && countdown >= 0 && countdown-- == 0; }
static void *counted(int ours, void *memory) { live += ours && memory; return memory; }

EXPORT void *malloc(size_t size) { return fails(OURS) ? NULL : counted(OURS, __libc_malloc(size)); }
EXPORT void *calloc(size_t n, size_t size) { return fails(OURS) ? NULL : counted(OURS, __libc_calloc(n, size)); }
EXPORT void *aligned_alloc(size_t alignment, size_t size) {
  return fails(OURS) ? NULL : counted(OURS, __libc_memalign(alignment, size));
}
EXPORT void *realloc(void *old, size_t size) {
  return fails(OURS) ? NULL : counted(OURS && !old, __libc_realloc(old, size));
}
EXPORT void free(void *memory) { live -= OURS && memory; __libc_free(memory); }
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
  return fails(OURS) ? EAGAIN : real(thread, attributes, work, argument);
}
"""

SCRIPT = """
import ctypes, gc, sys
import numpy as np
from tests.runtime_c.test_execution import perceptron
from tests.runtime_c.test_memory_faults import conv
from tinycomp.errors import ExecutionError, MemoryLimitError
import tinycomp.runtime._native
from tinycomp.runtime.native.executor import NativeProgram, Pool

shim = ctypes.CDLL(None)
for line in open("/proc/self/maps"):  # a call at the end of a function of the library returns to the extension
    if "libtinycomp" in line or "_native" in line:
        shim.watch(*(ctypes.c_void_p(int(end, 16)) for end in line.split()[0].split("-")))
program, feeds = conv() if sys.argv[1] == "conv" else (perceptron(), [np.ones((64, 100), np.float32)])
wanted, found = (np.empty(program.outputs[0].shape, np.float32) for _ in range(2))
NativeProgram(program).run(feeds, [wanted])
gc.collect()
gc.freeze()  # what is there already is not looked at again and again
before = shim.still_live()
refused = {MemoryLimitError: 0, ExecutionError: 0}
while True:
    shim.fail_after(sum(refused.values()))
    try:
        runner = NativeProgram(program, Pool(3))
    except (MemoryLimitError, ExecutionError) as error:
        reason = "no memory" if isinstance(error, MemoryLimitError) else "refused to start 3 threads"
        assert reason in str(error), error
        refused[type(error)] += 1
    else:
        break
    gc.collect()  # the traceback has held what was made before the failure
    assert shim.still_live() == before, (refused, shim.still_live(), before)
shim.fail_after(0)  # a run asks for nothing, so nothing can fail in it
for _ in range(3):
    runner.run(feeds, [found])
np.testing.assert_array_equal(found, wanted)
shim.fail_after(-1)
del runner
gc.collect()
assert shim.still_live() == before
print(*refused.values())
"""


def conv():
    """A convolution, which packs its weights and takes scratch, and its inputs."""
    sizes = {"batch": 1, "height": 8, "width": 8, "channels": 8, "out_height": 8, "out_width": 8, "out_channels": 8}
    window = {"kernel_height": 3, "kernel_width": 3, "pad_top": 1, "pad_left": 1, "groups": 1, "algorithm": 0}
    window |= {"group_channels": 0, **OWN_BLOCKS}
    steps = {"stride_height": 1, "stride_width": 1, "dilation_height": 1, "dilation_width": 1}
    strides = {"x_pixel_stride": 8, "y_pixel_stride": 8, "residual_pixel_stride": 0}
    params = {**sizes, **window, **steps, **strides, **NO_ACTIVATION}
    x, w = np.ones((1, 8, 8, 8), np.float32), Weight(np.full((8, 8, 3, 3), 0.5, np.float32))
    return single("conv2d_winograd_f32", [x, w, None, None], params, ("float32", (1, 8, 8, 8)))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or not shutil.which("cc"), reason="needs glibc and a C compiler")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another library is preloaded already")
@pytest.mark.parametrize(
    ("model", "allocations"),
    [
        # The pool; programs of the unit, constants that are copied; program, inputs, outputs, what it says of itself;
        # lists of a record; constants; operands and parameters of six calls, and their table; six packed weights;
        # patches; what calls reach and a run writes; context, arena, scratch, portions, pointers.
        ("perceptron", 1 + 2 + 4 + 1 + 1 + 2 * 6 + 1 + 6 + 1 + 2 + 7),
        ("conv", 1 + 2 + 4 + 1 + 1 + 2 + 1 + 1 + 1 + 2 + 7),
    ],
)
def test_every_allocation_and_thread_fails_once(model, allocations, tmp_path):
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-o", library, source, "-ldl"], check=True)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": root}
    command = [sys.executable, "-c", SCRIPT, model]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root, check=False)
    assert result.returncode == 0, result.stderr
    threads = 2
    assert result.stdout.split() == [str(allocations), str(threads)]
