"""The command line: ``tinycomp`` and ``python -m tinycomp``."""

from tinycomp.cli.entry import main

__all__ = ["main"]
