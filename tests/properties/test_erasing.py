"""A text that came in by any way is in no file of the store after it was erased, and the agent answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure import AsyncPerdure, RunFailed
from perdure.core.errors import NotFound
from perdure.core.forgetting.redaction import ASCII_MIN
from perdure.domain.blocks.units import NewBlock
from perdure.features.origins.mentions import TEXT_TABLES, TextMentions
from perdure.library.agent import AsyncAgent
from perdure.library.agents.identities import IdentityFields
from perdure.settings import Settings
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, calls, fails, says, thinks
from tests.support.postgres_server import address_of_an_empty_store, run_each, run_sql

FULL = os.environ.get("PERDURE_FAULTS") == "full"
EXAMPLES = 300 if FULL else 4
MODEL = "test/model"


class World:
    """A store, an agent, and what its model says next."""

    def __init__(self, perdure: AsyncPerdure, agent: AsyncAgent, script: list[Any], results: list[str]) -> None:
        self.perdure, self.agent, self.script, self.results = perdure, agent, script, results

    async def hear(self, *lines: Any) -> None:
        self.script.extend(lines)
        await self.agent.send("go on")


Way = Callable[[World, str], Awaitable[object]]


async def said_by_user(world: World, text: str) -> None:
    await world.agent.send(f"Remember that {text} forever.")


async def said_by_model(world: World, text: str) -> None:
    await world.hear(thinks(f"hm, {text}", says(f"Noted: {text}!")))


async def tool_argument(world: World, text: str) -> None:
    await world.hear(calls("lookup", what=text))


async def tool_result(world: World, text: str) -> None:
    world.results.append(json.dumps({"rows": [json.dumps(text), text]}))
    await world.hear(calls("lookup", what="it"))


async def long_tool_result(world: World, text: str) -> None:
    world.results.append("row of data\n" * 3_000 + text + "\nmore rows" * 500)
    await world.hear(calls("lookup", what="much"))


async def failed_call(world: World, text: str) -> None:
    with contextlib.suppress(RunFailed):
        await world.hear(fails(f"the provider refused {text}", kind="invalid_request"))


async def stored_by_model(world: World, text: str) -> None:
    await world.hear(
        calls("memory_insert", label="human", new_string=text), calls("archival_memory_insert", content=text)
    )


async def block(world: World, text: str) -> None:
    await world.agent.blocks.append("human", text)


async def old_block(world: World, text: str) -> None:
    await world.agent.blocks.update("persona", f"I know {text}.")
    await world.agent.send("hello")
    await world.agent.blocks.update("persona", "I know nothing.")


async def block_details(world: World, text: str) -> None:
    await world.agent.blocks.create("more", "value")
    await world.agent.blocks.change("more", description=text, metadata={text: [text]}, tags=[text])


async def passage(world: World, text: str) -> None:
    stored = await world.agent.archive(f"Note: {text}", tags=["kept"])
    await world.agent.update_passage(stored.id, metadata={"a": {text: text}}, source={"of": text})
    other = await world.agent.archive("Another note.", tags=[text, "other"])
    await world.agent.update_passage(other.id, metadata={"a": text})


async def old_passage(world: World, text: str) -> None:
    stored = await world.agent.archive(f"Note: {text}")
    await world.agent.delete_passage(stored.id)


async def archive_details(world: World, text: str) -> None:
    archive = await world.perdure.archives.create("more", description=text, metadata={"a": text})
    await archive.attach_to(world.agent.id)


async def file(world: World, text: str) -> None:
    folder = await world.perdure.folders.create("docs", description=text, instructions=text, metadata={text: 1})
    await folder.upload(("intro\n" * 400 + f"# {text}\n{text}\n" + "tail\n" * 400).encode(), name="notes.md")
    await folder.wait(timeout_s=60)
    await world.agent.files.attach("docs")


async def summary(world: World, text: str) -> None:
    for number in range(3):
        await world.agent.send(f"{number}: {text}")
    await world.agent.compact()


async def agent_details(world: World, text: str) -> None:
    await world.agent.update(description=text, metadata={"of": {text: text}}, tags=[text], system=f"Think of {text}.")
    await world.agent.send("hello")


async def conversation(world: World, text: str) -> None:
    other = await world.agent.new_conversation(summary=f"About {text}", isolated_blocks=["human"])
    await world.agent.send(text, conversation=other.id)
    await world.agent.delete_conversation((await world.agent.new_conversation(summary=text)).id)


async def corrected(world: World, text: str) -> None:
    await world.agent.send(text)
    first = (await world.agent.messages(limit=1))[0]
    await world.agent.update_message(first.id, f"Changed: {text}")
    await world.agent.update_message(first.id, "Changed again.")


async def forgotten(world: World, text: str) -> None:
    await world.agent.blocks.append("human", text)
    await world.agent.archive(text)
    await world.agent.send(text)
    await world.agent.forget(text)


async def reset(world: World, text: str) -> None:
    await world.agent.send(text)
    await world.agent.reset()


async def identity(world: World, text: str) -> None:
    fields = IdentityFields(
        identifier_key="ada",
        name="Ada",
        identity_type="user",
        properties=[{"key": "likes", "value": text, "type": "string"}],
        agent_ids=[world.agent.id],
    )
    await world.perdure.identities.create(fields)


async def feedback(world: World, text: str) -> None:
    await world.agent.send("hello")
    step = (await world.agent.steps(limit=1))[0]
    await world.perdure.steps.put_feedback(step.id, "negative", tags=[text])


WAYS: tuple[Way, ...] = (
    *(said_by_user, said_by_model, tool_argument, tool_result, long_tool_result, failed_call, stored_by_model),
    *(block, old_block, block_details, passage, old_passage, archive_details, file, summary, agent_details),
    *(conversation, corrected, forgotten, reset, identity, feedback),
)


async def new_world(address: Path | str) -> World:
    """An agent whose window is small, with a tool that returns what the test says."""
    script: list[Any] = []
    results: list[str] = []

    def lookup(what: str) -> str:
        """Look something up."""
        return results.pop() if results else "nothing"

    model = ScriptedModel(summarises=says("They spoke."))
    model._script = script
    perdure = await AsyncPerdure.open(
        address, models={MODEL: model}, tools=[lookup], settings=Settings(model=MODEL, embedding="none")
    )
    agent = await perdure.create_agent(
        "ada", settings={"context_window_tokens": 8_400}, blocks=[NewBlock(label="team", value="rules")]
    )
    return World(perdure, agent, script, results)


def forms(text: str) -> set[bytes]:
    """The text as it stands in files, also inside JSON, and its words, which stand by themselves in an index."""
    words = {word.lower() for word in text.split() if len(word) > 5 and word.isascii() and word.isalpha()}
    ascii_json = json.dumps(text)[1:-1]
    whole = {text, json.dumps(text, ensure_ascii=False)[1:-1], ascii_json, json.dumps(ascii_json)[1:-1]}
    return {form.lower().encode() for form in whole | words}


def bytes_left(path: Path, text: str) -> list[tuple[str, bytes]]:
    """(File, form) of each form of the text that stands in a file beside the store."""
    contents = {file.name: file.read_bytes().lower() for file in path.parent.iterdir() if file.is_file()}
    return [(name, form) for name, content in contents.items() for form in forms(text) if form in content]


WORD = st.text("zxqjvkwbpfgy", min_size=6, max_size=12)
"""No word of the store's own texts looks like this."""
OTHER = st.text("äöüßñ日本語Ωж🦊\"'\\/%_.*", min_size=1, max_size=6)
TEXT = st.builds(lambda first, rest: " ".join([first, *rest]), WORD, st.lists(WORD | OTHER, min_size=1, max_size=5))


async def check_erased(ways: list[Way], text: str, address: Path | str, left: Callable[[], list[Any]]) -> None:
    """Put a text through these ways in, erase it, and look for what is `left` of it."""
    world = await new_world(address)
    async with world.perdure:
        for way in ways:
            await way(world, text)
        await world.agent.send("What else?")
        assert left()

        result = await world.agent.forget(text, erase=True)

        assert result.erased
        assert left() == []
        assert (await world.agent.find_mentions(text)).counts == {}
        assert (await world.agent.send("Still there?")).text == "OK."
    assert left() == []


@pytest.mark.slow
@given(text=TEXT, ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=5, unique=True))
@example(text="zxqjvk wbpfgy", ways=list(WAYS))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_erased_text_is_in_no_file_whatever_way_it_came(text: str, ways: list[Way]) -> None:
    """As it was, inside JSON, and word by word; the agent answers the next message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agents.db"
        asyncio.run(check_erased(ways, text, path, lambda: bytes_left(path, text)))


def rows_left(address: str, text: str) -> list[tuple[str, bytes]]:
    """(Table, form) of each form of the text that stands in a row of a PostgreSQL store."""
    tables = tables_of(address)
    rows = run_each(address, [f"SELECT {name}::text FROM {name}" for name in tables])
    return [
        (name, form)
        for name, found in zip(tables, rows, strict=True)
        for form in forms(text)
        if any(form in str(row[0]).replace('""', '"').lower().encode() for row in found)
    ]


def tables_of(address: str) -> list[str]:
    """The tables of the store."""
    found = run_sql(address, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return [str(name) for (name,) in found]


def data_left(address: str, text: str) -> list[tuple[str, bytes]]:
    """(File, form) of each form of the text in the server's data directory, but for its write-ahead log."""
    ((folder,),) = run_sql(address, "SHOW data_directory")
    found = []
    for file in Path(str(folder), "base").rglob("*"):
        with contextlib.suppress(OSError):  # a file of another test, which is gone
            content = file.read_bytes().lower() if file.is_file() else b""
            found += [(file.name, form) for form in forms(text) if form in content]
    return found


@pytest.mark.slow
def test_an_erased_text_is_in_no_row_of_postgresql() -> None:
    """Whatever way it came; nor in a file of its data directory, after a checkpoint and without open transactions of
    others."""
    address, text = address_of_an_empty_store(), "zqvxkj wpbfgz 'yq'"

    short: list[Way] = [said_by_user, tool_result, stored_by_model, old_block, file, summary]
    ways = list(WAYS) if FULL else short
    asyncio.run(check_erased(ways, text, address, lambda: rows_left(address, text)))

    for _ in range(50):
        run_sql(address, "CHECKPOINT")
        if not (left := data_left(address, text)):
            break
        time.sleep(0.2)
        run_each(address, [f"VACUUM FULL {name}" for name in tables_of(address)])
    assert left == []


async def words_stored(world: World) -> set[str]:
    """Every name and every short value in the JSON of the store's columns with texts."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.update(value)
            collect(list(value.values()))
        elif isinstance(value, list):
            for one in value:
                collect(one)
        elif isinstance(value, str) and len(value) < 40:
            found.add(value)

    def read(tx: Tx) -> None:
        for table, what in TEXT_TABLES.items():
            for row in tx.of(TextMentions)._rows(f"SELECT {', '.join(what.texts)} FROM {table}"):
                for value in row:
                    with contextlib.suppress(ValueError, TypeError):
                        collect(json.loads(value))

    await world.perdure.app.ports.store.read(read)
    return {word for word in found if len(word) >= ASCII_MIN}


async def read_everything(world: World) -> None:
    """Read what people read of an agent, and have it answer."""
    agent = world.agent

    def read(tx: Tx) -> None:
        for run in tx.runs.list(agent.id, limit=1_000):
            tx.events.list(run.key)
        tx.messages.list(agent.id, limit=10_000, reset=True)

    await world.perdure.app.ports.store.read(read)
    for step in await agent.steps(limit=1_000):
        await agent.exchange(step.id)
        if step.failure is None:
            await agent.explain(step.id)
    await agent.search("note")
    await agent.blocks.list()
    while True:
        try:
            await agent.undo()
        except NotFound:
            break
    assert (await agent.send("Still there?")).text == "OK."


FORMAT_WORDS = ("message", "type", "2026-")


# One word after the other in one store; the long form begins anew with each.
@pytest.mark.slow
@pytest.mark.parametrize("words", [[word] for word in FORMAT_WORDS] if FULL else [list(FORMAT_WORDS)])
def test_erasing_a_word_of_the_format_leaves_the_store_readable(words: list[str]) -> None:
    """Names of fields, kinds, ids and times stay; in its long form each of them is erased."""

    async def erase_all() -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = await new_world(Path(folder) / "agents.db")
            async with world.perdure:
                for way in WAYS:
                    await way(world, "zxqjvk wbpfgy")
                further = sorted(await words_stored(world)) if words == [FORMAT_WORDS[0]] else []
                for one in [*words, *further]:
                    await world.agent.forget(one, erase=True)
                    await read_everything(world)

    asyncio.run(erase_all())
