"""The command line: ``tinycomp`` and ``python -m tinycomp``."""

from tinycomp.cli.main import main

__all__ = ["main"]
