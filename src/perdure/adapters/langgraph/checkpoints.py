"""LangGraph's checkpointer over an archive: the states of threads, so that graphs go on after a restart."""

from __future__ import annotations

import builtins
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base
from langgraph.checkpoint.serde.base import SerializerProtocol

from perdure import NewPassage, Passage
from perdure.adapters.opening import ArchiveAdapter, in_store, in_thread

LISTED = 20
"""How many checkpoints are read at once, where several are listed."""
PART_CHARS = 300_000
"""A longer value is kept in several passages."""


class PerdureSaver(ArchiveAdapter, base.BaseCheckpointSaver[str]):
    """LangGraph's checkpoints, with the writes that follow them and the values of channels, as passages of an archive.

    A value is stored once, when its channel changes. Values are stored before the checkpoint that names them, so that
    a killed process leaves no checkpoint without them.

    Args:
        serde: makes bytes of values, as LangGraph's own checkpointers take it.
        address, options: as `ArchiveAdapter` takes them.
    """

    _archive = "langgraph-checkpoints"

    def __init__(
        self, address: str | Path | None = None, *, serde: SerializerProtocol | None = None, **options: Any
    ) -> None:
        base.BaseCheckpointSaver.__init__(self, serde=serde)
        ArchiveAdapter.__init__(self, address, **options)

    @in_store
    async def get_tuple(self, config: RunnableConfig) -> base.CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the newest of its thread; None: there is none."""
        thread_id, namespace, checkpoint_id = _checkpoint_key(config)
        if checkpoint_id is not None:
            found = await (await self._store.archive()).find_named((thread_id, namespace, "checkpoint", checkpoint_id))
            return None if found is None else await self._tuple(found)
        tags = ["checkpoint", _tag("line", thread_id, namespace)]
        async for passage in self._store.passages(tags, newest_first=True, page_size=1):
            return await self._tuple(passage)
        return None

    @in_store
    async def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[base.CheckpointTuple]:
        """Return checkpoints, newest first: of a thread, or with None of all. `filter`: metadata that they have."""
        tags, wanted = ["checkpoint"], None
        if config is not None:
            thread_id, namespace, wanted = _checkpoint_key(config)
            has_line = config["configurable"].get("checkpoint_ns") is not None
            tags += [_tag("line", thread_id, namespace) if has_line else _tag("thread", thread_id)]
        end = None if before is None else base.get_checkpoint_id(before)
        found: builtins.list[base.CheckpointTuple] = []
        async for passage in self._store.passages(tags, newest_first=True, page_size=LISTED):
            if limit is not None and len(found) >= limit:
                break
            id_ = passage.metadata["id"]
            if wanted not in (None, id_) or (end is not None and id_ >= end):
                continue
            metadata = await self._value(passage, "about")
            if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                found.append(await self._tuple(passage))
        return iter(found)

    @in_store
    async def put(
        self,
        config: RunnableConfig,
        checkpoint: base.Checkpoint,
        metadata: base.CheckpointMetadata,
        new_versions: base.ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the values of the channels in `new_versions`, and return the config that names it."""
        thread_id, namespace, parent = _checkpoint_key(config)
        values = checkpoint["channel_values"]
        for channel, version in new_versions.items():
            if channel in values:
                name = (thread_id, namespace, "value", channel, str(version))
                await self._store_value(name, [], {"version": version}, data=values[channel])
        about = base.get_checkpoint_metadata(config, metadata)
        tags = ["checkpoint", _tag("line", thread_id, namespace)]
        if run_id := about.get("run_id"):
            tags.append(_tag("run", run_id))
        await self._store_value(
            (thread_id, namespace, "checkpoint", checkpoint["id"]),
            tags,
            {"id": checkpoint["id"], "parent": parent},
            data={name: value for name, value in checkpoint.items() if name != "channel_values"},
            about=about,
        )
        return _config(thread_id, namespace, checkpoint["id"])

    @in_store
    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint. The same write again changes nothing."""
        thread_id, namespace, checkpoint_id = _checkpoint_key(config)
        archive = await self._store.archive()
        for number, (channel, value) in enumerate(writes):
            place = base.WRITES_IDX_MAP.get(channel, number)
            name = (thread_id, namespace, "write", checkpoint_id or "", task_id, str(place))
            if place >= 0 and await archive.find_named(name) is not None:
                continue
            fields = {"channel": channel, "task": task_id, "path": task_path, "place": place}
            tags = [_tag("writes", thread_id, namespace, checkpoint_id or "")]
            await self._store_value(name, tags, fields, data=value)

    @in_store
    async def delete_thread(self, thread_id: str) -> None:
        """Remove all of a thread."""
        await self._delete([_tag("thread", thread_id)])

    @in_store
    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of these runs, with the writes that follow them."""
        for run_id in run_ids:
            gone = [one async for one in self._store.passages([_tag("run", run_id)])]
            for thread_id in {one.metadata["name"][0] for one in gone}:
                tags = ["checkpoint", _tag("thread", thread_id)]
                all_of_thread = [passage async for passage in self._store.passages(tags)]
                ids = {one.id for one in gone}
                await self._remove_checkpoints(
                    [one for one in gone if one.metadata["name"][0] == thread_id],
                    [one for one in all_of_thread if one.id not in ids],
                )

    @in_store
    async def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all of a thread to another one."""
        archive = await self._store.archive()
        async for passage in self._store.passages([_tag("thread", source_thread_id)]):
            name = [str(target_thread_id), *passage.metadata["name"][1:]]
            tags = [_tag_in_thread(tag, target_thread_id) for tag in passage.tags]
            metadata = {**passage.metadata, "name": name}
            await archive.put_named(name, NewPassage(text=passage.text, tags=tags, metadata=metadata))

    @in_store
    async def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove all but the newest checkpoint of each namespace of these threads, and earlier ones from which channels
        of changes are built; with the strategy "delete" all. Raises: ValueError: an unknown strategy."""
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is {strategy!r:.80}: give 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self._delete([_tag("thread", thread_id)])
            else:
                await self._prune(thread_id)

    aget_tuple = in_thread(get_tuple)
    aput = in_thread(put)
    aput_writes = in_thread(put_writes)
    adelete_thread = in_thread(delete_thread)
    adelete_for_runs = in_thread(delete_for_runs)
    acopy_thread = in_thread(copy_thread)
    aprune = in_thread(prune)
    _alist = in_thread(list)

    async def alist(self, config: RunnableConfig | None, **conditions: Any) -> AsyncIterator[base.CheckpointTuple]:
        """As `list`."""
        for one in await self._alist(config, **conditions):
            yield one

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the version after another one. Two branches of a thread never get the same one."""
        number = int(str(current).partition(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    async def _delete(self, tags: Sequence[str]) -> None:
        await (await self._store.archive()).delete_where(tags=list(tags), tag_match="all")

    async def _remove_checkpoints(self, gone: Sequence[Passage], kept: Sequence[Passage]) -> None:
        """Remove checkpoints of one thread with their writes, and the values that no checkpoint of `kept` uses."""
        values = await self._value_names(gone) - await self._value_names(kept)
        for passage in gone:
            thread_id, namespace, _, checkpoint_id = passage.metadata["name"]
            writes = [one async for one in self._store.passages([_tag("writes", thread_id, namespace, checkpoint_id)])]
            for one in (*writes, passage):
                await self._remove(one)
        for name in values:
            if (found := await (await self._store.archive()).find_named(name)) is not None:
                await self._remove(found)

    async def _value_names(self, checkpoints: Sequence[Passage]) -> set[tuple[str, ...]]:
        """Return the names of the values that these checkpoints have."""
        names: set[tuple[str, ...]] = set()
        for passage in checkpoints:
            thread_id, namespace = passage.metadata["name"][:2]
            versions = (await self._value(passage, "data"))["channel_versions"]
            names |= {(thread_id, namespace, "value", channel, str(version)) for channel, version in versions.items()}
        return names

    async def _remove(self, passage: Passage) -> None:
        """Remove a passage with the parts of its values."""
        archive, name = await self._store.archive(), passage.metadata["name"]
        for key in ("data", "about"):
            for number in range(1, passage.metadata.get(key, {}).get("parts", 1)):
                await archive.delete_named([*name, key, str(number)])
        await archive.delete_named(name)

    async def _prune(self, thread_id: str) -> None:
        kept: list[Passage] = []
        gone: list[Passage] = []
        missing: dict[str, set[str]] = {}
        tags = ["checkpoint", _tag("thread", thread_id)]
        for passage in [one async for one in self._store.passages(tags, newest_first=True)]:
            one = await self._tuple(passage)
            namespace = passage.metadata["name"][1]
            is_newest = namespace not in missing
            changing = missing.setdefault(namespace, {*one.metadata.get("counters_since_delta_snapshot", {})})
            (kept if is_newest or changing else gone).append(passage)
            changing -= {*one.checkpoint["channel_values"]}
        await self._remove_checkpoints(gone, kept)

    async def _tuple(self, passage: Passage) -> base.CheckpointTuple:
        """Return the checkpoint of a passage with its values and with the writes that follow it, in order."""
        thread_id, namespace, _, checkpoint_id = passage.metadata["name"]
        archive, checkpoint = await self._store.archive(), await self._value(passage, "data")
        values: dict[str, Any] = {}
        for channel, version in checkpoint["channel_versions"].items():
            found = await archive.find_named((thread_id, namespace, "value", channel, str(version)))
            if found is not None:
                values[channel] = await self._value(found, "data")
        writes = [
            (one.metadata, await self._value(one, "data"))
            async for one in self._store.passages([_tag("writes", thread_id, namespace, checkpoint_id)])
        ]
        writes.sort(key=lambda one: base.writes_sort_key(one[0]["path"], one[0]["task"], one[0]["place"]))
        parent = passage.metadata["parent"]
        return base.CheckpointTuple(
            config=_config(thread_id, namespace, checkpoint_id),
            checkpoint=cast(base.Checkpoint, {**checkpoint, "channel_values": values}),
            metadata=await self._value(passage, "about"),
            parent_config=_config(thread_id, namespace, parent) if parent else None,
            pending_writes=[(fields["task"], fields["channel"], value) for fields, value in writes],
        )

    async def _store_value(
        self, name: Sequence[str], tags: Sequence[str], fields: Mapping[str, Any], **values: Any
    ) -> None:
        """Store `values` as the passage of this name, beside the fields that are JSON already. Values too long for one
        passage are split over several, which are stored first."""
        archive = await self._store.archive()
        thread_tag = _tag("thread", name[0])
        metadata: dict[str, Any] = {**fields, "name": list(name)}
        for key, value in values.items():
            kind, data = self.serde.dumps_typed(value)
            text = b64encode(data).decode()
            parts = [text[start : start + PART_CHARS] for start in range(0, len(text), PART_CHARS)] or [""]
            for number, part in enumerate(parts[1:], 1):
                part_name = [*name, key, str(number)]
                new = NewPassage(text="(part)", tags=[thread_tag], metadata={"name": part_name, "part": part})
                await archive.put_named(part_name, new)
            metadata[key] = {"type": kind, "data": parts[0], "parts": len(parts)}
        new = NewPassage(text=f"({name[2]})", tags=[thread_tag, *tags], metadata=metadata)
        await archive.put_named(name, new)

    async def _value(self, passage: Passage, key: str) -> Any:
        """Return the value that a passage stores under a key."""
        stored, text = passage.metadata[key], passage.metadata[key]["data"]
        for number in range(1, stored["parts"]):
            part = await (await self._store.archive()).find_named([*passage.metadata["name"], key, str(number)])
            if part is None:
                raise ValueError(f"{passage.metadata['name']} lacks part {number} of {key}: somebody removed it")
            text += part.metadata["part"]
        return self.serde.loads_typed((stored["type"], b64decode(text)))


def _checkpoint_key(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return (thread, namespace, id of the checkpoint or None) that a config names."""
    fields = config["configurable"]
    return str(fields["thread_id"]), fields.get("checkpoint_ns") or "", base.get_checkpoint_id(config)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    fields = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": fields}


def _tag(kind: str, *names: str) -> str:
    """Return the tag of passages of a thread, a line of checkpoints, a run or a checkpoint; ids may be numbers, too."""
    return f"{kind}:{json.dumps([*map(str, names)], ensure_ascii=False)}"


def _tag_in_thread(tag: str, thread_id: str) -> str:
    """Return the tag that a passage has in another thread."""
    kind, _, names = tag.partition(":")
    return _tag(kind, thread_id, *json.loads(names)[1:]) if kind in ("thread", "line", "writes") else tag
