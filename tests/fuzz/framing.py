"""Bytes of connections: requests with something wrong, in packets cut anywhere; h11 sees every request that we see."""

from __future__ import annotations

import random
from collections import Counter

from tests.fuzz.harness import Damage, WrongError
from tests.fuzz.mutation import mutate_bytes
from tests.serving.framing_cases import CASES, NEXT
from tests.serving.judge import disagreement, ours

_SMALL = [data for _, data, _ in CASES if len(data) < 1000]
_PARTS = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b",", b";", b"0", b"\r\n\r\n", b"0\r\n\r\n", b"\x0b", b"\xa0",
    b"=", b'"', b"-",
    b"Content-Length: 3\r\n", b"Content-Length: 30\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Host: b\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0", b"HTTP/1.1",
    b"http://a", b"%2f", b"GET ", b"HEAD ", b"CONNECT ", NEXT,
)  # fmt: skip


def base(rng: random.Random) -> bytes:
    """Return the bytes of one case or of several."""
    return b"".join(rng.choice(_SMALL) for _ in range(rng.choice((1, 1, 2, 3))))


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with parts of requests put in anywhere, or changed as any bytes are."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = [i + 2 for i in range(len(data)) if data.startswith(b"\r\n", i)] or [0]
        at = rng.choice(lines) if rng.random() < 0.6 else rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(_PARTS) + data[at + rng.choice((0, 0, 0, 1, 2)) :]
    return data


def run(data: bytes, rng: random.Random) -> Counter[str]:
    """Read the bytes in one packet and in several, and hold both against the judge."""
    seen = ours([data])
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 2, 5))))
    packets = [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    cut = ours(packets)
    if (cut.requests, cut.open, not cut.status) != (seen.requests, seen.open, not seen.status):
        raise WrongError(f"packets make a difference: {packets}: {cut} instead of {seen}")
    if wrong := disagreement(data, seen):
        raise WrongError(f"{data!r}: {wrong}")
    return Counter(requests=len(seen.requests), refused=int(seen.status > 0))


HARNESS = Damage("framing", ".bin", base, mutate, run).harness(seconds=10.0)
