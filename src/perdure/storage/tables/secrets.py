"""`tx.secrets` and `tx.sandbox`: secrets, and variables of all tools; the caller has encrypted their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import OrgId, SandboxId, VariableId
from perdure.core.secrets import ORGANISATION, SandboxConfig, Secret, Variable
from perdure.storage.database import row_format
from perdure.storage.tables.table import OWN_AGENT, Table, first

_SECRET = row_format.RowFormat(
    Secret,
    {row_format.BYTES: "value"},
    columns="owner_id, name, value, created_at, updated_at",
    build=lambda value, **columns: Secret(sealed=value, **columns),
)
_CONFIG = row_format.RowFormat(SandboxConfig)
_VARIABLE = row_format.RowFormat(Variable)
_OF_OWNER = "org_id = :org_id AND owner_id = :agent_id"


class Secrets(Table):
    def put(self, owner_id: str, name: str, sealed: bytes, *, at: datetime) -> Secret:
        """Create or update a secret of an agent, or of the organisation (`ORGANISATION`), whose value is encrypted.
        Raises: NotFound: no such agent; TooMany."""
        owned = "" if owner_id == ORGANISATION else f" AND {OWN_AGENT}"
        rows = self._rows(
            "INSERT INTO secrets (org_id, owner_id, name, value, created_at, updated_at)"
            f" SELECT :org_id, :agent_id, :name, :value, :at, :at WHERE 1 = 1{owned}"
            " ON CONFLICT (org_id, owner_id, name) DO UPDATE SET value = excluded.value,"
            f" updated_at = excluded.updated_at RETURNING {_SECRET.columns}",
            agent_id=row_format.storable(owner_id),
            name=row_format.storable(name),
            value=row_format.BYTES.store(sealed),
            at=row_format.iso(at),
        )
        secret = _SECRET.read(first(rows, "agent", owner_id))
        if secret.created_at == secret.updated_at:  # it is new
            sql = f"SELECT COUNT(*) FROM secrets WHERE {_OF_OWNER}"
            self._limits.check("secrets_per_owner", int(self._value(sql, agent_id=row_format.storable(owner_id))))
        return secret

    def find(self, owner_id: str, name: str) -> Secret | None:
        sql = f"SELECT {_SECRET.columns} FROM secrets WHERE {_OF_OWNER} AND name = :name{self._db.for_update}"
        return self._one(_SECRET, sql, agent_id=row_format.storable(owner_id), name=row_format.storable(name))

    def list(self, owner_id: str) -> Sequence[Secret]:
        """The secrets of an owner, sorted by name."""
        return self.list_by_owners([owner_id])[owner_id]

    def list_by_owners(self, owner_ids: Sequence[str]) -> Mapping[str, Sequence[Secret]]:
        """Owner -> its secrets, sorted by name."""
        sql = f"SELECT owner_id, {_SECRET.columns} FROM secrets WHERE org_id = :org_id AND {{keys}} ORDER BY name"
        return _SECRET.read_each(self._rows_of_each(sql, "owner_id", owner_ids))

    def list_behind(self, owner_id: str, name: str, *, limit: int = 200) -> Sequence[Secret]:
        """The secrets of all owners that follow (owner, name), in this order; so all are read part by part."""
        sql = (
            f"SELECT {_SECRET.columns} FROM secrets WHERE org_id = :org_id AND (owner_id, name) > (:agent_id, :name)"
            f" ORDER BY owner_id, name LIMIT :limit{self._db.for_update}"
        )
        return self._all(
            _SECRET, sql, agent_id=row_format.storable(owner_id), name=row_format.storable(name), limit=limit
        )

    def organisations(self) -> Sequence[OrgId]:
        """The ids of all organisations that are not being removed."""
        rows = self._db.rows("SELECT id FROM organisations WHERE deleted_at IS NULL ORDER BY number, id", {})
        return [OrgId(one) for (one,) in rows]

    def delete(self, owner_id: str, name: str) -> None:
        """Delete a secret. Raises: NotFound."""
        sql = f"DELETE FROM secrets WHERE {_OF_OWNER} AND name = :name"
        key = {"agent_id": row_format.storable(owner_id), "name": row_format.storable(name)}
        self._change_one("secret", name, sql, **key)


class SandboxTable(Table):
    def put(self, config: SandboxConfig) -> SandboxConfig:
        """Store the sandbox's configuration; return it as stored: one that is replaced keeps its id and time."""
        rows = self._rows(
            f"{row_format.insert_into('sandbox_configs', f'org_id, {_CONFIG.columns}')} ON CONFLICT (org_id) DO UPDATE"
            f" SET settings = excluded.settings, updated_at = excluded.updated_at RETURNING {_CONFIG.columns}",
            **_CONFIG.params(config),
        )
        return _CONFIG.read(rows[0])

    def find(self) -> SandboxConfig | None:
        sql = f"SELECT {_CONFIG.columns} FROM sandbox_configs WHERE org_id = :org_id{self._db.for_update}"
        return self._one(_CONFIG, sql)

    def get(self, config_id: SandboxId) -> SandboxConfig:
        """The configuration, if it has this id. Raises: NotFound."""
        config = self.find()
        if config is None or config.id != config_id:
            raise NotFound("sandbox configuration", config_id)
        return config

    def delete(self, config_id: SandboxId) -> None:
        """Delete the configuration with its variables. Raises: NotFound."""
        self.get(config_id)
        self._run("DELETE FROM sandbox_variables WHERE org_id = :org_id")
        self._run("DELETE FROM sandbox_configs WHERE org_id = :org_id")

    def add_variable(self, variable: Variable) -> None:
        """Add a variable. Raises: AlreadyExists: its name exists; TooMany."""
        sql = f"{row_format.insert_into('sandbox_variables', f'org_id, {_VARIABLE.columns}')} ON CONFLICT DO NOTHING"
        if not self._run_counted(sql, **_VARIABLE.params(variable)):
            raise AlreadyExists("variable", variable.name)
        self._limits.check("secrets_per_owner", len(self.list_variables()))

    def put_variable(self, variable: Variable) -> None:
        """Update a variable. Raises: NotFound; AlreadyExists: another one has the name."""
        self.get_variable(variable.id)
        if any(one.name == variable.name and one.id != variable.id for one in self.list_variables()):
            raise AlreadyExists("variable", variable.name)
        columns = _VARIABLE.params(variable, "name, sealed, description, updated_at")
        self._set("sandbox_variables", {"id": variable.id}, "org_id = :org_id", **columns)

    def get_variable(self, variable_id: VariableId) -> Variable:
        """The variable with this id. Raises: NotFound."""
        where = f"id = :id AND org_id = :org_id{self._db.for_update}"
        sql = f"SELECT {_VARIABLE.columns} FROM sandbox_variables WHERE {where}"
        return _VARIABLE.read(first(self._rows(sql, id=row_format.storable(variable_id)), "variable", variable_id))

    def list_variables(self) -> Sequence[Variable]:
        """All variables of the organisation, sorted by name."""
        sql = f"SELECT {_VARIABLE.columns} FROM sandbox_variables WHERE org_id = :org_id ORDER BY name"
        return self._all(_VARIABLE, sql)

    def delete_variable(self, variable_id: VariableId) -> None:
        """Delete a variable. Raises: NotFound."""
        sql = "DELETE FROM sandbox_variables WHERE id = :id AND org_id = :org_id"
        self._change_one("variable", variable_id, sql, id=row_format.storable(variable_id))
