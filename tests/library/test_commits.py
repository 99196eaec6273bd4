"""What each single commit leaves in the file, read by somebody else before the next one begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perdure import AsyncPerdure, Settings
from perdure.core.messages import Text
from perdure.core.vectors import IndexFault
from perdure.testing import ScriptedEmbedder, ScriptedModel, calls, says
from tests.contracts.base import ADA
from tests.contracts.upkeep import faults_of
from tests.support.library import MODEL
from tests.support.observer import Observer

TOOLS = ("archival_memory_insert", "core_memory_append")
SCRIPT = (
    calls("archival_memory_insert", content="The walrus rests."),
    says("Kept."),
    calls("core_memory_append", label="human", content="Likes the sea."),
    says("Noted."),
)


async def test_every_commit_leaves_what_is_derived_in_step(tmp_path: Path) -> None:
    """Full-text rows, tags, counts and vectors agree with the texts after each commit, so a kill finds them so."""
    path = tmp_path / "store.db"
    settings = replace(Settings(), model=MODEL)
    commits, faults = 0, list[IndexFault]()
    async with await AsyncPerdure.open(
        path, models={MODEL: ScriptedModel(*SCRIPT)}, embedder=ScriptedEmbedder(), settings=settings
    ) as perdure:
        reader = Observer(path)

        def look(statement: str) -> None:
            nonlocal commits
            if statement.startswith("BEGIN"):  # what it follows is committed
                faults.extend(reader.read_now(faults_of))
                commits += 1

        writer = perdure.app.store._store._writer  # type: ignore[attr-defined]  # under the store that is watched
        writer.set_trace_callback(look)
        agent = await perdure.create_agent("ada", tools=TOOLS)
        for text in ("A walrus.", "The sea."):
            await agent.send(text)
        archive = await perdure.archives.create("notes")
        one, two, *_ = await archive.insert_many([f"walrus {number}" for number in range(5)])
        await archive.update_passage(one.id, text="penguin", tags=["sea"])
        await archive.delete_passage(two.id)
        folder = await perdure.folders.create("plans")
        await folder.upload(b"Open the valve.\n" * 400, name="plan.txt")
        await folder.wait(timeout_s=30)
        messages = await perdure.app.store.read(lambda tx: tx.messages.list(agent.id))
        first, at = messages[0].id, messages[0].created_at
        await perdure.app.store.write(lambda tx: tx.messages.revise(first, [Text("other words")], author=ADA, at=at))
        await agent.reset()
        await perdure.folders.delete(folder.id)
        writer.set_trace_callback(None)
        await reader.close()

    assert commits > 20
    assert faults == []
