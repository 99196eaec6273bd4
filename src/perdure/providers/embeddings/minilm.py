"""`MiniLM`: the local embedder, all-MiniLM-L6-v2 or another small BERT, computed in numpy. It downloads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from perdure.core.errors import ModelRequestRefused
from perdure.core.ports import EmbedPurpose
from perdure.core.text.json_strings import encodable
from perdure.providers.embeddings.weights import WeightsFolder, load

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.providers.embeddings.bert import Bert

P = ParamSpec("P")
T = TypeVar("T")

BATCH_PIECES = 256
"""Word pieces of one pass: enough to be fast, few enough that a query does not wait long behind a batch (50 ms)."""

WINDOWS_MAX = 8
CHARS_PER_PIECE = 16


_Loaded = tuple["Bert", Any, int, int]
"""The weights, the tokenizer, and the ids of the pieces that open and close a text."""

_Window = tuple[int, list[int]]
"""The index of a text, and pieces of it that go through the model together, the two special ones included."""


class MiniLM:
    """`Embedder` and `WordEmbedder` over a folder of weights.

    A text's vector is the mean of its word pieces' states, as sentence-transformers computes it. Of a text that is
    longer than the model takes (256 pieces), up to eight equal windows are embedded, and the vector is their mean by
    length; what comes after 2,032 pieces, or 32,512 characters, does not count.

    The weights are loaded at the first call. All work is done in one thread of its own, at most some 50 ms at a time,
    and several callers take turns; BLAS computes in that thread alone.
    """

    local = True

    def __init__(self, folder: WeightsFolder) -> None:
        self.handle, self.dimensions = f"local/{folder.name}", folder.dimensions
        self._folder = folder
        self._loaded: _Loaded | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`; queries and documents are embedded alike. Raises: ModelRequestRefused: the weights can't be
        used."""
        import numpy as np

        from perdure.providers.embeddings.vectors import unit_rows

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        async for index, states in self._states(texts, windows_max=WINDOWS_MAX):
            mean = states.mean(axis=0)
            rows[index] += len(states) / np.linalg.norm(mean) * mean
        who = f"the model in {self._folder.path}"
        return unit_rows(rows, texts=len(texts), dimensions=self.dimensions, who=who)

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """See `WordEmbedder`; of a long text the first 254 pieces. Raises: ModelRequestRefused."""
        import numpy as np

        words = [np.zeros((0, self.dimensions), np.float32)] * len(texts)
        async for index, states in self._states(texts, windows_max=1):
            inner = states[1:-1]
            words[index] = inner / np.linalg.norm(inner, axis=1, keepdims=True)
        return words

    async def close(self) -> None:
        """End the thread and drop the weights; the next call loads them again."""
        thread, self._thread, self._loaded = self._thread, None, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)

    async def _states(
        self, texts: Sequence[str], *, windows_max: int
    ) -> AsyncIterator[tuple[int, npt.NDArray[np.float32]]]:
        """(index of the text, states of its pieces) of each window of the texts, the shortest windows first."""
        from perdure.providers.embeddings.bert import hidden_states

        windows: list[_Window] = []
        for index, text in enumerate(texts):
            windows += await self._in_thread(self._windows, index, text, windows_max)
        for batch in _batches(windows):
            found = await self._in_thread(lambda ids: hidden_states(self._load()[0], ids), [ids for _, ids in batch])
            for (index, _), states in zip(batch, found, strict=True):
                yield index, states

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the embedder's thread, after those of other callers."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-embed")
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def _load(self) -> _Loaded:
        """The weights, read when they are first needed. Raises: ModelRequestRefused."""
        if self._loaded is None:
            bert = load(self._folder)
            self._loaded = bert, *_tokenizer(self._folder, len(bert.words))
        return self._loaded

    def _windows(self, index: int, text: str, windows_max: int) -> list[_Window]:
        """The text's pieces in as few windows as hold them, all about equally long."""
        (_, tokenizer, before, behind), room = self._load(), self._folder.pieces - 2
        text = encodable(text[: windows_max * room * CHARS_PER_PIECE])
        ids = tokenizer.encode(text, add_special_tokens=False).ids[: windows_max * room]
        count = max(1, -(-len(ids) // room))
        cuts = [len(ids) * number // count for number in range(count + 1)]
        return [(index, [before, *ids[start:stop], behind]) for start, stop in pairwise(cuts)]


def _tokenizer(folder: WeightsFolder, words: int) -> tuple[Any, int, int]:
    """(tokenizer, id of the piece before a text, id of the piece behind it). Raises: ModelRequestRefused."""
    path = folder.path / "tokenizer.json"
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of no class of its own
        raise ModelRequestRefused(f"{path} can't be read: {error}. Install the weights anew") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    start, end = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if start is None or end is None or tokenizer.get_vocab_size() > words:
        raise ModelRequestRefused(f"{path} does not belong to the weights beside it: it knows other word pieces")
    return tokenizer, start, end


def _batches(windows: Sequence[_Window]) -> Iterator[list[_Window]]:
    """The windows, the short ones first, as many at a time as a pass takes when all are padded to the longest."""
    batch: list[_Window] = []
    for window in sorted(windows, key=lambda window: len(window[1])):
        if batch and (len(batch) + 1) * len(window[1]) > BATCH_PIECES:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
