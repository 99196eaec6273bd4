"""Files that are read a second time, because the store took only a part of the first try."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perdure import InvalidInput, StoreFull
from perdure.core.ids import ArchiveId, FileId
from perdure.features.files import worker as files
from perdure.features.files.file_tables import Files
from perdure.storage.tx import Tx
from tests.support.library import open_async

WAIT_S = 30
LINES = [f"Valve {number} of the boiler is checked every {number} days.\n" for number in range(1, 401)]
PLAN = "".join(LINES)


def load_stored(tx: Tx, archive_id: ArchiveId, file_id: FileId) -> tuple[str, int]:
    """The text of a file, and how many of the archive's passages are its."""
    text = "".join(part.text for part in tx.of(Files).parts(file_id, after_seq=-1, limit=1_000))
    passages = tx.passages.page(archive_id, limit=1_000)
    return text, sum(passage.source["file_id"] == file_id for passage in passages)


@pytest.mark.parametrize(
    "error",
    [StoreFull("the disk is full"), RuntimeError("a defect"), InvalidInput("too odd")],
    ids=["full", "defect", "refused"],
)
@pytest.mark.parametrize("unit", ["_put_parts", "_put_chunks"])
async def test_a_second_read_leaves_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, error: Exception
) -> None:
    """Each part and passage is stored once, wherever the first try stopped; a defect leaves none."""
    monkeypatch.setattr(files, "CHUNKS_A_STEP", 2)
    async with await open_async(tmp_path / "agents.db", lease_s=0.2) as perdure:
        store = perdure.app.store
        write, failures = store.write, 0

        async def fail_once(work: Any, *args: Any, **more: Any) -> Any:
            nonlocal failures
            result = await write(work, *args, **more)
            if work.__name__ == unit and not failures:
                failures += 1
                raise error
            return result

        monkeypatch.setattr(store, "write", fail_once)
        folder = await perdure.folders.create("plans")
        file = await folder.upload(PLAN.encode(), name="plan.txt")
        try:
            (read,) = await folder.wait([file.id], timeout_s=WAIT_S)
        except StoreFull:
            (read,) = await folder.wait([file.id], timeout_s=WAIT_S)
        text, passages = await store.read(load_stored, folder.info.archive_id, file.id)

        assert failures == 1
        if not isinstance(error, StoreFull):
            assert (read.status, text, passages) == ("error", "", 0)
        else:
            assert (read.status, text, passages) == ("completed", PLAN, read.chunk_count)
            assert passages > 2


async def test_an_upload_that_was_never_completed_is_removed_when_it_is_old(tmp_path: Path) -> None:
    """Its client went away between two parts. A newer one may still go on, and a stored file keeps its bytes."""
    path = tmp_path / "agents.db"
    old, new = FileId("file-old"), FileId("file-new")
    async with await open_async(path) as perdure:
        now = perdure.app.ports.clock.now()

        def put(tx: Tx) -> None:
            for seq in range(files.PARTS_A_STEP + 1):
                tx.of(Files).put_bytes(old, seq, b"part", at=now - 2 * files.UPLOAD_MAX_AGE)
            tx.of(Files).put_bytes(new, 0, b"part", at=now)

        await perdure.app.store.write(put)

    async with await open_async(path), asyncio.timeout(WAIT_S):
        while "file-old" in _uploads(path):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert _uploads(path) == {"file-new"}


def _uploads(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {row[0] for row in connection.execute("SELECT file_id FROM file_uploads")}
