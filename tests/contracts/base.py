"""What the parts of the contract share: a store to open, and small units of work to fill it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

from perdure.core.agents import Agent, Identity
from perdure.core.blocks import Author, Block
from perdure.core.ids import (
    DEFAULT_ORG,
    AgentId,
    ArchiveId,
    BatchId,
    BlockId,
    ConversationId,
    EntityId,
    EpisodeId,
    FactId,
    FileId,
    FolderId,
    GraphId,
    IdentityId,
    MessageId,
    OrgId,
    PassageId,
    ProviderId,
    RunId,
    SandboxId,
    VariableId,
)
from perdure.core.messages import Draft, Message, MessageFilter, MessageKind, Part, Role, Text
from perdure.core.models import ModelProvider
from perdure.core.passages import Archive, Passage, PassageFilter
from perdure.core.runs import Batch, Callback, Run, RunKey, RunOptions
from perdure.core.secrets import SandboxConfig, Variable
from perdure.core.text.words import parse_query
from perdure.features.facts.tables import Entities, Graphs
from perdure.features.facts.values.facts import Entity, Episode, Fact, Graph
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.values import File, Folder
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from perdure.testing.clock import START, SequentialIds

AT = START
UNTIL = AT + timedelta(seconds=15)
"""When leases that begin at `AT` run out."""
LATER = UNTIL + timedelta(seconds=1)

ADA = Author(kind="user", id="ada")

AWKWARD = (
    "a NUL \x00 within",
    "lone surrogates \ud800 and \udfff",
    "escape \x1b[31mred\x1b[0m and \x1bd800 and \x1b\x1b",
    "emoji 🧭 family 👩‍👩‍👧",
    "nothing but ascii",
    "中文，标点。",
    "line\nbreaks\r\nand\ttabs",
    "quotes ' \" ` and % _ \\ ; --",
    "",
)
"""Texts that a database column, a parameter style or an escape may spoil."""

E = TypeVar("E", bound=BaseException)


class Caught(Generic[E]):
    """The error that `raises` met."""

    error: E


@contextlib.contextmanager
def raises(kind: type[E]) -> Iterator[Caught[E]]:
    """Passes if the block raises `kind`, which is then in `.error`."""
    caught: Caught[E] = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


class Contract:
    """One object per test: `ids` never repeat within it, and `open` leads to its own database, empty at first."""

    async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
        """A new handle on this test's database; several opened in one test see the same data."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def open_store(self, *, org_id: OrgId = DEFAULT_ORG) -> AsyncIterator[Store]:
        store = await self.open(org_id=org_id)
        try:
            yield store
        finally:
            await store.close()

    @cached_property
    def ids(self) -> SequentialIds:
        return SequentialIds()

    # Units of work: each may be given to `store.write`.

    def add_agent(self, tx: Tx, name: str = "ada", *, at: datetime = AT) -> Agent:
        """An agent with its default conversation."""
        agent = tx.agents.add(
            Agent(
                id=AgentId(self.ids.new("agent")),
                org_id=tx.org_id,
                name=name,
                model="test/model",
                created_at=at,
                updated_at=at,
            )
        )
        tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=at)
        return agent

    def draft(
        self,
        *parts: Part | str,
        role: Role = "user",
        kind: MessageKind = "message",
        occurred_at: datetime | None = None,
    ) -> Draft:
        return Draft(
            id=MessageId(self.ids.new("message")),
            role=role,
            kind=kind,
            parts=tuple(Text(part) if isinstance(part, str) else part for part in parts),
            occurred_at=occurred_at,
        )

    def say(
        self,
        tx: Tx,
        agent_id: AgentId,
        *what: str | Draft,
        role: Role = "user",
        conversation_seq: int = 0,
        run: Run | None = None,
        tokens: int = 10,
        at: datetime = AT,
    ) -> Sequence[Message]:
        """One message for each text or draft."""
        drafts = [self.draft(one, role=role) if isinstance(one, str) else one for one in what]
        return tx.messages.append(run or (agent_id, conversation_seq), drafts, [tokens] * len(drafts), at=at)

    def add_block(
        self,
        tx: Tx,
        label: str = "human",
        value: str = "",
        *,
        agent_id: AgentId | None = None,
        tags: tuple[str, ...] = (),
        at: datetime = AT,
    ) -> Block:
        block = tx.blocks.add(
            Block(
                id=BlockId(self.ids.new("block")),
                org_id=tx.org_id,
                label=label,
                value=value,
                tags=tags,
                created_at=at,
                updated_at=at,
            ),
            author=ADA,
        )
        if agent_id is not None:
            tx.blocks.attach(agent_id, block.id)
        return block

    def add_sandbox(self, tx: Tx, /) -> SandboxConfig:
        id_ = SandboxId(self.ids.new("sandbox"))
        return tx.sandbox.put(SandboxConfig(id=id_, settings={"a": 1}, created_at=AT, updated_at=AT))

    def add_variable(
        self, tx: Tx, /, config_id: SandboxId, name: str = "TOKEN", description: str | None = None
    ) -> Variable:
        variable = Variable(
            id=VariableId(self.ids.new("variable")),
            config_id=config_id,
            name=name,
            sealed=b"sealed",
            description=description,
            created_at=AT,
            updated_at=AT,
        )
        tx.sandbox.add_variable(variable)
        return variable

    def add_provider(self, tx: Tx, /, name: str = "mine") -> ModelProvider:
        provider = ModelProvider(
            id=ProviderId(self.ids.new("provider")),
            org_id=tx.org_id,
            name=name,
            provider_type="openai",
            sealed=b"sealed",
            created_at=AT,
            updated_at=AT,
        )
        return tx.providers.add(provider)

    def add_identity(self, tx: Tx, /, identifier_key: str = "ann@example.com", **values: Any) -> Identity:
        values = {"name": "Ann", "identity_type": "user", **values}
        id_ = IdentityId(self.ids.new("identity"))
        return tx.identities.add(
            Identity(id=id_, org_id=tx.org_id, identifier_key=identifier_key, created_at=AT, updated_at=AT, **values)
        )

    def add_archive(self, tx: Tx, *, agent_id: AgentId | None = None, name: str = "notes") -> Archive:
        archive = tx.archives.add(
            Archive(id=ArchiveId(self.ids.new("archive")), org_id=tx.org_id, name=name, created_at=AT, updated_at=AT)
        )
        if agent_id is not None:
            tx.archives.attach(agent_id, archive.id)
        return archive

    def add_folder(self, tx: Tx, /, name: str = "docs", **fields: Any) -> Folder:
        archive_id = ArchiveId(self.ids.new("archive"))
        tx.archives.add(Archive(id=archive_id, org_id=tx.org_id, name=name, created_at=AT, updated_at=AT))
        return tx.of(Folders).add(
            Folder(
                id=FolderId(self.ids.new("folder")),
                org_id=tx.org_id,
                name=name,
                archive_id=archive_id,
                created_at=AT,
                updated_at=AT,
                **fields,
            )
        )

    def add_file(self, tx: Tx, /, folder_id: FolderId, name: str = "plan.md", **fields: Any) -> File:
        file_id = FileId(self.ids.new("file"))
        return tx.of(Files).add(
            File(id=file_id, org_id=tx.org_id, folder_id=folder_id, name=name, created_at=AT, updated_at=AT, **fields)
        )

    def add_passage(self, tx: Tx, archive_id: ArchiveId, text: str, *tags: str, occurred_at: datetime = AT) -> Passage:
        return tx.passages.add([self.new_passage(archive_id, text, *tags, occurred_at=occurred_at)])[0]

    def new_passage(self, archive_id: ArchiveId, text: str, *tags: str, occurred_at: datetime = AT) -> Passage:
        return Passage(
            id=PassageId(self.ids.new("passage")),
            archive_id=archive_id,
            text=text,
            tags=tags,
            created_at=AT,
            occurred_at=occurred_at,
        )

    def add_run(
        self,
        tx: Tx,
        agent_id: AgentId,
        *,
        conversation_seq: int = 0,
        at: datetime = AT,
        owner: str | None = None,
        until: datetime | None = None,
        waiting_input: str | None = None,
        batch_id: BatchId | None = None,
        origin: RunId | None = None,
    ) -> Run:
        """A queued run, held by nobody unless `owner` reserves it."""
        tx.agents.lock(agent_id)
        return tx.runs.add(
            tx.conversations.get_state(agent_id, conversation_seq),
            RunId(self.ids.new("run")),
            at=at,
            max_steps=50,
            background=False,
            lease_owner=owner,
            lease_until=until,
            waiting_input=waiting_input,
            batch_id=batch_id,
            options=RunOptions(origin=origin),
        )

    def add_batch(self, tx: Tx, *, at: datetime = AT, url: str | None = None) -> Batch:
        callback = None if url is None else Callback(url=url)
        return tx.batches.add(Batch(id=BatchId(self.ids.new("job")), digest="d", created_at=at, callback=callback))

    def add_graph(self, tx: Tx, name: str = "ada", *, agent_id: AgentId | None = None) -> Graph:
        """A graph with its archives; with `agent_id`, this agent's."""
        facts, entities = (self.add_archive(tx, name=f"{what} of {name}") for what in ("facts", "entities"))
        graph = tx.of(Graphs).add(
            Graph(
                id=GraphId(self.ids.new("graph")),
                org_id=tx.org_id,
                name=name,
                fact_archive_id=facts.id,
                entity_archive_id=entities.id,
                created_at=AT,
                updated_at=AT,
            )
        )
        if agent_id is not None:
            tx.of(Graphs).attach(agent_id, graph.id)
        return graph

    def add_entities(self, tx: Tx, graph_id: GraphId, *names: str, **values: Any) -> Sequence[Entity]:
        fields = {"type": "Person", "created_at": AT, "updated_at": AT, **values}
        return tx.of(Entities).add(
            [Entity(id=EntityId(self.ids.new("entity")), graph_id=graph_id, name=name, **fields) for name in names]
        )

    def new_fact(self, graph_id: GraphId, text: str = "Ada lives in Turin.", **values: Any) -> Fact:
        fields = {"subject": 1, "object": 2, "relation": "LIVES_IN", "created_at": AT, **values}
        return Fact(id=FactId(self.ids.new("fact")), graph_id=graph_id, text=text, **fields)

    def new_episode(self, graph_id: GraphId, ref: str, **values: Any) -> Episode:
        fields = {"kind": "text", "text": f"text of {ref}", "occurred_at": AT, "created_at": AT, **values}
        return Episode(id=EpisodeId(self.ids.new("episode")), graph_id=graph_id, ref=ref, **fields)


def claimed(tx: Tx, key: RunKey, owner: str = "here", *, at: datetime = AT, until: datetime = UNTIL) -> Run:
    """The run, claimed by `owner`."""
    run = tx.runs.claim(key, owner=owner, at=at, until=until)
    assert run is not None
    return run


def list_texts(tx: Tx, agent_id: AgentId, *, limit: int = 1000) -> list[str]:
    """The texts of the agent's history, in order."""
    return [message.text for message in tx.messages.list(agent_id, limit=limit)]


def match_messages(
    tx: Tx, agent_id: AgentId, text: str, *, where: MessageFilter | None = None, limit: int = 100
) -> list[int]:
    """The numbers of the messages that a search for `text` meets, sorted."""
    return sorted(tx.messages.match(agent_id, parse_query(text), where=where or MessageFilter(), limit=limit).seqs)


def match_passages(
    tx: Tx, archive_id: ArchiveId, text: str, *, where: PassageFilter | None = None, limit: int = 100
) -> list[int]:
    """The numbers of the passages that a search for `text` meets, sorted."""
    return sorted(tx.passages.match(archive_id, parse_query(text), where=where or PassageFilter(), limit=limit).seqs)
