"""Registered providers of a store that several processes use: what one changes counts in the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.app import endpoints
from perdure.library.parts.providers import ProviderFields
from perdure.testing import ScriptedModel, says
from perdure.testing.http_model import HttpModel
from tests.support.two_apps import STORES, address_of, two_apps

SETTINGS = {"secret_key": "for tests, this one"}
FIRST, SECOND = "sk-first-key-1234567890", "sk-second-key-1234567890"


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def key_of(perdure: AsyncPerdure) -> str | None:
    """The key with which the process would ask the provider; None: it knows none of the name."""
    found = perdure.app.models.provider_of("mine/gpt-4o")
    return None if found is None else found[0].api_key


@pytest.mark.parametrize("store", STORES)
async def test_other_processes_follow_a_provider(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one, its next key, and its end, by signals or by looking; nobody has to list models."""
    monkeypatch.setattr(endpoints, "LOOK_S", 0.05 if store == "sqlite" else 60.0)
    async with HttpModel(otherwise=says("hello"), models=("gpt-4o",)) as http:
        address = await address_of(store, tmp_path)
        async with two_apps(address, ScriptedModel(), settings=SETTINGS) as (first, second):
            fields = ProviderFields(name="mine", provider_type="openai", api_key=FIRST, base_url=http.url)
            made = await first.providers.create(fields, private=True)
            await reached(lambda: key_of(second) == FIRST)
            agent = await second.create_agent("ann", model="mine/gpt-4o")
            await first.providers.update(made.id, ProviderFields(api_key=SECOND), private=True)
            await reached(lambda: key_of(second) == SECOND)
            await agent.send("Hello")
            await first.providers.delete(made.id)
            await reached(lambda: key_of(second) is None)

            assert http.headers[-1]["authorization"] == f"Bearer {SECOND}"


async def test_a_key_that_is_encrypted_anew_counts_on(tmp_path: Path) -> None:
    """In processes that have the new key of the cipher only after a restart; another key of the provider does not."""
    async with two_apps(str(tmp_path / "perdure.db"), ScriptedModel(), settings=SETTINGS) as (first, second):
        fields = ProviderFields(name="mine", provider_type="openai", api_key=FIRST, base_url="http://127.0.0.1:9/v1")
        made = await first.providers.create(fields, private=True)
        await second.app.providers.load()
        await first.app.store.write(lambda tx: tx.providers.put(replace(tx.providers.get(made.id), sealed=b"unknown")))
        await second.app.providers.load()
        assert key_of(second) == FIRST
        at = first.app.ports.clock.now()
        await first.app.store.write(lambda tx: tx.providers.put(replace(tx.providers.get(made.id), updated_at=at)))
        await second.app.providers.load()

        assert key_of(second) is None
