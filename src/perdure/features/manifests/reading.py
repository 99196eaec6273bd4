"""Files of agents read into a `FileSet`, with the line of each error. Nothing of them runs, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import get_args

from perdure.core.errors import InvalidInput
from perdure.features.manifests.files import join_path
from perdure.features.manifests.schema import check_document
from perdure.features.manifests.values import (
    DEFAULT_NAME,
    KINDS,
    LISTS,
    FileLine,
    FileSet,
    Thing,
    ThingKind,
    block_path,
)
from perdure.features.manifests.yaml_nodes import Node, read_documents

THINGS_MAX = 500
"""The most things of a set: other writers wait while it is applied."""
_TIMES = ("at", "every", "cron")


def read_manifest(read: Callable[[str], str], names: Sequence[str]) -> FileSet:
    """Return what the YAML files with these paths describe together; `read` returns the text of a file. Raises:
    InvalidInput, with file and line."""
    found: dict[tuple[str, str], Thing] = {}
    name: tuple[str, FileLine] | None = None
    for file in names:
        for document in read_documents(read(file), file):
            check_document(document)
            if (own := document.value.get("name")) is not None:
                if name is not None and name[0] != own.value:
                    raise InvalidInput(f"{own.place}: the name is {own.value!r}, but {name[0]!r} in {name[1]}")
                name = own.value, own.place
            for kind in get_args(ThingKind):
                if (section := document.value.get(kind)) is None:
                    continue
                for key, node in section.value.items():
                    thing = _read_thing(kind, key, node, section.keys[key], read)
                    if before := found.get((kind, key)):
                        raise InvalidInput(f"{thing.place()}: {KINDS[kind]} {key!r} is in {before.place()} already")
                    found[kind, key] = thing
    if not names or not found:
        raise InvalidInput(f"{', '.join(names[:3]) or 'the files'}: there is nothing in it that could be applied")
    if len(found) > THINGS_MAX:
        raise InvalidInput(
            f"the files describe {len(found):,} things, the limit is {THINGS_MAX:,}: give parts a `name`"
        )
    things = sorted(found.values(), key=lambda one: [*KINDS].index(one.kind))
    ids = dict[tuple[str, str], Thing]()
    for thing in things:
        for block in thing.fields.get("shared_blocks", ()):
            if ("blocks", block) not in found:
                raise InvalidInput(f"{thing.place(f'shared_blocks.{block}')}: the files have no block {block!r}")
        if (own_id := thing.fields.get("id")) and (twin := ids.setdefault((thing.kind, own_id), thing)) is not thing:
            raise InvalidInput(f"{thing.place('id')}: {twin.name!r} in {twin.place('id')} has the id {own_id!r}, too")
    return FileSet(name=DEFAULT_NAME if name is None else name[0], things=_with_members(things))


def _read_thing(kind: ThingKind, name: str, node: Node, at: FileLine, read: Callable[[str], str]) -> Thing:
    """Return a thing that a file describes. Raises: InvalidInput."""
    places = {"": at} | node.keys
    for key in ("blocks", "settings", "metadata"):
        if (inner := node.value.get(key)) is not None and isinstance(inner.value, dict):
            for label, one in inner.value.items():
                path = block_path(label) if key == "blocks" else f"{key}.{label}"
                places |= {path: inner.keys[label]} | {f"{path}.{own}": place for own, place in one.keys.items()}
    for key in (*LISTS, "agents", "groups"):
        if (names := node.value.get(key)) is not None and isinstance(names.value, list):
            for one in names.value:
                if f"{key}.{one.value}" in places:
                    raise InvalidInput(f"{one.place}: {one.value!r} is there twice")
                places[f"{key}.{one.value}"] = one.place
    thing = Thing(kind=kind, name=name, fields=node.plain(), places=places)
    _check_thing(thing)
    return _with_source(thing, read) if kind == "tools" else thing


def _check_thing(thing: Thing) -> None:
    """Check what goes together in a thing. Raises: InvalidInput."""
    fields = thing.fields
    for path, block in [("", fields)] * (thing.kind == "blocks") + [
        (f"{block_path(label)}.", one) for label, one in fields.get("blocks", {}).items()
    ]:
        if {"seed", "value"} <= block.keys():
            raise InvalidInput(
                f"{thing.place(path + 'value')}: give `seed`, the text of a new block, or `value`, the text that it is"
                " to have; not both"
            )
    if thing.kind == "schedules":
        if len(given := [one for one in _TIMES if one in fields]) != 1:
            raise InvalidInput(f"{thing.place()}: give one of {', '.join(_TIMES)}; there are {len(given)}")
        if bool(fields.get("message")) == bool(fields.get("companion")):
            raise InvalidInput(f"{thing.place()}: give a message, or `companion: true`")
    if thing.kind == "mcp_servers" and ("url" in fields) == ("command" in fields):
        raise InvalidInput(f"{thing.place()}: an MCP server is a url or a command: give one of the two")


def _with_source(thing: Thing, read: Callable[[str], str]) -> Thing:
    """Return a tool with the text of its file as its source. Raises: InvalidInput: there is none, or it is outside."""
    fields = dict(thing.fields)
    if ("file" in fields) == ("source" in fields):
        raise InvalidInput(f"{thing.place()}: give the tool's `file`, or its `source`")
    if (path := fields.pop("file", None)) is not None:
        at = thing.place("file")
        if (joined := join_path(at.file, path)) is None:
            raise InvalidInput(f"{at}: the file {path!r:.200} lies outside of the folder that is applied")
        try:
            fields["source"] = read(joined)
        except KeyError:
            raise InvalidInput(f"{at}: there is no file {path!r:.200}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{at}: {error}") from error
    return replace(thing, fields=fields, places={"source": thing.place("file"), **thing.places})


def _with_members(things: Sequence[Thing]) -> Sequence[Thing]:
    """Return the things, with the agents of all groups that a group names among its own. Raises: InvalidInput: a group
    is not there, or is a part of itself."""
    groups = {one.name: one for one in things if one.kind == "groups"}
    parts: dict[str, Sequence[str]] = {name: one.fields.get("groups", ()) for name, one in groups.items()}
    for group, name in ((group, name) for group, names in parts.items() for name in names):
        if name not in groups:
            raise InvalidInput(f"{groups[group].place(f'groups.{name}')}: there is no group {name!r} in the files")
    try:
        order = [*TopologicalSorter(parts).static_order()]
    except CycleError as error:
        ring = error.args[1][:0:-1]
        first = min(ring, key=[*groups].index)
        ring = [*ring[ring.index(first) :], *ring[: ring.index(first)], first]
        at = groups[ring[-2]].place(f"groups.{first}")
        raise InvalidInput(f"{at}: the groups are a circle: {' → '.join(ring)}") from error
    members: dict[str, Sequence[str]] = {}
    for name in order:
        own = [*groups[name].fields.get("agents", ()), *(one for part in parts[name] for one in members[part])]
        members[name] = [*dict.fromkeys(own)]
        if {"agents", "groups"} & (fields := dict(groups[name].fields)).keys():
            fields.pop("groups", None)
            groups[name] = replace(groups[name], fields={**fields, "agents": members[name]})
    return [groups[one.name] if one.kind == "groups" else one for one in things]
