"""Files of agents read into a `FileSet`, with the line of each error. Nothing of them runs, and nothing is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from perdure.core.errors import InvalidInput
from perdure.features.manifests.documents import YamlDocument, read_documents
from perdure.features.manifests.files import join_path
from perdure.features.manifests.values import DEFAULT_NAME, KINDS, FileLine, FileSet, ManifestObject, path_of

THINGS_MAX = 500
"""The most things of a set: other writers wait while it is applied."""
_TIMES = ("at", "every", "cron")


def read_manifest(read: Callable[[str], str], names: Sequence[str]) -> FileSet:
    """Return what these YAML files describe together; `read` returns a file's text. Raises: InvalidInput, with line."""
    found: dict[tuple[str, str], ManifestObject] = {}
    name: tuple[str, FileLine] | None = None
    for file in names:
        for document in read_documents(read(file), file):
            if (own := document.value.get("name")) is not None:
                place = document.places["name",]
                if name is not None and name[0] != own:
                    raise InvalidInput(f"{place}: the name is {own!r}, but {name[0]!r} in {name[1]}")
                name = own, place
            for thing in _read_objects(document):
                if before := found.get((thing.kind, thing.name)):
                    where = f"is in {before.place()} already"
                    raise InvalidInput(f"{thing.place()}: {KINDS[thing.kind]} {thing.name!r} {where}")
                _check_thing(thing)
                found[thing.kind, thing.name] = _with_source(thing, read) if thing.kind == "tools" else thing
    if not names or not found:
        raise InvalidInput(f"{', '.join(names[:3]) or 'the files'}: there is nothing in it that could be applied")
    if len(found) > THINGS_MAX:
        raise InvalidInput(
            f"the files describe {len(found):,} things, the limit is {THINGS_MAX:,}: give parts a `name`"
        )
    things = sorted(found.values(), key=lambda one: [*KINDS].index(one.kind))
    ids = dict[tuple[str, str], ManifestObject]()
    for thing in things:
        for block in thing.fields.get("shared_blocks", ()):
            if ("blocks", block) not in found:
                raise InvalidInput(f"{thing.place(f'shared_blocks.{block}')}: the files have no block {block!r}")
        if (own_id := thing.fields.get("id")) and (twin := ids.setdefault((thing.kind, own_id), thing)) is not thing:
            raise InvalidInput(f"{thing.place('id')}: {twin.name!r} in {twin.place('id')} has the id {own_id!r}, too")
    return FileSet(name=DEFAULT_NAME if name is None else name[0], things=_with_members(things))


def _read_objects(document: YamlDocument) -> Iterator[ManifestObject]:
    """Yield the things that a document describes."""
    places: dict[Sequence[str], dict[str, FileLine]] = defaultdict(dict)
    for path, place in document.places.items():
        if len(path) > 1 and (path[2:3] != ("metadata",) or len(path) == 3):
            places[path[:2]][path_of(*path[2:])] = place
    for kind in KINDS:
        for name, fields in document.value.get(kind, {}).items():
            yield ManifestObject(kind=kind, name=name, fields=fields, places=places[kind, name])


def _check_thing(thing: ManifestObject) -> None:
    """Check that the fields of a thing fit together. Raises: InvalidInput."""
    fields = thing.fields
    for path, block in [("", fields)] * (thing.kind == "blocks") + [
        (f"{path_of('blocks', label)}.", one) for label, one in fields.get("blocks", {}).items()
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


def _with_source(thing: ManifestObject, read: Callable[[str], str]) -> ManifestObject:
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


def _with_members(things: Sequence[ManifestObject]) -> Sequence[ManifestObject]:
    """Return the objects, with agents of nested groups added. Raises: InvalidInput: a group is missing or circular."""
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
        own = [*groups[name].fields.get("agents", ()), *(member for part in parts[name] for member in members[part])]
        members[name] = [*dict.fromkeys(own)]
        if {"agents", "groups"} & (fields := dict(groups[name].fields)).keys():
            fields.pop("groups", None)
            groups[name] = replace(groups[name], fields={**fields, "agents": members[name]})
    return [groups[one.name] if one.kind == "groups" else one for one in things]
