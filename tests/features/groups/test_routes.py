"""Groups of agents over HTTP: made, found, changed and deleted, in the shapes of the client's types."""

from __future__ import annotations

import asyncio
import json
from itertools import groupby
from typing import Any

import pytest
from letta_client.types.agent_state import ManagedGroup
from letta_client.types.agents import LettaResponse, Message
from pydantic import TypeAdapter

from perdure.testing import fails, says, thinks
from tests.server.routed import MODEL, Routed, new_agent, routed
from tests.support.library import SlowSpeaker

NOBODY = "group-00000000-0000-4000-8000-000000000000"
MISSING = "message-00000000-0000-4000-8000-000000000000"


async def new_group(server: Routed, *agents: Any, description: str = "", **fields: Any) -> Any:
    """A group of these agents as the wire shows it; `config` is its `manager_config`."""
    if "config" in fields:
        fields["manager_config"] = fields.pop("config")
    body = {"agent_ids": [one["id"] for one in agents], "description": description, **fields}
    made = await server.post("/v1/groups/", body)
    ManagedGroup.model_validate(made, strict=True)
    return made


async def test_a_group_is_made_found_changed_and_deleted() -> None:
    """With the rule that its config names; a change of the config keeps what it leaves out."""
    async with routed() as server:
        ann, ben, mia = [await new_agent(server, name) for name in ("ann", "ben", "mia")]
        plain = await new_group(server, ann, ben, description="pair", project_id="p1")
        config = {"manager_type": "dynamic", "manager_agent_id": mia["id"], "max_turns": 3, "max_tokens": 5_000}
        dynamic = await new_group(server, ann, ben, config=config)
        path = f"/v1/groups/{dynamic['id']}"

        async def find(**query: Any) -> list[str]:
            return [one["id"] for one in await server.get("/v1/groups/", **query)]

        assert (plain["manager_type"], plain["agent_ids"]) == ("round_robin", [ann["id"], ben["id"]])
        shown = {name: dynamic[name] for name in ("manager_type", "termination_token", "max_turns", "max_tokens")}
        assert shown == {"manager_type": "dynamic", "termination_token": "DONE!", "max_turns": 3, "max_tokens": 5_000}
        assert await server.get(path) == dynamic
        assert await find() == [dynamic["id"], plain["id"]]
        assert await find(order="asc", limit=1) == await find(after=dynamic["id"]) == [plain["id"]]
        assert await find(manager_type="dynamic") == await find(before=plain["id"]) == [dynamic["id"]]
        assert await find(project_id="p1") == await find(manager_type="round_robin") == [plain["id"]]
        assert await find(manager_type="swarm") == await find(project_id="p2") == []
        assert await server.get("/v1/groups/count") == 2

        change = {"manager_config": {"manager_type": "dynamic", "max_turns": None, "termination_token": "STOP"}}
        changed = await server.patch(path, change | {"agent_ids": [ben["id"]], "description": None})
        assert changed == {**dynamic, **{"agent_ids": [ben["id"]], "max_turns": None, "termination_token": "STOP"}}
        assert await server.delete(path) is None
        assert (await server.refused("GET", path))[0] == 404
        assert await find() == [plain["id"]]


async def test_an_agent_shows_its_groups() -> None:
    """Those that it takes part in by a list, and the one that it manages in its state, alone and in lists."""
    async with routed() as server:
        ann, ben, mia = [await new_agent(server, name) for name in ("ann", "ben", "mia")]
        config = {"manager_type": "supervisor", "manager_agent_id": mia["id"]}
        pair, led = await new_group(server, ann, ben), await new_group(server, ann, config=config)
        managing = await server.get(f"/v1/agents/{mia['id']}")
        listed = {one["name"]: one["managed_group"] for one in await server.get("/v1/agents/")}

        assert managing["managed_group"] == managing["multi_agent_group"] == led
        assert listed == {"ann": None, "ben": None, "mia": led}
        assert await server.get(f"/v1/agents/{ann['id']}/groups") == [led, pair]
        assert await server.get(f"/v1/agents/{ann['id']}/groups", manager_type="round_robin") == [pair]
        assert await server.get(f"/v1/agents/{ann['id']}/groups", manager_type="swarm") == []
        assert await server.get(f"/v1/agents/{mia['id']}/groups") == [led]
        newer = await new_group(server, ben, config=config)
        assert (await server.get(f"/v1/agents/{mia['id']}"))["managed_group"] == newer


async def test_a_list_of_agents_costs_no_query_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many agents of the page manage one."""
    from perdure.features.groups.tables import Groups

    calls: list[int] = []
    find = Groups.list_managed

    def count(groups: Groups, agent_ids: Any) -> Any:
        calls.append(len(agent_ids))
        return find(groups, agent_ids)

    monkeypatch.setattr(Groups, "list_managed", count)
    async with routed() as server:
        agents = [await new_agent(server, f"agent {number}") for number in range(4)]
        for one in agents[1:]:
            config = {"manager_type": "supervisor", "manager_agent_id": one["id"]}
            await new_group(server, agents[0], config=config)
        calls.clear()
        found = await server.get("/v1/agents/")

    assert calls == [4]
    assert sum(one["managed_group"] is not None for one in found) == 3


async def test_a_group_that_can_not_be_is_refused() -> None:
    """Each with what is wrong; nothing is made, and nothing changed."""
    async with routed() as server:
        ann, ben = await new_agent(server, "ann"), await new_agent(server, "ben")
        pair = await new_group(server, ann, ben)
        absent = "agent-00000000-0000-4000-8000-000000000000"

        async def refused(config: Any = None, agents: Any = None, method: str = "POST") -> tuple[int, str]:
            body = {"agent_ids": [ann["id"]] if agents is None else agents, "description": "d"}
            body |= {} if config is None else {"manager_config": config}
            path = "/v1/groups/" if method == "POST" else f"/v1/groups/{pair['id']}"
            return await server.refused(method, path, body)

        for status, said, found in [
            (422, "at least one agent", await refused(agents=[])),
            (422, "more than once", await refused(agents=[ann["id"], ann["id"]])),
            (422, "needs a manager", await refused({"manager_type": "supervisor"})),
            (422, "has no manager", await refused({"manager_agent_id": ben["id"]})),
            (422, "not a participant", await refused({"manager_type": "dynamic", "manager_agent_id": ann["id"]})),
            (422, "termination_token", await refused({"termination_token": "X"})),
            (422, "max_turns", await refused({"max_turns": 0})),
            (422, "stays one", await refused({"manager_type": "dynamic"}, method="PATCH")),
            (422, "round_robin", await refused({"manager_type": "chaos"})),
            (501, "swarm", await refused({"manager_type": "swarm"})),
            (404, absent, await refused(agents=[absent])),
        ]:
            assert (found[0], said in found[1]) == (status, True), found
        assert await server.get("/v1/groups/") == [pair]
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/messages")):
            body = {"description": "d"} if method == "PATCH" else None
            assert (await server.refused(method, f"/v1/groups/{NOBODY}{path}", body))[0] == 404
            assert (await server.refused(method, f"/v1/groups/group-1{path}", body))[0] == 422
        assert (await server.refused("GET", f"/v1/agents/{absent}/groups"))[0] == 404
        assert json.dumps(await server.get(f"/v1/groups/{pair['id']}")) == json.dumps(pair)


# --- messages


def line(shape: Any) -> tuple[str | None, str, str]:
    """(name, type, text) of a message."""
    return shape["name"], shape["message_type"].removesuffix("_message"), shape.get("content") or ""


async def streamed(server: Routed, group: Any, text: str, **fields: Any) -> list[Any]:
    """The chunks of a stream, which ends as streams do."""
    body = {"input": text, "include_pings": False, **fields}
    answer = await server.http.post(f"/v1/groups/{group['id']}/messages/stream", json=body)
    assert answer.status_code == 200, answer.text
    *lines, done = [part.removeprefix("data: ") for part in answer.text.strip().split("\n\n")]
    assert done == "[DONE]"
    return [json.loads(one.split("data: ")[-1]) for one in lines]


async def test_a_reply_names_the_speakers() -> None:
    """Whole and as a stream, and so does the transcript; the usage is that of all runs."""
    script = [says("To Turin."), thinks("hm", says("To Bern.")), says("By train."), says("By bike.")]
    async with routed(*script) as server:
        ann, ben = await new_agent(server, "Ann"), await new_agent(server, "Ben")
        pair = await new_group(server, ann, ben)
        path = f"/v1/groups/{pair['id']}/messages"
        reply = await server.post(path, {"messages": [{"role": "user", "content": "Where?", "name": "Eve"}]})
        LettaResponse.model_validate_json(json.dumps(reply), strict=True)
        chunks = await streamed(server, pair, "And how?", stream_tokens=False)
        shown = await server.get(path, order="asc")
        asked = await server.get(path, include_return_message_types=["user_message"])

        assert {one["message_type"] for one in asked} == {"user_message"}
        said = [("Ann", "assistant", "To Turin."), ("Ben", "reasoning", ""), ("Ben", "assistant", "To Bern.")]
        assert [line(one) for one in reply["messages"]] == said
        assert [one["sender_id"] for one in reply["messages"]] == [ann["id"], ben["id"], ben["id"]]
        assert (reply["stop_reason"]["stop_reason"], reply["stop_reason"]["group_stop_reason"]) == ("end_turn",) * 2
        assert (reply["usage"]["total_tokens"], reply["usage"]["step_count"], len(reply["usage"]["run_ids"])) == (
            *(24, 2),
            2,
        )
        messages, ends = chunks[:-2], chunks[-2:]
        assert [line(one) for one in messages] == [("Ann", "assistant", "By train."), ("Ben", "assistant", "By bike.")]
        assert [one["message_type"] for one in ends] == ["stop_reason", "usage_statistics"]
        assert ends[1]["run_ids"] == [one["run_id"] for one in messages]
        assert [line(one) for one in shown] == [
            ("Eve", "user", "Where?"),
            *said,
            (None, "user", "And how?"),
            *[line(one) for one in messages],
        ]
        TypeAdapter(list[Message]).validate_json(json.dumps(shown), strict=True)


async def test_a_stream_by_tokens_names_the_speaker_of_each_piece() -> None:
    """The pieces of one message follow one another; together they are the text."""
    async with routed(says("To old Turin."), says("To far Bern.")) as server:
        pair = await new_group(server, await new_agent(server, "Ann"), await new_agent(server, "Ben"))
        chunks = await streamed(server, pair, "Where?", stream_tokens=True)
        pieces = [line(one) for one in chunks[:-2]]

        assert len(pieces) > 2
        assert [name for name, _ in groupby(name for name, _, _ in pieces)] == ["Ann", "Ben"]
        assert "".join(text for name, _, text in pieces if name == "Ben") == "To far Bern."


async def test_a_transcript_is_read_by_pages() -> None:
    """In both orders, from its entries' ids, also those of an agent that failed; a reset empties it."""
    async with routed(says("One."), fails("the provider is down"), says("Three."), says("Four.")) as server:
        ann, ben = await new_agent(server, "Ann"), await new_agent(server, "Ben")
        pair = await new_group(server, ann, ben)
        path = f"/v1/groups/{pair['id']}/messages"
        for text in ("a", "b"):
            await server.post(path, {"input": text})
        ids = [one["id"] for one in await server.get(path, order="asc")]
        newest = await server.get(path)

        assert [one["id"] for one in newest] == ids[::-1]
        assert len(set(ids)) == 6
        failed = newest[3]
        assert (failed["message_type"], failed["name"], failed["sender_id"]) == ("system_message", "Ben", ben["id"])
        assert "the provider is down" in failed["content"]
        for size in (1, 2, 5):
            paged, after = [], None
            while page := await server.get(path, limit=size, order="asc", **({"after": after} if after else {})):
                paged += [one["id"] for one in page]
                after = paged[-1]
            assert paged == ids
        assert [one["id"] for one in await server.get(path, before=ids[2], order="asc")] == ids[:2]
        assert (await server.refused("GET", path, after=MISSING))[0] == 404
        in_group = await server.get(f"/v1/agents/{ann['id']}/messages", group_id=pair["id"])
        assert [one["content"] for one in in_group if one["message_type"] == "assistant_message"] == ["One.", "Three."]
        other = await new_agent(server, "Eve")
        assert await server.get(f"/v1/agents/{other['id']}/messages", group_id=pair["id"]) == []
        assert await server.get(f"/v1/conversations/{ann['id']}/messages", group_id=pair["id"]) == []

        assert await server.patch(f"/v1/groups/{pair['id']}/reset-messages") is None
        assert await server.get(path) == []
        left = await server.get(f"/v1/agents/{ann['id']}/messages", group_id=pair["id"])
        assert [one["message_type"] for one in left] == ["system_message"]


async def test_a_transcript_says_what_was_deleted() -> None:
    """With the conversation in which an agent spoke, or with the agent: it did not fail."""
    async with routed(says("One."), says("Two.")) as server:
        ann, ben = await new_agent(server, "Ann"), await new_agent(server, "Ben")
        pair = await new_group(server, ann, ben)
        path = f"/v1/groups/{pair['id']}/messages"
        await server.post(path, {"input": "a"})
        (conversation,) = await server.get("/v1/conversations/", agent_id=ann["id"])
        await server.delete(f"/v1/conversations/{conversation['id']}")
        await server.delete(f"/v1/agents/{ben['id']}")

        assert [line(one) for one in (await server.get(path, order="asc"))[1:]] == [
            ("Ann", "system", "Ann said something that was deleted."),
            ("Ben", "system", "Ben said something that was deleted."),
        ]


async def test_a_message_of_a_transcript_is_changed() -> None:
    """An agent's, here and in its history; a user's can't, since the agents were shown it."""
    async with routed(says("To Turin.")) as server:
        ann = await new_agent(server, "Ann")
        alone = await new_group(server, ann)
        path = f"/v1/groups/{alone['id']}/messages"
        await server.post(path, {"input": "Where?"})
        speech, question = await server.get(path)
        change = {"message_type": "assistant_message", "content": "To Rome."}
        changed = await server.patch(f"{path}/{speech['id']}", change)

        assert changed == {**speech, "content": "To Rome."}
        assert [one["content"] for one in await server.get(path)] == ["To Rome.", "Where?"]
        history = await server.get(f"/v1/agents/{ann['id']}/messages", group_id=alone["id"])
        assert history[-1]["content"] == "To Rome."
        user_change = {"message_type": "user_message", "content": "Who?"}
        status, said = await server.refused("PATCH", f"{path}/{question['id']}", user_change)
        assert (status, "not an agent's" in said) == (422, True)
        assert (await server.refused("PATCH", f"{path}/{MISSING}", change))[0] == 404


async def test_what_a_group_does_not_take_is_refused() -> None:
    """Before anything is stored; a turn that fails is an error, and the same key is the same turn."""
    async with routed(fails(), says("Once.")) as server:
        ann = await new_agent(server, "Ann")
        alone = await new_group(server, ann)
        path = f"/v1/groups/{alone['id']}/messages"
        approval = {"type": "approval", "approvals": [], "approve": True, "approval_request_id": MISSING}
        for status, said, body in [
            (501, "client_tools", {"input": "a", "client_tools": []}),
            (501, "override_model", {"input": "a", "override_model": MODEL}),
            (422, "no answers to calls", {"messages": [approval]}),
            (422, "exactly one of", {}),
            (422, "users only", {"messages": [{"role": "system", "content": "a"}]}),
            (422, "empty", {"input": " "}),
        ]:
            found = await server.refused("POST", path, body)
            assert (found[0], said in found[1]) == (status, True), found
        assert await server.get(path) == []
        failed = await server.http.post(path, json={"input": "a"})
        assert failed.status_code == 500
        assert "nobody in the group could speak" in failed.text
        headers = {"idempotency-key": "k"}
        first, second = [await server.http.post(path, json={"input": "b"}, headers=headers) for _ in range(2)]
        assert first.json() == second.json()
        assert (await server.http.post(path, json={"input": "c"}, headers=headers)).status_code == 409
        assert (await server.refused("POST", f"/v1/groups/{NOBODY}/messages", {"input": "a"}))[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["round_robin", "supervisor", "dynamic", "sleeptime"])
async def test_a_message_larger_than_the_window_of_all_is_named(kind: str) -> None:
    """By its id in the transcript, as an error that says that the caller can mend it, streamed or not."""
    async with routed(says("fine")) as server:
        ann, max_ = [await new_agent(server, name, context_window_limit=8_000) for name in ("Ann", "Max")]
        config = {"manager_type": kind} | ({} if kind == "round_robin" else {"manager_agent_id": max_["id"]})
        group = await new_group(server, ann, *([max_] if kind == "round_robin" else []), config=config)
        path, long = f"/v1/groups/{group['id']}/messages", {"input": "lorem ipsum " * 20_000}
        refused = await server.http.post(path, json=long)
        streamed = await server.http.post(f"{path}/stream", json=long)
        sent = [one["id"] for one in await server.get(path, order="asc") if one["message_type"] == "user_message"]

    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "context_window_exceeded"), error
    assert '"error_type":"context_window_exceeded"' in streamed.text
    assert [f"{one} alone has about" in text for one, text in zip(sent, (error["detail"], streamed.text), strict=True)]


async def test_a_group_whose_agents_fail_in_their_ways_says_each() -> None:
    """It has no kind of a single failure, and its body says what the transcript does."""
    async with routed(says("Hi."), fails(), fails(), fails("no", kind="llm_refusal")) as server:
        ann, bob = [await new_agent(server, name) for name in ("Ann", "Bob")]
        group = await new_group(server, ann, bob)
        path = f"/v1/groups/{group['id']}/messages"
        told, failed = await server.post(path, {"input": "a"}), await server.http.post(path, json={"input": "a"})

    assert [one["message_type"] for one in told["messages"]] == ["assistant_message", "system_message"]
    error = failed.json()["error"]
    assert (failed.status_code, error["type"]) == (500, "group_error")
    assert error["detail"] == "nobody in the group could speak: Ann: the provider is down; Bob: no"
    assert [one["message_type"] for one in failed.json()["messages"]] == ["system_message"] * 2


async def test_a_group_says_one_thing_at_a_time() -> None:
    """A message meanwhile is refused with an answer that may be tried again, or waits, as it asks."""
    model = SlowSpeaker("To ", "Turin.")
    async with routed(model=model) as server:
        alone = await new_group(server, await new_agent(server, "Ann"))
        path = f"/v1/groups/{alone['id']}/messages"
        first = asyncio.create_task(server.http.post(path, json={"input": "Where?"}))
        await model.speaking.wait()
        refused = await server.http.post(path, json={"input": "How?"})
        reset = await server.http.patch(f"/v1/groups/{alone['id']}/reset-messages")
        waiting = asyncio.create_task(server.http.post(path, json={"input": "When?", "if_busy": "wait"}))
        model.go.set()
        replies = [(await task).json() for task in (first, waiting)]

        assert (refused.status_code, reset.status_code, "still speaking" in refused.json()["detail"]) == (
            409,
            409,
            True,
        )
        assert "x-should-retry" not in refused.headers
        assert [one["messages"][0]["content"] for one in replies] == ["To Turin."] * 2


async def test_a_stream_says_that_its_group_was_deleted() -> None:
    """It ends as streams do, and nothing broke."""
    model = SlowSpeaker("To ", "Turin.")
    async with routed(model=model) as server:
        alone = await new_group(server, await new_agent(server, "Ann"))
        told = asyncio.create_task(streamed(server, alone, "Where?"))
        await model.speaking.wait()
        await server.delete(f"/v1/groups/{alone['id']}")
        stop, error = (await told)[-2:]

        assert (stop["stop_reason"], error["error_type"], error["message"]) == (
            *("error", "not_found"),
            "the group was deleted",
        )


async def test_the_turns_of_a_group_are_cancelled() -> None:
    """Who waits for one is told; with none left there is nothing to cancel."""
    model = SlowSpeaker("To ", "Turin.")
    async with routed(model=model) as server:
        alone = await new_group(server, await new_agent(server, "Ann"))
        path = f"/v1/groups/{alone['id']}/messages"
        first = asyncio.create_task(server.http.post(path, json={"input": "Where?"}))
        await model.speaking.wait()
        told = await server.post(f"{path}/cancel", {})
        reply = (await first).json()

        assert told == {"0": "cancelled"}
        assert reply["stop_reason"]["stop_reason"] == "cancelled"
        status, detail = await server.refused("POST", f"{path}/cancel")
        assert (status, "nothing to cancel" in detail) == (409, True)
        assert (await server.refused("POST", f"/v1/groups/{NOBODY}/messages/cancel"))[0] == 404


async def test_a_block_that_can_not_be_shared_names_the_agent() -> None:
    """That has another of its label."""
    async with routed() as server:
        ann, ben = await new_agent(server, "Ann"), await new_agent(server, "Ben")
        own, shared = [await server.post("/v1/blocks/", {"label": "team", "value": text}) for text in ("a", "b")]
        await server.patch(f"/v1/agents/{ben['id']}/core-memory/blocks/attach/{own['id']}")
        body = {"agent_ids": [ann["id"], ben["id"]], "description": "d", "shared_block_ids": [shared["id"]]}
        status, detail = await server.refused("POST", "/v1/groups/", body)

        assert (status, "'team'" in detail, f"agent 'Ben' ({ben['id']})" in detail) == (409, True, True)


async def test_a_block_is_shared_with_a_group_and_taken_back() -> None:
    """All its agents have it until then; one that was an agent's own stays with it."""
    async with routed() as server:
        ann, ben = await new_agent(server, "Ann"), await new_agent(server, "Ben")
        group = await new_group(server, ann, ben)
        shared, own = [await server.post("/v1/blocks/", {"label": name, "value": "a"}) for name in ("team", "own")]
        await server.patch(f"/v1/agents/{ben['id']}/core-memory/blocks/attach/{own['id']}")
        path = f"/v1/groups/{group['id']}/blocks"

        async def labels() -> list[list[str]]:
            """The labels of the blocks that Ann and Ben have, without their first ones."""
            found = [await server.get(f"/v1/agents/{one['id']}/core-memory/blocks") for one in (ann, ben)]
            return [sorted({block["label"] for block in blocks} & {"team", "own"}) for blocks in found]

        for block in (shared, shared, own):
            changed = await server.patch(f"{path}/attach/{block['id']}")
        assert changed["shared_block_ids"] == [shared["id"], own["id"]]
        assert await labels() == [["own", "team"]] * 2

        for block in (shared, own):
            changed = await server.patch(f"{path}/detach/{block['id']}")
        assert (changed["shared_block_ids"], await labels()) == ([], [[], ["own"]])
        status, detail = await server.refused("PATCH", f"{path}/detach/{own['id']}")
        assert (status, own["id"] in detail) == (404, True)
        missing = own["id"].replace(own["id"][6:14], "0" * 8)
        assert (await server.refused("PATCH", f"{path}/attach/{missing}"))[0] == 404
