"""A worker that opens the store while its database is away."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest

from perdure.cli.commands.serve import open_library
from perdure.core.errors import StoreUnavailable
from perdure.server.serving.acceptor import ConnectionCounts
from perdure.server.serving.supervisor import WorkerLine
from perdure.settings import Settings
from tests.support.cut_lines import CutLine
from tests.support.postgres_server import address_of_an_empty_store


@contextmanager
def worker_line(*, is_replacement: bool) -> Iterator[tuple[WorkerLine, socket.socket]]:
    """The files of a worker, and its supervisor's end of the line."""
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(ConnectionCounts.create(1)) as shares:
        theirs.setblocking(False)
        yield WorkerLine(theirs, theirs, (shares, 0), is_replacement), ours


@asynccontextmanager
async def database_away() -> AsyncIterator[tuple[Settings, CutLine]]:
    """The settings of a store that can't be reached, and its line."""
    line = CutLine(await asyncio.to_thread(address_of_an_empty_store))
    line.cut = line.then = "dead"
    async with line.serving() as address:
        yield Settings(store=address, secret_key="a key of these tests", embedding="none"), line


async def test_a_replacement_waits_for_the_database(caplog: pytest.LogCaptureFixture) -> None:
    """However often it tries, the log says so once."""
    with worker_line(is_replacement=True) as (files, _):
        async with database_away() as (settings, line):
            opening = asyncio.create_task(open_library(settings, files))
            async with asyncio.timeout(20):
                for _ in range(2):
                    await line.refusals.acquire()
            assert not opening.done()
            line.cut = line.then = ""
            async with asyncio.timeout(20), await opening as perdure:
                await perdure.upkeep.check_ready()

    waits = [record for record in caplog.records if "waits for its store" in record.message]
    assert [(one.levelno, "can't be reached" in one.message) for one in waits] == [(logging.WARNING, True)]


async def test_a_first_worker_fails_at_once() -> None:
    """Whoever starts the server sees what is wrong."""
    with worker_line(is_replacement=False) as (files, _):
        async with database_away() as (settings, _):
            with pytest.raises(StoreUnavailable, match="check the address"):
                await open_library(settings, files)


async def test_a_waiting_worker_ends_with_its_supervisor() -> None:
    """It is not left behind until the database comes back."""
    with worker_line(is_replacement=True) as (files, supervisor):
        async with database_away() as (settings, line):
            opening = asyncio.create_task(open_library(settings, files))
            async with asyncio.timeout(20):
                await line.refusals.acquire()
                supervisor.close()
                with pytest.raises(StoreUnavailable):
                    await opening
