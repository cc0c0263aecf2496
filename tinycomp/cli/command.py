"""What a command is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from tinycomp.cli.session import Session


@dataclass(frozen=True)
class Command:
    """One sub-command.

    Attributes:
        example: Lines for the end of its help.
        configure: Adds its arguments.
        run: Does the work and returns an exit code.
    """

    example: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Session], int]
