"""mem0's `AsyncMemory` over the facts of one graph.

A memory is a fact; who it is of (`user_id`, `agent_id`, `run_id`) and its metadata are the fact's scope. A deleted
memory can be restored, and its versions stay in its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, Fact, FactHit, NotFound
from perdure.adapters.mem0 import fields
from perdure.adapters.mem0.items import Result, fields_of, history_items, item, metadata_of, scale_scores
from perdure.adapters.opening import AdapterStore, GraphAdapter, StoreOwner, plain
from perdure.features.facts.episodes import NewEpisode
from perdure.features.facts.views import FactConditions, zone

PROGRAM: Mapping[str, Any] = {"type": "program"}
"""Who writes: the program that calls, not a person."""

PAGE = 200
SEARCH_MAX = 1_000
UNSET: Any = object()
_ROLES = {"user": "user", "assistant": "agent"}


class AsyncMemory(GraphAdapter):
    """Memories of users, agents and runs, as mem0's `AsyncMemory` has them, in an open store.

    Args:
        perdure: the store.
        graph: the name of the graph that holds the memories; it is created with the first call.
    """

    def __init__(self, perdure: AsyncPerdure, *, graph: str = "mem0") -> None:
        super().__init__(perdure, graph=graph)
        self._home: tzinfo = UTC

    async def add(
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
        llm: Any = None,
    ) -> Result:
        """Extract facts from messages and store them; with `infer=False` store each message as it is.

        Args:
            messages: a text, a message with `role` and `content`, or several.
            metadata: JSON values that searches can filter by.
            timestamp: when it was said; by default now.
            expiration_date: the last day on which the memory holds.
        Returns: `results`: the memories that are new or changed, with `id`, `memory` and `event` (ADD or UPDATE).
        Raises: ValueError; NotImplementedError: `memory_type`, `prompt` or `llm`; InvalidInput, ModelError.
        """
        if memory_type is not None or llm is not None:
            raise NotImplementedError("memory_type and llm: this adapter stores facts, with the extractor of the store")
        if prompt is not None:
            raise NotImplementedError("prompt: set the `prompt` of the graph's settings in place of one for each call")
        scope = fields.scope_of({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        if not scope:
            raise ValueError("nothing says whose memory it is: give user_id, agent_id or run_id")
        if metadata:
            scope["metadata"] = fields.metadata_text(
                {name: metadata[name] for name in metadata if name not in fields.IDS}
            )
        spoken = [message for message in fields.as_messages(messages) if message["role"] != "system"]
        await self._graph()
        end = fields.end_of(expiration_date, self._home)
        if infer:
            return {"results": await self._add_inferred(spoken, scope, fields.as_time(timestamp, self._home), end)}
        return {"results": [await self._add_verbatim(message, scope, end) for message in spoken]}

    async def search(
        self,
        /,
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
        """Search memories, best first, by words, vectors and entities.

        Args:
            filters: `user_id`, `agent_id` or `run_id`, and metadata, with operators and `AND`, `OR`, `NOT`.
            threshold: the lowest score, 0 to 1.
            rerank: has no effect.
            explain: whether each result has `score_details`.
            show_expired: whether what is no longer true is found too.
            limit, ids: older names: of `top_k`, and the ids that `filters` takes.
        Returns: `results`, with `score`. Raises: ValueError.
        """
        if reference_date is not None:
            raise ValueError("reference_date: this adapter searches what is true now, or with show_expired at any time")
        if not isinstance(query, str) or not query.strip():
            raise ValueError(f"the query is {query!r:.80}: give a text")
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold!r:.80}: give a number from 0 to 1")
        most = fields.check_top_k(top_k if limit is None else limit)
        scope, others = fields.split_filters(filters, ids)
        hits = await (await self._facts()).search(
            query,
            limit=SEARCH_MAX if others else min(max(1, most), SEARCH_MAX),
            explain=True,
            **_conditions(scope, show_expired),
        )
        found = [
            (hit, score)
            for hit, score in scale_scores(hits)
            if score >= (threshold or 0.0) and (not others or fields.matches(await self._fields(hit.fact), others))
        ]
        results = []
        for hit, score in found[:most]:
            result = await self._item(hit.fact, score)
            if explain and hit.why is not None:
                result["score_details"] = dict(hit.why.parts)
            results.append(result)
        return {"results": results}

    async def get(self, memory_id: str) -> Result | None:
        """Return a memory; None: there is none."""
        fact = await self._find(memory_id)
        return None if fact is None else await self._item(fact)

    async def get_all(
        self,
        /,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        limit: int | None = None,
        **ids: str | None,
    ) -> Result:
        """List memories, newest first. The arguments are those of `search`. Raises: ValueError."""
        most = fields.check_top_k(top_k if limit is None else limit)
        scope, others = fields.split_filters(filters, ids)
        results: list[Result] = []
        last: FactHit | None = None
        while len(results) < most:
            page = await (await self._facts()).list(
                limit=PAGE, after=None if last is None else last.fact.id, **_conditions(scope, show_expired)
            )
            chosen = [hit.fact for hit in page if not others or fields.matches(await self._fields(hit.fact), others)]
            results += [await self._item(fact) for fact in chosen[: most - len(results)]]
            if len(page) < PAGE:
                break
            last = page[-1]
        return {"results": results}

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: date | str | None = UNSET,
        data: str | None = None,
    ) -> Result:
        """Change the text of a memory, add to its metadata, or set its last day; its user, agent and run stay.

        Args:
            expiration_date: None: the memory holds without end.
            data: an older name of `text`.
        Raises: ValueError: nothing to change, no such memory.
        """
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is UNSET:
            raise ValueError("there is nothing to change: give text, metadata or expiration_date")
        if (fact := await self._find(memory_id)) is None:
            raise _no_memory(memory_id)
        changes: Any = {} if text is None else {"text": text}
        if metadata is not None:
            own = {name: value for name, value in metadata.items() if name not in fields.IDS}
            changes["scope"] = {**fact.scope, "metadata": fields.metadata_text({**metadata_of(fact), **own})}
        if expiration_date is not UNSET:
            changes |= fields.until(fact, fields.end_of(expiration_date, self._home))
        await self._perdure.facts.edit(fact.id, changes, origin=PROGRAM)
        return {"message": "Memory updated successfully!"}

    async def delete(self, memory_id: str) -> Result:
        """Delete a memory. Raises: ValueError: there is none."""
        if (fact := await self._find(memory_id)) is None:
            raise _no_memory(memory_id)
        await self._perdure.facts.forget([fact.id])
        return {"message": "Memory deleted successfully!"}

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> Result:
        """Delete all memories of a user, agent or run; if several are given, the memories that belong to all of them.
        Raises: ValueError: none is given."""
        scope = fields.scope_of({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        if not scope:
            raise ValueError("nothing says whose memories to delete: give user_id, agent_id or run_id, or call reset()")
        await self._delete_where(scope)
        return {"message": "Memories deleted successfully!"}

    async def history(self, memory_id: str) -> list[Result]:
        """List the changes of a memory, oldest first; none for an unknown one."""
        try:
            versions = (await self._perdure.facts.history(_as_id(memory_id))).versions
        except NotFound:
            return []
        return history_items(versions) if versions[0].graph_id == await self._graph() else []

    async def reset(self) -> None:
        """Delete all memories of all users."""
        await self._delete_where({})

    def close(self) -> None:
        """Do nothing: the program that opened the store closes it."""

    async def _add_inferred(
        self,
        messages: Sequence[Mapping[str, Any]],
        scope: Mapping[str, str],
        occurred_at: datetime | None,
        end: datetime | None,
    ) -> list[Result]:
        """Extract the facts of messages, and return those that are new or changed; `end`: when they end to be true."""
        new = [
            NewEpisode(
                text=message["content"],
                scope=fields.with_name(scope, message),
                trust="agent" if message["role"] == "assistant" else "user",
                occurred_at=occurred_at,
            )
            for message in messages
            if message["role"] in _ROLES
        ]
        hits = await (await self._facts()).add_episodes(new) if new else ()
        results = []
        for hit in hits:
            fact = hit.fact
            if end is not None and (fact.invalid_at is None or fact.invalid_at > end):
                await self._perdure.facts.edit(fact.id, fields.until(fact, end), origin=PROGRAM)
            event = "ADD" if fact.seq == fact.first_seq else "UPDATE"
            results.append({"id": fact.id, "memory": fact.text, "event": event})
        return results

    async def _add_verbatim(self, message: Mapping[str, Any], scope: Mapping[str, str], end: datetime | None) -> Result:
        """Store a message as one fact, word for word; `end`: when the fact ceases to be true."""
        scope = {**fields.with_name(scope, message), "role": message["role"]}
        hit = await (await self._facts()).add_fact(
            message["content"],
            subject=scope.get("actor_id") or next(scope[name] for name in fields.IDS if name in scope),
            origin=PROGRAM,
            scope=scope,
            valid_at=None,
            invalid_at=end,
        )
        return {
            "id": hit.fact.id,
            "memory": hit.fact.text,
            "event": "ADD",
            "actor_id": scope.get("actor_id"),
            "role": message["role"],
        }

    async def _delete_where(self, scope: Mapping[str, str]) -> None:
        """Delete this scope's memories, also those no longer true, and the texts they were extracted from."""
        await (await self._facts()).delete_episodes(scope)
        conditions = _conditions(scope, True)
        while page := await (await self._facts()).list(limit=PAGE, **conditions):
            await self._perdure.facts.forget([hit.fact.id for hit in page])

    async def _find(self, memory_id: str) -> Fact | None:
        """Return the fact of a memory; None: there is none, it is deleted, or it is in another graph."""
        try:
            fact = (await self._perdure.facts.get(_as_id(memory_id))).fact
        except NotFound:
            return None
        return fact if fact.expired_at is None and fact.graph_id == await self._graph() else None

    async def _item(self, fact: Fact, score: float | None = None) -> Result:
        """Return a fact as a memory in mem0's shape."""
        return item(fact, await self._created_at(fact), score, home=self._home)

    async def _fields(self, fact: Fact) -> Mapping[str, Any]:
        """Return the fields of a memory with which filters are compared."""
        return fields_of(fact, await self._created_at(fact), self._home)

    async def _created_at(self, fact: Fact) -> datetime:
        """Return when a memory was added, whatever was changed since."""
        first = fact if fact.seq == fact.first_seq else (await self._perdure.facts.history(fact.id)).versions[0]
        return first.created_at

    async def _graph(self) -> Any:
        """Return the id of the graph; the first call sets `_home` to the graph's time zone."""
        if self._id is None:
            self._home = zone(await self._perdure.facts.of(await super()._graph()).timezone())
        return self._id


def _conditions(scope: Mapping[str, str], show_expired: bool) -> FactConditions:
    """Return the conditions for facts of this scope, proposed ones too; without `show_expired` only for true ones."""
    conditions: FactConditions = {"scope": scope, "states": ("active", "faded", "proposed", "archived")}
    if not show_expired:
        conditions["since"] = datetime.now(UTC)
    return conditions


def _as_id(memory_id: str) -> Any:
    """Return the id of a memory, which is that of its fact."""
    return str(memory_id)


def _no_memory(memory_id: str) -> ValueError:
    """Return the error for an id without a memory."""
    return ValueError(f"there is no memory {memory_id!r:.80}")


class Memory(StoreOwner[AdapterStore]):
    """Memories of users, agents and runs, as mem0's `Memory` has them.

    Each method is that of `AsyncMemory`.

    Args:
        address: the store, as `Perdure` takes it: a file, `postgresql://...`, by default the user's own.
        graph: the name of the graph that holds the memories.
        options: as `Perdure` takes them.
    Raises: StoreError, InvalidInput.
    """

    def __init__(self, address: str | Path | None = None, *, graph: str = "mem0", **options: Any) -> None:
        self._store = AdapterStore(address, **options)
        self._inner = AsyncMemory(self._store.perdure, graph=graph)

    add = plain(AsyncMemory.add)
    search = plain(AsyncMemory.search)
    get = plain(AsyncMemory.get)
    get_all = plain(AsyncMemory.get_all)
    update = plain(AsyncMemory.update)
    delete = plain(AsyncMemory.delete)
    delete_all = plain(AsyncMemory.delete_all)
    history = plain(AsyncMemory.history)
    reset = plain(AsyncMemory.reset)
