"""The dnnl target: oneDNN, a vendor's library of CPU kernels, used where it is installed.

:mod:`target` says what the library takes, :mod:`codegen` turns regions into its primitives, :mod:`library` binds it.
``docs/targets/dnnl.md`` tells how the target was written.
"""

from tinycomp.targets.dnnl.target import TARGET

__all__ = ["TARGET"]
