"""LangGraph's `BaseStore` over an archive: JSON values under namespaces and keys, found by words and by meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph.store import base

from perdure import NewPassage
from perdure.adapters.opening import ArchiveAdapter, in_thread
from perdure.library.parts.checks import name_form

SEARCH_MAX = 1_000
INDEXED = "indexed"
Namespace = tuple[str, ...]


class PerdureStore(ArchiveAdapter, base.BaseStore):
    """LangGraph's store of items, each a JSON object under a namespace and a key, in an archive of Perdure's store.

    Args:
        fields: the paths of an item's value that a query searches, as in LangGraph's `index`; by default all of it.
        address, options: as `ArchiveAdapter` takes them.
    """

    _archive = "langgraph"

    def __init__(
        self, address: str | Path | None = None, *, fields: Sequence[str] | None = None, **options: Any
    ) -> None:
        super().__init__(address, **options)
        self._fields = fields

    def batch(self, ops: Iterable[base.Op]) -> list[base.Result]:
        """Return the results of operations, in order. All read what was there before; of several puts of a key the last
        one counts. Raises: InvalidNamespaceError, InvalidInput, StoreError."""
        return self._store.run(self._run(list(ops)))

    abatch = in_thread(batch)

    async def _run(self, ops: Sequence[base.Op]) -> list[base.Result]:
        """Run the operations that read, then those that write; return their results in the order of `ops`."""
        results: list[base.Result] = []
        puts: dict[tuple[Namespace, str], base.PutOp] = {}
        for op in ops:
            base.validate_op_namespace(op)
            if isinstance(op, base.PutOp):
                puts[name_form((op.namespace, op.key))] = op
                results.append(None)
            elif isinstance(op, base.GetOp):
                passage = await (await self._store.archive()).find_named((*op.namespace, op.key))
                results.append(None if passage is None else base.Item(**_fields_of(passage)))
            elif isinstance(op, base.SearchOp):
                results.append(await self._find(op))
            elif isinstance(op, base.ListNamespacesOp):
                results.append(await self._namespaces(op))
            else:
                raise ValueError(f"the operation is {op!r:.80}: give GetOp, SearchOp, PutOp or ListNamespacesOp")
        for op in puts.values():
            await self._put(op)
        return results

    async def _put(self, op: base.PutOp) -> None:
        """Store an item, or delete it, if its value is None."""
        name = (*op.namespace, op.key)
        if op.value is None:
            await (await self._store.archive()).delete_named(name)
            return
        paths = self._fields if op.index is None else op.index
        text = "" if paths is False else _text(op.value, paths or None)
        prefixes = [_tag("in", op.namespace[:length]) for length in range(1, len(op.namespace) + 1)]
        tags = [*prefixes, _tag("at", op.namespace), *([INDEXED] if text else [])]
        metadata = {"namespace": list(op.namespace), "key": op.key, "value": dict(op.value)}
        new = NewPassage(text=text or "(not indexed)", tags=tags, metadata=metadata)
        await (await self._store.archive()).put_named(name, new)

    async def _find(self, op: base.SearchOp) -> list[base.SearchItem]:
        """Return the items below a namespace that meet a filter: with a query the best first, else by creation."""
        end = op.offset + op.limit
        tags = [_tag("in", op.namespace_prefix)] if op.namespace_prefix else []
        if not op.query:
            listed = [base.SearchItem(**one) async for one in self._list(tags, op.filter or {}, end)]
            return listed[op.offset : end]
        most = SEARCH_MAX if op.filter else max(1, min(end, SEARCH_MAX))
        archive = await self._store.archive()
        hits = await archive.search(op.query, tags=[*tags, INDEXED], tag_match="all", limit=most)
        found = [(_fields_of(hit.passage), hit.score) for hit in hits]
        chosen = [(fields, score) for fields, score in found if _meets(fields["value"], op.filter or {})]
        return [base.SearchItem(**fields, score=score) for fields, score in chosen[op.offset : end]]

    async def _list(self, tags: Sequence[str], condition: Mapping[str, Any], most: int) -> Any:
        """Yield the fields of the first `most` items with these tags that meet a condition, by creation."""
        count = 0
        async for passage in self._store.passages(tags):
            if count >= most:
                return
            fields = _fields_of(passage)
            if _meets(fields["value"], condition):
                count += 1
                yield fields

    async def _namespaces(self, op: base.ListNamespacesOp) -> list[Namespace]:
        """Return the namespaces of items that meet the conditions, cut to `max_depth` labels, sorted."""
        tags = await (await self._store.archive()).tags()
        namespaces: Iterator[Namespace] = (tuple(json.loads(tag[3:])) for tag in tags if tag.startswith("at:"))
        matching = [
            one for one in namespaces if all(_matches(one, condition) for condition in op.match_conditions or ())
        ]
        return sorted({one[: op.max_depth] for one in matching})[op.offset : op.offset + op.limit]


def _tag(kind: str, namespace: Namespace) -> str:
    """Return the tag of items in a namespace at any depth (kind `in`), or right there (kind `at`)."""
    return f"{kind}:{json.dumps(list(namespace), ensure_ascii=False)}"


def _fields_of(passage: Any) -> dict[str, Any]:
    """Return the fields of the item that a passage stores. The passage's `occurred_at` is the item's last change."""
    metadata = passage.metadata
    return {
        "namespace": name_form(tuple(metadata["namespace"])),
        "key": name_form(metadata["key"]),
        "value": metadata["value"],
        "created_at": passage.created_at,
        "updated_at": passage.occurred_at,
    }


def _text(value: Mapping[str, Any], paths: Sequence[str] | None) -> str:
    """Return the texts at these paths of a value, one on each line; None: all texts and numbers in it."""
    if paths is None:
        return "\n".join(_leaves(value))
    texts = [text for path in paths for text in base.get_text_at_path(dict(value), base.tokenize_path(path))]
    return "\n".join(text for text in texts if text.strip())


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers at any depth of a value, as texts."""
    if isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(one)
    elif value is not None and not isinstance(value, bool) and str(value).strip():
        yield str(value)


def _matches(namespace: Namespace, condition: base.MatchCondition) -> bool:
    """Return whether a namespace begins or ends, as the condition says, with its path, in which `*` is any label."""
    path = name_form(tuple(condition.path))
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(label in ("*", own) for own, label in zip(part, path, strict=True))


def _meets(value: Any, condition: Any) -> bool:
    """Return whether a value meets a condition: an equal value, operators with operands, or members' conditions."""
    if not isinstance(condition, Mapping):
        if isinstance(condition, list | tuple) and isinstance(value, list | tuple):
            return len(value) == len(condition) and all(map(_meets, value, condition))
        return bool(value == condition)
    if any(name.startswith("$") for name in condition):
        return all(_compare(value, name, operand) for name, operand in condition.items())
    return isinstance(value, Mapping) and all(_meets(value.get(name), one) for name, one in condition.items())


def _compare(value: Any, name: str, operand: Any) -> bool:
    """Return whether a value meets the operator `name`, `$gt` for numbers only. Raises: ValueError: an unknown one."""
    if name in ("$eq", "$ne"):
        return bool((value == operand) is (name == "$eq"))
    if name not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"the filter has the operator {name!r:.80}: give $eq, $ne, $gt, $gte, $lt or $lte")
    try:
        own, other = float(value), float(operand)
    except (TypeError, ValueError):
        return False
    return {"$gt": own > other, "$gte": own >= other, "$lt": own < other, "$lte": own <= other}[name]
