"""`MiniLM`: the local embedder, all-MiniLM-L6-v2 or another small BERT, computed in numpy. It downloads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.core.errors import ModelRequestRefused
from perdure.core.ports import EmbedPurpose
from perdure.providers.embeddings.texts import encodable
from perdure.providers.embeddings.weights import WeightsFolder, load

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.providers.embeddings.bert import Bert, Workspace

BATCH_PIECES = 256
"""Word pieces of one pass: enough to be fast, few enough that a query does not wait long behind a batch (50 ms)."""

WINDOWS_MAX = 8
CHARS_PER_PIECE = 16
READ_CHARS = 100_000
"""Characters that are cut into word pieces at a time."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    bert: Bert
    tokenizer: Any
    space: Workspace
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Window:
    """Pieces of a text that go through the model together, the two special ones included."""

    text: int
    ids: list[int]


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
        self._chars = WINDOWS_MAX * (folder.pieces - 2) * CHARS_PER_PIECE

    async def embed(self, texts: Sequence[str], *, purpose: EmbedPurpose = "document") -> npt.NDArray[np.float32]:
        """See `Embedder`; queries and documents are embedded alike. Raises: ModelRequestRefused: the weights can't be
        used."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        await self._take_turns(self._embed(texts, rows))
        return rows

    async def embed_words(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """See `WordEmbedder`; of a long text the first 254 pieces. Raises: ModelRequestRefused."""
        import numpy as np

        words = [np.zeros((0, self.dimensions), np.float32)] * len(texts)
        await self._take_turns(self._embed_words(texts, words))
        return words

    async def close(self) -> None:
        thread, self._thread, self._loaded = self._thread, None, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)

    async def _take_turns(self, steps: Iterator[None]) -> None:
        """Do these steps in the thread; between two of them it is another caller's turn."""
        loop = asyncio.get_running_loop()
        more = True
        while more:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-embed")
            more = await loop.run_in_executor(self._thread, next, steps, False) is None

    def _embed(self, texts: Sequence[str], rows: npt.NDArray[np.float32]) -> Iterator[None]:
        """Fill the rows. Each step is at most one pass."""
        import numpy as np

        from perdure.providers.embeddings.vectors import unit_rows

        loaded = self._load()
        windows: list[_Window] = []
        for index in _read_in_steps(texts):
            if index < 0:
                yield
                continue
            windows += _windows(loaded, index, texts[index][: self._chars], self._folder.pieces, WINDOWS_MAX)
        for number, batch in enumerate(_batches(windows)):
            if number:
                yield
            states, starts, lengths = _pass(loaded, batch)
            means = (np.add.reduceat(states, starts, axis=1) / lengths).T
            means *= (lengths / np.linalg.norm(means, axis=1))[:, None]
            np.add.at(rows, [window.text for window in batch], means)
        rows[...] = unit_rows(
            rows, texts=len(texts), dimensions=self.dimensions, who=f"the model in {self._folder.path}"
        )

    def _embed_words(self, texts: Sequence[str], words: list[npt.NDArray[np.float32]]) -> Iterator[None]:
        import numpy as np

        loaded = self._load()
        windows: list[_Window] = []
        chars = self._chars // WINDOWS_MAX
        for index in _read_in_steps(texts):
            if index < 0:
                yield
                continue
            windows += _windows(loaded, index, texts[index][:chars], self._folder.pieces, 1)
        for number, batch in enumerate(_batches(windows)):
            if number:
                yield
            states, starts, lengths = _pass(loaded, batch)
            norms = np.linalg.norm(states, axis=0)
            units = np.ascontiguousarray((states / norms).T)
            for window, start, length in zip(batch, starts, lengths, strict=True):
                words[window.text] = units[start + 1 : start + length - 1].copy()

    def _load(self) -> _Loaded:
        """The weights, read when they are first needed. Raises: ModelRequestRefused."""
        if self._loaded is None:
            from perdure.providers.embeddings.bert import Workspace

            bert = load(self._folder)
            tokenizer, start, end = _tokenizer(self._folder, len(bert.words))
            space = Workspace(bert, max(BATCH_PIECES, self._folder.pieces))
            self._loaded = _Loaded(bert, tokenizer, space, start, end)
        return self._loaded


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


def _read_in_steps(texts: Sequence[str]) -> Iterator[int]:
    """The index of each text; -1 in between where it is another caller's turn."""
    read = 0
    for index, text in enumerate(texts):
        if read > READ_CHARS:
            yield -1
            read = 0
        yield index
        read += len(text)


def _windows(loaded: _Loaded, index: int, text: str, pieces: int, most: int) -> Iterator[_Window]:
    """The text's pieces in as few windows as hold them, all about equally long, at most `most`."""
    room = pieces - 2
    ids = loaded.tokenizer.encode(encodable(text), add_special_tokens=False).ids[: most * room]
    count = max(1, -(-len(ids) // room))
    for number in range(count):
        start, stop = len(ids) * number // count, len(ids) * (number + 1) // count
        yield _Window(index, [loaded.start, *ids[start:stop], loaded.end])


def _batches(windows: list[_Window]) -> Iterator[list[_Window]]:
    """The windows, the short ones first, as many at a time as a pass takes."""
    batch: list[_Window] = []
    count = 0
    for window in sorted(windows, key=lambda window: len(window.ids)):
        if batch and count + len(window.ids) > BATCH_PIECES:
            yield batch
            batch, count = [], 0
        batch.append(window)
        count += len(window.ids)
    if batch:
        yield batch


def _pass(
    loaded: _Loaded, batch: Sequence[_Window]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(states of all pieces, shape (dimensions, pieces); where each window begins; how long it is)."""
    import numpy as np

    from perdure.providers.embeddings.bert import hidden_states
    from perdure.providers.embeddings.blas import one_thread

    lengths = np.array([len(window.ids) for window in batch])
    with one_thread():
        states = hidden_states(loaded.bert, [window.ids for window in batch], loaded.space)
    return states, np.cumsum(lengths) - lengths, lengths
