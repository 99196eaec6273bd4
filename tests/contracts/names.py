"""Names, tags, labels and keys: one thing, however its letters and marks are written."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.agents import AgentFilter, IdentityFilter
from perdure.core.blocks import BlockFilter
from perdure.core.errors import AlreadyExists
from perdure.core.ids import DEFAULT_ORG, ArchiveId, ConversationId, ToolId, UserId
from perdure.core.passages import Passage, PassageFilter
from perdure.core.specs import Tool, ToolFilter, ToolSpec
from perdure.features.access.directory import Users
from perdure.features.access.values import User, check_name
from perdure.features.facts.tables import Episodes, Facts, Graphs
from perdure.features.facts.values.facts import FactFilter
from perdure.features.files.file_tables import AgentFiles, Files
from perdure.features.files.folder_tables import Folders
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from tests.contracts.base import AT, Contract, list_texts, match_passages, raises

SYLLABLES = ("Việt", "한글", "café", "ГИЙ", "Ångström", "ガギ", "ệ", "ό", "a", "-7", "क़", "שׁ")
"""Pieces whose letters have marks, with some that have none."""


def names() -> Sequence[tuple[str, str]]:
    """Names in two forms."""
    chance = random.Random(38)
    made = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(8)] + ["\u212bngström"]
    pairs = [(one, unicodedata.normalize("NFD", one)) for one in made]
    pairs += [(unicodedata.normalize("NFD", one), unicodedata.normalize("NFC", one)) for one in made]
    apart = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
    return [(f"n{number:02}-{one}", f"n{number:02}-{other}") for number, (one, other) in enumerate(apart)]


def _spec(name: str) -> ToolSpec:
    """A tool with this name."""
    return ToolSpec(name=name, description="Look.", parameters={})


def list_tags(tx: Tx, archive_id: ArchiveId) -> Sequence[tuple[str, int]]:
    """The tags of an archive, with how often each is used."""
    return tx.archives.tags(archive_id, limit=9)


def put_tags(tx: Tx, passage: Passage, *tags: str) -> Passage:
    """The passage with these tags only."""
    return tx.passages.put(replace(passage, tags=tags))


class NameContract(Contract):
    async def test_a_thing_is_found_in_every_form_of_its_name(self) -> None:
        """Whatever has a name, tag, label or key is made in one form, and found, filtered and listed in the other."""
        async with self.open_store() as store:
            for name, other in names():
                made = await store.write(self._make, name)
                found = await store.read(self._find, other, made)

                assert [how for how, is_found in found.items() if not is_found] == [], (name, other)

    async def test_a_name_that_occurs_once_is_refused_in_every_form(self) -> None:
        """A folder, an identity, a block of an agent and a user have it, whichever form another one is to have."""
        async with self.open_store() as store:
            for name, other in names():
                await self._refuse(store, name, other)

    async def _refuse(self, store: Store, name: str, other: str) -> None:
        agent = await store.write(self.add_agent)
        await store.write(self.add_folder, name)
        second = await store.write(self.add_folder, f"another {name}")
        await store.write(self.add_identity, name)
        await store.write(self.add_block, name, agent_id=agent.id)
        first, twin = (
            User(id=UserId(self.ids.new("user")), org_id=DEFAULT_ORG, name=check_name("a user", one), created_at=AT)
            for one in (name, other)
        )
        await store.write(lambda tx: tx.of(Users).add(first))
        units: Sequence[Callable[[Tx], Any]] = (
            lambda tx: self.add_folder(tx, other),
            lambda tx: tx.of(Folders).put(replace(second, name=other)),
            lambda tx: self.add_identity(tx, other),
            lambda tx: self.add_block(tx, other, agent_id=agent.id),
        )
        for unit in units:
            with raises(AlreadyExists):
                await store.write(unit)
        with raises(AlreadyExists):
            await store.write(lambda tx: tx.of(Users).add(twin))
        assert await store.read(lambda tx: tx.of(Users).find_by_name(other)) is not None

    async def test_tags_in_two_forms_are_one(self) -> None:
        """A passage has it once, it is counted once, and nothing of it is left when it is taken away."""
        async with self.open_store() as store:
            for name, other in names():
                archive = await store.write(self.add_archive)
                passage = await store.write(self.add_passage, archive.id, "a walrus", name, other)
                assert await store.read(list_tags, archive.id) == [(passage.tags[0], 1)]
                assert len(passage.tags) == 1

                await store.write(put_tags, passage, other, "x")
                assert await store.read(match_passages, archive.id, "walrus", where=PassageFilter(tags=(name,)))
                await store.write(put_tags, passage)

                assert await store.read(list_tags, archive.id) == []
                where = PassageFilter(tags=(name, other))
                assert await store.read(match_passages, archive.id, "walrus", where=where) == []

    async def test_texts_stay_as_they_were_written(self) -> None:
        """A message, a passage and the value of a block keep each byte."""
        async with self.open_store() as store:
            agent, archive = await store.write(self.add_agent), await store.write(self.add_archive)
            for name, _ in names():
                await store.write(self.say, agent.id, name)
                await store.write(self.add_passage, archive.id, name)
                await store.write(self.add_block, "notes", name)

            texts = [name for name, _ in names()]
            assert await store.read(list_texts, agent.id) == texts
            assert [one.text for one in await store.read(lambda tx: tx.passages.page(archive.id))] == texts
            blocks = await store.read(lambda tx: tx.blocks.page(where=BlockFilter(), ascending=True))
            assert [one.value for one in blocks] == texts

    def _make(self, tx: Tx, name: str) -> Mapping[str, Any]:
        """One of each thing with this name."""
        agent = tx.agents.put(replace(self.add_agent(tx, name), tags=(name,)))
        archive, graph = self.add_archive(tx, name=name), self.add_graph(tx, name)
        block = self.add_block(tx, name, agent_id=agent.id, tags=(name,))
        tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
        copy = self.add_block(tx, name)
        tx.blocks.isolate(agent.id, 1, name, copy.id)
        folder = self.add_folder(tx, name)
        tx.of(Folders).attach(agent.id, folder.id, opens=False)
        identity = self.add_identity(tx, name, name=name, project_id=name)
        tx.identities.attach_agent(agent.id, identity.id)
        tx.identities.attach_block(block.id, identity.id)
        passage = self.add_passage(tx, archive.id, "a walrus", name)
        self.add_entities(tx, graph.id, "Ada", "Turin")
        facts = tx.of(Facts).add(graph, [self.new_fact(graph.id, scope={name: name})])
        tool_id = ToolId(self.ids.new("tool"))
        episode = tx.of(Episodes).add([self.new_episode(graph.id, "r", scope={"user_id": name})])[0]
        return {
            "agent": agent,
            "archive": archive,
            "graph": graph,
            "block": block,
            "copy": copy,
            "folder": folder,
            "tool": tx.tools.add(Tool(id=tool_id, spec=_spec(tool_id), tags=(name,)), at=AT),
            "file": self.add_file(tx, folder.id, "notes/" + unicodedata.normalize("NFC", name)),
            "identity": identity,
            "passage": passage,
            "fact": facts[0],
            "episode": episode,
        }

    def _find(self, tx: Tx, name: str, made: Mapping[str, Any]) -> Mapping[str, bool]:
        """How each was looked for -> whether it was found."""
        agent, archive, graph, identity = (made[kind] for kind in ("agent", "archive", "graph", "identity"))
        where = PassageFilter(tags=(name,), tag_match="all")

        def ids(page: Sequence[Any]) -> list[str]:
            return [one.id for one in page]

        return {
            "agent by name": ids([tx.agents.find_by_name(name)]) == [agent.id],
            "agents by name": ids(tx.agents.page(where=AgentFilter(name=name))) == [agent.id],
            "agents by a part": ids(tx.agents.page(where=AgentFilter(text=name.upper()))) == [agent.id],
            "agents by tag": ids(tx.agents.page(where=AgentFilter(tags=(name,)))) == [agent.id],
            "agents by key": ids(tx.agents.page(where=AgentFilter(identifier_keys=(name,)))) == [agent.id],
            "archives by name": ids(tx.archives.list(name=name)) == [archive.id],
            "block by label": tx.blocks.find(agent.id, name) == made["block"],
            "own block by label": tx.blocks.find(agent.id, name, 1) == made["copy"],
            "blocks by label": set(ids(tx.blocks.page(where=BlockFilter(label=name)))) >= {made["block"].id},
            "blocks by tag": ids(tx.blocks.page(where=BlockFilter(tags=(name,)))) == [made["block"].id],
            "blocks by key": ids(tx.blocks.page(where=BlockFilter(identifier_keys=(name,)))) == [made["block"].id],
            "folder by name": tx.of(Folders).find(name) is not None,
            "folders by name": ids(tx.of(Folders).list(name=name)) == [made["folder"].id],
            "file by name": tx.of(Files).find(made["folder"].id, f"notes/{name}") == made["file"],
            "file by path": ids([one.file for one in tx.of(AgentFiles).find_by_path(agent.id, f"{name}/notes/{name}")])
            == [made["file"].id],
            "identity by key": tx.identities.find_by_key(name, name) == identity,
            "identities": ids(tx.identities.page(where=IdentityFilter(identifier_key=name, name=name, project_id=name)))
            == [identity.id],
            "passages by tag": ids(tx.passages.page(archive.id, where=where)) == [made["passage"].id],
            "numbers by tag": tx.passages.seqs(archive.id, where=where) == [made["passage"].seq],
            "words by tag": match_passages(tx, archive.id, "walrus", where=where) == [made["passage"].seq],
            "tools by tag": ids(tx.tools.page(where=ToolFilter(tags=(name,)))) == [made["tool"].id],
            "graph by name": tx.of(Graphs).find_by_name(name) is not None,
            "facts by scope": ids(tx.of(Facts).page(graph.id, where=FactFilter(scope=((name, name),))))
            == [made["fact"].id],
            "episodes by scope": ids(tx.of(Episodes).list(graph.id, scope={"user_id": name})) == [made["episode"].id],
        }
