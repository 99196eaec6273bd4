"""An erasure that is interrupted at any moment goes on, and ends erased."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import PerdureError, StoreBusy
from perdure.features.origins.erase import erase, finish_erasures
from perdure.library.agent import AsyncAgent
from perdure.testing import ScriptedModel, says
from tests.properties.test_erasing import bytes_left

TEXT = "zxqjvk wbpfgy"
MODEL = "test/model"
FULL = os.environ.get("PERDURE_FAULTS") == "full"


class Power(BaseException):
    """The power is cut."""


class CutStore:
    """A store that fails for good at its n-th write or scrub."""

    def __init__(self, store: Any, writes: int, error: BaseException) -> None:
        self._store, self._left, self._error = store, writes, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._error

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return await self._store.write(*args, **kwargs)

    async def scrub(self, progress: Any = None) -> None:
        self._count()
        await self._store.scrub(progress)


async def new_agent(perdure: AsyncPerdure) -> AsyncAgent:
    agent = await perdure.create_agent(model=MODEL, human=f"tea\n{TEXT}")
    await agent.archive(TEXT)
    await agent.send(f"Remember {TEXT}.")
    return agent


async def test_an_erasure_cut_at_any_write_is_finished(tmp_path: Path) -> None:
    """By the next recovery, or by the next call, whatever it had done; until then it counts as not ended."""
    path = tmp_path / "agents.db"
    models = {MODEL: ScriptedModel(otherwise=says(f"Noted: {TEXT}"))}
    async with await AsyncPerdure.open(path, models=models) as perdure:
        ports = perdure.app.ports
        for writes in range(1, 40, 1 if FULL else 4):
            agent = await new_agent(perdure)
            power = Power()
            cut = replace(ports, owner="dead", store=CutStore(ports.store, writes, power))
            try:
                await erase(cut, agent.id, TEXT)
            except Power:
                assert (await agent.find_mentions(TEXT)).unended
            else:
                break
            if writes % 8 == 1:
                await agent.forget(TEXT, erase=True)
            else:
                await finish_erasures(ports, lambda owner: owner == "dead")
            assert not (await agent.find_mentions(TEXT)).unended
            assert bytes_left(path, TEXT) == []
        assert writes in range(5, 40)


async def test_an_erasure_that_fails_is_left_to_the_next_recovery(tmp_path: Path) -> None:
    """A living process keeps its own; where it gives up, or a target is deleted meanwhile, recovery goes on."""
    path = tmp_path / "agents.db"
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(path, models=models) as perdure:
        ports, agent = perdure.app.ports, await new_agent(perdure)
        store = CutStore(ports.store, 2, StoreBusy("busy"))
        with pytest.raises(PerdureError):
            await erase(replace(ports, owner="other", store=store), agent.id, TEXT)
        await finish_erasures(ports, lambda owner: False)
        assert (await agent.find_mentions(TEXT)).unended  # its process lives, and could not release it
        for block in await agent.blocks.list():
            await perdure.blocks.delete(block.id)

        await finish_erasures(ports, lambda owner: True)

        preview = await agent.find_mentions(TEXT)
        assert (preview.total, preview.unended, bytes_left(path, TEXT)) == (0, False, [])
