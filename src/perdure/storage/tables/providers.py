"""`tx.providers`: the model providers that clients registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.errors import AlreadyExists
from perdure.core.ids import ProviderId
from perdure.core.models import ModelProvider, ProviderFilter
from perdure.storage.database import row_format
from perdure.storage.database.conditions import Conditions
from perdure.storage.tables.table import PagedTable, keep_places, next_number

TRAITS_MAX = 1_000

_PROVIDER = row_format.RowFormat(ModelProvider)
_CHANGES = "provider_type, base_url, private, sealed, region, api_version, synced_at, updated_at"


class Providers(PagedTable[ProviderFilter, ModelProvider]):
    _kind, _source, _format = "provider", "providers", _PROVIDER

    def add(self, provider: ModelProvider) -> ModelProvider:
        """Add a provider, and return it with its number. Raises: AlreadyExists: its name is taken."""
        provider = replace(provider, org_id=self._org_id, number=next_number(self._db))
        sql = f"{row_format.insert_into('providers', _PROVIDER.columns)} ON CONFLICT DO NOTHING"
        if not self._run_counted(sql, **_PROVIDER.params(provider)):
            raise AlreadyExists("provider", provider.name)
        self._db.signal("providers")
        return provider

    def _where(self, where: ProviderFilter) -> Conditions:
        conditions = Conditions("org_id = :org_id")
        conditions.equal("name", where.name)
        conditions.equal("provider_type", where.provider_type)
        return conditions

    def list(self, *, limit: int = 1_000) -> Sequence[ModelProvider]:
        """Providers, the oldest first."""
        return self._read("1 = 1 ORDER BY number LIMIT :limit", limit=limit)

    def put(self, provider: ModelProvider) -> None:
        """Update a provider. Raises: NotFound."""
        self._update(provider, _CHANGES)
        self._db.signal("providers")

    def delete(self, provider_id: ProviderId) -> None:
        """Delete a provider. Raises: NotFound."""
        keep_places(self._db, self._org_id, {provider_id: {"number": self.get(provider_id).number}})
        sql = "DELETE FROM providers WHERE id = :id AND org_id = :org_id"
        self._change_one("provider", provider_id, sql, id=row_format.storable(provider_id))
        self._db.signal("providers")

    def list_traits(self) -> Mapping[str, Mapping[str, Any]]:
        """Handle of a model -> what was learned of it by asking it (name -> value)."""
        sql = "SELECT model, traits FROM model_traits WHERE org_id = :org_id ORDER BY model LIMIT :limit"
        rows = self._rows(sql, limit=TRAITS_MAX)
        return {row_format.restore(model): row_format.load(traits) for model, traits in rows}

    def put_traits(self, model: str, traits: Mapping[str, Any]) -> None:
        """Store what was learned of the model with this handle."""
        self._run(
            f"{row_format.insert_into('model_traits', 'org_id, model, traits')}"
            " ON CONFLICT (org_id, model) DO UPDATE SET traits = excluded.traits",
            model=row_format.storable(model),
            traits=row_format.dump(traits),
        )
