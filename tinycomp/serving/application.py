"""The ASGI application: routes of the open inference protocol, limits, errors as its JSON."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tinycomp.errors import (
    DeviceFault,
    ExecutionError,
    FeedError,
    MemoryLimitError,
    OptionError,
    TimeLimitError,
    TinycompError,
    did_you_mean,
)
from tinycomp.records import dataclass
from tinycomp.runtime.module import Module
from tinycomp.runtime.spec import bind_symbols, check_feed, order_feeds
from tinycomp.serving.batching import Batcher, Runnable, batch_size_of, rows_are_independent
from tinycomp.serving.conversion import Conversions
from tinycomp.serving.metrics import Metrics
from tinycomp.serving.protocol import (
    EXTENSIONS,
    HEADER,
    Arrays,
    InferRequest,
    RequestError,
    check_tensor,
    describe,
    read_request,
    work_of_reading,
    work_of_writing,
    write_response,
)
from tinycomp.version import installed_version

BATCH = 32
"""Rows of a batch, unless it is said, of models whose rows are known to be independent."""
_LEAST_SECONDS = 1e-3
_NOT_OFFERED = {
    "/v2/repository/{call:path}": "the extension model_repository: models are those that the server was started with",
    "/v2/systemsharedmemory/{call:path}": "the extension system_shared_memory",
    "/v2/cudasharedmemory/{call:path}": "the extension cuda_shared_memory",
    "/v2/trace/{call:path}": "the extension trace",
    "/v2/logging": "the extension logging",
    "/inference.GRPCInferenceService/{call:path}": "gRPC",
}
"""What other servers of the protocol have beside it, by address."""
_LOG = logging.getLogger("tinycomp.serving")


@dataclass(frozen=True)
class Limits:
    """Say what a server allows.

    Attributes:
        batch: Rows of a batch, 1 for no batches; None for :data:`BATCH` where rows are known to be independent.
        delay: Seconds that a request waits for others while its model is free.
        queue: Requests of a model that are read, wait or run; more are turned away.
        body: Bytes of a request.
        timeout: Seconds from the head of a request to its response.
    """

    batch: int | None = None
    delay: float = 0.0
    queue: int = 256
    body: int = 64 << 20
    timeout: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("queue", 1), ("body", 1), ("delay", 0), ("timeout", _LEAST_SECONDS)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not least <= value < math.inf):
                raise OptionError("not within its range", where=name, expected=f"{least} or more", found=repr(value))


@dataclass(frozen=True)
class ServedModel:
    """A model under a name.

    Attributes:
        name: The name in addresses.
        model: What runs it.
        version: Its version in addresses.
    """

    name: str
    model: Runnable
    version: str = "1"

    def __post_init__(self) -> None:
        for kind, text in (("name", self.name), ("version", self.version)):
            if not text or "/" in text or not text.isprintable():
                raise OptionError(
                    f"not a {kind} for addresses", where="serving", expected='a text without "/"', found=repr(text)
                )
        for kind, specs in (("input", self.model.inputs), ("output", self.model.outputs)):
            for spec in specs:
                check_tensor(spec, kind)

    def rows_of_a_batch(self, limit: int | None) -> tuple[int, str]:
        """Return how many rows run together, and a remark about that if it may surprise."""
        name = batch_size_of(self.model.inputs, self.model.outputs)
        if name is None:
            wanted = limit is not None and limit > 1
            return 1, "requests run one by one: inputs and outputs have no first dimension in common" if wanted else ""
        most = limit or BATCH
        if isinstance(self.model, Module):
            most = min(most, self.model.bounds.get(name, (1, None))[1] or most)
            if most > 1 and not rows_are_independent(self.model):
                unknown = "rows of its batches are not known to be independent"
                if limit is None:
                    return 1, f"requests run one by one: {unknown}; where they are, give --max-batch"
                return most, f"requests run together as asked, though {unknown}"
        return most, ""


class _State:
    """What the routes share: models with their batches, limits, and whether the end is near."""

    def __init__(self, models: Sequence[ServedModel], limits: Limits) -> None:
        self.limits, self.metrics, self.draining = limits, Metrics(), False
        self.conversions = Conversions()
        self.models: dict[str, dict[str, _Entry]] = {}
        for served in models:
            versions = self.models.setdefault(served.name, {})
            if served.version in versions:
                raise OptionError(
                    "a name is given twice", where="serving", found=f"{served.name}, version {served.version}",
                    hint="Give them names, or versions: NAME=FILE.",
                )  # fmt: skip
            versions[served.version] = _Entry(served, served.rows_of_a_batch(limits.batch)[0], self)

    def find(self, request: Request) -> _Entry:
        """Return the model that an address names; of several versions the latest unless it names one."""
        name, version = request.path_params["name"], request.path_params.get("version")
        versions = self.models.get(name)
        if versions is None:
            hint = did_you_mean(name[:80], self.models)
            raise RequestError(
                f'there is no model "{name[:80]}"', status=404, expected=", ".join(self.models), hint=hint
            )
        if version is None:
            return versions[max(versions, key=_order)]
        if version not in versions:
            raise RequestError(
                f'there is no version "{version[:80]}"', status=404, where=name, expected=", ".join(versions)
            )
        return versions[version]

    def entries(self) -> list[_Entry]:
        return [entry for versions in self.models.values() for entry in versions.values()]

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        for entry in self.entries():
            entry.batcher.start()
        try:
            yield
        finally:
            for entry in self.entries():
                await entry.batcher.stop()
                await asyncio.to_thread(entry.served.model.close)
            await self.conversions.close()


class _Entry:
    """A model that is served."""

    def __init__(self, served: ServedModel, most_rows: int, state: _State) -> None:
        self.served, self.most_rows, self.admitted = served, most_rows, 0
        limits = state.limits
        self.batcher = Batcher(
            served.model, most_rows=most_rows, delay=limits.delay, most_waiting=limits.queue,
            observer=state.metrics.of(served.name, served.version),
        )  # fmt: skip
        self.about = {"model_name": served.name, "model_version": served.version}

    def checked(self, request: InferRequest) -> Arrays:
        """Return all inputs in the model's order, once they fit it."""
        model = self.served.model
        values = order_feeds(model.inputs, (), request.inputs, model.defaults)
        arrays = [check_feed(spec, value) for spec, value in zip(model.inputs, values, strict=True)]
        bind_symbols(model.inputs, arrays)
        return {spec.name: array for spec, array in zip(model.inputs, arrays, strict=True)}


class Application(Starlette):
    """An ASGI application that serves models.

    Args:
        models: What is served.
        limits: What is allowed.

    Raises:
        OptionError: If two models have one name and version.

    Example:
        >>> import tinycomp
        >>> from tinycomp.data import digits_model
        >>> app = Application([ServedModel("digits", tinycomp.compile(digits_model()))])
        >>> [route.path for route in app.routes][:2]
        ['/v2', '/v2/health/live']
    """

    def __init__(self, models: Sequence[ServedModel], limits: Limits | None = None) -> None:
        self.shared = _State(models, limits or Limits())
        routes = [
            Route("/v2", self._server, methods=["GET"]),
            Route("/v2/health/live", self._live, methods=["GET"]),
            Route("/v2/health/ready", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            routes += [
                Route(place, self._model, methods=["GET"]),
                Route(f"{place}/ready", self._model_ready, methods=["GET"]),
                Route(f"{place}/infer", self._infer, methods=["POST"]),
            ]
        routes += [Route(place, _refusing(what), methods=["GET", "POST"]) for place, what in _NOT_OFFERED.items()]
        super().__init__(
            routes=routes, lifespan=self.shared.lifespan,
            exception_handlers={HTTPException: _http_error, TinycompError: _error, Exception: _fault},
        )  # fmt: skip

    def drain(self) -> None:
        """Say that the server is not ready for more; what is under way goes on."""
        self.shared.draining = True

    async def _server(self, request: Request) -> Response:
        version = installed_version() or ""
        return _json({"name": "tinycomp", "version": version, "extensions": EXTENSIONS})

    async def _live(self, request: Request) -> Response:
        return _json({"live": True})

    async def _ready(self, request: Request) -> Response:
        ready = not self.shared.draining
        return _json({"ready": ready}, 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        return Response(self.shared.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _model(self, request: Request) -> Response:
        served = self.shared.find(request).served
        return _json(
            {
                "name": served.name,
                "versions": sorted(self.shared.models[served.name], key=_order),
                "platform": "tinycomp",
                "inputs": [describe(spec) for spec in served.model.inputs],
                "outputs": [describe(spec) for spec in served.model.outputs],
            }
        )

    async def _model_ready(self, request: Request) -> Response:
        entry, ready = self.shared.find(request), not self.shared.draining
        return _json({"name": entry.served.name, "ready": ready}, 200 if ready else 503)

    async def _infer(self, request: Request) -> Response:
        entry, started = self.shared.find(request), time.perf_counter()
        try:
            response = await self._admitted(request, entry)
        except Exception as error:  # answered here, so that the connection stays
            _LOG.exception("model %s, version %s", entry.served.name, entry.served.version)
            response = _fault(request, error)
        taken = time.perf_counter() - started
        self.shared.metrics.request(entry.served.name, entry.served.version, response.status_code, taken)
        return response

    async def _admitted(self, request: Request, entry: _Entry) -> Response:
        if entry.admitted >= self.shared.limits.queue:
            return _error(request, _too_many(entry.admitted))
        entry.admitted += 1
        self.shared.metrics.in_flight.inc()
        try:
            return await self._answer(request, entry)
        except TinycompError as error:
            return _error(request, error)
        except ClientDisconnect:
            return Response(status_code=499)
        finally:
            entry.admitted -= 1
            self.shared.metrics.in_flight.dec()

    async def _answer(self, request: Request, entry: _Entry) -> Response:
        started = asyncio.get_running_loop().time()
        deadline = started + self.shared.limits.timeout
        body = await self._body(request, deadline)
        model = entry.served.model
        header, inputs, outputs = request.headers.get(HEADER), [*model.inputs], [*model.outputs]
        convert, work = self.shared.conversions.call, work_of_reading(body, header, inputs)
        asked = await convert(work, deadline, read_request, body, header, inputs, outputs)
        deadline = min(deadline, started + asked.seconds)
        results = await entry.batcher.infer(entry.checked(asked), deadline, functools.partial(_watch, request))
        about = entry.about if asked.id is None else {**entry.about, "id": asked.id}
        wanted = {each.name: results[each.name] for each in asked.outputs}
        work = work_of_writing(asked.outputs, wanted)
        data, length = await convert(work, deadline, write_response, about, asked.outputs, wanted, outputs)
        if length is None:
            return Response(data, media_type="application/json")
        return Response(data, media_type="application/octet-stream", headers={HEADER: str(length)})

    async def _body(self, request: Request, deadline: float) -> bytes:
        most = self.shared.limits.body
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise RequestError(
                "the body is compressed", status=415, expected="no content-encoding", found=encoding[:40]
            )
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > most:
            raise _too_large(most, announced[:20])
        chunks, size = list[bytes](), 0
        try:
            with anyio.fail_after(deadline - asyncio.get_running_loop().time()):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        raise _too_large(most, "more")
                    chunks.append(chunk)
        except TimeoutError as error:
            raise RequestError("the body did not come in time", status=408, found=f"{size} bytes") from error
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _watch(request: Request, answer: asyncio.Future[Arrays]) -> None:
    """End an answer that nobody waits for any more once the client goes."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if not answer.done():
            answer.set_exception(ClientDisconnect())

    waiting = asyncio.get_running_loop().create_task(wait())
    answer.add_done_callback(lambda answer: waiting.cancel())


def _refusing(what: str) -> Callable[[Request], Awaitable[Response]]:
    async def refuse(request: Request) -> Response:
        raise RequestError(
            f"this server does not offer {what}", status=501, where=request.url.path[:200],
            hint=f"What it offers stands at GET /v2: {', '.join(EXTENSIONS)}.",
        )  # fmt: skip

    return refuse


def _too_many(count: int) -> RequestError:
    return RequestError("too many requests are waiting", status=429, found=str(count), hint="Try again later.")


def _too_large(most: int, found: str) -> RequestError:
    return RequestError(
        "the body is too large", status=413, expected=f"up to {most:,} bytes", found=found, hint="Send fewer rows."
    )


def _order(version: str) -> tuple[int, str]:
    """Return what versions are sorted by: as numbers where they are numbers."""
    return (int(version), "") if version.isdecimal() and len(version) < 19 else (-1, version)


def _json(data: Mapping[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(data), status, media_type="application/json")


def _status(error: TinycompError) -> int:
    """Return the status that stands for an error; values that a model cannot compute with are the client's."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, MemoryLimitError):
        return 413
    if isinstance(error, TimeLimitError):
        return 504
    if isinstance(error, DeviceFault):
        return 500
    return 400 if isinstance(error, (FeedError, ExecutionError)) else 500


def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TinycompError)
    status = _status(error)
    response = _json({"error": str(error)}, status)
    if status in (429, 503):
        response.headers["retry-after"] = "1"
    return response


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _json({"error": f"{request.method} {request.url.path[:200]}: {error.detail}"}, error.status_code)
    response.headers.update(error.headers or {})
    return response


def _fault(request: Request, error: Exception) -> Response:
    """Answer what nobody foresaw, and keep from clients what it was."""
    return _json({"error": f"the server failed: {type(error).__name__}"}, 500)
