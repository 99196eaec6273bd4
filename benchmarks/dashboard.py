"""What the dashboard's pages cost on a large store: `python -m benchmarks.dashboard [rows]`, by default 100,000
messages and as many passages and facts, with 300 agents, 500 runs, 200 files and 200 conversations; beside an empty
store, and one with a hundredth. Exit code 1 if a page takes more than 30 times the CPU time of the same page on the
empty store, or more than 400 ms, or if its first view is more than 300 kB.

Each time is the median of five requests of the application itself, of all threads, after one that is not counted. The
first view is the page and the files that it names, as they are sent to a browser that takes them compressed.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from perdure.testing import ScriptedModel, says
from perdure.ui.pages.routes import build_routes, page_modules

__all__ = ["fill", "main", "paths_of"]

ROWS = 100_000
ROUNDS = 5
TIMES_MAX, MS_MAX, VIEW_MAX_KB = 30.0, 400.0, 300.0
BATCH = 10_000
NORMAL_SHARE = 100
ROWS_PER_AGENT, ROWS_PER_RUN, ROWS_PER_FILE, ROWS_PER_CONVERSATION = 333, 200, 500, 500
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


@dataclass(frozen=True)
class Cost:
    """CPU milliseconds of a page, and kilobytes of its first view."""

    ms: float
    view_kb: float


async def fill(library: AsyncPerdure, *, rows: int = ROWS) -> AsyncAgent:
    """An agent with so many messages, passages and facts, and as much around it as comes with them."""
    agent = await library.create_agent("Ada", human="Likes tea.")
    if rows:
        await agent.import_messages(_messages(rows))
        archive = await library.archives.create("notes")
        await archive.attach_to(agent.id)
        for first in range(0, rows, BATCH):
            await archive.insert_many([_passage(row) for row in range(first, min(first + BATCH, rows))])
        await _add_facts(library, agent, rows)
        await _add_others(library, agent, rows)
    await agent.send("I like pears")
    return agent


async def _add_others(library: AsyncPerdure, agent: AsyncAgent, rows: int) -> None:
    """Other agents with runs, and files and conversations of this one."""
    others = [
        await library.create_agent(f"Agent {number}", description="Keeps a garden.")
        for number in range(max(1, rows // ROWS_PER_AGENT))
    ]
    for number in range(rows // ROWS_PER_RUN):
        await others[number % len(others)].send(f"Are there {number} pears?")
    folder = await library.folders.create("Manuals")
    await agent.files.attach(folder.id)
    for number in range(rows // ROWS_PER_FILE):
        await folder.upload(f"Pear tree {number} bears fruit.\n".encode() * 20, name=f"tree-{number}.md")
    for number in range(rows // ROWS_PER_CONVERSATION):
        await agent.new_conversation(summary=f"About tree {number}")


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
    pages = [path for module in page_modules() for path in module.pages.paths]
    return [(path + form).format_map(ids) for path in pages for form in FORMS.get(path, ("",))]


async def page_costs(folder: Path, *, rows: int) -> dict[str, Cost]:
    """What each page costs, by its path without the ids."""
    settings = Settings(home=str(folder), model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel(otherwise=says("There are."))}
    async with await AsyncPerdure.open(folder / "p.db", models=models, settings=settings) as library:
        began = time.perf_counter()
        agent = await fill(library, rows=rows)
        print(f"{rows:,} messages, passages and facts stored in {time.perf_counter() - began:.0f} s", flush=True)
        transport = httpx.ASGITransport(create_app(library, ServerConfig(), pages=build_routes()))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=600) as client:
            return {_name(path): await _cost_of(client, path) for path in await paths_of(agent)}


async def _cost_of(client: httpx.AsyncClient, path: str) -> Cost:
    times = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        page = (await client.get(path)).raise_for_status()
        times.append((time.process_time() - began) * 1000)
    files = [await client.get(name) for name in sorted({*re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)})]
    sent = sum(answer.raise_for_status().num_bytes_downloaded for answer in (page, *files))
    return Cost(statistics.median(times[1:]), sent / 1000)


def _name(path: str) -> str:
    """The path, with the kind of each id in its place."""
    return re.sub(rf"\b({'|'.join(PREFIXES.values())})-[0-9a-f]{{8}}[0-9a-f-]{{28}}", r"\1", path)


def main() -> int:
    """Print the table; 1 if a page is too slow or too large."""
    rows = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else ROWS
    stores = []
    for size in (0, rows // NORMAL_SHARE, rows):
        with tempfile.TemporaryDirectory() as folder:
            stores.append(asyncio.run(page_costs(Path(folder), rows=size)))
    empty, normal, large = stores
    print(f"{'page':<48}{'empty ms':>10}{'normal ms':>10}{'large ms':>10}{'times':>8}{'view kB':>9}")
    missed = False
    for path, cost in large.items():
        times = cost.ms / empty[path].ms
        over = times > TIMES_MAX or cost.ms > MS_MAX or cost.view_kb > VIEW_MAX_KB
        missed |= over
        columns = f"{empty[path].ms:>10.1f}{normal[path].ms:>10.1f}{cost.ms:>10.1f}{times:>8.1f}{cost.view_kb:>9.1f}"
        print(f"{path:<48}{columns}  {'MISSED' if over else 'ok'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
