"""mem0's `Memory`: `AsyncMemory` with plain calls, over a store of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from perdure.adapters.mem0.async_memory import UNSET, AsyncMemory
from perdure.adapters.mem0.items import Result
from perdure.adapters.opening import Closing, OwnStore


class Memory(Closing):
    """Memories of users, agents and runs, as mem0's `Memory` has them.

    Each method is that of `AsyncMemory`, where arguments and results are described.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        graph: the name of the graph that holds the memories.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    def __init__(self, address: str | Path | None = None, *, graph: str = "mem0", **options: Any) -> None:
        self._store = OwnStore(address, **options)
        self._inner = AsyncMemory(self._store.perdure, graph=graph)

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: datetime | int | float | str | None = None,
        expiration_date: date | str | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> Result:
        """Extract facts from messages and store them; with `infer=False` store each message as it is."""
        return self._store.run(
            self._inner.add(
                messages,
                user_id=user_id,
                agent_id=agent_id,
                run_id=run_id,
                metadata=metadata,
                timestamp=timestamp,
                expiration_date=expiration_date,
                infer=infer,
                memory_type=memory_type,
                prompt=prompt,
            )
        )

    def search(
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        limit: int | None = None,
        **ids: str | None,
    ) -> Result:
        """Search memories, best first, by words, vectors and entities."""
        return self._store.run(
            self._inner.search(
                query,
                top_k=top_k,
                filters=filters,
                threshold=threshold,
                rerank=rerank,
                explain=explain,
                reference_date=reference_date,
                show_expired=show_expired,
                limit=limit,
                **ids,
            )
        )

    def get(self, memory_id: str) -> Result | None:
        """Return a memory; None: there is none."""
        return self._store.run(self._inner.get(memory_id))

    def get_all(
        self,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        limit: int | None = None,
        **ids: str | None,
    ) -> Result:
        """List memories, newest first."""
        return self._store.run(
            self._inner.get_all(filters=filters, top_k=top_k, show_expired=show_expired, limit=limit, **ids)
        )

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: date | str | None = UNSET,
        data: str | None = None,
    ) -> Result:
        """Change the text of a memory, add to its metadata, or set its last day; whose it is stays."""
        return self._store.run(self._inner.update(memory_id, text, metadata, expiration_date, data))

    def delete(self, memory_id: str) -> Result:
        """Delete a memory. Raises: ValueError: there is none."""
        return self._store.run(self._inner.delete(memory_id))

    def delete_all(self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None) -> Result:
        """Delete all memories of a user, an agent or a run. Raises: ValueError: none is given."""
        return self._store.run(self._inner.delete_all(user_id, agent_id, run_id))

    def history(self, memory_id: str) -> list[Result]:
        """List the changes of a memory, oldest first; none for an unknown one."""
        return self._store.run(self._inner.history(memory_id))

    def reset(self) -> None:
        """Delete all memories of all users."""
        self._store.run(self._inner.reset())
