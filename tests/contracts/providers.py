"""Providers of models that clients registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import OrgId, ProviderId
from perdure.core.models import ProviderFilter
from perdure.storage.tx import Tx
from tests.contracts.base import AWKWARD, LATER, Contract, raises


class ProviderContract(Contract):
    async def test_providers_come_back_as_they_were_put(self) -> None:
        """Found by id and by page; a name is there once, and free again after a delete."""
        async with self.open_store() as store:
            first, second = [await store.write(self.add_provider, name) for name in ("a", "b")]
            changed = replace(
                first, base_url=AWKWARD[0], private=True, sealed=b"other", region="r", synced_at=LATER, updated_at=LATER
            )
            await store.write(lambda tx: tx.providers.put(changed))

            def look(tx: Tx) -> list[Any]:
                return [
                    tx.providers.get(first.id),
                    tx.providers.list(),
                    tx.providers.list(limit=1),
                    tx.providers.page(where=ProviderFilter()),
                    tx.providers.page(where=ProviderFilter(name="a")),
                    tx.providers.page(where=ProviderFilter(provider_type="other")),
                    tx.providers.page(where=ProviderFilter(), after=second.id, limit=1),
                    tx.providers.page(where=ProviderFilter(), before=first.id, ascending=False),
                    tx.providers.count(ProviderFilter()),
                ]

            expected = [changed, [changed, second], [changed], [second, changed], [changed], [], [changed], [second], 2]
            assert await store.read(look) == expected
            with raises(AlreadyExists):
                await store.write(self.add_provider, "a")
            await store.write(lambda tx: tx.providers.delete(first.id))
            again = await store.write(self.add_provider, "a")
            assert await store.read(lambda tx: tx.providers.list()) == [second, again]
            nobody = replace(first, id=ProviderId(self.ids.new("provider")))
            for verb in (
                lambda tx: tx.providers.get(nobody.id),
                lambda tx: tx.providers.put(nobody),
                lambda tx: tx.providers.delete(nobody.id),
                lambda tx: tx.providers.page(where=ProviderFilter(), after=nobody.id),
            ):
                with raises(NotFound):
                    await store.write(verb)

    async def test_what_is_learned_of_a_model_is_kept_by_its_handle(self) -> None:
        """What is learned later takes the place of it; another organisation learns for itself."""
        async with self.open_store() as store:
            other = store.for_organisation(OrgId(self.ids.new("org")))
            model, traits = f"vllm/{AWKWARD[0]}", {"calling": "text", "address": AWKWARD[0], "parameters": 1 << 40}
            assert await store.read(lambda tx: tx.providers.list_traits()) == {}
            for learned in ({"calling": None}, traits):
                await store.write(lambda tx, learned=learned: tx.providers.put_traits(model, learned))  # type: ignore[misc]
            assert await store.read(lambda tx: tx.providers.list_traits()) == {model: traits}
            assert await other.read(lambda tx: tx.providers.list_traits()) == {}
