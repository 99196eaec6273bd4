"""Compaction and forks of conversations that a client asks for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure.core.models import ModelRequest
from perdure.testing import ScriptedModel, calls, says
from tests.server.routed import GPT, MODEL, Routed, new_agent, routed

WALRUS = "The walrus Odobenus sleeps on the ice of Svalbard in March."
SUMMARY = "The user told that the walrus Odobenus sleeps on the ice of Svalbard in March."


def scripted(server: Routed, handle: str = MODEL) -> ScriptedModel:
    model = server.library.app.ports.models.find(handle)
    assert isinstance(model, ScriptedModel)
    return model


def texts(request: ModelRequest) -> list[str]:
    """What was said in a request, without the engine's messages."""
    return [message.text for message in request.messages if message.kind == "message"]


async def talk(server: Routed, path: str, *said: str) -> None:
    for text in said:
        await server.post(f"{path}/messages", {"input": text, "streaming": False})


@pytest.mark.parametrize("mode", ["all", "self_compact_all"])
async def test_all_messages_leave_behind_a_summary(mode: str) -> None:
    """They are in the lists and found still; the system message and the summary are what the model sees."""
    async with routed() as server:
        scripted(server)._summarises = says(SUMMARY)
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await talk(server, path, WALRUS, "and?")
        done = await server.post(f"{path}/summarize", {"compaction_settings": {"mode": mode}})

        assert "Odobenus" in done["summary"]
        assert (done["num_messages_before"], done["num_messages_after"]) == (5, 2)
        *said, note = await server.get(f"{path}/messages")
        assert (await server.get(path))["message_ids"] == [*agent["message_ids"], note["id"]]
        assert (len(said), note["message_type"], note["run_id"]) == (5, "user_message", None)
        alert = json.loads(note["content"])
        assert (alert["type"], alert["compaction_stats"]["trigger"]) == ("system_alert", "manual")
        begin = "Note: 4 messages from the beginning of the conversation have been hidden from view"
        assert alert["message"].startswith(begin) and "Odobenus" in alert["message"]
        assert await server.get(f"/v1/messages/{note['id']}") == [note]
        await talk(server, path, "go on")
        request = scripted(server).requests[-1]
        assert texts(request) == ["go on"]
        assert "Odobenus" in request.messages[0].text


async def test_a_listed_summary_says_what_its_messages_say_now() -> None:
    """Also when a model has written it anew since; one that a restore took out of view keeps nobody from a change."""
    async with routed() as server:
        scripted(server)._summarises = says(SUMMARY)
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await talk(server, path, WALRUS, "and?")
        before = await server.post(f"{path}/snapshots", {})
        await server.post(f"{path}/summarize", {"compaction_settings": {"mode": "all"}})
        (said,) = [one for one in await server.get(f"{path}/messages") if one.get("content") == WALRUS]
        old = "walrus"
        for new in ("seal", "otter"):
            text = WALRUS.replace("walrus", new)
            scripted(server)._summarises = says(f"The user told that {text}")
            await server.patch(f"{path}/messages/{said['id']}", {"content": text})
            *_, note = listed = await server.get(f"{path}/messages")
            await asyncio.gather(*server.library.app.runner.after_runs.tasks)

            assert (old in str(listed), new in note["content"]) == (False, True)
            old = new
        await server.post(f"{path}/undo", {})
        *_, note = listed = await server.get(f"{path}/messages")
        assert ("otter" in str(listed), "seal" in note["content"]) == (False, True)
        await server.post(f"{path}/snapshots/restore", {"number": before["number"]})
        assert (await server.patch(f"{path}/messages/{said['id']}", {"content": WALRUS}))["content"] == WALRUS


@pytest.mark.parametrize("include", [False, True])
async def test_a_reply_tells_of_its_compaction_on_request(include: bool) -> None:
    """As lists of the run do, and the history in the form of a model's message; a type that is left out stays out."""
    async with routed() as server:
        scripted(server)._summarises = says(SUMMARY)
        agent = await new_agent(server, context_window_limit=8_000)
        path = f"/v1/agents/{agent['id']}"
        old = [{"role": "user", "text": f"{WALRUS} " * 40, "occurred_at": "2026-01-01T00:00:00Z"} for _ in range(5)]
        await server.post(f"{path}/messages/import", {"messages": old})
        long = {"input": "What? " * 600, "include_compaction_messages": include}
        reply = await server.post(f"{path}/messages", long)
        run_id = reply["messages"][-1]["run_id"]
        of_run = await server.get(f"/v1/runs/{run_id}/messages")
        history = await server.get(f"{path}/messages")

        told = ["event_message", "summary_message"] if include else []
        assert [message["message_type"] for message in reply["messages"]] == [*told, "assistant_message"]
        shown = told or ["user_message"]
        assert [one["message_type"] for one in of_run] == ["user_message", *shown, "assistant_message"]
        [note] = [one for one in history if "system_alert" in one["content"]]
        assert note["id"] == of_run[1]["id"] == (await server.get(path))["message_ids"][1]
        stats = json.loads(note["content"])["compaction_stats"]
        assert stats["trigger"] == "post_step_context_check"
        assert stats["messages_count_after"] < stats["messages_count_before"] == 7
        if include:
            event, summary = reply["messages"][:2]
            assert (event["event_data"], summary["compaction_stats"]) == (stats, stats)
            assert SUMMARY in summary["summary"] and (event["id"], summary["id"]) == (note["id"], note["id"])
            only = await server.post(
                f"{path}/messages", long | {"input": "So? " * 1_500, "include_return_message_types": ["event_message"]}
            )
            assert [message["message_type"] for message in only["messages"]] == ["event_message"]


async def test_the_oldest_part_leaves_by_itself() -> None:
    """At least the share that the settings say, up to the beginning of a turn."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await talk(server, path, WALRUS, "two", "three", "four")
        done = await server.post(f"{path}/summarize", {"compaction_settings": {"sliding_window_percentage": 0.3}})
        assert (done["num_messages_before"], done["num_messages_after"]) == (9, 6)
        await talk(server, path, "five")
        assert texts(scripted(server).requests[-1]) == ["three", "OK.", "four", "OK.", "five"]


async def test_another_model_writes_the_summary_by_another_prompt() -> None:
    """Within the characters that are allowed; a model that is not there is refused."""
    async with routed() as server:
        scripted(server, GPT)._summarises = says(SUMMARY)
        agent = await new_agent(server)
        made = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {})
        path = f"/v1/conversations/{made['id']}"
        await talk(server, path, WALRUS)
        settings = {"mode": "all", "model": GPT, "prompt": "Write about animals.", "clip_chars": 20}
        done = await server.post(f"{path}/compact", {"compaction_settings": settings})

        assert done["summary"] == SUMMARY[:20]
        [request] = scripted(server, GPT).summary_requests
        assert request.system == "Write about animals."
        assert scripted(server).summary_requests == []
        unknown = {"compaction_settings": {"model": "openai/unknown"}}
        assert (await server.refused("POST", f"{path}/compact", unknown))[0] == 404


def first_requests(server: Routed, handle: str = MODEL) -> list[ModelRequest]:
    """The requests for summaries, without those for a repair."""
    sent = scripted(server, handle).summary_requests
    return [request for request in sent if "can't be used" not in request.messages[-1].text]


OWN = {
    "model": GPT,
    "model_settings": {"provider_type": "openai", "temperature": 0.25},
    "prompt": "Write about animals in {words} words.",
    "prompt_acknowledgement": True,
    "clip_chars": 30,
    "mode": "all",
}


async def test_an_agent_s_own_settings_drive_the_compactions_on_request() -> None:
    """A field of the request wins over them; both are shown as they were sent, and a model that is not there leaves the
    work to the agent's own."""
    async with routed() as server:
        for handle in (MODEL, GPT):
            scripted(server, handle)._summarises = says(SUMMARY)
        agent = await new_agent(server, compaction_settings=OWN)
        path = f"/v1/agents/{agent['id']}"
        await talk(server, path, WALRUS, "two", "three", "four")
        sliding = await server.post(f"{path}/summarize", {"compaction_settings": {"mode": "sliding_window"}})
        done = await server.post(f"{path}/summarize", None)

        shown = (await server.get(path))["compaction_settings"]
        assert shown == {**agent["compaction_settings"], **OWN} and shown["sliding_window_percentage"] == 0.3
        assert (sliding["num_messages_after"], done["num_messages_after"]) == (6, 2)
        assert sliding["summary"] == SUMMARY[:30]
        first, _ = first_requests(server, GPT)
        assert first.system.startswith("Write about animals in ") and "{words}" not in first.system
        assert [message.role for message in first.messages] == ["user", "assistant", "user"]
        assert first.options.temperature == 0.25
        assert scripted(server).summary_requests == []

        await server.patch(path, {"compaction_settings": {"mode": "self_compact_all", "model": GPT}})
        await talk(server, path, WALRUS)
        await server.post(f"{path}/summarize", None)
        await server.patch(path, {"compaction_settings": {"model": "openai/unknown", "clip_chars": None}})
        await talk(server, path, WALRUS)
        await server.post(f"{path}/summarize", None)
        assert len(first_requests(server)) == 2
        bad = {"compaction_settings": {"mode": "half"}}
        assert (await server.refused("PATCH", path, bad))[0] == 422


@pytest.mark.parametrize(("settings", "kept"), [({"mode": "all"}, 0), ({"sliding_window_percentage": 0.3}, 7)])
async def test_an_agent_s_own_settings_drive_the_automatic_compaction(settings: dict[str, Any], kept: int) -> None:
    """Which messages leave, who writes the summary, by which prompt and of which length."""
    async with routed() as server:
        scripted(server, GPT)._summarises = says(SUMMARY)
        own = {**OWN, "mode": "sliding_window", **settings}
        agent = await new_agent(server, context_window_limit=8_000, compaction_settings=own)
        path = f"/v1/agents/{agent['id']}"
        old = [{"role": "user", "text": f"{n} {WALRUS} " * 9, "occurred_at": "2026-01-01T00:00:00Z"} for n in range(20)]
        await server.post(f"{path}/messages/import", {"messages": old})
        await server.post(f"{path}/messages", {"input": "What? " * 700})

        shown = texts(scripted(server).requests[-1])
        assert len(shown) == kept + 1
        [request] = scripted(server, GPT).summary_requests
        assert request.system.startswith("Write about animals") and request.options.temperature == 0.25
        assert SUMMARY[:30] in scripted(server).requests[-1].messages[0].text
        assert SUMMARY[:40] not in scripted(server).requests[-1].messages[0].text


async def test_an_empty_conversation_and_a_waiting_one_are_not_compacted() -> None:
    """400 and 409; `default` is named by the agent in the body."""
    async with routed(calls("Bash", command="ls")) as server:
        agent = await new_agent(server)
        body: dict[str, Any] = {"agent_id": agent["id"]}
        status, detail = await server.refused("POST", "/v1/conversations/default/compact", body)
        assert (status, "nothing to compact" in detail) == (400, True)
        assert (await server.refused("POST", f"/v1/agents/{agent['id']}/summarize"))[0] == 400
        assert (await server.refused("POST", "/v1/conversations/default/compact", {}))[0] == 422
        bash = {"name": "Bash", "description": "Run.", "parameters": {"type": "object", "properties": {}}}
        await server.post(f"/v1/agents/{agent['id']}/messages", {"input": "go", "client_tools": [bash]})
        status, detail = await server.refused("POST", "/v1/conversations/default/compact", body)
        assert (status, "PENDING_APPROVAL" in detail) == (409, True)


async def test_a_fork_goes_on_from_what_is_in_view() -> None:
    """With copies of the messages, of its own ids; neither of the two sees what is said in the other later."""
    async with routed() as server:
        scripted(server)._summarises = says(SUMMARY)
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": "Ann"}])
        made = await server.post(f"/v1/conversations/?agent_id={agent['id']}", {"description": "On ice."})
        path = f"/v1/conversations/{made['id']}"
        await talk(server, path, WALRUS)
        await server.post(f"{path}/compact", {"compaction_settings": {"mode": "all"}})
        await talk(server, path, "two")
        fork = await server.post(f"{path}/fork", None)
        await talk(server, path, "here")
        await talk(server, f"/v1/conversations/{fork['id']}", "there")

        here, there = scripted(server).requests[-2:]
        assert texts(here) == ["two", "OK.", "here"]
        assert texts(there) == ["two", "OK.", "there"]
        assert "Odobenus" in there.messages[0].text
        assert fork["description"] == "On ice."
        listed = await server.get(f"/v1/conversations/{fork['id']}/messages", order="asc")
        assert [message["message_type"] for message in listed[:3]] == [
            *("system_message", "user_message", "user_message")
        ]
        assert "Odobenus" in listed[1]["content"]
        assert fork["in_context_message_ids"] == [message["id"] for message in listed[:4]]
        shown = {one["id"]: one for one in await server.get("/v1/conversations/", agent_id=agent["id"])}
        assert shown[fork["id"]]["in_context_message_ids"] == [message["id"] for message in listed]
        assert f"- CONVERSATION_ID: {fork['id']}" in listed[0]["content"]


async def test_a_fork_ends_at_a_message_and_without_open_calls() -> None:
    """Also of the agent's first conversation; a hidden one is in no list; another's message is refused."""
    script = says("one"), calls("Bash", command="ls"), says("there")
    async with routed(*script) as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await talk(server, path, "a")
        bash = {"name": "Bash", "description": "Run.", "parameters": {"type": "object", "properties": {}}}
        await server.post(f"{path}/messages", {"input": "b", "client_tools": [bash]})
        listed = await server.get(f"{path}/messages", order="asc")
        default = f"/v1/conversations/default/fork?agent_id={agent['id']}"
        whole = await server.post(default, None)
        part = await server.post(f"{default}&message_id={listed[1]['id']}&hidden=true", None)
        none = await server.post(f"{default}&message_id={listed[0]['id']}", None)

        contents = [
            [one["content"] for one in await server.get(f"/v1/conversations/{fork['id']}/messages", order="asc")][1:]
            for fork in (whole, part, none)
        ]
        assert contents == [["a", "one", "b"], ["a"], []]
        listed_ids = [one["id"] for one in await server.get("/v1/conversations/", agent_id=agent["id"])]
        assert sorted(listed_ids) == sorted([whole["id"], none["id"]])
        await talk(server, f"/v1/conversations/{part['id']}", "c")
        assert texts(scripted(server).requests[-1]) == ["a", "c"]
        other = f"/v1/conversations/{whole['id']}/fork"
        assert (await server.refused("POST", other, message_id=listed[1]["id"]))[0] == 422
