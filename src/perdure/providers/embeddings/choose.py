"""Which embedder is used: a handle to an embedder, and plain words for why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.core.errors import InvalidInput
from perdure.core.ports import Embedder

__all__ = ["EmbedderChoice", "choose_embedder"]


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """What makes the vectors; None is lexical-only. `reason` says where it comes from, or why there is none and what
    helps: a sentence's part, without a full stop."""

    embedder: Embedder | None
    reason: str


def choose_embedder(setting: str) -> EmbedderChoice:
    """The embedder of the setting `embedding`. Raises: InvalidInput: one was asked for that is not here."""
    if setting in ("", "none"):
        return EmbedderChoice(None, "PERDURE_EMBEDDING is none" if setting else "none is set up")
    raise InvalidInput(f"PERDURE_EMBEDDING is {setting!r}: there is no such embedder")
