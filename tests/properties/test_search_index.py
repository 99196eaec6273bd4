"""The full-text index and the messages agree after appending, revising, removing, deleting; any text is a query."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.agents import Agent
from perdure.core.ids import MessageId
from perdure.core.messages import MessageFilter, Text
from perdure.core.passages import PassageFilter
from perdure.core.text.words import parse_query
from perdure.engine.search.search import Search
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore
from tests.contracts.base import ADA, AT, Contract, match_messages
from tests.support.strategies import any_text, effort, sentences

units = Contract()

# Each of these is found where it stands as a word of its own, and nowhere else.
VOCABULARY = ("walrus", "penguin", "café", "e4711", "книга", "東京", "北京大学", "학교", "ข้าวผัด", "🚀")


@dataclass
class Step:
    """One thing done: `target` picks the message or agent it is done to."""

    kind: str
    text: str = ""
    target: int = 0


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["append", "append", "append", "revise", "revise", "remove", "delete agent"]),
        sentences(),
        st.integers(0, 20),
    ),
    max_size=14,
)


@dataclass
class Model:
    """What should be visible: per agent, message id -> (number, text)."""

    agents: list[Agent]
    texts: dict[str, dict[MessageId, tuple[int, str]]] = field(default_factory=dict)

    def add(self, agent: Agent) -> None:
        self.agents.append(agent)
        self.texts[agent.id] = {}


@effort(12, 1500)
@given(STEPS)
async def test_every_visible_word_is_found_and_no_other(steps: list[Step]) -> None:
    """For each word: the messages that the search gives are exactly those that hold it."""
    store = InlineStore()
    model = Model([])
    for name in ("ada", "bob"):
        model.add(await store.write(units.add_agent, name))
    for step in steps:
        agent = model.agents[step.target % len(model.agents)]
        texts = model.texts[agent.id]
        if step.kind == "append":
            (message,) = await store.write(units.say, agent.id, step.text)
            texts[message.id] = (message.seq, step.text)
        elif step.kind == "delete agent":
            await store.write(delete, agent)
            model.agents.remove(agent)
            model.add(await store.write(units.add_agent, agent.name))
        elif texts:
            chosen = list(texts)[step.target % len(texts)]
            seq, _ = texts.pop(chosen)
            await store.write(revise, chosen, step.text if step.kind == "revise" else None)
            if step.kind == "revise":
                texts[chosen] = (seq, step.text)

    for agent in model.agents:
        visible = model.texts[agent.id].values()
        for word in VOCABULARY:
            holding = sorted(seq for seq, text in visible if word in (one.casefold() for one in text.split(" ")))
            assert await store.read(match_messages, agent.id, word) == holding, word
        assert await store.read(numbers, agent) == sorted(seq for seq, _ in visible)
    await store.close()


def revise(tx: Tx, message_id: MessageId, text: str | None) -> None:
    tx.messages.revise(message_id, None if text is None else [Text(text)], author=ADA, at=AT)


def delete(tx: Tx, agent: Agent) -> None:
    tx.agents.delete(agent.id)
    while tx.upkeep.carry_out_deletes():
        pass


def numbers(tx: Tx, agent: Agent) -> list[int]:
    return [message.seq for message in tx.messages.list(agent.id)]


@effort(15, 500)
@given(st.lists(any_text(), min_size=1, max_size=8), st.lists(any_text(), max_size=4))
async def test_any_text_is_stored_found_and_asked_for(texts: list[str], queries: list[str]) -> None:
    """No text is an error, neither as a message or passage nor as a query; a text with words is found by itself."""
    store = InlineStore()
    agent = await store.write(units.add_agent)
    archive = await store.write(lambda tx: units.add_archive(tx, agent_id=agent.id))
    await store.write(units.say, agent.id, *texts)
    for text in texts:
        await store.write(units.add_passage, archive.id, text)

    def search(tx: Tx, query: str) -> tuple[list[int], list[int]]:
        asked = parse_query(query)
        messages = tx.messages.match(agent.id, asked, where=MessageFilter(), limit=99)
        passages = tx.passages.match(archive.id, asked, where=PassageFilter(), limit=99)
        return sorted(messages.seqs), sorted(passages.seqs)

    whole = Search(store, FakeClock())
    for query in queries:
        await store.read(search, query)
        await whole.messages(agent.id, query)
        await whole.passages(agent.id, query)
    for seq, text in enumerate(texts):
        messages, passages = await store.read(search, text)
        assert messages == passages
        assert (seq in messages) == bool(parse_query(text).clauses)
    await store.close()
