"""`search_output`: the best passages of a long result, with their lines, within a budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.context.retrieval.expand import Budget
from perdure.core.documents import Chunk, Document
from perdure.core.errors import ToolError
from perdure.core.messages import Message
from perdure.core.nodes import message_handle
from perdure.core.runs import Run
from perdure.domain.conversations.handles import resolve_handle
from perdure.domain.files.chunking import ChunkSizes, chunks
from perdure.engine.search.search import QUERY_TIMEOUT_S, Search
from perdure.storage.tx import Tx

if TYPE_CHECKING:
    from perdure.search.output import OutputParts

SIZES = ChunkSizes(target=500, most=800)
"""Of the passages of an output; smaller than those of files, since each token counts."""


def load_output(tx: Tx, run: Run, handle: str) -> Message:
    """Return the message of a handle. Raises: ToolError: it is of no single message, or of none with a text."""
    target = resolve_handle(tx, run, handle)
    if not isinstance(target, Message):
        raise ToolError(f"{handle[:40]!r} is not one message: give the handle of a tool's result, such as msg-17")
    if not target.text.strip():
        raise ToolError(f"{message_handle(target.seq)} has no text to search")
    return target


async def search_output(search: Search, message: Message, query: str, budget: Budget, *, offset: int) -> str:
    """Return the passages of a message's text that match best, and how many there are.

    Args:
        offset: how many passages are passed over.
    Raises: ToolError: the query or the offset can't be used; TooMany: the query is too long.
    """
    search.check_query(query)
    if not query.strip():
        raise ToolError("the query is empty: say what to look for")
    if offset < 0:
        raise ToolError(f"offset={offset} can't be used: give how many passages to pass over, 0 or more")
    from perdure.search.output import EMBEDDED

    found, order = await asyncio.to_thread(_find, message.text, query)
    if search.has_embedder:
        spread = range(0, len(found.parts), max(1, len(found.parts) // EMBEDDED))  # where words find too little
        near = list(dict.fromkeys((*order, *spread)))[:EMBEDDED]
        order = await _rank_by_meaning(search, found, near, query) or order
    handle = message_handle(message.seq)
    if not order:
        return budget.cut(
            f"Nothing in {handle} ({len(found.parts):,} passages) matches. Try other words,"
            f' or context_expand("{handle}", grep="...").'
        )
    return await asyncio.to_thread(_render, [found.parts[row] for row in order], message, budget, offset)


def _find(text: str, query: str) -> tuple[OutputParts, Sequence[int]]:
    """The passages of a text, and which of them have words of the query, best first."""
    from perdure.search.output import count_words

    found = count_words(chunks(Document(name="output", kind="text", text=text), sizes=SIZES), query)
    return found, found.rank() if found.parts else ()


async def _rank_by_meaning(search: Search, found: OutputParts, near: Sequence[int], query: str) -> Sequence[int] | None:
    """The passages ranked by words and by the vectors of some of them; None: there are no vectors in time."""
    import numpy as np

    wanted = await search.embed([query], purpose="query", timeout_s=QUERY_TIMEOUT_S)
    vectors = await search.embed([found.parts[row].text for row in near])
    if wanted is None or vectors is None:
        return None
    dense = np.full(len(found.parts), np.nan)
    dense[list(near)] = vectors @ wanted[0]
    return await asyncio.to_thread(found.rank, dense)


def _render(parts: Sequence[Chunk], message: Message, budget: Budget, offset: int) -> str:
    """As many passages as fit, each with its lines."""
    handle, text = message_handle(message.seq), message.text
    left = parts[offset:]
    if not left:
        return budget.cut(f"There are {len(parts)} matching passages in {handle}: offset={offset} is behind them.")
    places = _places(text, parts)
    shown = [f"{places[part]}\n{part.text}" for part in left]

    def answer(count: int) -> str:
        behind = offset + count
        more = f"; the next: offset={behind}" if behind < len(parts) else ""
        last = behind if count else offset + 1
        head = f"[passages {offset + 1}-{last} of {len(parts)} that match in {handle}{more}]"
        return "\n\n".join((head, *shown[:count]))

    count = 0
    while count < len(shown) and budget.fits(answer(count + 1)):
        count += 1
    return answer(count) if count else budget.cut(f"{answer(0)}\n\n{shown[0]}")


def _places(text: str, parts: Sequence[Chunk]) -> dict[Chunk, str]:
    """Passage -> its place as `context_expand` takes it: `lines 12..20`, or `lines 3:500..900` within a long line."""
    places: dict[Chunk, str] = {}
    for part in parts:
        places[part] = f"lines {part.first_line}..{part.last_line}"
    long_lines = {part.first_line for part in parts if part.first_line == part.last_line}
    if not long_lines:
        return places
    lines = text.split("\n")
    for part in parts:
        line = lines[part.first_line - 1]
        if part.first_line in long_lines and part.first_line == part.last_line and len(part.text) < len(line):
            start = line.find(part.text) + 1
            places[part] = f"lines {part.first_line}:{start}..{start + len(part.text) - 1}"
    return places
