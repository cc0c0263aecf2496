"""Damaged files again, but led by what they reach: atheris keeps those that run new lines of tinycomp.

Run as ``python -m tests.fuzz.guided --harness importer --minutes 30``; needs ``pip install atheris``. The mutations are
those of the harness and libFuzzer's own. A finding ends the run; its input is in the folder, as ``crash-…``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import resource
import sys
import warnings
from pathlib import Path

import atheris

from benchmarks.peers import hurry_tinycomp

GUIDED = ("importer", "artifact")
BASES = 40
"""Files to start from."""
LARGEST = 1 << 16


def main() -> None:
    """Run until the time is up or something is found."""
    options = _parser().parse_args()
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["tinycomp"]):
        damage = importlib.import_module(f"tests.fuzz.{options.harness}").DAMAGE
        hurry_tinycomp()  # what is imported later would not be looked into
    corpus, found = options.folder / "corpus", options.folder / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(options.seed)
    for _ in range(BASES):
        data = damage.base(rng)
        if len(data) <= LARGEST:
            (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def mutate(data: bytes, limit: int, seed: int) -> bytes:
        choices = random.Random(seed)
        changed = atheris.Mutate(data, limit) if choices.random() < 0.2 else damage.mutate(choices, data)
        return bytes(changed[:limit])

    def run(data: bytes) -> None:
        damage.run(data, random.Random(hashlib.sha256(data).digest()))

    arguments = [f"-max_total_time={int(60 * options.minutes)}", f"-seed={options.seed + 1}", f"-max_len={LARGEST}"]
    most = 4096 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # who started this may have had more
    arguments += ["-timeout=60", f"-rss_limit_mb={most}", f"-artifact_prefix={found}/", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("--harness", choices=GUIDED, required=True)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of libFuzzer (default: 0)")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz/guided"), help="for the corpus and findings")
    return parser


if __name__ == "__main__":
    main()
