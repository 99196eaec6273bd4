"""A running server of Letta's API is copied whole, once, and goes on where it was left."""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.core.errors import AlreadyExists, InvalidInput
from perdure.core.ids import AgentId
from perdure.features.agent_files.folders import create_folder
from perdure.features.agent_files.reading import FileFolder
from perdure.features.imports.letta.client import LettaServer, LettaUnreachable
from perdure.features.imports.letta.values import LettaReport
from perdure.features.imports.letta.work import LettaWork
from perdure.testing import ScriptedModel, calls, says
from tests.features.imports.letta_server import SOURCE, World, call, full_world, id_of, message, result, serving, tool
from tests.support.library import open_async
from tests.support.servers import served
from tests.support.stores import new_address


def new_of(report: LettaReport) -> dict[str, int]:
    """Kind -> how many are new, of those that are."""
    return {kind: one.new for kind, one in report.counts.items() if one.new}


def agent_of(perdure: AsyncPerdure, key: str) -> Any:
    """The agent that was made of the one with this key."""
    return perdure.agent_of(AgentId(id_of("agent", key)))


async def texts_of(perdure: AsyncPerdure, key: str) -> list[str]:
    """What was said in the first conversation of an agent, oldest first."""
    agent = agent_of(perdure, key)
    first = (await agent.find_conversation()).id
    return [one.text for one in await agent.messages(conversation=first, limit=5_000)]


@pytest.mark.slow
@pytest.mark.parametrize("postgres", [False, True], ids=["sqlite", "postgres"])
async def test_a_server_is_copied_once(tmp_path: Path, postgres: bool) -> None:
    """Three agents with 2,000 messages, and every other kind of thing; a second import adds nothing."""
    if postgres:
        pytest.importorskip("psycopg", reason="psycopg is installed by `make setup`")
    with serving(full_world()) as url:
        address: Any = new_address(tmp_path, postgres=postgres)
        async with await open_async(address) as perdure:
            plan = await perdure.imports.plan_server(url)
            empty = await perdure.agents()
            report = await perdure.imports.run_server(url)
            again = await perdure.imports.run_server(url)
            planned_again = await perdure.imports.plan_server(url)
            ann, bob = agent_of(perdure, "Ann"), agent_of(perdure, "Bob")
            blocks = [{one.label: one.id for one in await agent.blocks.list()} for agent in (ann, bob)]
            archives = [[one.id for one in await agent.archives.list()] for agent in (ann, bob)]
            passages = await ann.passages(limit=1_000)
            talks = [one.summary for one in await ann.conversations()]
            (schedule,) = await ann.schedules.list(statuses=())
            (folder,) = await ann.files.folders()
            names = [one.name for one in await folder.files()]
            (group,) = await perdure.groups.list()
            (server,) = await perdure.mcp.list()

    assert empty == [] and new_of(plan) == new_of(report)
    assert new_of(report)["agents"] == 3 and new_of(report)["messages"] >= 1_600
    assert new_of(again) == new_of(planned_again) == {}
    assert again.counts["messages"].already == report.counts["messages"].new
    assert blocks[0]["house"] == blocks[1]["house"] == id_of("block", "shared")
    assert archives[0] == archives[1] == [id_of("archive", 1)]
    assert len(passages) == 120 and {one.id for one in passages} == {id_of("passage", n) for n in range(120)}
    assert talks[:2] == [None, "Trip"] and schedule.timing.cron == "0 9 * * 1" and schedule.status == "paused"
    assert names == ["a.txt", "b.pdf.md"]
    assert {*group.info.agent_ids} == {ann.id, bob.id} and group.info.id == id_of("group", 1)
    assert server.name == "maps"


async def test_messages_are_whole_and_have_their_times(tmp_path: Path) -> None:
    """An answer has its thoughts and its call, a call its result; ids of short calls become unique; a decision of a
    person is a result; what the engine said is left out; what waits for a person is taken when it is decided."""
    world = World()
    ann = world.add_agent("Ann", rounds=0)
    alert = json.dumps({"type": "system_alert", "message": "Note: 3 messages", "time": "now"})
    short = ("tool_return_message", 5, "r2")
    talk = world.lists[f"/v1/agents/{ann['id']}/messages default"]
    talk += [
        message("user_message", 1, "u1", content=[{"type": "text", "text": "Roll!"}], name="Jo"),
        message("reasoning_message", 2, "a1", reasoning="Why not."),
        message("approval_request_message", 2, "a1", **call("roll", "call_1", sides=6)),
        message("approval_response_message", 3, "d1", approvals=[_decision("call_1", approve=False, reason="No dice")]),
        message("user_message", 4, "alert", content=alert),
        message("tool_call_message", 4, "a2", **call("roll", "call_1", sides=2)),
        message(*short, name="roll", **result("rolled 2", "call_1")),
        message("hidden_reasoning_message", 6, "h1", state="redacted"),
        message("telepathy_message", 6, "t1", content="?"),
        message("assistant_message", 7, "a3", content="Two."),
        message("approval_request_message", 8, "a4", **call("roll", "call_9", sides=8)),
    ]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            first = await perdure.imports.run_server(url)
            before = await agent_of(perdure, "Ann").messages()
            talk += [
                message("approval_response_message", 9, "d4", approvals=[_decision("call_9", approve=True)]),
                message("tool_return_message", 9, "r4", name="roll", **result("rolled 8", "call_9")),
                message("user_message", 10, "u5", content="Thanks"),
            ]
            second = await perdure.imports.run_server(url)
            after = await agent_of(perdure, "Ann").messages()

    assert [one.role for one in before] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert before[0].text == "Roll!" and before[0].name == "Jo" and before[0].occurred_at.minute == 1
    assert before[2].results[0].text == "A person denied this call. No dice" and before[2].results[0].status == "error"
    assert len({one.calls[0].call_id for one in before if one.calls}) == 2
    assert before[4].results[0].call_id == before[3].calls[0].call_id
    assert first.left_out["answers there whose calls wait for somebody: decide there, and import again"] == 1
    assert first.left_out["messages of unknown kinds"] == 1
    assert [one.text for one in after[6:]] == ["", "rolled 8", "Thanks"] and after[6].calls
    assert second.counts["messages"].new == 3


def _decision(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "approval", "tool_call_id": call_id, "reason": None, **fields}


async def test_a_tool_waits_until_a_person_has_read_its_code(tmp_path: Path) -> None:
    """Then its agents have it with its rules; a tool without source, and one that is no Python, are left out."""
    world = full_world(rounds=1)
    world.add("/v1/tools/", tool("odd", "def odd(:\n"))
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            report = await perdure.imports.run_server(url)
            ann = agent_of(perdure, "Ann")
            before = [one.spec.name for one in await ann.tools.list()]
            (waiting,) = await perdure.imports.unreviewed_tools()
            approved = await perdure.imports.approve_tool("roll")
            after = [one.spec.name for one in await ann.tools.list()]
            rules = (await ann.state()).agent.settings["tool_rules"]
            again = await perdure.imports.run_server(url)

    assert "roll" not in before and "conversation_search" in before
    assert (waiting.name, waiting.source, waiting.agents) == ("roll", SOURCE, ["Ann", "Bob"])
    assert approved == waiting and "roll" in after and rules[0]["tool_name"] == "roll"
    assert report.to_review == ["roll"] and again.to_review == [] and new_of(again) == {}
    assert any("'gone'" in why for why in report.left_out) and any("'odd'" in why for why in report.left_out)


async def test_no_secret_is_copied(tmp_path: Path) -> None:
    """They are named; neither the store nor the report has a value of one."""
    with serving(full_world(rounds=1)) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            report = await perdure.imports.run_server(url)
            ann = agent_of(perdure, "Ann")
            state, again = await ann.state(), await perdure.imports.run_server(url)
            await ann.secrets.set("CITY_KEY", "another")
            last = await perdure.imports.run_server(url)

    assert again.secrets == report.secrets and {*again.secrets} - {*last.secrets} == {"agent 'Ann': CITY_KEY"}
    named = ["agent 'Ann': CITY_KEY", "MCP server 'maps': X-Team", "providers: my-openai"]
    assert {*named} <= {*report.secrets} and not state.secrets
    assert "s3cret" not in repr(report)
    assert b"s3cret" not in bytes_of(tmp_path)


def bytes_of(folder: Path) -> bytes:
    """All that is in the files of a folder."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_an_agent_that_the_server_can_not_send_is_left_out_and_taken_later(tmp_path: Path) -> None:
    world = full_world(rounds=2)
    ann = id_of("agent", "Ann")
    broken = [(500, {}), ...]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            world.faults[f"/v1/agents/{ann}"] = broken
            plan = await perdure.imports.plan_server(url)
            first = await perdure.imports.run_server(url)
            world.faults = {f"/v1/agents/{id_of('agent', 'Bob 2')}/messages": [(503, {"Retry-After": "0"}), (429, {})]}
            second = await perdure.imports.run_server(url)
            third = await perdure.imports.run_server(url)
            texts = await texts_of(perdure, "Ann")

    assert new_of(plan)["agents"] == new_of(first)["agents"] == 2
    assert any("'Ann'" in why and "500" in why for why in first.left_out)
    assert new_of(second)["agents"] == 1 and new_of(third) == {} and len(texts) == 8


async def test_archives_that_a_server_can_not_list_keep_no_messages_back(tmp_path: Path) -> None:
    """All agents have their messages at once; the passages follow, in their archive, when it lists them again."""
    world = full_world(rounds=2)
    world.faults["/v1/archives/"] = [(500, {}), ...]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            first = await copy(perdure, url, at_once)
            texts = await texts_of(perdure, "Ann")
            world.faults = {}
            second = await copy(perdure, url, at_once)
            archives = [one.name for one in await agent_of(perdure, "Ann").archives.list()]
            passages = await agent_of(perdure, "Bob").passages(limit=1_000)

    assert new_of(first)["agents"] == 3 and len(texts) == 8 and "passages" not in new_of(first)
    assert any("archives" in why and "'Ann'" in why and "500" in why for why in first.left_out)
    assert new_of(second)["passages"] == len(passages) == 120 and archives == ["moon"]


@pytest.mark.slow
async def test_a_server_that_stops_in_the_middle_is_gone_on_with(tmp_path: Path) -> None:
    """The error says so; every number of answers leaves a store from which the same import goes on."""
    for stops_after in (0, 1, 5, 12, 14, 20):
        says = "does not answer .*: " + ("what was imported stays" if stops_after else "nothing was imported")
        world = full_world(rounds=30)
        world.stops_after = stops_after
        address = tmp_path / f"{stops_after}.db"
        async with await open_async(address) as perdure:
            with serving(world) as url, pytest.raises(LettaUnreachable, match=says):
                await copy(perdure, url, at_once)
            world.stops_after = None
            with serving(world) as url:
                await perdure.imports.run_server(url)
                again = await perdure.imports.run_server(url)
            texts = await texts_of(perdure, "Ann")

        assert new_of(again) == {} and len(texts) == 120 and texts[0] == "Ann: how is day 0?"


async def at_once(seconds: float) -> None:
    """Wait for nothing."""


async def copy(perdure: AsyncPerdure, url: str, pause: Callable[[float], Awaitable[object]]) -> LettaReport:
    """Import with pauses of the test between tries."""
    server = LettaServer(url, None, pause=pause)
    try:
        return await LettaWork(perdure.app, server, dry=False, progress=lambda done: None).run()
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:8283", "no address of a server"),
        ("ftp://127.0.0.1", "no address of a server"),
        ("http://127.0.0.1:8283/?key=1", "no address of a server"),
        ("http://", "no address of a server"),
    ],
)
async def test_an_address_that_is_none_is_refused(tmp_path: Path, url: str, why: str) -> None:
    async with await open_async(tmp_path / "p.db") as perdure:
        with pytest.raises(InvalidInput, match=why):
            await perdure.imports.plan_server(url)


async def test_a_server_that_wants_a_key_gets_it(tmp_path: Path) -> None:
    world = full_world(rounds=1)
    world.key = "letta-key"
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            with pytest.raises(LettaUnreachable, match="wants a key"):
                await perdure.imports.plan_server(url)
            plan = await perdure.imports.plan_server(f"{url}/v1/", key="letta-key")

    assert plan.has_news and "letta-key" not in repr(plan)


async def test_another_kind_of_server_is_refused(tmp_path: Path) -> None:
    with serving(World()) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            with pytest.raises(LettaUnreachable, match="no server of Letta's API"):
                await perdure.imports.plan_server(url)


async def test_what_was_deleted_or_forgotten_here_does_not_come_back(tmp_path: Path) -> None:
    world = full_world(rounds=3)
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            await perdure.imports.run_server(url)
            ann = agent_of(perdure, "Ann")
            await ann.forget("day 1 is fine")
            passage = (await ann.passages())[0]
            await ann.delete_passage(passage.id)
            talk = (await ann.conversations())[1]
            await ann.delete_conversation(talk.id)
            again = await perdure.imports.run_server(url)
            texts = await texts_of(perdure, "Ann")
            passages = await ann.passages(limit=1_000)

    assert new_of(again) == {}
    assert not any("day 1 is fine" in text for text in texts)
    assert len(passages) == 119 and [one for one in again.left_out if "deleted here" in one]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["round_robin", "supervisor"])
@pytest.mark.parametrize("name", ["Ann", "Bob"])
async def test_an_agent_that_is_made_anew_is_in_its_group_again(name: str, kind: str, tmp_path: Path) -> None:
    """Also one with whose deletion the group went."""
    world = full_world(rounds=1)
    (found,) = world.lists["/v1/groups/"]
    found["manager_type"] = kind
    if kind == "supervisor":
        found["manager_agent_id"] = found["agent_ids"].pop()
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            await perdure.imports.run_server(url)
            (before,) = await perdure.groups.list()
            await perdure.delete_agent(agent_of(perdure, name).id)
            await perdure.imports.run_server(url)
            again = await perdure.imports.run_server(url)
            (after,) = await perdure.groups.list()

    assert (after.info.agent_ids, after.info.manager_agent_id) == (before.info.agent_ids, before.info.manager_agent_id)
    assert new_of(again) == {}


async def test_another_perdure_server_is_copied(tmp_path: Path) -> None:
    """What one has is what the other one gets, by the same ids; and nothing of it changes the first one."""
    (there := tmp_path / "there").mkdir()
    script = [calls("core_memory_append", label="human", text="Likes tea"), says("Noted."), says("Hello.")]
    async with served(there, model=ScriptedModel(*script)) as (url, source):
        ann = await source.create_agent("Ann", human="Name: Jo", persona="I am kind")
        await ann.send("I like tea")
        talk = await ann.create_conversation({"summary": "Trip"})
        await ann.send("Hello?", conversation=talk.conversation.id)
        await ann.archive("The quince is by the gate.")
        folder = await source.folders.create("papers")
        await folder.upload(b"The lease ends in May.", name="lease.txt")
        await ann.files.attach(folder.id)
        await ann.schedules.create("Plan the week", cron="0 9 * * 1", name="weekly")
        async with await open_async(tmp_path / "here.db") as perdure:
            report = await perdure.imports.run_server(url)
            again = await perdure.imports.run_server(url)
            here = perdure.agent_of(ann.id)
            texts = [[(one.role, one.text) for one in await agent.messages()] for agent in (ann, here)]
            blocks = [{one.label: one.value for one in await agent.blocks.list()} for agent in (ann, here)]
            talks = [[one.summary for one in await agent.conversations()] for agent in (ann, here)]
            found = await here.search_archive("quince")
            (schedule,) = await here.schedules.list(statuses=())

    assert new_of(again) == {} and new_of(report)["agents"] == 1
    assert texts[0] == texts[1] and blocks[0] == blocks[1] and talks[0] == talks[1]
    assert found[0].passage.text == "The quince is by the gate." and (schedule.name, schedule.status) == (
        "weekly",
        "paused",
    )
    assert new_of(report)["files"] == 1


@pytest.mark.uses("groups")
async def test_a_group_of_another_perdure_server_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each agent speaks in the conversation that it had there, whose messages its model sees; none beside."""
    (there := tmp_path / "there").mkdir()
    script = [says("Hello, I am Ann."), says("And I am Bob.")]
    model = ScriptedModel(says("Ann again."), says("Bob again."))
    async with served(there, model=ScriptedModel(*script)) as (url, source):
        agents = [await source.create_agent(name) for name in ("Ann", "Bob")]
        group = await source.groups.create("round_robin", agents=agents)
        await group.send("Who are you?")
        async with await open_async(tmp_path / "here.db", model=model) as perdure:
            await perdure.imports.run_server(url)
            here = await perdure.groups.get(group.id)
            lines = [await one.conversation_of(agents[0].id) for one in (group, here)]
            await here.send("And now?")
            again = await perdure.imports.run_server(url)
            counts = [len(await perdure.agent_of(one.id).conversations()) for one in agents]

    assert lines[0] == lines[1] and counts == [2, 2] and new_of(again) == {}
    assert ["Who are you?" in asked.messages[0].text for asked in model.requests] == [True, True]


async def test_a_store_is_not_copied_into_itself(tmp_path: Path) -> None:
    async with served(tmp_path, says("Hello.")) as (url, perdure):
        ann = await perdure.create_agent("Ann")
        await ann.send("Hi")
        report = await perdure.imports.run_server(url)

        assert not report.has_news and len(await ann.messages()) == 2


async def test_a_server_that_is_busy_is_waited_for(tmp_path: Path) -> None:
    """As long as it says, in seconds or by a date; a pause that is too long ends the import."""
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    world = full_world(rounds=1)
    path = f"/v1/agents/{id_of('agent', 'Ann')}"
    world.faults[path] = [(429, {"Retry-After": "7"}), (503, {}), (503, {"Retry-After": _in(30)})]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            report = await copy(perdure, url, pause)
            world.faults["/v1/groups/"] = [(429, {"Retry-After": "86400"})]
            with pytest.raises(LettaUnreachable, match="import later"):
                await copy(perdure, url, pause)

    assert new_of(report)["agents"] == 3
    assert waits[0] == 7 and 0 < waits[1] < 60 and 20 < waits[2] <= 30


def _in(seconds: int) -> str:
    """A date of HTTP so many seconds from now."""
    return email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


async def test_a_server_that_lists_messages_from_the_newest_on_loses_none_silently(tmp_path: Path) -> None:
    world = World()
    ann = world.add_agent("Ann", rounds=60)
    whole = world.answer

    def answer(path: str, query: dict[str, list[str]]) -> Any:
        if path.endswith("/messages") and not {"after", "before"} & query.keys():
            return 200, {}, world.lists[f"/v1/agents/{ann['id']}/messages default"][-100:]
        return whole(path, query)

    world.answer = answer  # type: ignore[method-assign]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            report = await perdure.imports.run_server(url)

    assert any("from the newest on" in why for why in report.left_out) and report.counts["messages"].total == 0


async def test_a_server_that_ignores_cursors_loses_none_silently(tmp_path: Path) -> None:
    world = World()
    world.add_agent("Ann", rounds=60)
    whole = world.answer

    def answer(path: str, query: dict[str, list[str]]) -> Any:
        query.pop("after", None)
        return whole(path, query)

    world.answer = answer  # type: ignore[method-assign]
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            report = await perdure.imports.run_server(url)

    assert any("'Ann'" in why and "whatever the cursor" in why for why in report.left_out)


async def test_lists_that_a_server_refuses_are_left_out_with_a_reason(tmp_path: Path) -> None:
    """All but that of agents; what was left out is taken later."""
    world = full_world(rounds=1)
    world.faults = {path: [(500, {}), ...] for path in ("/v1/groups/", "/v1/identities/", "/v1/tools/")}
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            first = await copy(perdure, url, at_once)
            world.faults = {}
            second = await copy(perdure, url, at_once)

    for kind in ("groups", "identities", "tools"):
        assert any(f"lists of {kind}" in why and "500" in why for why in first.left_out)
    assert new_of(second) == {"groups": 1, "identities": 1}


async def test_a_key_that_no_header_can_have_is_refused(tmp_path: Path) -> None:
    async with await open_async(tmp_path / "p.db") as perdure:
        for key in ("k\u00e9", "k\n"):
            with pytest.raises(InvalidInput, match="no header can have"):
                await perdure.imports.plan_server("http://127.0.0.1:1", key=key)


async def test_two_copies_of_one_server_at_once_bring_it_once(tmp_path: Path) -> None:
    with serving(full_world(rounds=5)) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            await asyncio.gather(*(perdure.imports.run_server(url) for _ in range(3)))
            again = await perdure.imports.run_server(url)
            texts, agents = await texts_of(perdure, "Ann"), await perdure.agents()

    assert new_of(again) == {} and len(texts) == 20 and len(agents) == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_server_with_odd_answers_is_copied_as_far_as_it_can_be(tmp_path: Path, seed: int) -> None:
    """Whatever stands in a field: what can't be taken is left out with a reason, and the rest is whole."""
    world, choose = full_world(rounds=2), random.Random(seed)
    for _ in range(20):
        held: dict[str, Any] = choose.choice([{**world.lists}, {**world.things}])
        spoil(held[choose.choice([*held])], choose)
    with serving(world) as url:
        async with await open_async(tmp_path / "p.db") as perdure:
            await perdure.imports.plan_server(url)
            await perdure.imports.run_server(url)
            again = await perdure.imports.run_server(url)

    assert new_of(again) == {}


ODD: list[Any] = [
    None,
    "",
    0,
    -1,
    1e308,
    True,
    [],
    {},
    [None],
    {"a": 1},
    "x" * 3_000,
    "\0",
    "\ud800",
    "../../etc/passwd",
    [[[]]],
]


def spoil(value: Any, choose: random.Random) -> None:
    """Put something odd into a field of a thing, but its id."""
    while isinstance(value, (dict, list)) and value:
        key: Any = choose.choice([*value]) if isinstance(value, dict) else choose.randrange(len(value))
        if isinstance(value, dict) and key != "id" and choose.random() < 0.5:
            value[key] = choose.choice(ODD)
            return
        value = value[key]


async def test_a_folder_whose_id_is_taken_ends_with_an_error(tmp_path: Path) -> None:
    """Another name would not help, however many are tried."""
    async with await open_async(tmp_path / "p.db") as perdure:
        taken = await perdure.folders.create("plants")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(perdure.app.ports.ids, "new", lambda kind: str(taken.id) if kind == "folder" else f"{kind}-x")
            with pytest.raises(AlreadyExists):
                await asyncio.wait_for(create_folder(perdure, FileFolder({"name": "plants"}, {})), 20)
