"""The way of a request to the process of its model: an HTTP transport that has the process started, and watches it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import httpx

from perdure.core.errors import ModelError, ModelRequestRefused, PerdureError
from perdure.features.local.process import ModelProcess

DEATH_S = 0.5
"""How long the end of a process may be heard of after the end of its connection."""


class Processes(Protocol):
    """Starts the processes of models, and knows which are needed."""

    def listing(self) -> Mapping[str, Any]:
        """The models, as llama.cpp's server lists them."""

    async def begin(self, name: str) -> ModelProcess:
        """The process of a model, for one request. Raises: PerdureError."""

    def end(self, process: ModelProcess) -> None:
        """The request has its answer."""


class LocalTransport(httpx.AsyncBaseTransport):
    """Sends requests to the process that runs the model which they name; lists of models it answers itself."""

    def __init__(self, models: Processes) -> None:
        self._models, self._inner = models, httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            if request.url.path.endswith("/models"):
                return _answer(200, self._models.listing())
            return _answer(404, {"error": {"message": "without a model's name, only models are listed"}})
        try:
            name = str(json.loads(await request.aread())["model"])
        except (ValueError, KeyError, TypeError) as error:
            raise httpx.LocalProtocolError("the request names no model") from error
        try:
            process = await self._models.begin(name)
        except ModelError:
            raise
        except PerdureError as error:
            raise ModelRequestRefused(str(error)) from error
        use = _Use(self._models, process)
        headers = [(key, value) for key, value in request.headers.raw if key.lower() not in (b"host", b"authorization")]
        sent = httpx.Request(
            request.method,
            f"{process.address}{request.url.raw_path.decode('ascii')}",
            headers=[*headers, (b"authorization", f"Bearer {process.key}".encode())],
            content=request.content,
            extensions=request.extensions,
        )
        try:
            response = await self._inner.handle_async_request(sent)
        except httpx.HTTPError as error:
            raise await use.explain(error) from error
        except BaseException:
            use.end()
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Watched(response.stream, use),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


def _answer(status: int, shape: Mapping[str, Any]) -> httpx.Response:
    """A response that is still to be read, as one from a connection is."""
    return httpx.Response(status, stream=httpx.ByteStream(json.dumps(shape).encode()))


class _Use:
    """One request of a process, which ends once."""

    def __init__(self, models: Processes, process: ModelProcess) -> None:
        self._models, self._process, self._ended = models, process, False

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._models.end(self._process)

    async def explain(self, error: httpx.HTTPError) -> httpx.HTTPError:
        """The error of a connection, with how the process ended if it did."""
        try:
            async with asyncio.timeout(DEATH_S):
                await self._process.process.wait()
        except TimeoutError:
            return error
        finally:
            self.end()
        return httpx.RemoteProtocolError(f"its process is gone, {self._process.end}; the next request starts it again")


class _Watched(httpx.AsyncByteStream):
    """The answer of a process; its use ends with it."""

    def __init__(self, stream: httpx.AsyncByteStream, use: _Use) -> None:
        self._stream, self._use = stream, use

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        except httpx.HTTPError as error:
            raise await self._use.explain(error) from error

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._use.end()
