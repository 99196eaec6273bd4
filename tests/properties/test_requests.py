"""What a model is sent, over random histories: always legal, rebuilt from the recipe, and only ever appended to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from perdure import AsyncPerdure
from perdure.context.sections.assemble import assemble, canonical, check_legal
from perdure.core.events import PrefixRewritten
from perdure.core.ids import AgentId
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.domain.blocks.units import NewBlock
from perdure.engine.run.request import load_view
from perdure.storage.tx import Tx
from perdure.testing import FakeClock, InlineStore, SequentialIds
from tests.simulator.world import MODEL, PLAN_LETTERS, PlannedModel, World
from tests.support.strategies import effort

TOOLS = ("core_memory_append", "archival_memory_insert", "conversation_search")


async def no_faults(point: str) -> None:
    """Nothing goes wrong."""


@dataclass(frozen=True)
class Say:
    """A message: the model makes the calls that the plan's letters name."""

    plan: str


@dataclass(frozen=True)
class Outside:
    """Something that happens between two messages."""

    what: Literal["edit", "resize", "attach", "wait", "prompt"]
    value: str = ""


@dataclass
class Recorder:
    """A planned model that keeps what it was sent."""

    inner: PlannedModel = field(default_factory=lambda: PlannedModel(World(), no_faults))
    requests: list[ModelRequest] = field(default_factory=list)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.requests.append(request)
        async for piece in self.inner.respond(request):
            yield piece


messages = st.text(alphabet=PLAN_LETTERS, max_size=3).map(Say)
outside = st.sampled_from(["edit", "resize", "attach", "wait", "prompt"]).flatmap(
    lambda what: st.builds(Outside, st.just(what), st.text(max_size=20))
)
histories = st.lists(messages | outside, min_size=1, max_size=8)


async def play(history: Sequence[Say | Outside]) -> tuple[list[ModelRequest], list[tuple[ModelRequest, bool]]]:
    """(what the model was sent, what the store says was sent and whether its prefix was written anew for it)."""
    recorder, clock = Recorder(), FakeClock()
    store = InlineStore()
    async with await AsyncPerdure.open(
        store=store, models={MODEL: recorder}, clock=clock, ids=SequentialIds()
    ) as perdure:
        agent = await perdure.create_agent(
            "played", model=MODEL, tools=TOOLS, blocks=[NewBlock(label="notes", limit_chars=10_000)]
        )
        for number, act in enumerate(history):
            match act:
                case Say(plan):
                    await agent.send(f"m{number} {plan}")
                case Outside("edit", value):
                    await agent.blocks.update("human", value)
                case Outside("resize"):
                    await agent.blocks.change("notes", limit_chars=10_001 + number)
                case Outside("attach", value):
                    await agent.blocks.create(f"extra{number}", value)
                case Outside("wait"):
                    clock.advance(7_200)
                case _:
                    await store.write(change_prompt, agent.id, f"prompt {number}")
        return recorder.requests, await store.read(recorded, agent.id)


def change_prompt(tx: Tx, agent_id: AgentId, system: str) -> None:
    tx.agents.put(replace(tx.agents.get(agent_id), system=system))


def recorded(tx: Tx, agent_id: AgentId) -> list[tuple[ModelRequest, bool]]:
    found: list[tuple[ModelRequest, bool]] = []
    for run in reversed(tx.runs.list(agent_id, limit=1000)):
        events = [stored.event for stored in tx.events.list(run.key)]
        rewritten = {event.prefix_seq for event in events if isinstance(event, PrefixRewritten)}
        for step in tx.steps.list_by_run(run.key):
            request = assemble(step.model, load_view(tx, run, step.recipe), step.recipe)
            found.append((request, step.recipe.prefix_seq in rewritten))
            rewritten.discard(step.recipe.prefix_seq)
    return found


def before_tail(request: ModelRequest) -> bytes:
    """The part of a request that may be sent again: everything but the volatile tail."""
    return canonical(replace(request, tail=""))


@effort(few=15, many=2_000)
@given(histories)
async def test_every_request_is_legal_kept_and_rebuilt(history: Sequence[Say | Outside]) -> None:
    """Whatever the model answers and whoever edits: each call has its one result; a request begins with the one before
    it, but where an event says that the prefix was written anew; and when all is over, it is rebuilt byte for byte
    from its recipe."""
    asked, rebuilt = await play(history)

    for request in asked:
        check_legal(request.messages)
    for (before, _), (after, rewritten) in pairwise(rebuilt):
        assert rewritten or before_tail(after).startswith(before_tail(before))
    assert [canonical(request) for request in asked] == [canonical(request) for request, _ in rebuilt]


async def test_an_edit_from_outside_is_in_the_next_request_and_changes_nothing_before_it() -> None:
    """It comes as a delta message; the prefix still shows the old value."""
    asked, _ = await play([Say(""), Outside("edit", "likes Go"), Say("")])

    assert before_tail(asked[1]).startswith(before_tail(asked[0]))
    assert "likes Go" not in asked[1].system
    assert any("likes Go" in message.text for message in asked[1].messages if message.kind == "memory_delta")


async def test_after_a_long_pause_edits_are_folded_into_the_prefix() -> None:
    """No cache is lost by it then."""
    asked, requests = await play([Say(""), Outside("edit", "likes Go"), Outside("wait"), Say("")])

    assert requests[1][1]
    assert "likes Go" in asked[1].system
