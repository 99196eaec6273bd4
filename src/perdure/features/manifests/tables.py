"""`tx.of(ManifestObjects)`: what was applied last of the files of agents."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.features.manifests.values import AppliedObject
from perdure.storage.database import row_format
from perdure.storage.tables.table import Table

_FIELDS = row_format.Codec(row_format.dump, row_format.load)
_THING = row_format.RowFormat(AppliedObject, {_FIELDS: "fields"})


class ManifestObjects(Table):
    """The things that files of agents describe, with what they said of each."""

    def list(self, manifest: str) -> Sequence[AppliedObject]:
        """The things of a manifest, by kind and name."""
        sql = f"SELECT {_THING.columns} FROM manifest_things WHERE org_id = :org_id AND manifest = :manifest"
        return self._all(_THING, f"{sql} ORDER BY kind, name", manifest=row_format.storable(manifest))

    def is_shared(self, thing: AppliedObject) -> bool:
        """Whether another manifest has a thing, too."""
        sql = f"SELECT {_THING.columns} FROM manifest_things WHERE org_id = :org_id AND thing_id = :thing_id"
        found = self._all(_THING, f"{sql} AND removed_at IS NULL", thing_id=thing.thing_id)
        return any(one.manifest != thing.manifest for one in found)

    def put(self, thing: AppliedObject) -> None:
        """Note what was applied of a thing."""
        columns = "thing_id, fields, applied_at, removed_at"
        self._run(
            f"INSERT INTO manifest_things (org_id, {_THING.columns})"
            f" VALUES (:org_id, {', '.join(f':{name}' for name in _THING.columns.split(', '))})"
            " ON CONFLICT (org_id, manifest, kind, name)"
            f" DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in columns.split(', '))}",
            **_THING.params(thing),
        )
