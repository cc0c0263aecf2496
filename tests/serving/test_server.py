"""A server answers what it is asked, also to many clients at once, and says no to what is too much."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.threads import in_threads
from tinycomp.data import digits, digits_model
from tinycomp.errors import ExecutionError, OptionError, UnsupportedError
from tinycomp.ir import Graph, TensorType
from tinycomp.runtime.requests import RunFuture
from tinycomp.runtime.spec import TensorSpec

for package in ("starlette", "uvicorn", "orjson", "prometheus_client"):
    pytest.importorskip(package, reason='serving needs the extra "serve"')

import orjson  # noqa: E402

from tests.serving.servers import Client, ask_once, running  # noqa: E402
from tinycomp.serving import server  # noqa: E402
from tinycomp.serving.application import Application, Limits, ServedModel  # noqa: E402
from tinycomp.serving.framing import HEAD_BYTES  # noqa: E402

IMAGES, _ = digits()


class Doubling:
    """A model that doubles, when it is let."""

    inputs = (TensorSpec("x", "float32", ("N", "T")),)
    outputs = (TensorSpec("y", "float32", ("N", "T")),)
    defaults: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.rows: list[int] = []
        self._threads = ThreadPoolExecutor(4)

    def run_async(self, feeds: Mapping[str, Any], *, timeout: float | None = None) -> Future[dict[str, Any]]:
        return self._threads.submit(self._run, feeds["x"])

    def _run(self, x: np.ndarray) -> dict[str, Any]:
        assert self.may.wait(60)
        self.rows.append(len(x))
        if np.isnan(x).any():
            raise KeyError("a fault of the server")
        if (x < 0).any():
            raise tinycomp.errors.ExecutionError("a number is below 0", where="doubling")
        return {"y": 2 * x}

    def close(self) -> None:
        self._threads.shutdown()


def gather() -> Graph:
    graph = Graph("gather", opsets={"": 17})
    indices = graph.add_input("x", TensorType("int64", ("N",)))
    graph.set_outputs([graph.add("Gather", [graph.add_const(np.float32([1, 2])), indices]).output], ["y"])
    return graph


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    module = tinycomp.compile(digits_model(), threads=1)
    models = [
        ServedModel("digits", module),
        ServedModel("gather", tinycomp.compile(gather()), "9"),
        ServedModel("gather", tinycomp.compile(gather()), "10"),
    ]
    with running(Application(models, Limits(body=1 << 20))) as found:
        yield found


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    with Client(port) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return tinycomp.compile(digits_model(), threads=1)(IMAGES)


def test_metadata_and_health(client: Client) -> None:
    assert client.ask("GET", "/v2").json["extensions"] == ["binary_tensor_data"]
    assert client.ask("GET", "/v2/health/live").json == {"live": True}
    assert client.ask("GET", "/v2/health/ready").json == {"ready": True}
    assert client.ask("GET", "/v2/models/digits/ready").json == {"name": "digits", "ready": True}
    assert client.ask("GET", "/v2/models/digits/versions/1").json == {
        "name": "digits",
        "versions": ["1"],
        "platform": "tinycomp",
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }
    assert client.ask("GET", "/v2/models/gather").json["versions"] == ["9", "10"]


@pytest.mark.parametrize("binary", [False, True])
def test_results_are_those_of_the_module(client: Client, expected: np.ndarray, binary: bool) -> None:
    answer = client.infer("digits", IMAGES[:3], binary=binary, name="image", id="seven")
    assert answer.status == 200
    np.testing.assert_allclose(answer.array(), expected[:3], rtol=1e-6)
    if not binary:
        assert {k: answer.json[k] for k in ("id", "model_name", "model_version")} == {
            "id": "seven", "model_name": "digits", "model_version": "1",
        }  # fmt: skip


def test_the_latest_version_answers(client: Client) -> None:
    answer = client.infer("gather", np.array([1, 0]))
    assert answer.json["model_version"] == "10"
    assert answer.array().tolist() == [2, 1]
    assert client.infer("gather/versions/9", np.array([1])).json["model_version"] == "9"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v2/models/digit", 404, 'there is no model "digit"; expected digits, gather. Did you mean "digits"'),
        ("GET", "/v2/models/digits/versions/2", 404, 'digits: there is no version "2"; expected 1'),
        ("POST", "/v2/models/digit/infer", 404, 'there is no model "digit"'),
        ("GET", "/v3", 404, "GET /v3: Not Found"),
        ("GET", "/v2/models/digits/infer", 405, "Method Not Allowed"),
        ("POST", "/v2/repository/index", 501, "/v2/repository/index: this server does not offer the extension model_r"),
        ("POST", "/v2/repository/models/digits/load", 501, "models are those that the server was started with"),
        ("GET", "/v2/systemsharedmemory/status", 501, "What it offers stands at GET /v2: binary_tensor_data"),
        ("GET", "/v2/logging", 501, "does not offer the extension logging"),
        ("POST", "/inference.GRPCInferenceService/ModelInfer", 501, "this server does not offer gRPC"),
    ],
)
def test_other_addresses(client: Client, method: str, path: str, status: int, message: str) -> None:
    answer = client.ask(method, path, b"{}" if method == "POST" else None)
    assert answer.status == status
    assert message in answer.json["error"]


def test_inputs_that_do_not_fit(client: Client) -> None:
    answer = client.infer("digits", IMAGES[:1, :, :4], name="image")
    assert (answer.status, answer.json["error"][:30]) == (400, 'input "image": wrong shape; ex')
    answer = client.ask("POST", "/v2/models/digits/infer", {"inputs": []})
    assert (answer.status, answer.json["error"][:28]) == (400, 'input "image": input missing')
    answer = client.infer("gather", np.array([5]))
    assert answer.status == 400
    assert "an index is out of range" in answer.json["error"]
    answer = client.ask("POST", "/v2/models/digits/infer", b"[" * 1000)
    assert (answer.status, answer.json["error"][:20]) == (400, "the body is not JSON")


def test_bodies_have_a_limit(client: Client, port: int) -> None:
    answer = client.ask("POST", "/v2/models/digits/infer", b" " * (1 << 20 | 1))
    assert answer.status == 413
    assert "the body is too large; expected up to 1,048,576 bytes; found 1048577" in answer.json["error"]
    with Client(port) as other:
        other.connection.putrequest("POST", "/v2/models/digits/infer")
        other.connection.putheader("Transfer-Encoding", "chunked")
        other.connection.endheaders()
        for _ in range(17):
            other.connection.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
        assert other.connection.getresponse().status == 413
    answer = client.ask("POST", "/v2/models/digits/infer", b"x", {"Content-Encoding": "gzip"})
    assert (answer.status, "compressed" in answer.json["error"]) == (415, True)


def test_sixty_four_clients_get_their_own_answers(port: int, expected: np.ndarray) -> None:
    wrong = []

    def ask(number: int) -> None:
        with Client(port) as client:
            for turn in range(4):
                start = (number * 3 + turn * 7) % 190
                rows = slice(start, start + 1 + (number + turn) % 3)
                answer = client.infer("digits", IMAGES[rows], binary=turn % 2 == 0, name="image", id=f"{number}.{turn}")
                close = answer.status == 200 and np.allclose(answer.array(), expected[rows], rtol=1e-5, atol=1e-7)
                if not close or f'"{number}.{turn}"'.encode() not in answer.body:
                    wrong.append((number, turn, answer))

    in_threads(ask, range(64))
    assert not wrong


def test_heads_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    with running(Application([ServedModel("double", Doubling())])) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(b"GET /v2 HTTP/1.1\r\nHost: ")
            assert slow.recv(1000) == b""
        with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
            assert silent.recv(1000) == b""
        with socket.create_connection(("127.0.0.1", port), timeout=30) as large:
            large.sendall(b"GET /v2 HTTP/1.1\r\nLong: " + b"x" * (HEAD_BYTES + 1))
            assert large.recv(1000).startswith(b"HTTP/1.1 431 ")
        with Client(port) as client:
            array = np.zeros((1, 2 * HEAD_BYTES), np.float32)
            for _ in range(2):  # bodies may be larger
                assert client.infer("double", array, binary=True).status == 200


def metrics(client: Client) -> dict[str, float]:
    text = client.ask("GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}


def in_parallel(port: int, arrays: list[np.ndarray]) -> list[Future[Any]]:
    """Ask with a client for each array; futures of the answers."""
    threads = ThreadPoolExecutor(len(arrays))
    return [threads.submit(ask_once, port, "double", array) for array in arrays]


def wait_until(client: Client, name: str, value: float) -> None:
    for _ in range(2000):
        if metrics(client).get(name) == value:
            return
        time.sleep(0.005)
    raise AssertionError(f"{name} is {metrics(client).get(name)}")


def test_what_waits_runs_together_and_none_spoils_the_others() -> None:
    model = Doubling()
    model.may.clear()
    with running(Application([ServedModel("double", model)], Limits(batch=8))) as port, Client(port) as client:
        first = in_parallel(port, [np.float32([[1, 2]])] * 2)
        wait_until(client, "tinycomp_in_flight", 2)
        arrays = [np.full((2, 2), n, np.float32) for n in (3, 4, -5, 6, 7)]
        rest = in_parallel(port, arrays)
        wait_until(client, "tinycomp_in_flight", 7)
        model.may.set()
        assert all(future.result().status == 200 for future in first)
        for array, future in zip(arrays, rest, strict=True):
            answer = future.result()
            if array[0, 0] < 0:
                assert (answer.status, answer.json["error"]) == (400, "doubling: a number is below 0")
            else:
                np.testing.assert_array_equal(answer.array(), 2 * array)
        found = metrics(client)
        assert found['tinycomp_requests_total{code="200",model="double",version="1"}'] == 6
        assert found['tinycomp_requests_total{code="400",model="double",version="1"}'] == 1
        assert max(model.rows) == 8


def test_requests_of_other_sizes_run_apart() -> None:
    model = Doubling()
    model.may.clear()
    with running(Application([ServedModel("double", model)], Limits(batch=8))) as port, Client(port) as client:
        arrays = [np.full((1 + n % 2, 2 + n % 3), n, np.float32) for n in range(12)]
        answers = in_parallel(port, arrays)
        wait_until(client, "tinycomp_in_flight", len(arrays))
        model.may.set()
        for array, future in zip(arrays, answers, strict=True):
            np.testing.assert_array_equal(future.result().array(), 2 * array)
    assert sum(model.rows) == 18
    assert len(model.rows) < 12


def test_a_delay_waits_for_others() -> None:
    model = Doubling()
    with running(Application([ServedModel("double", model)], Limits(batch=4, delay=30))) as port:
        answers = in_parallel(port, [np.float32([[n, n]]) for n in range(4)])
        assert [future.result().array()[0, 0] for future in answers] == [0, 2, 4, 6]
    assert model.rows == [4]


def test_queue_and_time_have_a_limit() -> None:
    model = Doubling()
    model.may.clear()
    with (
        running(Application([ServedModel("double", model)], Limits(batch=1, queue=3, timeout=0.5))) as port,
        Client(port) as client,
    ):
        waiting = in_parallel(port, [np.float32([[1, 2]])] * 3)
        wait_until(client, "tinycomp_in_flight", 3)
        answer = client.infer("double", np.float32([[1, 2]]))
        if answer.status != 504:  # on a busy machine the others may have been given up before
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert answer.json["error"] == "too many requests are waiting; found 3. Try again later."
        assert [future.result().status for future in waiting] == [504] * 3
        hurried = client.infer("double", np.float32([[1, 2]]), parameters={"timeout": 1000})
        assert hurried.status == 504
        model.may.set()
        other = client.infer("double", np.float32([[1, 2]]), parameters={"timeout": 60_000_000})
        assert other.array().tolist() == [[2, 4]]


class Lasting(Doubling):
    """A model whose runs end when they are let, or cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[RunFuture] = []

    def run_async(self, feeds: Mapping[str, Any], *, timeout: float | None = None) -> RunFuture:
        self.runs.append(RunFuture())
        self.runs[-1].set_running_or_notify_cancel()
        self.rows.append(len(feeds["x"]))
        return self.runs[-1]


def test_clients_that_go_give_up_their_place_and_their_run() -> None:
    model = Lasting()
    with running(Application([ServedModel("double", model)], Limits(batch=2))) as port, Client(port) as client:

        def ask(*values: float) -> list[Client]:
            clients = []
            for value in values:
                clients.append(Client(port))
                connection = clients[-1].connection
                body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [value]}]}
                connection.request("POST", "/v2/models/double/infer", orjson.dumps(body))
                wait_until(client, "tinycomp_in_flight", before + len(clients))
            return clients

        before = 0
        alone = ask(1)
        before = 1
        other = ask(2)  # runs as well
        before = 2
        first, second, third, fourth = ask(3, 4, 5, 6)  # wait
        assert model.rows == [1, 1]
        first.connection.close()
        third.connection.close()
        wait_until(client, "tinycomp_in_flight", 4)
        alone[0].connection.close()
        wait_until(client, "tinycomp_in_flight", 3)
        assert [run.cancellation.is_asked for run in model.runs] == [True, False]
        model.runs[0].set_exception(ExecutionError("the run was cancelled"))
        while len(model.runs) < 3:
            time.sleep(0.001)
        assert model.rows == [1, 1, 2]  # without those that had gone
        second.connection.close()
        wait_until(client, "tinycomp_in_flight", 2)
        assert not model.runs[2].cancellation.is_asked  # the other one is still there
        model.runs[2].set_result({"y": np.float32([[8], [12]])})
        assert orjson.loads(fourth.connection.getresponse().read())["outputs"][0]["data"] == [12]
        model.runs[1].set_result({"y": np.float32([[4]])})
        assert orjson.loads(other[0].connection.getresponse().read())["outputs"][0]["data"] == [4]
        assert metrics(client)['tinycomp_requests_total{code="499",model="double",version="1"}'] == 4
        for each in (fourth, *other):
            each.connection.close()


def test_a_module_stops_when_its_clients_go() -> None:
    graph = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (bool go, float x) => (float y) { y = Loop (, go, x) <body =
        b (int64 i, bool g, float v) => (bool h, float w) { h = Identity(g) w = Neg(v) }> }""")
    limits = Limits(timeout=30)
    application = Application([ServedModel("loop", tinycomp.compile(graph, threads=1))], limits)

    def body(goes_on: bool) -> bytes:
        tensor = {"name": "x", "datatype": "FP32", "shape": [], "data": [1]}
        return orjson.dumps({"inputs": [{"name": "go", "datatype": "BOOL", "shape": [], "data": [goes_on]}, tensor]})

    with running(application) as port, Client(port) as client:
        for _ in range(5):  # more than run at a time
            with Client(port) as going:
                going.connection.request("POST", "/v2/models/loop/infer", body(True))
                wait_until(client, "tinycomp_in_flight", 1)
            wait_until(client, "tinycomp_in_flight", 0)
        assert client.ask("POST", "/v2/models/loop/infer", body(False)).array().tolist() == 1


def test_a_fault_of_the_server_says_so_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    with running(Application([ServedModel("double", Doubling())])) as port, Client(port) as client:
        answer = client.infer("double", np.float32([[np.nan, 1]]), binary=True)
        assert (answer.status, answer.json) == (500, {"error": "the server failed: KeyError"})
        assert metrics(client)['tinycomp_requests_total{code="500",model="double",version="1"}'] == 1
        assert client.infer("double", np.float32([[1, 2]])).status == 200
    assert "a fault of the server" in caplog.text


def test_what_is_not_ready_says_so() -> None:
    application = Application([ServedModel("double", Doubling())])
    with running(application) as port, Client(port) as client:
        application.drain()
        for path in ("/v2/health/ready", "/v2/models/double/ready"):
            answer = client.ask("GET", path)
            assert (answer.status, answer.json["ready"]) == (503, False)
        assert client.infer("double", np.float32([[1, 2]])).status == 200


def test_rows_run_together_where_they_are_independent() -> None:
    module = tinycomp.compile(digits_model())
    assert ServedModel("m", module).rows_of_a_batch(None) == (32, "")
    assert ServedModel("m", module).rows_of_a_batch(7) == (7, "")
    bounded = tinycomp.compile(digits_model(), shapes={"image": ((1, 8), 1, 8, 8)})
    assert ServedModel("m", bounded).rows_of_a_batch(None) == (8, "")
    fixed = tinycomp.compile(digits_model(), shapes={"image": (1, 1, 8, 8)})
    assert ServedModel("m", fixed).rows_of_a_batch(None) == (1, "")
    assert "one by one: inputs and outputs have no first dimension in" in ServedModel("m", fixed).rows_of_a_batch(4)[1]
    graph = Graph("mixing", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", ("N", 2)))
    total = graph.add("ReduceSum", [x, graph.add_const(np.int64([0]))]).output
    graph.set_outputs([graph.add("Sub", [x, total]).output], ["y"])
    mixing = ServedModel("m", tinycomp.compile(graph))
    assert mixing.rows_of_a_batch(None)[0] == 1
    assert "where they are, give --max-batch" in mixing.rows_of_a_batch(None)[1]
    assert mixing.rows_of_a_batch(4)[0] == 4


def test_what_cannot_be_served_is_refused() -> None:
    module = tinycomp.compile(gather())
    with pytest.raises(OptionError, match="a name is given twice; found m, version 1"):
        Application([ServedModel("m", module), ServedModel("m", module)])
    with pytest.raises(OptionError, match="not a name for addresses"):
        ServedModel("a/b", module)
    with pytest.raises(OptionError, match="queue: not within its range; expected 1 or more; found 0"):
        Limits(queue=0)
    graph = Graph("pieces", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2, 2)))
    graph.set_outputs([graph.add("SplitToSequence", [x]).output], ["pieces"])
    with pytest.raises(UnsupportedError, match='output "pieces": the protocol has no form'):
        ServedModel("m", tinycomp.compile(graph))


def test_futures_of_modules_are_what_batches_wait_for() -> None:
    assert issubclass(RunFuture, Future)
