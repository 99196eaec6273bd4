"""A store with something of everything, and what the library reads from it.

`python -m tests.storage.older_store FOLDER` writes `store.db.gz` and `store.json` there. The pair in `fixtures/` was
written so by an older version of Perdure; `test_older_store.py` reads it with this one.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure, NewBlock
from perdure.testing import ScriptedEmbedder, ScriptedModel, calls, says, thinks

MODEL = "test/scripted"
SOURCE = '''
def reverse(text: str) -> str:
    """Turn a text around.

    Args:
        text (str): the text
    """
    return text[::-1]
'''


async def open_store(path: Path, model: ScriptedModel) -> AsyncPerdure:
    return await AsyncPerdure.open(path, models={MODEL: model}, embedder=ScriptedEmbedder())


async def build_store(path: Path) -> None:
    """Write agents, blocks, messages, passages, files, tools, runs and a reset to a new store."""
    model = ScriptedModel(
        thinks("I should keep that.", calls("core_memory_append", label="human", content="Ada keeps two walruses.")),
        says("Noted."),
        calls("archival_memory_insert", content="The boat is called Nautilus.", tags=["boats"]),
        says("It is in the archive."),
        calls("reverse", text="sola"),
        says("Waiting is over."),
        otherwise=says("Certainly."),
    )
    perdure = await open_store(path, model)
    shared = await perdure.blocks.create("shared", "The harbour closes at nine.", limit_chars=2_000)
    await perdure.tools.create(SOURCE)
    ada = await perdure.create_agent(
        "ada",
        model=MODEL,
        blocks=[
            NewBlock(label="human", value="Name: Ada", limit_chars=5_000),
            NewBlock(label="persona", value="Calm."),
        ],
        block_ids=[shared.id],
        tools=["core_memory_append", "archival_memory_insert", "reverse"],
    )
    await ada.require_approval("reverse")
    await ada.send("I have two walruses.")
    await ada.send("Remember the boat: 帆船叫鹦鹉螺号。")
    await ada.send("Turn a word around.")
    await ada.deny(reason="not today")
    await ada.blocks.update("persona", "Calm and brief.")
    second = await ada.new_conversation(summary="About tides")
    await ada.send("When is high tide?", conversation=second.id)
    for day in range(12):
        await ada.send(f"Day {day}: the wind came from the north-west, and the catch was {day * 3} herrings.")
    await ada.archive("The lighthouse was built in 1871.", tags=["harbour"])
    folder = await perdure.folders.create("notes")
    await folder.upload(b"# Tides\n\nHigh water at 06:12 and 18:40.\n", name="tides.md")
    await folder.wait()
    await ada.files.attach("notes")
    archive = await perdure.archives.create("log")
    await archive.insert_many([f"Entry {number}: all is well." for number in range(20)])
    bob = await perdure.create_agent("bob", model=MODEL, block_ids=[shared.id])
    await bob.send("Hello.")
    await bob.reset()
    await bob.send("Hello again.")
    await perdure.close()


async def read_store(perdure: AsyncPerdure) -> dict[str, Any]:
    """Everything that the library tells of a store, as JSON: ids, texts, versions, scopes."""
    found: dict[str, Any] = {"agents": {}}
    for agent in await perdure.agents():
        conversations = await agent.conversations()
        messages = [m for c in conversations for m in await agent.messages(conversation=c.id, limit=500)]
        steps = [step for c in conversations for step in await agent.steps(conversation=c.id, limit=500)]
        found["agents"][agent.info.name] = {
            "id": agent.id,
            "conversations": [[c.id, c.seq, c.summary] for c in conversations],
            "messages": [[m.id, m.seq, m.conversation_seq, m.role, m.text, m.created_at.isoformat()] for m in messages],
            "parts": [[type(part).__name__ for part in m.parts] for m in messages],
            "requests": [[[row.role, row.text] for row in (await agent.request(step.id)).messages] for step in steps],
            "blocks": {
                block.label: [block.value, block.version, [v.value for v in await agent.blocks.history(block.label)]]
                for block in await agent.blocks.list()
            },
            "passages": sorted([p.id, p.text, sorted(p.tags)] for p in await agent.passages(limit=500)),
            "tools": sorted(tool.name for tool in await agent.tools.list()),
            "files": [[file.folder_name, file.file.name] for file in await agent.files.list()],
            "resets": len(await agent.resets()),
        }
    found["archives"] = {
        archive.info.name: sorted(p.text for p in await archive.passages(limit=500))
        for archive in await perdure.archives.list()
    }
    found["folders"] = {
        folder.info.name: {file.name: await folder.text(file.name) for file in await folder.files()}
        for folder in await perdure.folders.list()
    }
    code = await perdure.tools.code("reverse")
    found["source"] = None if code is None else code.source
    return found


async def _write(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.db"
        await build_store(path)
        (folder / "store.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        perdure = await open_store(path, ScriptedModel())
        found = await read_store(perdure)
        await perdure.close()
    text = json.dumps(found, ensure_ascii=False)
    (folder / "store.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_write(Path(sys.argv[1])))
