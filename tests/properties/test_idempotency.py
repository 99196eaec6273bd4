"""Repeated requests: under one key a message is accepted once, however often and whenever it is sent again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.errors import ConversationBusy, IdempotencyMismatch
from perdure.core.ids import AgentId, ConversationId, RunId
from perdure.core.runs import Usage
from perdure.engine.ports import EngineSettings, UnitInputs
from perdure.engine.records.rows import add_waiting_input
from perdure.engine.records.run_request import RunRequest
from perdure.engine.run.accept import Accepted, accept
from perdure.providers.registry import ModelRegistry
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from tests.contracts.base import AT, Contract
from tests.support.strategies import effort

units = Contract()
INPUTS = UnitInputs(
    ids=units.ids,
    counter=ScriptTokenCounter(),
    models=ModelRegistry({"test/model": ScriptedModel()}),
    settings=EngineSettings(),
    owner="here",
    now=AT,
    until=AT + timedelta(seconds=15),
)

# What happens: a request (key, text, conversation), or None: the oldest run of each conversation is served.
HAPPENINGS = st.lists(
    st.none() | st.tuples(st.sampled_from(["k1", "k2", "k3"]), st.sampled_from(["a", "b"]), st.integers(0, 1)),
    max_size=14,
)


def request(agent_id: AgentId, key: str | None, text: str, conversation_seq: int) -> RunRequest:
    return RunRequest(
        run_id=RunId(units.ids.new("run")),
        agent_id=agent_id,
        conversation_seq=conversation_seq,
        drafts=(units.draft(text),),
        tokens=(1,),
        idempotency_key=key,
    )


def send(tx: Tx, asked: RunRequest) -> Accepted:
    return accept(tx, asked, INPUTS)


def serve(tx: Tx, agent_id: AgentId) -> None:
    """Claim and end the oldest run of each conversation, as the engine does around its steps."""
    for seq in (0, 1):
        run = tx.runs.find_active(agent_id, seq)
        if run is None:
            continue
        claimed = tx.runs.claim(run.key, owner="here", at=AT, until=AT + timedelta(seconds=15))
        assert claimed is not None
        if claimed.first_message_seq is None:
            add_waiting_input(tx, claimed, now=AT)
        tx.runs.end(claimed, reason="end_turn", usage=Usage(), step_count=1, failure=None, at=AT)


@effort(12, 2000)
@given(HAPPENINGS)
async def test_a_message_is_accepted_once_per_key(happenings: list[tuple[str, str, int] | None]) -> None:
    """A repeat gives the same run and stores nothing; another text under the key is refused; order is kept."""
    store = InlineStore()

    def fill(tx: Tx) -> AgentId:
        agent = units.add_agent(tx)
        tx.conversations.add(agent.id, ConversationId(units.ids.new("conversation")), at=AT)
        return agent.id

    agent_id = await store.write(fill)
    accepted: dict[tuple[str, int], tuple[str, RunId]] = {}
    for happening in happenings:
        if happening is None:
            await store.write(serve, agent_id)
            continue
        key, text, conversation_seq = happening
        asked = request(agent_id, key, text, conversation_seq)
        known = accepted.get((key, conversation_seq))
        if known is not None and known[0] != text:
            with pytest.raises(IdempotencyMismatch):
                await store.write(send, asked)
            continue
        answer = await store.write(send, asked)
        assert answer.repeated == (known is not None)
        assert answer.run.id == (known[1] if known else asked.run_id)
        assert bool(answer.events) == (known is None)
        accepted[key, conversation_seq] = (text, answer.run.id)
    for _ in happenings:
        await store.write(serve, agent_id)

    for conversation_seq in (0, 1):
        texts = [text for (_, seq), (text, _) in accepted.items() if seq == conversation_seq]

        def list_texts(tx: Tx, seq: int = conversation_seq) -> list[str]:
            return [message.text for message in tx.messages.list(agent_id, conversation_seq=seq)]

        assert await store.read(list_texts) == texts
    runs = await store.read(lambda tx: tx.runs.list(agent_id))
    assert sorted(run.id for run in runs) == sorted(run_id for _, run_id in accepted.values())
    assert {run.status for run in runs} <= {"completed"}
    await store.close()


@effort(20, 300)
@given(st.lists(st.sampled_from(["a", "b"]), max_size=5))
async def test_without_a_key_every_request_counts(texts: list[str]) -> None:
    """Saying the same twice without a key is saying it twice."""
    store = InlineStore()
    agent = await store.write(units.add_agent)
    for text in texts:
        answer = await store.write(send, request(agent.id, None, text, 0))
        assert not answer.repeated
    for _ in texts:
        await store.write(serve, agent.id)

    assert [m.text for m in await store.read(lambda tx: tx.messages.list(agent.id))] == texts
    await store.close()


async def test_a_busy_conversation_may_refuse() -> None:
    """Who does not want to wait is told the run in the way, and nothing is stored; a repeat is answered anyway."""
    store = InlineStore()
    agent = await store.write(units.add_agent)
    first = request(agent.id, "k1", "a", 0)
    await store.write(send, first)
    with pytest.raises(ConversationBusy) as caught:
        await store.write(send, replace(request(agent.id, "k2", "b", 0), if_busy="reject"))
    again = await store.write(send, replace(request(agent.id, "k1", "a", 0), if_busy="reject"))

    assert caught.value.run_id == again.run.id == first.run_id
    assert len(await store.read(lambda tx: tx.runs.list(agent.id))) == 1
    await store.close()
