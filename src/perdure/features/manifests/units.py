"""The unit of work that applies a manifest, and says what that changes.

A plan is the same unit, taken back at its end: so it says what would happen, with all checks, and a manifest that was
applied has an empty plan. It calls no tool, no server and no model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.core.errors import InvalidInput, PerdureError, StoreError
from perdure.features.manifests.agents import AgentKind
from perdure.features.manifests.groups_and_schedules import GroupKind, ScheduleKind
from perdure.features.manifests.tables import ManifestObjects
from perdure.features.manifests.things import ArchiveKind, BlockKind, McpServerKind, ToolKind
from perdure.features.manifests.values import (
    KINDS,
    Action,
    AppliedObject,
    Change,
    FieldChange,
    FileSet,
    ManifestObject,
    Plan,
    ThingKind,
    digest_of,
    flatten,
    is_member,
)
from perdure.features.manifests.work import ApplyWork, Kind

_KINDS: Mapping[ThingKind, Kind] = {
    "mcp_servers": McpServerKind(),
    "tools": ToolKind(),
    "blocks": BlockKind(),
    "archives": ArchiveKind(),
    "agents": AgentKind(),
    "groups": GroupKind(),
    "schedules": ScheduleKind(),
}
_NAMES: Mapping[str, ThingKind] = {
    "tools": "tools",
    "archives": "archives",
    "agents": "agents",
    "manager": "agents",
    "agent": "agents",
}
"""Field -> the kind of the things that it names."""
_ONLY_NEW = re.compile(r"(?s)id|seed|base_tools|agent_type|blocks(?:\..*)?\.seed")
"""Fields that are not compared with the store: they hold for new things only, or identify the thing."""


class PlanRolledBack(Exception):
    """Ends the transaction of a plan, so that nothing of it is stored."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def apply_manifest(work: ApplyWork, manifest: FileSet, *, prune: bool) -> Plan:
    """Bring all things into the state that a manifest describes; return the changes. `prune`: also remove what an
    earlier version of the manifest had. Raises: InvalidInput, with file and line."""
    rows = {(row.kind, row.name): row for row in work.tx.of(ManifestObjects).list(manifest.name)}
    work.ids_of.update({key: row.thing_id for key, row in rows.items()})
    changes: list[Change] = []
    left: list[tuple[ThingKind, str]] = []
    noted = 0
    for thing in manifest.things:
        row = rows.get((thing.kind, thing.name))
        try:
            change, after, kept = _apply_thing(work, thing, row, prune=prune)
        except StoreError:
            raise
        except PerdureError as error:
            raise _locate_error(thing, error) from error
        changes += [] if change is None else [change]
        left += [(thing.kind, f"{thing.name} {path}") for path in kept]
        wanted = AppliedObject(
            manifest=manifest.name,
            kind=thing.kind,
            name=thing.name,
            thing_id=work.ids_of[thing.kind, thing.name],
            fields=after,
            applied_at=work.inputs.now,
        )
        if row is None or replace(row, applied_at=wanted.applied_at) != wanted:
            work.tx.of(ManifestObjects).put(wanted)
            noted += change is None
    known = {(thing.kind, thing.name): work.ids_of[thing.kind, thing.name] for thing in manifest.things}
    gone = [row for key, row in rows.items() if key not in known and row.removed_at is None]
    for row in sorted(gone, key=lambda one: [*KINDS].index(one.kind), reverse=True):
        if prune:
            _check_unnamed(manifest, row)
        # Another name of these files, or other files, may have it still.
        is_ours = row.thing_id not in known.values() and not work.tx.of(ManifestObjects).is_shared(row)
        found = _remove(work, row, prune=prune, is_ours=is_ours)
        if isinstance(found, Change):
            changes.append(found)
        elif found:
            left.append((row.kind, row.name))
    return Plan(changes=changes, left=left, noted=noted, total=len(manifest.things), waiting=sorted(work.waiting))


def _apply_thing(
    work: ApplyWork, thing: ManifestObject, row: AppliedObject | None, *, prune: bool
) -> tuple[Change | None, Mapping[str, str], Sequence[str]]:
    """Bring one thing into the described state; return the change, path -> digest of the described fields, and the
    paths that an agent still has but the file no longer names. Raises: PerdureError."""
    kind = _KINDS[thing.kind]
    wanted = {path: value for path, value in flatten(thing.fields).items() if not _ONLY_NEW.fullmatch(path)}
    digests = {path: digest_of(value) for path, value in wanted.items()}
    is_there = row is not None and kind.fields(work, row.thing_id) is not None
    id_ = row.thing_id if row is not None and is_there else kind.find(work, thing)
    if id_ is None:
        work.ids_of[thing.kind, thing.name] = id_ = kind.create(work, thing)
        made = kind.fields(work, id_) or {}
        shown = [path for path in made if path in wanted or (path.endswith("value") and made[path])]
        fields = [FieldChange(path, None, made[path]) for path in shown]
        note = "" if row is None else "it was deleted since it was applied"
        return Change(action="create", kind=thing.kind, name=thing.name, fields=fields, note=note), digests, ()
    work.ids_of[thing.kind, thing.name] = id_
    was_removed = kind.is_removed(work, id_)
    if was_removed:
        kind.restore(work, id_)
    old = kind.fields(work, id_) or {}
    if changed := {path for path, value in wanted.items() if old.get(path) != value}:
        work.ids_of[thing.kind, thing.name] = id_ = kind.change(work, id_, thing, changed)
    applied = {} if row is None else row.fields
    lost = [path for path in applied if path not in wanted and is_member(path) and path in old]
    if prune and lost:
        for path in lost:
            AgentKind().detach(work, id_, path)
    else:  # they are known until they are pruned
        digests |= {path: applied[path] for path in lost}
    new = kind.fields(work, id_) or {}
    fields = [
        FieldChange(path, old.get(path), new.get(path), path in wanted and applied.get(path) == digests[path])
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]
    if was_removed or fields:
        action: Action = "restore" if was_removed else "change"
        return Change(action=action, kind=thing.kind, name=thing.name, fields=fields), digests, () if prune else lost
    return None, digests, () if prune else lost


def _check_unnamed(manifest: FileSet, row: AppliedObject) -> None:
    """Check that nothing in the files names a thing that is taken out of use. Raises: InvalidInput."""
    for thing in manifest.things:
        for path, kind in _NAMES.items():
            value = thing.fields.get(path)
            if kind == row.kind and row.name in (value if isinstance(value, list) else [value]):
                raise InvalidInput(
                    f"{thing.place(f'{path}.{row.name}')}: {KINDS[row.kind]} {row.name!r} is named here, and the files"
                    " describe it no more: describe it, or take its name out"
                )


def _remove(work: ApplyWork, row: AppliedObject, *, prune: bool, is_ours: bool) -> Change | bool:
    """Remove a thing that the files no longer have, and return the change; without `prune`, return whether it exists.
    `is_ours`: no other entry of the files stands for it."""
    kind = _KINDS[row.kind]
    is_there = is_ours and kind.fields(work, row.thing_id) is not None and not kind.is_removed(work, row.thing_id)
    if is_there and not prune:
        return True
    note = kind.remove(work, row.thing_id) if is_there else ""
    work.tx.of(ManifestObjects).put(replace(row, removed_at=work.inputs.now))
    return is_there and Change(action="remove", kind=row.kind, name=row.name, note=note)


def _locate_error(thing: ManifestObject, error: PerdureError) -> InvalidInput:
    """Return an error with the file and line of the field that it names, else of the thing."""
    text = str(error)
    if any(text.startswith(f"{place}: ") for place in thing.places.values()):
        return InvalidInput(text)
    paths = sorted(filter(None, thing.places), key=len, reverse=True)
    values = [path for path, value in flatten(thing.fields).items() if isinstance(value, str) and repr(value) in text]
    named = [path for path in paths if re.search(rf"\b{re.escape(path.rpartition('.')[2])}\b", text[:80])]
    path = next(iter([*named, *values, ""]))
    return InvalidInput(f"{thing.place(path)}: {KINDS[thing.kind]} {thing.name!r}: {text}")
