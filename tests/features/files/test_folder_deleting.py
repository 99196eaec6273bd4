"""Folders that are deleted while the disk is full, or while others put files into them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import StoreFull
from tests.support.library import open_async

WAIT_S = 30
PLAN = b"Open the valve.\nLight the boiler.\n"


async def test_a_full_disk_is_told_to_whoever_deletes_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may do it again."""
    async with await open_async(tmp_path / "agents.db", lease_s=0.2) as perdure:
        store = perdure.app.store
        write = store.write

        async def full(work: Any, *args: Any, **more: Any) -> Any:
            if work.__name__ == "_drop_chunks":
                raise StoreFull("the disk is full")
            return await write(work, *args, **more)

        folder = await perdure.folders.create("plans")
        await folder.upload(PLAN, name="plan.txt")
        await folder.wait(timeout_s=WAIT_S)
        monkeypatch.setattr(store, "write", full)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(StoreFull, match="the disk is full"):
                await perdure.folders.delete(folder.id)
        monkeypatch.undo()

        async with asyncio.timeout(WAIT_S):
            await perdure.folders.delete(folder.id)
        assert await perdure.folders.list() == []


async def test_a_file_that_comes_while_its_folder_is_deleted_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_async(tmp_path / "agents.db") as perdure:
        store = perdure.app.store
        write, late = store.write, True
        folder = await perdure.folders.create("plans")

        async def uploading(work: Any, *args: Any, **more: Any) -> Any:
            nonlocal late
            done = await write(work, *args, **more)
            if late and work.__name__ == "delete_files":
                late = False
                await folder.upload(PLAN, name="late.txt")
            return done

        monkeypatch.setattr(store, "write", uploading)
        async with asyncio.timeout(WAIT_S):
            await perdure.folders.delete(folder.id)
        assert await perdure.folders.list() == []
