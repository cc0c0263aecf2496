"""Making oneDNN primitives: one method per kind, from shapes and layouts to something that can be executed.

Wherever a primitive may choose a memory order, it is left to it; what it chose stands in :class:`Primitive`. Scratch
memory is the caller's, because the library's own belongs to the thread that created the primitive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinycomp.ops.spatial import Window
from tinycomp.targets.dnnl.eltwise import Eltwise
from tinycomp.targets.dnnl.library import Layout, Library

SRC, SRC_1, DST, WEIGHTS, BIAS, SCRATCH, MULTIPLE_SRC = 1, 2, 17, 33, 41, 80, 1024
"""Argument numbers of ``dnnl_exec_arg_t``."""

POOL = {"max": 511, "mean_with_pads": 767, "mean": 1023}
BINARY = {"Add": 131056, "Mul": 131057, "Max": 131058, "Min": 131059, "Div": 131060, "Sub": 131061}
"""Algorithm numbers of ``dnnl_alg_kind_t`` by operator."""

_INFERENCE, _CONVOLUTION_AUTO, _USER_SCRATCH = 96, 3, 1
_QUERY_SRC, _QUERY_WEIGHTS, _QUERY_DST, _QUERY_SCRATCH, _QUERY_IMPLEMENTATION = 129, 131, 133, 136, 8


@dataclass(frozen=True)
class PostOps:
    """What a primitive does to its result before it stores it.

    Attributes:
        residual: Factor of what the destination holds before, which is added; None adds nothing.
        eltwise: Functions to apply then, in order.
    """

    residual: float | None = None
    eltwise: tuple[Eltwise, ...] = ()


NOTHING = PostOps()


@dataclass(frozen=True)
class Primitive:
    """One computation, ready to execute on any memory in the right layouts.

    Attributes:
        name: For messages, such as ``convolution``.
        implementation: What the library calls the code that it chose, such as ``jit:avx2``.
        handle: The primitive; destroyed with this object.
        source: Layout of the first operand.
        weights: Layout of the weights, if there are any.
        result: Layout of the result.
        scratch: Bytes of scratch memory that a run needs.
    """

    name: str
    implementation: str
    handle: Any
    source: Layout | None
    weights: Layout | None
    result: Layout
    scratch: int


class Primitives:
    """Makes the primitives of one library.

    Every method raises a TargetError if the library has no implementation for what is asked.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._ffi, self._lib = library.ffi, library.lib

    def convolution(
        self,
        shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
        bias: Layout | None,
        window: Window,
        post: PostOps = NOTHING,
    ) -> Primitive:
        """Make a convolution; ``shapes`` of operand, weights and result, the weights' with the groups in front."""
        x, w, y = map(self.library.undecided, shapes)
        return self._make(
            "convolution",
            self._lib.dnnl_dilated_convolution_forward_desc_init,
            (_INFERENCE, _CONVOLUTION_AUTO, x, w, self._or_null(bias), y),
            (window.strides, [d - 1 for d in window.dilations], window.before, window.after),
            post=post,
        )

    def matmul(self, x: Layout, w: Layout | Any, bias: Layout | None, y: Layout, post: PostOps = NOTHING) -> Primitive:
        """Make a product of matrices or batches of them; ``w`` may be an undecided descriptor."""
        weights = w.md if isinstance(w, Layout) else w
        operands = (x.md, weights, self._or_null(bias), y.md)
        return self._make("matmul", self._lib.dnnl_matmul_desc_init, operands, post=post)

    def pool(self, kind: int, x: Layout, result: Sequence[int], window: Window, after: Sequence[int]) -> Primitive:
        """Make a pooling with ``after`` as the padding behind, which may differ from the window's in ceiling mode."""
        return self._make(
            "pooling",
            self._lib.dnnl_pooling_v2_forward_desc_init,
            (_INFERENCE, kind, x.md, self.library.undecided(result)),
            (window.strides, window.kernel, [d - 1 for d in window.dilations], window.before, after),
        )

    def eltwise(self, function: Eltwise, x: Layout) -> Primitive:
        """Make a function of one element, applied in place or not."""
        operands = (_INFERENCE, function.kind, x.md, function.alpha, function.beta)
        return self._make("eltwise", self._lib.dnnl_eltwise_forward_desc_init, operands)

    def binary(self, kind: int, a: Layout, b: Layout, result: Layout, post: PostOps = NOTHING) -> Primitive:
        """Make arithmetic on two operands; the second may be broadcast."""
        return self._make("binary", self._lib.dnnl_binary_desc_init, (kind, a.md, b.md, result.md), post=post)

    def softmax(self, x: Layout, axis: int, *, logarithm: bool) -> Primitive:
        """Make a softmax along one axis, or its logarithm."""
        init = self._lib.dnnl_logsoftmax_forward_desc_init if logarithm else self._lib.dnnl_softmax_forward_desc_init
        return self._make("softmax", init, (_INFERENCE, x.md, axis))

    def concat(self, operands: Sequence[Layout], axis: int) -> Primitive:
        """Make a concatenation of operands in whatever layouts they have."""
        many = self._ffi.new("md_t[]", len(operands))
        for index, operand in enumerate(operands):
            many[index] = operand.md[0]
        create, engine = self._lib.dnnl_concat_primitive_desc_create, self.library.engine
        return self._finish("concat", NOTHING, lambda out, a: create(out, self._null, len(many), axis, many, a, engine))

    def reorder(self, old: Layout, new: Layout) -> Primitive:
        """Make a copy from one layout to another."""
        create, engine = self._lib.dnnl_reorder_primitive_desc_create, self.library.engine
        return self._finish("reorder", NOTHING, lambda out, a: create(out, old.md, engine, new.md, engine, a))

    # How ------------------------------------------------------------------------------------------------------------

    @property
    def _null(self) -> Any:
        return self._ffi.NULL

    def _or_null(self, layout: Layout | None) -> Any:
        return self._null if layout is None else layout.md

    def _make(
        self, name: str, init: Any, args: Sequence[Any], dims: Sequence[Sequence[int]] = (), post: PostOps = NOTHING
    ) -> Primitive:
        desc = self._ffi.new("op_desc_t *")
        self.library.check(init(desc, *args, *(list(d) for d in dims)), f"{name}, description")
        create, engine = self._lib.dnnl_primitive_desc_create, self.library.engine
        return self._finish(name, post, lambda out, attr: create(out, desc, attr, engine, self._null))

    def _finish(self, name: str, post: PostOps, create: Any) -> Primitive:
        lib, ffi = self._lib, self._ffi
        attributes = self._attributes(post)
        out = ffi.new("void **")
        self.library.check(create(out, attributes), name)
        described = ffi.gc(out[0], lib.dnnl_primitive_desc_destroy)
        self.library.check(lib.dnnl_primitive_create(out, described), name)
        handle = ffi.gc(out[0], lib.dnnl_primitive_destroy)
        result, scratch = self._query(described, _QUERY_DST), self._query(described, _QUERY_SCRATCH)
        assert result is not None, name
        return Primitive(
            name,
            self._implementation(described),
            handle,
            self._query(described, _QUERY_SRC),
            self._query(described, _QUERY_WEIGHTS),
            result,
            0 if scratch is None else scratch.size,
        )

    def _attributes(self, post: PostOps) -> Any:
        lib, ffi, check = self._lib, self._ffi, self.library.check
        out = ffi.new("void **")
        check(lib.dnnl_primitive_attr_create(out), "attributes")
        attributes = ffi.gc(out[0], lib.dnnl_primitive_attr_destroy)
        check(lib.dnnl_primitive_attr_set_scratchpad_mode(attributes, _USER_SCRATCH), "scratch memory")
        check(lib.dnnl_post_ops_create(out), "post-ops")
        chain = ffi.gc(out[0], lib.dnnl_post_ops_destroy)
        if post.residual is not None:
            check(lib.dnnl_post_ops_append_sum(chain, post.residual), "sum")
        for each in post.eltwise:
            check(lib.dnnl_post_ops_append_eltwise(chain, 1.0, each.kind, each.alpha, each.beta), "eltwise")
        check(lib.dnnl_primitive_attr_set_post_ops(attributes, chain), "post-ops")
        return attributes

    def _query(self, described: Any, what: int) -> Layout | None:
        found = self._lib.dnnl_primitive_desc_query_md(described, what, 0)
        return None if found == self._null else self.library.layout(found)

    def _implementation(self, described: Any) -> str:
        text = self._ffi.new("const char **")
        self.library.check(self._lib.dnnl_primitive_desc_query(described, _QUERY_IMPLEMENTATION, 0, text), "query")
        return str(self._ffi.string(text[0]).decode())
