"""`kill -9` of a process that embeds, at random moments: no text is lost, and each gets its vector, once."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.core.ids import ArchiveId
from perdure.core.passages import PassageFilter
from perdure.core.text.words import parse_query
from perdure.core.vectors import ScopeCounts
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedEmbedder
from tests.contracts.upkeep import faults_of
from tests.faults.killing import ENVIRONMENT
from tests.support.stores import SECRET_KEY, new_address
from tests.support.warm import KILL, killed, warm

pytestmark = pytest.mark.faults

KILLS = 40 if os.environ.get("PERDURE_FAULTS") == "full" else 2
ARCHIVE = "kept"
SETTINGS = Settings(secret_key=SECRET_KEY)

# It puts texts away and says so of each batch, while its worker makes their vectors, a few at a time.
TARGET = """
import asyncio, sys
from perdure.engine.workers import embedding
from perdure.library.perdure import AsyncPerdure
from perdure.testing import ScriptedEmbedder

embedding.LEASE_S = 2.0  # for so long nobody else makes the vectors that a killed process had begun

class Slow(ScriptedEmbedder):
    async def embed(self, texts, **options):
        print("embedding", len(texts), flush=True)
        await asyncio.sleep(0.01)
        return await super().embed(texts, **options)

async def main(store, first):
    async with await AsyncPerdure.open(store, embedder=Slow()) as perdure:
        there = await perdure.archives.list(name="kept")
        archive = there[0] if there else await perdure.archives.create("kept")
        for batch in range(first, first + 1_000):
            await archive.insert_many([f"walrus {batch} {number}" for number in range(20)])
            print("kept", batch, flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def torment(store: str, folder: Path, kills: int, chance: random.Random) -> list[int]:
    """The batches that were acknowledged by processes that were killed, each while it embedded."""
    kept: list[int] = []
    program = folder / "target.py"
    program.write_text(TARGET, "utf-8")
    for kill in range(kills):
        with subprocess.Popen(
            [warm(str(program), ENVIRONMENT), store, str(kill * 1_000)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            embedding, last = 0, chance.randint(2, 12)
            for line in child.stdout:
                word, number = line.split()
                embedding += word == "embedding"
                if word == "kept":
                    kept.append(int(number))
                if embedding >= last:
                    child.send_signal(KILL)
                    break
            kept += [int(line.split()[1]) for line in child.stdout if line.startswith("kept") and line.endswith("\n")]
        assert killed(child.returncode) == -9
    return kept


def state(tx: Tx) -> tuple[ScopeCounts, int]:
    """What is known of the archive's vectors, and its passages."""
    (archive,) = tx.archives.list(name=ARCHIVE)
    (counts,) = [one for one in tx.vectors.counts() if one.scope.number == archive.number]
    return counts, archive.passage_count


def matches(tx: Tx, archive_id: ArchiveId, text: str) -> Sequence[int]:
    return tx.passages.match(archive_id, parse_query(text), where=PassageFilter(), limit=1).seqs


@pytest.mark.parametrize("seed", [0])
async def test_a_kill_of_the_embedding_process_loses_no_vector(tmp_path: Path, seed: int) -> None:
    """What was acknowledged is found by its words at once, and by its vector when the next process has made it."""
    store = new_address(tmp_path)
    kept = await asyncio.to_thread(torment, store, tmp_path, KILLS, random.Random(seed))
    async with await AsyncPerdure.open(store, settings=SETTINGS) as perdure:
        (archive,) = await perdure.archives.list(name=ARCHIVE)

        def lost(tx: Tx) -> list[int]:
            """The acknowledged batches that words don't find."""
            return [batch for batch in kept if not matches(tx, archive.id, f'"walrus {batch}"')]

        assert await perdure.app.store.read(lost) == []
        counts, passages = await perdure.app.store.read(state)
        assert passages >= 20 * len(kept) > 0
        assert counts.scope.row_count + counts.waiting == passages
    async with await AsyncPerdure.open(store, embedder=ScriptedEmbedder(), settings=SETTINGS) as perdure:
        while True:
            counts, passages = await perdure.app.store.read(state)
            if not counts.waiting:
                break
            await asyncio.sleep(0.02)
        assert (counts.scope.row_count, passages % 20) == (passages, 0)
        assert await perdure.app.store.read(faults_of) == []
