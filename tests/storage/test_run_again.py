"""A unit that another one got in the way of is run again; what is there already is a conflict, on both databases."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import psycopg
import pytest

from perdure.core.errors import AlreadyExists, StoreBusy
from perdure.storage.stores import postgres_store as postgres
from perdure.storage.stores.open import open_store
from perdure.storage.stores.postgres_store import PostgresStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START
from tests.support.two_apps import STORES, address_of

ADD = "INSERT INTO model_traits (org_id, model, traits) VALUES ('org', :model, '{}')"

RAISE = (
    "CREATE FUNCTION pg_temp.raise_state(code TEXT) RETURNS INTEGER LANGUAGE plpgsql AS $f$"
    " BEGIN RAISE EXCEPTION USING ERRCODE = code; END $f$"
)


def add(tx: Tx, model: str) -> None:
    tx._db.run_counted(ADD, {"model": model})


@pytest.mark.parametrize("kind", STORES)
async def test_a_row_that_is_there_already_is_a_conflict(kind: str, tmp_path: Path) -> None:
    """Also where nothing looked for it before: never an error of the database."""
    store = await open_store(await address_of(kind, tmp_path), at=START)
    await store.write(add, "one")
    with pytest.raises(AlreadyExists, match="a row of model_traits"):
        await store.write(add, "one")

    await store.close()


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_race_is_run_again_though_the_unit_caught_its_error(state: str, tmp_path: Path) -> None:
    """A unit may catch more than its own errors; its transaction has failed all the same."""
    store = await PostgresStore.open(await address_of("postgres", tmp_path), at=START)
    runs = []

    def unit(tx: Tx) -> int:
        runs.append(1)
        add(tx, f"{len(runs)}")
        if len(runs) < 3:
            tx._db.run(RAISE, {})
            with pytest.raises(psycopg.Error):
                tx._db.rows(f"SELECT pg_temp.raise_state('{state}')", {})
        return len(runs)

    assert await store.write(unit) == 3
    assert await store.read(lambda tx: list(map(tuple, tx._db.rows("SELECT model FROM model_traits", {})))) == [("3",)]
    await store.close()


async def test_races_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is tried a number of times, not for ever."""
    monkeypatch.setattr(postgres, "RACE_PAUSE_S", 0.0)
    store = await PostgresStore.open(await address_of("postgres", tmp_path), at=START)
    runs = []

    def unit(tx: Tx) -> None:
        runs.append(1)
        raise psycopg.errors.SerializationFailure("again")

    with pytest.raises(StoreBusy):
        await store.write(unit)

    assert len(runs) == postgres.RACE_TRIES
    await store.close()


async def test_who_loses_the_race_to_add_finds_what_the_other_added(tmp_path: Path) -> None:
    """Both looked before either added; the second look finds it."""
    store = await PostgresStore.open(await address_of("postgres", tmp_path), at=START)
    looked = threading.Barrier(2)
    runs = []

    def find_or_add(tx: Tx) -> str:
        runs.append(1)
        found = tx._db.rows("SELECT 1 FROM model_traits WHERE model = 'one'", {})
        if len(runs) <= 2:
            looked.wait(10)
        if found:
            return "found"
        add(tx, "one")
        return "added"

    assert sorted(await asyncio.gather(store.write(find_or_add), store.write(find_or_add))) == ["added", "found"]
    await store.close()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_unit_that_met_what_another_has_added_looks_once_more(times: int, tmp_path: Path) -> None:
    """It may have looked before that was there, and finds it now; what it meets again is a conflict."""
    store = await PostgresStore.open(await address_of("postgres", tmp_path), at=START)
    runs = []

    def unit(tx: Tx) -> str:
        runs.append(1)
        if len(runs) <= times:
            raise AlreadyExists("archive", "one")
        return "found"

    if times == 1:
        assert await store.write(unit) == "found"
    else:
        with pytest.raises(AlreadyExists):
            await store.write(unit)
    assert len(runs) == 2
    await store.close()
