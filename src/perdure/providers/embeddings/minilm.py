"""`MiniLM`: the local embedder, all-MiniLM-L6-v2 or another small BERT, computed in numpy. It downloads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from perdure.core.errors import ModelRequestRefused
from perdure.core.ports import EmbedPurpose
from perdure.core.text.json_strings import encodable
from perdure.core.text.words import STOP_WORDS
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

_MORE_TEXT = (
    "after all also always because before d don down each go going got here let m more much off one only other out over"
    " really some t thanks those through too up very way while yeah"
)
_FUNCTION_WORDS = STOP_WORDS.union(_MORE_TEXT.split())


_Loaded = tuple["Bert", Any, int, int]
"""The weights, the tokenizer, and the ids of the pieces that open and close a text."""


class _Window(NamedTuple):
    """Pieces that go through the model together.

    Args:
        text: the index of their text.
        ids: the ids of the pieces, the two special ones included.
        words: in the text's first window, the places in `ids` of the pieces that are its words.
    """

    text: int
    ids: list[int]
    words: list[int]


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
        """See `Embedder`. Raises: ModelRequestRefused: the weights can't be used."""
        return (await self.embed_with_words(texts, purpose=purpose))[0]

    async def embed_with_words(
        self, texts: Sequence[str], *, purpose: EmbedPurpose = "document"
    ) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.float32]]]:
        """See `WordEmbedder`; words are the first window's pieces, without stop words. Raises: ModelRequestRefused."""
        import numpy as np

        from perdure.providers.embeddings.vectors import unit_rows

        rows = np.zeros((len(texts), self.dimensions), np.float32)
        words = [rows[:0]] * len(texts)
        async for window, states in self._states(texts, whole=purpose == "query"):
            mean = states.mean(axis=0)
            rows[window.text] += len(states) / np.linalg.norm(mean) * mean
            if window.words:
                inner = states[window.words]
                words[window.text] = inner / np.linalg.norm(inner, axis=1, keepdims=True)
        who = f"the model in {self._folder.path}"
        return unit_rows(rows, texts=len(texts), dimensions=self.dimensions, who=who), words

    async def close(self) -> None:
        """End the thread and drop the weights; the next call loads them again."""
        thread, self._thread, self._loaded = self._thread, None, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)

    async def _states(
        self, texts: Sequence[str], *, whole: bool
    ) -> AsyncIterator[tuple[_Window, npt.NDArray[np.float32]]]:
        """Each window of the texts with the states of its pieces, the shortest first; with `whole` all are words."""
        from perdure.providers.embeddings.bert import hidden_states

        windows: list[_Window] = []
        for index, text in enumerate(texts):
            windows += await self._in_thread(self._windows, index, text, whole)
        for batch in _batches(windows):
            ids = [window.ids for window in batch]
            found = await self._in_thread(lambda ids: hidden_states(self._load()[0], ids), ids)
            for window, states in zip(batch, found, strict=True):
                yield window, states

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

    def _windows(self, index: int, text: str, whole: bool) -> list[_Window]:
        """The text's pieces in as few windows as hold them, all about equally long; with `whole` all are words."""
        (_, tokenizer, before, behind), room = self._load(), self._folder.pieces - 2
        text = encodable(text[: WINDOWS_MAX * room * CHARS_PER_PIECE])
        found = tokenizer.encode(text, add_special_tokens=False)
        ids = found.ids[: WINDOWS_MAX * room]
        count = max(1, -(-len(ids) // room))
        cuts = [len(ids) * number // count for number in range(count + 1)]
        places = range(1, cuts[1] + 1)
        words = [] if whole else [at for at, piece in zip(places, found.tokens, strict=False) if _says_something(piece)]
        return [
            _Window(index, [before, *ids[start:stop], behind], [] if start else words or list(places))
            for start, stop in pairwise(cuts)
        ]


def _says_something(piece: str) -> bool:
    """Whether a word piece is more than a function word or punctuation. Without the others a message of LoCoMo has 13
    pieces, not 34, and late interaction finds as much."""
    return piece not in _FUNCTION_WORDS and any(map(str.isalnum, piece))


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
    for window in sorted(windows, key=lambda window: len(window.ids)):
        if batch and (len(batch) + 1) * len(window.ids) > BATCH_PIECES:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch
