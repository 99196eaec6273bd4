"""Embedders over HTTP, by OpenAI's API and by Ollama's: batches of texts, checked answers, typed errors."""

from __future__ import annotations

import asyncio
import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import httpx

from perdure.core.errors import BodyUnreadable, DataTooLarge, ModelOverflow, ModelReplyInvalid
from perdure.core.incoming.json_limits import parse_json
from perdure.core.ports import EmbedPurpose
from perdure.core.text.json_strings import encodable
from perdure.providers.embeddings.vectors import prefix_of, unit_rows
from perdure.providers.masking import WHOLE, read_answer
from perdure.providers.openai_chat.faults import RequestTarget, error_in_answer, error_of_connection, error_of_response
from perdure.providers.openai_endpoint import HttpClients, api_url, is_openai, request_headers

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
    """`Embedder` over an HTTP endpoint; a subclass has the address, the request and the answer of its API.

    A batch has up to 64 texts or 100,000 characters. A batch that is too large for the server is halved, and so is a
    single text, of which only the start counts then. Nothing else is retried.

    Args:
        model: the name the server knows.
        base_url: with or without `/v1`, such as "http://localhost:8000".
        api_key: sent as a bearer token; no error text contains it.
        provider: the first part of the handle; empty: the name of its API.
        timeout_s: the limit for one batch.
    Raises: InvalidInput: an address or key that can't be used.
    """

    local = False
    kind: ClassVar[str]
    """The name of its API."""
    path: ClassVar[str]
    beside: ClassVar[str] = ""
    """What a base address may end with, although the path of this API does not stand behind it."""

    def __init__(
        self, *, model: str, base_url: str, provider: str = "", api_key: str | None = None, timeout_s: float = 60.0
    ) -> None:
        self.handle, self.model = f"{provider or self.kind}/{model}", model
        self.url = api_url(base_url, self.path, without=self.beside)
        self.dimensions: int | None = None  # known after the first answer
        self._headers = request_headers(api_key, accept="application/json")
        self._target = RequestTarget.of_request(model, self.url, self._headers)
        self._timeout_s = timeout_s
        self._connections = HttpClients()

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`. Raises: ModelError, by what the server did."""
        import numpy as np

        prefix = prefix_of(self.model, purpose)
        inputs = [prefix + encodable(text[:TEXT_CHARS_MAX]) for text in texts]
        parts = [await self._embed(batch) for batch in _batches(inputs)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimensions or 0), np.float32)

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        await self._connections.aclose()

    @abstractmethod
    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        """The request for these texts."""

    @abstractmethod
    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        """Return an answer's vectors in the order of the texts. Raises: KeyError, TypeError, ValueError."""

    async def _embed(self, texts: list[str], halvings: int = 0) -> npt.NDArray[np.float32]:
        """The vectors of one batch, as unit rows; `halvings`: how often a single text was cut. Raises: ModelError."""
        import numpy as np

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
            raise self._no_vectors(answer) from error
        rows = unit_rows(vectors, texts=len(texts), dimensions=self.dimensions, who=self._target.who)
        self.dimensions = rows.shape[1]
        return rows

    async def _request(self, texts: Sequence[str]) -> dict[str, Any]:
        """The answer to one request. Raises: ModelError."""
        has_response = False
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with (
                asyncio.timeout_at(deadline),
                self._connections.client().stream(
                    "POST", self.url, json=self.body(texts), headers=self._headers
                ) as response,
            ):
                has_response = True
                if not response.is_success:
                    raise await error_of_response(response, self._target, deadline)
                body = await read_answer(response, WHOLE.size_bytes)
        except (
            *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
            *(DataTooLarge, BodyUnreadable, TimeoutError),
        ) as error:
            raise error_of_connection(error, self._target, silence_s=self._timeout_s, begun=has_response) from error
        try:
            answer = parse_json(body, WHOLE)
        except ValueError as error:
            preview = body[:PREVIEW_BYTES].decode("utf-8", "replace")
            raise ModelReplyInvalid(f"{self._target.who} answered no JSON ({error}): {preview!r:.200}") from error
        if not isinstance(answer, dict):
            raise self._no_vectors(answer)
        if answer.get("error"):
            raise error_in_answer(answer["error"], self._target)
        return answer

    def _no_vectors(self, answer: object) -> ModelReplyInvalid:
        """The error of an answer of another shape."""
        return ModelReplyInvalid(f"{self._target.who} answered something else than vectors: {answer!r:.200}")


class OpenAIEmbedder(EndpointEmbedder):
    """`Embedder` over `POST {base_url}/embeddings`: OpenAI, vLLM, LM Studio, Mistral, Together, a gateway.

    Vectors are requested in base64 on OpenAI's own hosts, which is a quarter of the bytes; both forms are read from
    every server.
    """

    kind, path = "openai", "/embeddings"

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        # An empty text is refused by OpenAI.
        body: dict[str, Any] = {"model": self.model, "input": [text or " " for text in texts]}
        return body | {"encoding_format": "base64"} if is_openai(self.url) else body

    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        rows = {row.get("index", place): _numbers(row["embedding"]) for place, row in enumerate(answer["data"])}
        if sorted(rows) != list(range(len(answer["data"]))):
            raise ValueError("the rows have wrong numbers")
        return [rows[place] for place in sorted(rows)]


class OllamaEmbedder(EndpointEmbedder):
    """`Embedder` over `POST /api/embed`, where Ollama itself cuts what is too long for the model."""

    kind, path, beside = "ollama", "/api/embed", "/v1"

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        # Of an empty text it makes a vector without numbers.
        return {"model": self.model, "input": [text or " " for text in texts], "truncate": True}

    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        vectors = answer["embeddings"]
        if not isinstance(vectors, list) or not all(isinstance(vector, list) for vector in vectors):
            raise ValueError("no list of vectors")
        return vectors


def _numbers(vector: Any) -> Any:
    """A list of numbers, or base64 of little-endian float32. Raises: ValueError."""
    if isinstance(vector, str):
        import numpy as np

        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
    if not isinstance(vector, list):
        raise ValueError("no list of numbers")
    return vector


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
