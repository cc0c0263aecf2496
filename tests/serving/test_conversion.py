"""Large bodies are converted by other processes, within the time of their request, and come to the same."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "uvicorn", "orjson", "prometheus_client"):
    pytest.importorskip(package, reason='serving needs the extra "serve"')

from tests.serving.servers import Client, running  # noqa: E402
from tests.serving.test_server import Doubling  # noqa: E402
from tinycomp.runtime.spec import TensorSpec  # noqa: E402
from tinycomp.serving.application import Application, ServedModel  # noqa: E402
from tinycomp.serving.conversion import LARGE, Conversions  # noqa: E402
from tinycomp.serving.protocol import RequestError, Wanted, work_of_reading, work_of_writing  # noqa: E402


def converted(*calls: tuple[Any, ...]) -> list[Any]:
    """What has become of calls: size, seconds, function, arguments; one after the other."""

    async def run() -> list[Any]:
        conversions, found, clock = Conversions(), [], asyncio.get_running_loop().time
        for size, seconds, *call in calls:
            try:
                found.append(await conversions.call(size, clock() + seconds, *call))
            except Exception as error:
                found.append(error)
        await conversions.close()
        return found

    return asyncio.run(run())


def test_what_is_large_goes_to_another_process() -> None:
    small, large, again = converted(*((size, 60, os.getpid) for size in (LARGE - 1, LARGE, LARGE)))
    assert small == os.getpid()
    assert large == again != small


def test_a_process_that_ends_or_takes_too_long_is_replaced() -> None:
    first, late, second, ended, third, wrong = converted(
        (LARGE, 60, os.getpid),
        (LARGE, 0.2, time.sleep, 600),
        (LARGE, 60, os.getpid),
        (LARGE, 60, os._exit, 3),
        (LARGE, 60, os.getpid),
        (LARGE, 60, int, "x"),
    )
    assert len({first, second, third}) == 3
    assert isinstance(late, RequestError)
    assert (late.status, str(late)) == (504, "the time is up. Allow more with --timeout.")
    assert isinstance(ended, RequestError)
    assert (ended.status, str(ended)[:61]) == (503, "the process that converts large bodies ended; found exit code")
    assert isinstance(wrong, ValueError)


@pytest.mark.parametrize("rows", [1, 4])
def test_large_requests_and_answers_are_those_of_small_ones(rows: int) -> None:
    array = np.arange(LARGE // 4, dtype=np.float32).reshape(rows, -1)
    with running(Application([ServedModel("double", Doubling())])) as port, Client(port) as client:
        answer = client.infer("double", array, id="seven")
        np.testing.assert_array_equal(answer.array(), 2 * array)
        assert answer.json["id"] == "seven"
        given = {"name": "x", "shape": [1, LARGE], "datatype": "FP32", "data": [1.5] * LARGE}
        body = {"inputs": [{**given, "data": [*given["data"][1:], "a"]}]}
        wrong = client.ask("POST", "/v2/models/double/infer", body)
        assert (wrong.status, wrong.json["error"]) == (
            400, f'input "x", element {LARGE - 1}: wrong kind of element; expected FP32; found a text',
        )  # fmt: skip
        infinite = client.infer("double", np.full((1, LARGE // 10), 3e38, np.float32))
        assert (infinite.status, infinite.json["error"][:10]) == (422, 'output "y"')


def test_what_is_gone_through_byte_by_byte() -> None:
    numbers, texts = TensorSpec("x", "float32", ("N",)), TensorSpec("t", "string", ("N",))
    body = bytes(1000)
    assert [work_of_reading(body, length, [numbers]) for length in (None, "10", "x", "²", "9" * 99)] == [
        1000, 10, 1000, 1000, 1000,
    ]  # fmt: skip
    assert work_of_reading(body, "10", [numbers, texts]) == 1010
    results = {"y": np.zeros(7), "t": np.array(["a", "b"], object)}
    assert work_of_writing([Wanted("y", True)], results) == 0
    assert work_of_writing([Wanted("y", False), Wanted("t", True)], results) == 90
