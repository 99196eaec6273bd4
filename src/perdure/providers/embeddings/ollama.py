"""`OllamaEmbedder`: an embedding model of Ollama, by Ollama's own API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from perdure.providers.embeddings.endpoint import EndpointEmbedder
from perdure.providers.openai_chat.endpoint import normalise_url


class OllamaEmbedder(EndpointEmbedder):
    """`Embedder` over `POST /api/embed`, where Ollama itself cuts what is too long for the model.

    Args:
        base_url: with or without `/v1`, such as "http://localhost:11434". The others: see `EndpointEmbedder`.
    Raises: InvalidInput: an address or key that can't be used.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str | None = None,
        provider: str = "ollama",
        timeout_s: float = 60.0,
    ) -> None:
        parts = urlsplit(normalise_url(base_url))
        url = urlunsplit((parts.scheme, parts.netloc, f"{parts.path.removesuffix('/v1')}/api/embed", parts.query, ""))
        super().__init__(provider=provider, model=model, url=url, api_key=api_key, timeout_s=timeout_s)

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        # Of an empty text it makes a vector without numbers.
        return {"model": self.model, "input": [text or " " for text in texts], "truncate": True}

    def vectors(self, answer: dict[str, Any]) -> Sequence[Any]:
        vectors = answer["embeddings"]
        if not isinstance(vectors, list) or not all(isinstance(vector, list) for vector in vectors):
            raise ValueError("no list of vectors")
        return vectors
