"""Making oneDNN primitives: one method per kind, from shapes and layouts to something that can be executed.

Wherever a primitive may choose a memory order, it is left to it; what it chose stands in :class:`Primitive`. Scratch
memory is the caller's, because the library's own belongs to the thread that created the primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinycomp.target_api import Window
from tinycomp_dnnl.interface import (
    CONVOLUTION_AUTO,
    INFERENCE,
    LOG_SOFTMAX,
    QUERY_DST,
    QUERY_IMPLEMENTATION,
    QUERY_SCRATCH,
    QUERY_SRC,
    QUERY_WEIGHTS,
    SOFTMAX,
    USER_SCRATCH,
)
from tinycomp_dnnl.library import Layout, Library


@dataclass(frozen=True)
class Eltwise:
    """A function of one element.

    Attributes:
        name: Of the function in ``dnnl_alg_kind_t``, such as ``relu``.
        alpha: First coefficient.
        beta: Second coefficient.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0


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

    def convolution(
        self,
        shapes: tuple[Sequence[int], Sequence[int], Sequence[int]],
        bias: Layout | None,
        window: Window[int],
        post: PostOps = NOTHING,
    ) -> Primitive:
        """Make a convolution; ``shapes`` of operand, weights and result, the weights' with the groups in front."""
        x, w, y = map(self.library.undecided, shapes)
        operands = (INFERENCE, CONVOLUTION_AUTO, x, w, self._or_null(bias), y)
        dims = (window.strides, _gaps(window), window.before, window.after)
        return self._make("convolution", operands, dims, post=post)

    def matmul(self, x: Layout, w: Layout | Any, bias: Layout | None, y: Layout, post: PostOps = NOTHING) -> Primitive:
        """Make a product of matrices or batches of them; ``w`` may be an undecided descriptor."""
        weights = w.md if isinstance(w, Layout) else w
        return self._make("matmul", (x.md, weights, self._or_null(bias), y.md), post=post)

    def pool(self, kind: int, x: Layout, result: Sequence[int], window: Window[int], after: Sequence[int]) -> Primitive:
        """Make a pooling with ``after`` as the padding behind, which may differ from the window's in ceiling mode."""
        operands = (INFERENCE, kind, x.md, self.library.undecided(result))
        return self._make("pooling", operands, (window.strides, window.kernel, _gaps(window), window.before, after))

    def eltwise(self, function: Eltwise, x: Layout) -> Primitive:
        """Make a function of one element, applied in place or not."""
        describe, number = self.library.describe_eltwise, self._number(function)
        return self._finish(
            "eltwise", NOTHING, lambda attr: describe(number, x.md, x.md, function.alpha, function.beta, attr)
        )

    def binary(self, kind: int, a: Layout, b: Layout, result: Layout, post: PostOps = NOTHING) -> Primitive:
        """Make arithmetic on two operands; the second may be broadcast."""
        return self._make("binary", (kind, a.md, b.md, result.md), post=post)

    def softmax(self, x: Layout, axis: int, *, logarithm: bool) -> Primitive:
        """Make a softmax along one axis, or its logarithm."""
        return self._make("softmax", (INFERENCE, LOG_SOFTMAX if logarithm else SOFTMAX, x.md, x.md, axis))

    def concat(self, operands: Sequence[Layout], axis: int) -> Primitive:
        """Make a concatenation of operands in whatever layouts they have."""
        many = [operand.md for operand in operands]
        return self._finish("concat", NOTHING, lambda attr: self.library.describe_concat(many, axis, attr))

    def reorder(self, old: Layout, new: Layout) -> Primitive:
        """Make a copy from one layout to another."""
        return self._finish("reorder", NOTHING, lambda attr: self.library.describe_reorder(old.md, new.md, attr))

    # How ------------------------------------------------------------------------------------------------------------

    def _or_null(self, layout: Layout | None) -> Any:
        return self.library.ffi.NULL if layout is None else layout.md

    def _number(self, function: Eltwise) -> int:
        return self.library.interface.eltwise[function.name]

    def _make(
        self, name: str, args: Sequence[Any], dims: Sequence[Sequence[int]] = (), post: PostOps = NOTHING
    ) -> Primitive:
        full = (*args, *(list(d) for d in dims))
        return self._finish(name, post, lambda attributes: self.library.describe(name, full, attributes))

    def _finish(self, name: str, post: PostOps, describe: Callable[[Any], Any]) -> Primitive:
        lib = self.library.lib
        described = describe(self._attributes(post))
        handle = self.library.create(lib.dnnl_primitive_create, lib.dnnl_primitive_destroy, described, what=name)
        result, scratch = self._query(described, QUERY_DST), self._query(described, QUERY_SCRATCH)
        assert result is not None, name
        return Primitive(
            name,
            self._implementation(described),
            handle,
            self._query(described, QUERY_SRC),
            self._query(described, QUERY_WEIGHTS),
            result,
            0 if scratch is None else scratch.size,
        )

    def _attributes(self, post: PostOps) -> Any:
        library, lib = self.library, self.library.lib
        made = library.create(lib.dnnl_primitive_attr_create, lib.dnnl_primitive_attr_destroy, what="attributes")
        library.check(lib.dnnl_primitive_attr_set_scratchpad_mode(made, USER_SCRATCH), "scratch memory")
        chain = library.create(lib.dnnl_post_ops_create, lib.dnnl_post_ops_destroy, what="post-ops")
        if post.residual is not None:
            library.append_sum(chain, post.residual)
        for each in post.eltwise:
            library.append_eltwise(chain, self._number(each), each.alpha, each.beta)
        library.check(lib.dnnl_primitive_attr_set_post_ops(made, chain), "post-ops")
        return made

    def _query(self, described: Any, what: int) -> Layout | None:
        found = self.library.lib.dnnl_primitive_desc_query_md(described, what, 0)
        return None if found == self.library.ffi.NULL else self.library.layout(found)

    def _implementation(self, described: Any) -> str:
        library = self.library
        text = library.ffi.new("const char **")
        library.check(library.lib.dnnl_primitive_desc_query(described, QUERY_IMPLEMENTATION, 0, text), "query")
        return str(library.ffi.string(text[0]).decode())


def _gaps(window: Window[int]) -> list[int]:
    """Return dilations as the library counts them: elements left out between two that are read."""
    return [d - 1 for d in window.dilations]
