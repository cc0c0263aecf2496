"""The target dnnl: oneDNN, a vendor's library of CPU kernels, as a package of its own.

:mod:`target` says what the library takes, :mod:`lowering` turns regions into its primitives, :mod:`library` binds it.
"""

from tinycomp_dnnl.target import TARGET

__all__ = ["TARGET"]
