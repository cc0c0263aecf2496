"""oneDNN's C interface: what the target uses of it, and one table of what differs between 2.6 to 2.7 and 3.x.

Sources: ``dnnl.h`` and ``dnnl_types.h`` of oneDNN 2.6, 2.7, 3.0, 3.2, 3.9 and 3.13; within a major version they agree.
3.0 did away with the descriptors of operations, made memory descriptors opaque, and numbered the functions of one
element anew. :mod:`library` calls what is declared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CPU, FLOAT32, ANY_TAG, IN_ORDER, USER_SCRATCH = 1, 3, 1, 1, 1
INFERENCE, CONVOLUTION_AUTO, SOFTMAX, LOG_SOFTMAX = 96, 3, 0x30000, 0x30001
QUERY_SRC, QUERY_WEIGHTS, QUERY_DST, QUERY_SCRATCH, QUERY_IMPLEMENTATION = 129, 131, 133, 136, 8
"""Numbers of several enumerations, alike in all versions."""

SRC, SRC_1, DST, WEIGHTS, BIAS, SCRATCH, MULTIPLE_SRC = 1, 2, 17, 33, 41, 80, 1024
"""Argument numbers of ``dnnl_exec_arg_t``, alike in all versions."""

POOL = {"max": 511, "mean_with_pads": 767, "mean": 1023}
BINARY = {"Add": 131056, "Mul": 131057, "Max": 131058, "Min": 131059, "Div": 131060, "Sub": 131061}
"""Algorithm numbers of ``dnnl_alg_kind_t`` by operator, alike in all versions."""

STATUS = ("success", "out of memory", "invalid arguments", "unimplemented", "iterator ends", "runtime error")
"""Names of ``dnnl_status_t``, as far as all versions have them."""

VERSION_DECLARATIONS = """
typedef struct {
    int major; int minor; int patch; const char *hash; unsigned cpu_runtime; unsigned gpu_runtime;
} dnnl_version_t;
const dnnl_version_t *dnnl_version(void);
"""

_DECLARATIONS = """
typedef struct { int arg; void *memory; } exec_arg_t;

int omp_get_max_threads(void);

int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_stream_destroy(void *stream);

int dnnl_memory_desc_equal(const md_t *a, const md_t *b);
size_t dnnl_memory_desc_get_size(const md_t *md);
int dnnl_memory_create(void **memory, const md_t *md, void *engine, void *data);
int dnnl_memory_set_data_handle(void *memory, void *data);
int dnnl_memory_destroy(void *memory);

int dnnl_primitive_attr_create(void **attr);
int dnnl_primitive_attr_destroy(void *attr);
int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode);
int dnnl_primitive_attr_set_post_ops(void *attr, void *post_ops);
int dnnl_post_ops_create(void **post_ops);
int dnnl_post_ops_destroy(void *post_ops);

int dnnl_reorder_primitive_desc_create(
    void **pd, const md_t *from, void *from_engine, const md_t *to, void *to_engine, void *attr);
const md_t *dnnl_primitive_desc_query_md(void *pd, int what, int index);
int dnnl_primitive_desc_query(void *pd, int what, int index, void *result);
int dnnl_primitive_desc_destroy(void *pd);
int dnnl_primitive_create(void **primitive, void *pd);
int dnnl_primitive_execute(void *primitive, void *stream, int count, const exec_arg_t *args);
int dnnl_primitive_destroy(void *primitive);
"""


# A memory descriptor has 696 bytes, the largest descriptor of an operation (convolution) 5976; only the library reads
# them.
_DECLARATIONS_2 = """
typedef struct { int64_t opaque[87]; } md_t;
typedef struct { int64_t opaque[747]; } op_desc_t;

int dnnl_memory_desc_init_by_strides(md_t *md, int rank, const int64_t *dims, int dtype, const int64_t *strides);
int dnnl_memory_desc_init_by_tag(md_t *md, int rank, const int64_t *dims, int dtype, int tag);

int dnnl_post_ops_append_sum(void *post_ops, float scale);
int dnnl_post_ops_append_eltwise(void *post_ops, float scale, int kind, float alpha, float beta);

int dnnl_primitive_desc_create(void **pd, const op_desc_t *desc, void *attr, void *engine, void *hint);
int dnnl_dilated_convolution_forward_desc_init(
    op_desc_t *desc, int prop, int kind, const md_t *x, const md_t *w, const md_t *b, const md_t *y,
    const int64_t *strides, const int64_t *dilations, const int64_t *before, const int64_t *after);
int dnnl_matmul_desc_init(op_desc_t *desc, const md_t *x, const md_t *w, const md_t *b, const md_t *y);
int dnnl_pooling_v2_forward_desc_init(
    op_desc_t *desc, int prop, int kind, const md_t *x, const md_t *y, const int64_t *strides, const int64_t *kernel,
    const int64_t *dilations, const int64_t *before, const int64_t *after);
int dnnl_eltwise_forward_desc_init(op_desc_t *desc, int prop, int kind, const md_t *x, float alpha, float beta);
int dnnl_binary_desc_init(op_desc_t *desc, int kind, const md_t *a, const md_t *b, const md_t *y);
int dnnl_softmax_v2_forward_desc_init(op_desc_t *desc, int prop, int kind, const md_t *x, const md_t *y, int axis);
int dnnl_concat_primitive_desc_create(
    void **pd, const md_t *to, int count, int axis, const md_t *from, void *attr, void *engine);
"""

_DECLARATIONS_3 = """
typedef struct dnnl_memory_desc md_t;

int dnnl_memory_desc_create_with_strides(
    md_t **md, int rank, const int64_t *dims, int dtype, const int64_t *strides);
int dnnl_memory_desc_create_with_tag(md_t **md, int rank, const int64_t *dims, int dtype, int tag);
int dnnl_memory_desc_clone(md_t **md, const md_t *other);
int dnnl_memory_desc_destroy(md_t *md);

int dnnl_post_ops_append_sum(void *post_ops, float scale, int32_t zero_point, int dtype);
int dnnl_post_ops_append_eltwise(void *post_ops, int kind, float alpha, float beta);

int dnnl_convolution_forward_primitive_desc_create(
    void **pd, void *engine, int prop, int kind, const md_t *x, const md_t *w, const md_t *b, const md_t *y,
    const int64_t *strides, const int64_t *dilations, const int64_t *before, const int64_t *after, void *attr);
int dnnl_matmul_primitive_desc_create(
    void **pd, void *engine, const md_t *x, const md_t *w, const md_t *b, const md_t *y, void *attr);
int dnnl_pooling_forward_primitive_desc_create(
    void **pd, void *engine, int prop, int kind, const md_t *x, const md_t *y, const int64_t *strides,
    const int64_t *kernel, const int64_t *dilations, const int64_t *before, const int64_t *after, void *attr);
int dnnl_eltwise_forward_primitive_desc_create(
    void **pd, void *engine, int prop, int kind, const md_t *x, const md_t *y, float alpha, float beta, void *attr);
int dnnl_binary_primitive_desc_create(
    void **pd, void *engine, int kind, const md_t *a, const md_t *b, const md_t *y, void *attr);
int dnnl_softmax_forward_primitive_desc_create(
    void **pd, void *engine, int prop, int kind, const md_t *x, const md_t *y, int axis, void *attr);
int dnnl_concat_primitive_desc_create(
    void **pd, void *engine, const md_t *to, int count, int axis, const md_t **from, void *attr);
"""

_FUNCTIONS = {
    # what: (2.x, 3.x)
    "memory by strides": ("dnnl_memory_desc_init_by_strides", "dnnl_memory_desc_create_with_strides"),
    "memory by tag": ("dnnl_memory_desc_init_by_tag", "dnnl_memory_desc_create_with_tag"),
    "convolution": (
        "dnnl_dilated_convolution_forward_desc_init",
        "dnnl_convolution_forward_primitive_desc_create",
    ),
    "matmul": ("dnnl_matmul_desc_init", "dnnl_matmul_primitive_desc_create"),
    "pooling": ("dnnl_pooling_v2_forward_desc_init", "dnnl_pooling_forward_primitive_desc_create"),
    "eltwise": ("dnnl_eltwise_forward_desc_init", "dnnl_eltwise_forward_primitive_desc_create"),
    "binary": ("dnnl_binary_desc_init", "dnnl_binary_primitive_desc_create"),
    "softmax": ("dnnl_softmax_v2_forward_desc_init", "dnnl_softmax_forward_primitive_desc_create"),
}

_ELTWISE = {
    # function of one element: (2.x, 3.x)
    "relu": (31, 32),
    "tanh": (47, 33),
    "elu": (63, 34),
    "abs": (95, 36),
    "sqrt": (111, 37),
    "linear": (127, 38),
    "soft_relu": (159, 39),
    "logistic": (175, 41),
    "exp": (191, 42),
    "gelu_tanh": (207, 43),
    "swish": (223, 44),
    "log": (239, 45),
    "clip": (255, 46),
    "gelu_erf": (48, 49),
    "mish": (96, 51),
    "hardswish": (112, 52),
}


@dataclass(frozen=True)
class Interface:
    """What is called otherwise in another major version.

    Attributes:
        major: The major version.
        minors: Minor versions that have this interface.
        declarations: All that the target uses, in C.
        functions: Names of functions, by what they make or describe.
        eltwise: Numbers of the functions of one element in ``dnnl_alg_kind_t``.
    """

    major: int
    minors: range
    declarations: str
    functions: Mapping[str, str]
    eltwise: Mapping[str, int]


def _interface(column: int, major: int, minors: range, declarations: str) -> Interface:
    functions = {name: row[column] for name, row in _FUNCTIONS.items()}
    eltwise = {name: row[column] for name, row in _ELTWISE.items()}
    return Interface(major, minors, declarations + _DECLARATIONS, functions, eltwise)


INTERFACES = (_interface(0, 2, range(6, 8), _DECLARATIONS_2), _interface(1, 3, range(2, 100), _DECLARATIONS_3))
VERSIONS = "2.6, 2.7 or 3.2 to 3.x"
"""What :data:`INTERFACES` covers, for messages. 3.0 and 3.1 have this interface, too, but a less exact ``gelu_erf``."""


def interface_of(major: int, minor: int) -> Interface | None:
    """Return the interface of a version; None for one that the target does not know."""
    return next((i for i in INTERFACES if i.major == major and minor in i.minors), None)
