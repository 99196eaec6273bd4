"""An embedder without a model: texts that share words get similar vectors."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.errors import ModelError, ModelUnreachable
from perdure.core.ports import EmbedPurpose
from perdure.core.text.words import stems

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HANG_S = 0.01


class ScriptedEmbedder:
    """`Embedder` and `WordEmbedder` by hashed words: a text has the same vector on every machine.

    A text's vector is the sum of the vectors of its stemmed words, so the cosine of two texts grows with the words they
    share. `requests` holds the texts of each call, in order, failed calls included; `closed` says whether `close` was
    called.

    Args:
        fails: the errors of the first calls; later calls succeed.
    """

    def __init__(
        self,
        *fails: ModelError,
        handle: str = "test/words",
        dimensions: int = 64,
        local: bool = True,
    ) -> None:
        self.handle, self.dimensions, self.local = handle, dimensions, local
        self.requests: list[tuple[str, ...]] = []
        self.closed = False
        self._errors = list(fails)
        self._failure: ModelError | None = None
        self._hangs = False

    def fail(self, error: ModelError | None = None) -> None:
        """Let every call fail with `error`, by default as unreachable, until `recover`."""
        self._failure = error or ModelUnreachable("the scripted embedder is down")

    def hang(self) -> None:
        """Let every call wait for `recover`."""
        self._hangs = True

    def recover(self) -> None:
        """Answer again; waiting calls continue."""
        self._failure, self._hangs = None, False

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        import numpy as np

        await self._record_call(texts)
        rows = np.stack([self._words(text).sum(axis=0) for text in texts]) if texts else np.zeros((0, self.dimensions))
        unit: npt.NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return unit

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        import numpy as np

        await self._record_call(texts)
        return [self._words(text).astype(np.float32) for text in texts]

    async def close(self) -> None:
        self.closed = True

    async def _record_call(self, texts: Sequence[str]) -> None:
        """Note a call, and wait or fail as it was set."""
        self.requests.append(tuple(texts))
        await asyncio.sleep(0)  # yield to other tasks, as a real embedder does
        while self._hangs:  # noqa: ASYNC110 - `recover` may come from another thread
            await asyncio.sleep(HANG_S)
        if self._errors:
            raise self._errors.pop(0)
        if self._failure is not None:
            raise self._failure

    def _words(self, text: str) -> npt.NDArray[np.float64]:
        """One row of length 1 for each word; a text without words counts as one word."""
        import numpy as np

        rows = []
        for word in stems(text) or [text]:
            data = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(2 * self.dimensions)
            numbers = np.frombuffer(data, "<u2") - 32_767.5
            rows.append(numbers / np.linalg.norm(numbers))
        return np.stack(rows)
