"""What the dashboard's pages cost on a large store: `python -m benchmarks.dashboard [rows]`, by default 100,000
messages and as many passages and facts; exit code 1 if a page takes more than 30 times the CPU time of the same page on
an empty store.

Each time is the median of five requests of the application itself, of all threads, after one that is not counted.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import httpx

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.ids import PREFIXES, FactId
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.facts.tables import Entities, Facts
from perdure.features.facts.units.graphs import NewEntity, graph_of_agent, store_entities
from perdure.features.facts.values.facts import Community, Fact, Graph
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel
from perdure.ui.pages.routes import PAGES, build_routes

__all__ = ["fill", "main", "paths_of"]

ROWS = 100_000
ROUNDS = 5
TIMES_MAX = 30.0
BATCH = 10_000
ENTITY_FACTS, COMMUNITY_SIZE = 20, 10
MODEL = "test/scripted"
BASE = "http://127.0.0.1:8283"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

FORMS = {
    "/agents/{agent_id}/context": ("", "?raw=1", "?from={step_id}&to=next"),
    "/agents/{agent_id}/facts": (
        "",
        "?q=pear+tree",
        "?state=current",
        "?state=past",
        "?state=proposed",
        "?entity=User",
        "?relation=likes",
        "?as_of=2026-01-03",
    ),
    "/agents/{agent_id}/facts/entities": ("", "?sort=name"),
    "/agents/{agent_id}/facts/timeline": ("", "?until=2026-02-01"),
    "/agents/{agent_id}/files": ("", "?q=pear"),
    "/agents/{agent_id}/memory": ("", "?block=human", "?q=pear+tree", "?tag=garden", "?timeline=1"),
    "/agents/{agent_id}/notes": ("", "?q=pear", "?view=archived", "?new=error"),
    "/runs/{run_id}": ("", "?step={step_id}"),
    "/search": ("", "?q=pear"),
    "/why": ("?of={step_id}", "?of={block_id}", "?of={block_id}:1"),
}
"""The queries by which a page shows more, or something else, by its path; the others are shown as they are."""


async def fill(library: AsyncPerdure, *, rows: int = ROWS) -> AsyncAgent:
    """An agent with so many messages, passages and facts, and one run."""
    agent = await library.create_agent("Ada", human="Likes tea.")
    if rows:
        await agent.import_messages(_messages(rows))
        archive = await library.archives.create("notes")
        await archive.attach_to(agent.id)
        for first in range(0, rows, BATCH):
            await archive.insert_many([_passage(row) for row in range(first, min(first + BATCH, rows))])
        await _add_facts(library, agent, rows)
    await agent.send("I like pears")
    return agent


async def _add_facts(library: AsyncPerdure, agent: AsyncAgent, rows: int) -> None:
    """Facts of a twentieth as many people and some trees; every second has ceased to be true."""
    ids, people = library.app.ports.ids, max(1, rows // ENTITY_FACTS)

    def create(tx: Tx) -> tuple[Graph, Sequence[int]]:
        graph = graph_of_agent(tx, agent.id, ids=ids, at=BEGAN)
        names = ["User", *(f"Person {number}" for number in range(people)), *(f"Tree {number}" for number in range(97))]
        new = [NewEntity(name=name, type="Person") for name in names]
        seqs = [entity.seq for entity in store_entities(tx, graph, new, ids=ids, at=BEGAN)]
        for number in range(0, people, COMMUNITY_SIZE):
            members = seqs[number : number + COMMUNITY_SIZE]
            name, summary = names[number], "They plant trees. " * 20
            tx.of(Entities).put_community(
                Community(
                    graph_id=graph.id, seq=members[0], name=name, summary=summary, size=len(members), updated_at=BEGAN
                )
            )
            for seq in members:
                tx.of(Entities).set_community(graph.id, seq, members[0])
        return graph, seqs

    graph, seqs = await library.app.store.write(create)

    def add(tx: Tx, first: int) -> None:
        facts = []
        for row in range(first, min(first + BATCH, rows)):
            began = BEGAN + timedelta(minutes=row)
            facts.append(
                Fact(
                    id=FactId(ids.new("fact")),
                    graph_id=graph.id,
                    text=f"Person {row % people} planted pear tree {row}.",
                    subject=seqs[row % (people + 1)],
                    object=seqs[people + 1 + row % 97],
                    relation=f"RELATION_{row % 50}",
                    valid_at=began,
                    invalid_at=began + timedelta(days=1) if row % 2 else None,
                    created_at=began,
                )
            )
        tx.of(Facts).add(graph, facts)

    for first in range(0, rows, BATCH):
        await library.app.store.write(add, first)


def _messages(rows: int) -> Iterator[ImportedMessage]:
    for row in range(rows):
        text = f"In row {row} the pear tree of the garden bears {row % 97} pears."
        role: Literal["user", "assistant"] = "assistant" if row % 2 else "user"
        yield ImportedMessage(role=role, text=text, occurred_at=BEGAN + timedelta(minutes=row))


def _passage(row: int) -> str:
    return f"Note {row}: the garden has {row % 89} trees, and one is a pear tree."


async def paths_of(agent: AsyncAgent) -> list[str]:
    """The path of every page that the dashboard has, in each of its forms. The agent has answered, and has blocks.

    Raises: KeyError: a page is about something that is not named here.
    """
    step, block = (await agent.steps(limit=1))[0], (await agent.blocks.list())[0]
    ids = {"agent_id": agent.id, "run_id": step.run_id, "step_id": step.id, "block_id": block.id}
    pages = [path for module in PAGES for path in module.pages.paths]
    return [(path + form).format_map(ids) for path in pages for form in FORMS.get(path, ("",))]


async def page_times(folder: Path, *, rows: int) -> dict[str, float]:
    """Milliseconds of CPU of each page, by its path without the ids."""
    settings = Settings(home=str(folder), model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel()}
    async with await AsyncPerdure.open(folder / "p.db", models=models, settings=settings) as library:
        began = time.perf_counter()
        agent = await fill(library, rows=rows)
        print(f"{rows:,} messages, passages and facts stored in {time.perf_counter() - began:.0f} s", flush=True)
        transport = httpx.ASGITransport(create_app(library, ServerConfig(), pages=build_routes()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=600) as client:
            return {_name(path): await _page_ms(client, path) for path in await paths_of(agent)}


async def _page_ms(client: httpx.AsyncClient, path: str) -> float:
    times = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        (await client.get(path)).raise_for_status()
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times[1:])


def _name(path: str) -> str:
    """The path, with the kind of each id in its place."""
    return re.sub(rf"\b({'|'.join(PREFIXES.values())})-[0-9a-f]{{8}}[0-9a-f-]{{28}}", r"\1", path)


def main() -> int:
    """Print the table; 1 if a page is too slow."""
    rows = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        small = asyncio.run(page_times(Path(empty), rows=0))
        large = asyncio.run(page_times(Path(full), rows=rows))
    print(f"{'page':<48}{'empty ms':>10}{'large ms':>10}{'times':>8}")
    missed = False
    for path, ms in large.items():
        times = ms / small[path]
        missed |= times > TIMES_MAX
        print(f"{path:<48}{small[path]:>10.1f}{ms:>10.1f}{times:>8.1f}  {'MISSED' if times > TIMES_MAX else 'ok'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
