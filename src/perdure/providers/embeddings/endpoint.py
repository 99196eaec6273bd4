"""An embedder over HTTP: batches of texts, checked answers, typed errors."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx

from perdure.core.errors import BodyUnreadable, DataTooLarge, ModelError, ModelOverflow, ModelReplyInvalid
from perdure.core.incoming.json_limits import parse_json
from perdure.core.ports import EmbedPurpose
from perdure.providers.bounded import ERROR_BYTES, WHOLE, answer_pieces, read_answer
from perdure.providers.embeddings.texts import encodable, prefix_of
from perdure.providers.masking import mask_url, request_secrets
from perdure.providers.openai_chat.connections import Connections
from perdure.providers.openai_chat.endpoint import request_headers
from perdure.providers.openai_chat.faults import Target, error_in_answer, error_of_connection, error_of_status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BATCH_TEXTS = 64
BATCH_CHARS = 100_000
TEXT_CHARS_MAX = 100_000
"""The most that is sent of one text; servers cut it further, or it is halved until they accept it."""

HALVINGS_MAX = 8
PREVIEW_BYTES = 1_000


class EndpointEmbedder(ABC):
    """`Embedder` over an HTTP endpoint; a subclass has the request and answer of its API.

    A batch has up to 64 texts or 100,000 characters. A batch that is too large for the server is halved, and so is a
    single text, of which only the start counts then. Nothing else is retried.

    Args:
        provider: the first part of the handle.
        model: the name the server knows.
        url: where requests go.
        api_key: sent as a bearer token; no error text contains it.
        timeout_s: the limit for one batch; `connect_timeout_s`: for connecting.
    Raises: InvalidInput: a key that can't be sent.
    """

    local = False

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        url: str,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.handle, self.model, self.url = f"{provider}/{model}", model, url
        self._dimensions: int | None = None
        self._headers = request_headers(api_key, {}, accept="application/json")
        secrets = (*filter(None, [api_key and api_key.strip()]), *request_secrets(self._headers, url))
        self._target = Target(model, mask_url(url, secrets), secrets)
        self._timeout_s = timeout_s
        self._connections = Connections(connect_timeout_s=connect_timeout_s)

    @property
    def dimensions(self) -> int | None:
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`. Raises: ModelError, by what the server did."""
        import numpy as np

        prefix = prefix_of(self.model, purpose)
        inputs = [prefix + encodable(text[:TEXT_CHARS_MAX]) for text in texts]
        parts = [await self._embed(batch) for batch in _batches(inputs)]
        return np.concatenate(parts) if parts else np.zeros((0, self._dimensions or 0), np.float32)

    async def close(self) -> None:
        await self._connections.aclose()

    @abstractmethod
    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        """The request for these texts."""

    @abstractmethod
    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        """The vectors in an answer, in the order of the texts. Raises: KeyError, TypeError, ValueError: they are not
        where they should be."""

    async def _embed(self, texts: list[str], halvings: int = 0) -> npt.NDArray[np.float32]:
        """One batch. Raises: ModelError."""
        import numpy as np

        from perdure.providers.embeddings.vectors import unit_rows

        try:
            answer = await self._request(texts)
        except ModelOverflow:
            if len(texts) > 1:
                middle = len(texts) // 2
                return np.concatenate([await self._embed(texts[:middle]), await self._embed(texts[middle:])])
            if halvings == HALVINGS_MAX or len(texts[0]) < 2:
                raise
            return await self._embed([texts[0][: len(texts[0]) // 2]], halvings + 1)
        try:
            vectors = self.vectors(answer)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelReplyInvalid(
                f"{self._target.who} answered something else than vectors: {_short(answer)}"
            ) from error
        rows = unit_rows(vectors, texts=len(texts), dimensions=self._dimensions, who=self._target.who)
        self._dimensions = rows.shape[1]
        return rows

    async def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        """The answer to one request. Raises: ModelError."""
        begun = False
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._connections.client().stream(
                    "POST", self.url, json=self.body(texts), headers=self._headers
                ) as response,
            ):
                begun = True
                if not response.is_success:
                    raise await self._read_error(response)
                body = await read_answer(response, WHOLE.size_bytes)
        except (
            *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
            *(DataTooLarge, BodyUnreadable, TimeoutError),
        ) as error:
            raise error_of_connection(error, self._target, timeout_s=self._timeout_s, begun=begun) from error
        try:
            answer = parse_json(body, WHOLE)
        except ValueError as error:
            preview = body[:PREVIEW_BYTES].decode("utf-8", "replace")
            raise ModelReplyInvalid(f"{self._target.who} answered no JSON ({error}): {_short(preview)}") from error
        if not isinstance(answer, dict):
            raise ModelReplyInvalid(f"{self._target.who} answered something else than vectors: {_short(answer)}")
        if answer.get("error"):
            raise error_in_answer(answer["error"], self._target)
        return answer

    async def _read_error(self, response: httpx.Response) -> ModelError:
        """The error of a response whose status is no success; its body is read as far as it comes."""
        body = bytearray()
        with contextlib.suppress(httpx.HTTPError, DataTooLarge, BodyUnreadable):
            async for piece in answer_pieces(response, ERROR_BYTES):
                body += piece
        text = body.decode("utf-8", "replace")
        return error_of_status(response.status_code, response.headers, text, self._target, now=datetime.now(UTC))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, in batches of one request each."""
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS or chars + len(text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch


def _short(answer: object) -> str:
    return repr(answer)[:200]
