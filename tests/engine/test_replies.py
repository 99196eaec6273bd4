"""What a model may answer, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import ModelOverloaded, RunFailed
from perdure.core.events import Delta
from perdure.core.messages import Reasoning, Text, ToolCall
from perdure.core.models import Exchange, ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.core.runs import Step
from perdure.engine.log.run_log import STOP
from perdure.engine.records.rows import GAVE_UP
from perdure.library.messages.reply import Reply
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel, calls, fails, says

MODEL = "test/scripted"
SENT = Exchange(request={"url": "http://127.0.0.1/v1"}, response={"id": "answer-1"})


async def open_library(model: ScriptedModel) -> AsyncPerdure:
    return await AsyncPerdure.open(store=InlineStore(), models={MODEL: model})


@pytest.mark.parametrize(
    ("choice", "answer", "reason", "what"),
    [
        ("required", says("no"), "no_tool_call", "called no tool"),
        (["core_memory_append"], says("no"), "no_tool_call", "called no tool"),
        (["core_memory_append"], calls("conversation_search", query="x"), "invalid_tool_call", "core_memory_append"),
        ("none", calls("conversation_search", query="x"), "invalid_tool_call", "may call no tool"),
    ],
)
async def test_a_model_that_ignores_the_tool_choice_is_caught(
    choice: str | list[str], answer: ModelReply, reason: str, what: str
) -> None:
    """Its answer is not stored, nothing is run, and the next message is answered."""
    model = ScriptedModel(answer)
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, settings={"tool_choice": choice})

        with pytest.raises(RunFailed, match=what) as caught:
            await agent.send("hello")

        assert caught.value.stop_reason == reason
        assert [message.role for message in await agent.messages()] == ["user"]
        again = await agent.update(settings={})
        assert (await again.send("and now?")).text == "OK."


async def test_the_options_of_an_agent_reach_its_model() -> None:
    """Those that are options; what else stands in its settings does not."""
    model = ScriptedModel()
    settings = {"temperature": 0.5, "max_output_tokens": 99, "tool_choice": ["memory"], "wire": {"x": 1}}
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, settings=settings)
        with pytest.raises(RunFailed):
            await agent.send("hello")

    assert model.requests[0].options == ModelOptions(temperature=0.5, max_output_tokens=99, tool_choice=("memory",))


class Traced(ScriptedModel):
    """A model that tells what went over the wire, of answers and of failures."""

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        if len(self.requests) == 1:
            self.requests.append(request)
            raise ModelOverloaded("down", exchange=SENT)
        async for piece in super().respond(request):
            if isinstance(piece, ModelReply):
                yield ModelReply(parts=piece.parts, exchange=SENT)
            else:
                yield piece


async def test_each_step_keeps_what_went_over_the_wire() -> None:
    """Also a step that failed."""
    async with await open_library(Traced()) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        run_ids = [(await agent.send("one")).run_id]
        with pytest.raises(RunFailed) as failed:
            await agent.send("two")
        run_ids.append(failed.value.run_id)  # type: ignore[arg-type]

        def steps(tx: Tx) -> list[Step]:
            return [step for run_id in run_ids for step in tx.steps.list_by_run(tx.runs.get(run_id).key)]

        kept = [
            await perdure.app.store.read(lambda tx, step=step: tx.steps.exchange(step))  # type: ignore[misc]
            for step in await perdure.app.store.read(steps)
        ]

    assert kept == [SENT, SENT]


@pytest.mark.parametrize(
    "call",
    [
        calls("conversation_search", limit="many"),
        calls("no_such_tool"),
        calls("core_memory_append", label="user_info", content="x"),
    ],
)
async def test_a_model_whose_call_keeps_failing_is_asked_for_words(call: ModelReply) -> None:
    """Each time it was told what is wrong; then it may call nothing any more, and the run ends well."""
    model = ScriptedModel(call, call, call, says("I can't find it."))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=("core_memory_append", "conversation_search"))
        reply = await agent.send("hello")
        again = await agent.send("and now?")

    assert (reply.text, reply.stop_reason, again.text) == ("I can't find it.", "end_turn", "OK.")
    assert [one.options.tool_choice for one in model.requests] == ["auto"] * 3 + ["none", "auto"]
    assert model.requests[3].tools == model.requests[0].tools  # its prefix stays in the cache
    assert STOP in model.requests[3].messages[-1].text


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (calls("conversation_search", limit="many"), GAVE_UP),
        (calls("send_message", message="Sorry."), "Sorry."),
        (ModelReply(parts=(Text("Sorry."), ToolCall("x", "conversation_search", "{}"))), "Sorry."),
    ],
)
async def test_a_model_that_calls_instead_of_speaking_ends_in_words_too(last: ModelReply, text: str) -> None:
    """Its call is not run, nor shown; the readers of the stream see the words."""
    model = ScriptedModel(*[calls("conversation_search", limit="many")] * 3, otherwise=last)
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        pieces = [one async for one in agent.stream("hello") if isinstance(one, Delta)]
        newest = (await agent.messages())[-1]

    assert (newest.text, newest.calls) == (text, ())
    assert "".join(one.text for one in pieces if one.message_id == newest.id) == text


async def test_words_end_the_run_of_a_loop_that_demands_calls() -> None:
    """An agent that speaks by `send_message` alone would be reminded of it again and again."""
    model = ScriptedModel(*[calls("send_message", text="hi")] * 3, says("I can't."))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, agent_type="memgpt_agent")
        reply = await agent.send("hello")

    assert (reply.text, reply.stop_reason, len(model.requests)) == ("I can't.", "end_turn", 4)


async def test_a_call_is_taken_as_it_is_meant() -> None:
    """A prefix at the name, the arguments as a JSON text, a label in capitals, tags as one text."""
    inner = json.dumps({"content": "Name: Ada", "label": "Human"})
    model = ScriptedModel(
        ModelReply(parts=(ToolCall("a", "functions.core_memory_append", json.dumps(inner)),)),
        calls("archival_memory_insert", content="Tea is green.", tags="tea, facts"),
        ModelReply(parts=(ToolCall("c", "", json.dumps({"content": "x"})),)),
    )
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=("core_memory_append", "archival_memory_insert"))
        await agent.send("hello")
        human = (await agent.blocks.get("human")).value
        passages = await agent.passages()
        results = [result for message in await agent.messages() for result in message.results]

    assert human.endswith("Name: Ada")
    assert [sorted(passage.tags) for passage in passages] == [["facts", "tea"]]
    assert [result.status for result in results] == ["success", "success", "error"]
    assert "needs the name of a tool; your tools are: archival_memory_insert" in results[2].text


LONG = "so it goes on " * 200_000


@pytest.mark.parametrize("names", ["", "core_memory_append"])
async def test_arguments_that_are_too_long_are_an_error_result(names: str) -> None:
    """The model is told how long they may be, and goes on; its other call is run, and nobody is asked about this."""
    answer = calls(
        "core_memory_append", ToolCall("b", "conversation_search", '{"query": "tea"}'), label="human", content=LONG
    )
    model = ScriptedModel(answer, says("I see"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, tools=("core_memory_append", "conversation_search"))
        if names:
            await agent.require_approval(names)
        reply = await agent.send("hello")

        assert (reply.stop_reason, reply.text) == ("end_turn", "I see")
        long, search = (result for message in reply.messages for result in message.results)
        assert long.text.startswith("arguments too long: 2,800,033 characters, limit ")
        assert (long.refused, search.status) == (True, "success")
        (asked,) = (message for message in reply.messages if message.calls)
        assert len(asked.calls[0].arguments) < 2_000 and asked.calls[1].arguments == '{"query": "tea"}'
        for step in await agent.steps():
            await agent.request(step.id)  # is rebuilt to its digest


async def test_calls_of_one_answer_share_what_their_arguments_may_take() -> None:
    """A name and an id that no tool has are cut too."""
    each = json.dumps({"label": "human", "content": "word " * 800})
    model = ScriptedModel(ModelReply(parts=tuple(ToolCall(LONG, "x" * 999, each) for _ in range(4))), says("I see"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent(
            "a", model=MODEL, settings={"context_window_tokens": 16_000, "auto_recall": False}
        )
        reply = await agent.send("hello")

        assert reply.text == "I see"
        kinds = sorted(result.text.partition(" ")[0] for m in reply.messages for result in m.results)
        assert kinds == ["arguments", "arguments", "there", "there"]
        calls_made = [call for message in reply.messages for call in message.calls]
        assert {len(call.name) for call in calls_made} == {201}
        assert len({call.call_id for call in calls_made}) == 4


BESIDE = LONG[:300_000]
"""What is said beside a call; larger than this window."""

SMALL = {"context_window_tokens": 16_000, "auto_recall": False}


def search(*before: Text | Reasoning) -> ModelReply:
    """An answer that says or thinks this, and calls a tool."""
    return ModelReply(parts=(*before, ToolCall("a", "conversation_search", '{"query": "tea"}')))


@pytest.mark.slow
@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("before", [(Text(BESIDE),), (Reasoning(BESIDE),), (Reasoning(BESIDE), Text(BESIDE))])
async def test_what_is_said_beside_a_call_is_shown_in_part_where_it_is_too_long(
    before: tuple[Text | Reasoning, ...], approved: bool
) -> None:
    """The call is run and the run goes on, also where a person had to approve it; the rest is behind a handle."""
    opens = calls("context_expand", handle="msg-1", lines="1:200000..200020")
    model = ScriptedModel(search(*before), opens, search(Text("short")), says("I see"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, settings=SMALL)
        if approved:
            await agent.require_approval("conversation_search")
        reply: Reply | None = await agent.send("hello")
        while reply is not None and reply.stop_reason == "requires_approval":
            reply = await agent.approve()

        assert reply is not None and (reply.stop_reason, reply.text[-5:]) == ("end_turn", "I see")
        shown = [part for part in model.requests[1].messages[1].parts if isinstance(part, Text | Reasoning)]
        assert [type(part) for part in shown] == [type(part) for part in before]
        assert all("of 300,000 characters are not shown" in part.text for part in shown)
        handles = ['context_expand("msg-1")' in part.text for part in shown]
        assert handles == [isinstance(part, Text) for part in shown]
        if isinstance(before[-1], Text):
            opened_rows = [
                row for row in await agent.messages() if row.results and row.results[0].name != "conversation_search"
            ]
            assert opened_rows[0].results[0].status == "success" and "so it goes" in opened_rows[0].text
        kept = next(message for message in await agent.messages() if message.calls)
        assert kept.parts[:-1] == before
        for step in await agent.steps():
            await agent.request(step.id)  # is rebuilt to its digest


async def test_the_words_beside_a_call_come_before_the_thoughts() -> None:
    """And signed reasoning is as its provider wants it back."""
    thought = Reasoning("hm " * 100, signature="s")
    model = ScriptedModel(search(thought, Reasoning(BESIDE), Text("I look for tea.")), says("I see"))
    async with await open_library(model) as perdure:
        agent = await perdure.create_agent("a", model=MODEL, settings=SMALL)
        assert (await agent.send("hello")).stop_reason == "end_turn"

        first, second, third, _ = model.requests[1].messages[1].parts
        assert first == thought
        assert isinstance(second, Reasoning) and len(second.text) < len(BESIDE)
        assert third == Text("I look for tea.")


async def test_a_provider_s_long_error_is_cut() -> None:
    async with await open_library(ScriptedModel(fails("no" * 1_000_000))) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with pytest.raises(RunFailed, match=r"\[cut: 2,000,000 characters\]") as caught:
            await agent.send("hello")

        assert len(str(caught.value)) < 5_000
