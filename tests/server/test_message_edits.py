"""Messages that are changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from letta_client.types.agents import Message
from pydantic import TypeAdapter

from perdure.context.sections.assemble import canonical
from perdure.core.ids import AgentId
from perdure.core.messages import ToolCall
from perdure.core.runs import Step
from perdure.storage.tx import Tx
from perdure.testing import ScriptedModel, calls, says, thinks
from tests.server.routed import MODEL, Routed, new_agent, routed
from tests.support.library import SlowSpeaker
from tests.support.servers import in_process

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
UNKNOWN = "message-123e4567-e89b-42d3-a456-426614174000"


def requests(server: Routed) -> Any:
    """The requests that the scripted model has received."""
    model = server.library.app.models.find(MODEL)
    assert isinstance(model, ScriptedModel)
    return model.requests


async def history(server: Routed, agent: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = await server.get(f"/v1/agents/{agent['id']}/messages", order="asc")
    return listed


async def change(server: Routed, agent: Any, message: Any, **fields: Any) -> Any:
    """The answer to a change of a message as it was listed."""
    path = f"/v1/agents/{agent['id']}/messages/{message['id']}"
    changed = await server.patch(path, {"message_type": message["message_type"], **fields})
    MESSAGE.validate_python(changed)
    return changed


async def test_a_change_without_a_type_is_of_what_the_message_is() -> None:
    """Clients before 1.0 leave the type out."""
    script = thinks("a thought", calls("memory_insert", label="human", new_string="Ada")), says("An answer.")
    async with routed(*script) as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": ""}], tools=["memory_insert"])
        said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "A question."}]
        await server.post(f"/v1/agents/{agent['id']}/messages", {"messages": said})
        _, system, user, thought, _, returned, answer = await history(server, agent)
        for message, name in (
            (system, "content"),
            (user, "content"),
            (thought, "reasoning"),
            (returned, "tool_return"),
            (answer, "content"),
        ):
            path = f"/v1/agents/{agent['id']}/messages/{message['id']}"
            changed = await server.patch(path, {name: "new"})

            assert (changed["message_type"], changed[name]) == (message["message_type"], "new")


async def test_each_kind_of_message_is_changed_and_the_model_sees_it() -> None:
    """The answer is the message with its new text and nothing else changed, so is the list; the next request has the
    new texts and none of the old."""
    script = (
        thinks("quokka thought", calls("memory_insert", label="human", new_string="Ada")),
        says("I saw a wombat."),
    )
    async with routed(*script, says("Yes.")) as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": ""}], tools=["memory_insert"])
        said = [{"role": "system", "content": "Be a numbat."}, {"role": "user", "content": "I have a bilby."}]
        await server.post(f"/v1/agents/{agent['id']}/messages", {"messages": said})
        _, system, user, thought, call, returned, answer = before = await history(server, agent)
        changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
            (system, {"content": "Be a dingo."}),
            (user, {"content": [{"type": "text", "text": "I have an emu."}]}),
            (thought, {"reasoning": "a new thought"}),
            (returned, {"tool_return": "stored elsewhere"}),
            (answer, {"content": "I saw a kea."}),
        ]
        expected = {shape["message_type"]: shape for shape in before[1:]}
        for message, fields in changes:
            changed = await change(server, agent, message, **fields)
            own = {**fields, "content": "I have an emu."} if message is user else fields
            if message is returned:
                own = {**fields, "tool_returns": [{**message["tool_returns"][0], **fields}]}
            assert changed == {**message, **own}
            expected[message["message_type"]] = changed
        assert (await history(server, agent))[1:] == list(expected.values())
        assert call == expected["tool_call_message"]

        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "Which?"})
        asked = requests(server)[-1]
        seen = canonical(asked).decode()
        for old, new in (
            ("a numbat", "a dingo"),
            ("a bilby", "an emu"),
            ("quokka thought", "a new thought"),
            ("a wombat", "a kea"),
        ):
            assert (old in seen, new in seen) == (False, True)
        assert [result.text for message in asked.messages for result in message.results] == ["stored elsewhere"]


async def test_searches_find_the_new_words_and_old_requests_stay() -> None:
    """Words and history follow; the request that was sent is built again byte for byte, with the old text."""
    async with routed(says("Yes."), says("No.")) as server:
        agent = await new_agent(server)
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "a walrus"})
        _, user, _ = await history(server, agent)
        await change(server, agent, user, content="a penguin")

        async def found(word: str) -> list[str]:
            hits = await server.post("/v1/messages/search", {"query": word, "agent_id": agent["id"]})
            return [hit["message_id"] for hit in hits]

        assert (await found("walrus"), await found("penguin")) == ([], [user["id"]])
        library = await server.library.agent(agent["id"])
        await library.send("again")
        newest, oldest = await library.steps()
        texts = [[one.text for one in (await library.request(step.id)).messages] for step in (oldest, newest)]
        assert texts == [["a walrus"], ["a penguin", "Yes.", "again"]]


async def test_what_an_older_agent_says_and_thinks_by_a_call_is_changed_there() -> None:
    """Its message and its thoughts are arguments; the others of the call stay."""
    script = calls("send_message", message="Hi!", thinking="a greeting", request_heartbeat=False)
    async with routed(script) as server:
        agent = await new_agent(server, agent_type="memgpt_v2_agent", include_base_tools=True)
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        shown = {message["message_type"]: message for message in await history(server, agent)}
        said = await change(server, agent, shown["assistant_message"], content="Good day!")
        thought = await change(server, agent, shown["reasoning_message"], reasoning="a polite one")

        assert (said["content"], thought["reasoning"]) == ("Good day!", "a polite one")
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "and?"})
        [call] = [call for message in requests(server)[1].messages for call in message.calls]
        assert json.loads(call.arguments) == {
            "message": "Good day!",
            "thinking": "a polite one",
            "request_heartbeat": False,
        }


async def test_a_change_that_does_not_fit_changes_nothing() -> None:
    """Another agent's message is not there; the system message of a conversation is made of the agent's prompt."""
    async with routed(says("Yes."), message_limit_chars=100) as server:
        agent, other = await new_agent(server), await new_agent(server, "bob")
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "hello"})
        system, user, answer = before = await history(server, agent)
        said = {"message_type": "user_message", "content": "bye"}
        as_answer = {"message_type": "assistant_message", "content": "x"}
        thought = {"message_type": "reasoning_message", "reasoning": "x"}
        returned = {"message_type": "tool_return_message", "tool_return": "x"}
        wrong: list[tuple[str, dict[str, Any], int, str]] = [
            (UNKNOWN, said, 404, UNKNOWN),
            ("x", said, 422, "message-{uuid4}"),
            (system["id"], {**said, "message_type": "system_message"}, 422, "`system`"),
            (answer["id"], said, 422, "no text of the role 'user'"),
            (user["id"], as_answer, 422, "no text of an agent"),
            (answer["id"], thought, 422, "no reasoning"),
            (answer["id"], returned, 422, "no tool result"),
            (user["id"], {**said, "content": " "}, 422, "empty"),
            (user["id"], {**said, "content": "x" * 101}, 422, "101 characters"),
            (user["id"], {}, 422, "content"),
            (user["id"], {"message_type": "user_message"}, 422, "content"),
            (user["id"], {**said, "message_type": "x"}, 422, "message_type"),
        ]
        for message_id, body, status, named in wrong:
            refusal = await server.refused("PATCH", f"/v1/agents/{agent['id']}/messages/{message_id}", body)
            assert (refusal[0], named in refusal[1]) == (status, True), refusal
        status, _ = await server.refused("PATCH", f"/v1/agents/{other['id']}/messages/{user['id']}", said)
        assert status == 404
        assert await history(server, agent) == before


async def test_a_change_is_refused_while_a_run_is_under_way(tmp_path: Path) -> None:
    """With the run's id; afterwards it is made."""
    model = SlowSpeaker("one ", "two ")
    async with in_process(tmp_path, model=model) as (client, perdure):
        agent = await perdure.create_agent()
        accepted = await agent.submit("count")
        await model.speaking.wait()
        user = (await agent.messages())[0]
        path, body = f"/v1/agents/{agent.id}/messages/{user.id}", {"message_type": "user_message", "content": "stop"}
        busy = await client.patch(path, json=body)
        model.go.set()
        async for _ in agent.follow(accepted.run.id):
            pass
        done = await client.patch(path, json=body)

        assert (busy.status_code, busy.json()["run_id"]) == (409, accepted.run.id)
        assert (done.status_code, done.json()["content"]) == (200, "stop")


def newest_steps(tx: Tx, *, agent_id: AgentId) -> Sequence[Step]:
    return tx.steps.list(agent_id, limit=1)


@pytest.mark.parametrize("talked", [False, True])
async def test_the_estimate_of_the_view_follows(talked: bool) -> None:
    """Also before the first request: the next one counts every row as if it had been written so."""
    async with routed(*[says("Yes.")] * 3) as server:
        sizes = []
        for name, first in (("ann", "x " * 3000), ("bob", "short")):
            agent = await server.library.agent((await new_agent(server, name))["id"])
            if talked:
                await agent.send(first)
            else:
                await agent.import_messages([("user", None, first, "2026-01-01T00:00:00Z")])
            if name == "ann":
                shape = {"id": (await agent.messages())[0].id, "message_type": "user_message"}
                await change(server, {"id": agent.id}, shape, content="short")
            conversation = await agent.find_conversation()
            forked = await agent.fork_conversation()
            await agent.send("again")
            [newest] = await server.library.app.store.read(partial(newest_steps, agent_id=agent.id))
            sizes.append((conversation.view_tokens, forked.view_tokens, newest.recipe.tokens))
        (*views, request), (*fresh_views, fresh_request) = sizes
        assert views == fresh_views
        assert abs(request - fresh_request) < 30  # the ids in the prompt


async def test_one_result_of_several_is_changed_by_its_call() -> None:
    """The answer has the results of all calls, as the list has."""
    more = ToolCall("", "memory_insert", '{"label": "human", "new_string": "b"}')
    async with routed(calls("memory_insert", more, label="human", new_string="a"), says("Done.")) as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": ""}], tools=["memory_insert"])
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "go"})
        [returned] = [one for one in await history(server, agent) if one["message_type"] == "tool_return_message"]
        second = returned["tool_returns"][1]["tool_call_id"]
        changed = await change(server, agent, returned, tool_return="elsewhere", tool_call_id=second)

        assert [one["tool_return"] for one in changed["tool_returns"]] == [returned["tool_return"], "elsewhere"]
        assert changed in await history(server, agent)


@pytest.mark.uses("origins")
async def test_a_message_of_several_texts_is_forgotten_by_its_words(tmp_path: Path) -> None:
    """Its id stands for no one text that could be looked for: that is told, where nothing would have been done."""
    texts = [{"type": "text", "text": f"the {part} half of the plan"} for part in ("first", "second")]
    async with in_process(tmp_path, says("ok")) as (client, perdure):
        agent = await perdure.create_agent()
        sent = {"messages": [{"role": "user", "content": texts}]}
        await client.post(f"/v1/agents/{agent.id}/messages", json=sent)
        message = (await agent.messages())[0]

        answered = await client.post(f"/v1/agents/{agent.id}/forget", json={"text": message.id})

    assert (answered.status_code, "has several texts" in answered.text) == (422, True)
