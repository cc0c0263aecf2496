"""``python -m benchmarks`` lists the measurements; ``python -m benchmarks NAME …`` runs one, ``all`` those of speed."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def available() -> dict[str, str]:
    """What can be run, by command-line name, with one line about each: every file that has a ``main``."""
    found = {}
    for path in sorted(FOLDER.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[path.stem.replace("_", "-")] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main() -> int:
    """Run the measurement that the first argument names, or list all."""
    known = available()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in known:
        print("usage: python -m benchmarks NAME [options]; NAME is one of")
        for each, line in known.items():
            print(f"  {each:<20} {line}")
        return 0 if name in ("", "-h", "--help") else 2
    module = f"benchmarks.{name.replace('-', '_')}"
    sys.argv = [f"python -m {module}", *sys.argv[2:]]
    runpy.run_module(module, run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
