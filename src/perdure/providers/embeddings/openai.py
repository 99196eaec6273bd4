"""`OpenAIEmbedder`: any server that speaks OpenAI's embeddings API."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from perdure.providers.embeddings.endpoint import EndpointEmbedder
from perdure.providers.openai_chat.endpoint import embeddings_url, is_openai


class OpenAIEmbedder(EndpointEmbedder):
    """`Embedder` over `POST {base_url}/embeddings`: OpenAI, vLLM, LM Studio, Mistral, Together, a gateway.

    Vectors are asked for in base64 on OpenAI's own hosts, which is a quarter of the bytes; both forms are read from
    every server.

    Args:
        base_url: with or without `/v1`, such as "http://localhost:8000". The others: see `EndpointEmbedder`.
    Raises: InvalidInput: an address or key that can't be used.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str | None = None,
        provider: str = "openai",
        timeout_s: float = 60.0,
    ) -> None:
        url = embeddings_url(base_url)
        super().__init__(provider=provider, model=model, url=url, api_key=api_key, timeout_s=timeout_s)
        self._base64 = is_openai(base_url)

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        # An empty text is refused by OpenAI.
        body: dict[str, Any] = {"model": self.model, "input": [text or " " for text in texts]}
        return body | {"encoding_format": "base64"} if self._base64 else body

    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        rows = answer["data"]
        places = [row.get("index", place) for place, row in enumerate(rows)]
        if sorted(places) != list(range(len(rows))):
            raise ValueError("the rows have wrong numbers")
        vectors: list[Any] = [None] * len(rows)
        for place, row in zip(places, rows, strict=True):
            vectors[place] = _numbers(row["embedding"])
        return vectors


def _numbers(vector: Any) -> Any:
    """A list of numbers, or base64 of little-endian float32. Raises: ValueError."""
    if isinstance(vector, str):
        import numpy as np

        return np.frombuffer(base64.b64decode(vector, validate=True), "<f4")
    if not isinstance(vector, list):
        raise ValueError("no list of numbers")
    return vector
