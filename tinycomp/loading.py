"""Loading saved modules. Those that are native through and through need neither onnx nor the compiler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinycomp.runtime.archive import Archive, read_bytes
from tinycomp.runtime.artifact import load_native
from tinycomp.runtime.module import Module

if TYPE_CHECKING:
    from tinycomp.target import Target


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    threads: int | None = None,
    targets: Sequence[Target] = (),
    trusted: bool = False,
) -> Module:
    """Return a module that :meth:`Module.save` wrote.

    Args:
        source: Path of the file, or its bytes.
        threads: Threads that a run may use; by default what the process may use.
        targets: Targets that are not installed under their names, for regions that need them.
        trusted: Compile and run the C source in the file, if it has any. Without it, the target generates the source
            anew, so that nothing is executed that came with the file.

    Raises:
        ArtifactError: If the file is damaged, was written by another format version, or is not a saved module.
        TargetError: If a target is missing.
    """
    # Read once: the file may have been replaced or removed a moment later.
    data, where = (source, "saved module") if isinstance(source, bytes) else (read_bytes(source), str(source))
    archive = Archive.from_bytes(data, where)
    native = load_native(archive, data, threads)
    if native is not None:
        return native
    from tinycomp.saving import restore

    return restore(archive, data, targets, threads, trusted=trusted)
