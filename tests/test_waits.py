"""What the package waits for without a time: each wait is one that ends, and this list says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tinycomp"
WAITING = {"wait", "join", "get", "acquire", "result", "communicate"}
VARIABLES = {"capture", "captured"}
"""Context variables, or dictionaries of them, that are imported or handed on under another name."""
WAITS = {
    "cli/session.py: timer.join()": "a timer that was cancelled, or prints a line",
    "lazy.py: self._changed.acquire()": "held while a number is counted, or by a fork, which has a time",
    "memory/locks.py: self._lock.acquire()": "what may be held for long is asked for by in_time",
    "runtime/child.py: process.wait()": "it was killed",
    "runtime/child.py: self._process.wait()": "it was killed",
    "runtime/child.py: calls.get()": "in the child, which ends with its parent",
    "runtime/device/instances.py: self._tasks.get()": "a thread of its own, which close() ends and no exit waits for",
    "runtime/requests.py: self._room.acquire()": "the runs before end: in their time, or as who asked for them allowed",
    "runtime/requests.py: under_way[0].result()": "as a run that is called; Ctrl-C ends it",
    "runtime/requests.py: under_way.popleft().result()": "it has ended",
    "scoring/processes.py: answers.get()": "an answer or an error for each piece; Ctrl-C kills the rest",
    "scoring/processes.py: thread.join()": "its process was killed",
    "serving/batching.py: self._room.acquire()": "a coroutine; runs end in the time of the server",
    "serving/batching.py: self._arrived.wait()": "a coroutine that waits for requests, cancelled when the server ends",
    "serving/conversion.py: self._free.get()": "a coroutine; conversions have a time",
    "targets/device_sim.py: self._changed.wait()": "memory that was freed is there when the command on it has ended",
    "targets/device_sim.py: self._thread.join()": "its commands end, or close() takes them for hung",
    "targets/device_sim.py: self._queue.get()": "a thread of its own, which close() ends and no exit waits for",
    "targets/tosa/tools.py: process.wait()": "its pipes are closed, or it was killed",
}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield file, node


def variables() -> set[str]:
    """Names of context variables, whose ``get()`` waits for nothing."""
    text = "\n".join(file.read_text() for file in PACKAGE.rglob("*.py"))
    found = set()
    for line in text.splitlines():
        if "ContextVar(" in line or "ContextVar[" in line:
            found.add(line.split("=")[0].split(":")[0].strip())
    return found


def test_every_wait_without_a_time_is_one_that_ends() -> None:
    found, known = set(), variables() | VARIABLES
    for file, node in calls():
        assert isinstance(node.func, ast.Attribute)
        takes_none = not node.args and not any(keyword.arg == "timeout" for keyword in node.keywords)
        receiver = ast.unparse(node.func.value)
        own = receiver == "self" or receiver in known or (node.func.attr == "result" and "session" in receiver)
        if node.func.attr in WAITING and takes_none and not own:
            found.add(f"{file.relative_to(PACKAGE)}: {ast.unparse(node)}")
    assert found == WAITS.keys()


def test_every_program_that_is_called_has_a_time() -> None:
    without = [
        f"{file.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for file, node in calls()
        if ast.unparse(node.func) in ("subprocess.run", "subprocess.check_output", "subprocess.check_call")
        if not any(keyword.arg == "timeout" for keyword in node.keywords)
    ]
    assert not without
