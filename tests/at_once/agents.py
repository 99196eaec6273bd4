"""Changes of agents and of what they remember: conversations, blocks, facts, schedules, messages, groups."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure import NewBlock, NewPassage, Text
from perdure.core.errors import AlreadyExists, NotFound
from perdure.core.ids import RunId
from perdure.core.messages import ToolCall
from perdure.domain.agents.units import NewAgent
from perdure.domain.conversations.importing import ImportedMessage
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.features.facts.episodes import NewEpisode
from perdure.features.groups.units import NewGroup
from perdure.features.schedules.units import NewSchedule
from perdure.library.parts.checks import Page
from tests.at_once.room import Change, Room, case

Changes = AsyncIterator[tuple[Change, Change]]
ALL = Page(1_000, ascending=True)
HELLO = (NewMessage(parts=(Text("Hello."),)),)


@case("AgentRecord.edit")
async def agent_fields(room: Room) -> Changes:
    agent = await room.agent()
    yield (lambda one: agent.edit({"description": "d"}), lambda one: agent.edit({"tags": ["t"]}))
    now = (await agent.state()).agent
    assert (now.description, list(now.tags)) == ("d", ["t"])


@case("AllAgents.add")
async def agents_of_one_name(room: Room) -> Changes:
    new = NewAgent(name=room.name("agent"), model="test/model")
    yield (
        lambda one: one.all_agents.add(new, same_name="refuse"),
        lambda one: one.all_agents.add(new, same_name="refuse"),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AgentRecord.delete")
async def agent_deleted_twice(room: Room) -> Changes:
    agent = await room.agent()
    yield (lambda one: agent.delete()), (lambda one: agent.delete())
    assert room.refused <= 1


@case("AgentRules.set", "Approval.require_approval")
async def rules_of_an_agent(room: Room) -> Changes:
    agent = await room.agent(archival=True)
    yield (
        lambda one: one.agent_of(agent.id).rules.set([{"type": "continue", "tool": "archival_memory_search"}]),
        lambda one: agent.require_approval("archival_memory_insert"),
    )
    assert room.both or room.refused == 1


@case(
    "Blocks.update", "Blocks.edit", "AgentBlocks.change", "AgentBlocks.edit", "AgentBlocks.update", "AgentBlocks.append"
)
async def block_fields(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).blocks.add(NewBlock(label="notes", value="a"))
    yield (
        lambda one: one.blocks.edit(made.id, {"description": "d"}),
        lambda one: one.agent_of(agent.id).blocks.append("notes", "b"),
    )
    now = await room.first.blocks.get(made.id)
    assert (now.description, now.value.split()) == ("d", ["a", "b"])
    await room.at_once(
        lambda one: one.agent_of(agent.id).blocks.edit("notes", {"limit_chars": 900}),
        lambda one: one.agent_of(agent.id).blocks.edit("notes", {"read_only": True}),
    )
    now = await room.first.blocks.get(made.id)
    assert (now.limit_chars, now.read_only) == (900, True)


@case("Blocks.add", "AgentBlocks.add", "Blocks.create", "AgentBlocks.create", "AgentBlocks.attach")
async def blocks_of_one_label(room: Room) -> Changes:
    agent = await room.agent()
    other = await room.first.blocks.add(NewBlock(label="notes"))
    yield (
        lambda one: one.agent_of(agent.id).blocks.add(NewBlock(label="notes")),
        lambda one: one.agent_of(agent.id).blocks.attach(other.id),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]


@case("AgentBlocks.detach_block", "AgentBlocks.detach", "Blocks.delete")
async def block_detached_twice(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).blocks.add(NewBlock(label="notes"))
    yield (
        (lambda one: one.agent_of(agent.id).blocks.detach_block(made.id)),
        (lambda one: one.agent_of(agent.id).blocks.detach("notes")),
    )
    assert room.refused == 1
    await room.at_once(lambda one: one.blocks.delete(made.id), lambda one: one.blocks.delete(made.id))
    assert room.refused == 1


@case("AgentBlocks.restore", "AgentBlocks.replace_line", "AgentBlocks.delete_line", "Corrections.undo")
async def block_lines(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).blocks.add(NewBlock(label="notes", value="a\nb"))
    yield (
        lambda one: one.agent_of(agent.id).blocks.replace_line("notes", 1, "A"),
        lambda one: one.agent_of(agent.id).blocks.replace_line("notes", 2, "B"),
    )
    assert (await room.first.blocks.get(made.id)).value == "A\nB"
    await room.at_once(
        lambda one: one.agent_of(agent.id).blocks.restore("notes", 0),
        lambda one: one.agent_of(agent.id).blocks.append("notes", "c"),
    )
    assert (await room.first.blocks.get(made.id)).value in ("a\nb", "a\nb\nc")
    await room.at_once(lambda one: agent.undo(), lambda one: agent.undo())


@case("Sources.revert_writes")
async def writes_reverted_twice(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).blocks.add(NewBlock(label="notes", value="a"))
    now = await room.first.blocks.edit(made.id, {"value": "b"})
    writes = [f"{made.id}@{now.version}"]
    yield (
        lambda one: one.agent_of(agent.id).sources.revert_writes(writes),
        lambda one: one.agent_of(agent.id).sources.revert_writes(writes),
    )
    assert (await room.first.blocks.get(made.id)).value in ("a", "b")


@case("Conversations.new_conversation", "Conversations.create_conversation", "Conversations.create_ephemeral")
async def conversations_made(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        lambda one: agent.create_conversation({"summary": "one"}),
        lambda one: agent.create_conversation({"summary": "two"}),
    )
    assert len({made.conversation.seq for made in room.results}) == 2
    await room.at_once(
        lambda one: one.conversations.create_ephemeral("test/model", "Be brief."),
        lambda one: one.conversations.create_ephemeral("test/model", "Be brief."),
    )


@case("Conversations.update_conversation", "Conversations.change_conversation")
async def conversation_fields(room: Room) -> Changes:
    agent = await room.agent()
    made = (await agent.create_conversation()).conversation
    yield (
        lambda one: agent.change_conversation(made.id, {"summary": "s"}),
        lambda one: agent.change_conversation(made.id, {"archived": True}),
    )
    now = await agent.find_conversation(made.id)
    assert (now.summary, now.archived_at is not None) == ("s", True)


@case(
    "Conversations.fork_conversation",
    "Conversations.fork_state",
    "Conversations.recompile",
    "Conversations.reset",
    "Conversations.compact",
    "Conversations.compact_view",
)
async def conversation_reset_and_forked(room: Room) -> Changes:
    agent = await room.agent()
    await agent.send("Hello.")
    yield (lambda one: agent.reset(), lambda one: agent.fork_state(None))
    await room.at_once(lambda one: agent.recompile(), lambda one: agent.compact_view(None))


@case("Conversations.delete_conversation")
async def conversation_deleted_twice(room: Room) -> Changes:
    agent = await room.agent()
    made = (await agent.create_conversation()).conversation
    yield (lambda one: agent.delete_conversation(made.id), lambda one: agent.delete_conversation(made.id))
    assert room.refused <= 1


@case("History.update_message", "History.edit_message", "Corrections.forget")
async def message_edited_twice(room: Room) -> Changes:
    agent = await room.agent()
    await agent.send("Hello.")
    said = next(one for one in await agent.messages() if one.role == "user")
    yield (
        lambda one: agent.edit_message(said.id, "user", [Text("One.")]),
        lambda one: agent.edit_message(said.id, "user", [Text("Two.")]),
    )
    now = await room.first.messages.message(said.id)
    assert now.text in ("One.", "Two.")
    await room.at_once(
        lambda one: agent.edit_message(said.id, "user", [Text("Three.")]), lambda one: agent.forget(now.text)
    )


@case("Requests.send_request", "Sending.send", "Sending.submit", "History.import_messages")
async def messages_sent(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        lambda one: agent.send_request(RunRequest(agent_id=agent.id, messages=HELLO)),
        lambda one: agent.import_messages([{"role": "user", "content": "Once."}]),
    )
    assert room.refused <= 1


@case("Runs.cancel", "Runs.hide_run", "Runs.cancel_all", "Jobs.cancel", "Jobs.delete", "Steps.put_feedback")
async def runs_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    reply = await agent.send("Hello.")
    run_id = RunId(reply.run_id)
    _, (step, *_), _ = await room.first.runs.steps_of_run(run_id, ALL)
    yield (
        lambda one: one.steps.put_feedback(step.id, "positive", tags=["t"]),
        lambda one: one.steps.put_feedback(step.id, "positive"),
    )
    now = (await room.first.steps.step(step.id)).step
    assert (now.feedback, list(now.tags)) == ("positive", ["t"])
    await room.at_once(lambda one: one.runs.cancel(run_id), lambda one: one.jobs.cancel(run_id))
    await room.at_once(lambda one: one.runs.hide_run(run_id), lambda one: one.jobs.delete(run_id))
    await room.at_once(lambda one: one.agent_of(agent.id).cancel_all(), lambda one: one.agent_of(agent.id).cancel_all())


@case("Schedules.pause", "Schedules.resume")
async def pauses_of_a_schedule(room: Room) -> Changes:
    agent = await room.agent()
    made = await agent.schedules.create("x", every=86_400)
    yield (lambda one: one.schedules.pause(made.id), lambda one: one.schedules.pause(made.id))
    assert (await agent.schedules.get(made.id)).status == "paused"
    await room.at_once(lambda one: one.schedules.resume(made.id), lambda one: one.schedules.resume(made.id))
    assert (await agent.schedules.get(made.id)).next_at is not None
    await room.at_once(lambda one: one.schedules.pause(made.id), lambda one: one.schedules.cancel(made.id))
    assert (await agent.schedules.get(made.id)).status == "cancelled"


@case("Schedules.create", "Schedules.add", "Schedules.cancel", "Schedules.delete", "Events.notify")
async def schedules_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    new = NewSchedule(messages=(), every_s=86_400)
    yield (
        lambda one: one.agent_of(agent.id).schedules.add(HELLO, new),
        lambda one: one.agent_of(agent.id).schedules.add(HELLO, new),
    )
    first, second = room.results
    assert {first.seq, second.seq} == {1, 2}
    await room.at_once(lambda one: one.schedules.cancel(first.id), lambda one: one.schedules.delete(first.id))
    await room.at_once(lambda one: one.schedules.delete(second.id), lambda one: one.schedules.delete(second.id))
    assert room.refused == 1
    await room.at_once(
        lambda one: one.agent_of(agent.id).notify("mail", {}), lambda one: one.agent_of(agent.id).notify("mail", {})
    )


@case("Skills.write", "Skills.archive", "Skills.restore", "Skills.protect", "Skills.enable")
async def skills_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        lambda one: one.agent_of(agent.id).skills.write("bake", "Flour."),
        lambda one: one.agent_of(agent.id).skills.write("bake", "Flour and water."),
    )
    assert sorted(one.version or 0 for one in room.results) == [1, 2]
    await room.at_once(
        lambda one: one.agent_of(agent.id).skills.archive("bake"),
        lambda one: one.agent_of(agent.id).skills.restore("bake"),
    )
    await room.at_once(
        lambda one: one.agent_of(agent.id).skills.protect("bake"), lambda one: one.agent_of(agent.id).skills.enable()
    )
    await room.at_once(
        lambda one: one.agent_of(agent.id).skills.enable(), lambda one: one.agent_of(agent.id).skills.enable()
    )
    assert len([one for one in await room.first.agent_of(agent.id).skills.list(archived=None) if one.version]) == 1


@case("Companion.enable", "Companion.update", "Companion.disable", "Companion.wake", "Companion.begin")
async def companions_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        (lambda one: one.agent_of(agent.id).companion.enable()),
        (lambda one: one.agent_of(agent.id).companion.enable()),
    )
    assert len([one for one in await room.first.companions.list() if one.agent_id == agent.id]) == 1
    await room.at_once(
        lambda one: one.agent_of(agent.id).companion.update(frequency=3), lambda one: agent.edit({"description": "d"})
    )
    await room.at_once(
        lambda one: one.agent_of(agent.id).companion.begin(), lambda one: one.agent_of(agent.id).companion.begin()
    )
    await room.at_once(
        lambda one: one.agent_of(agent.id).companion.disable(), lambda one: one.agent_of(agent.id).companion.disable()
    )


@case(
    "Groups.create",
    "Groups.add",
    "GroupById.update",
    "GroupById.attach_block",
    "GroupById.detach_block",
    "Groups.delete",
    "GroupById.delete",
    "GroupById.reset",
    "GroupById.send",
    "GroupById.submit",
    "GroupById.send_messages",
    "GroupById.cancel",
)
async def groups_of_agents(room: Room) -> Changes:
    agents = [await room.agent() for _ in range(2)]
    new = NewGroup(agent_ids=[one.id for one in agents], description="g")
    yield (lambda one: one.groups.add(new)), (lambda one: one.groups.add(new))
    made = room.results[0]
    await room.at_once(
        lambda one: one.groups.by_id(made.id).update(description="d"),
        lambda one: one.groups.by_id(made.id).update(max_turns=3),
    )
    now = await room.first.groups.get(made.id)
    assert (now.info.description, now.info.max_turns) == ("d", 3)
    blocks = [(await room.first.blocks.create(f"b{number}", "a")).id for number in range(3)]
    await room.at_once(
        lambda one: one.groups.by_id(made.id).attach_block(blocks[0]),
        lambda one: one.groups.by_id(made.id).attach_block(blocks[1]),
    )
    await room.at_once(
        lambda one: one.groups.by_id(made.id).detach_block(blocks[0]),
        lambda one: one.groups.by_id(made.id).attach_block(blocks[2]),
    )
    assert {*(await room.first.groups.get(made.id)).info.shared_block_ids} == {*blocks[1:]}
    await room.at_once(
        lambda one: one.groups.by_id(made.id).send_messages(HELLO), lambda one: one.groups.by_id(made.id).cancel()
    )
    await room.at_once(lambda one: one.groups.by_id(made.id).reset(), lambda one: one.groups.by_id(made.id).reset())
    await room.at_once(lambda one: one.groups.by_id(made.id).delete(), lambda one: one.groups.by_id(made.id).delete())
    assert room.refused <= 1


@case("Facts.add", "Facts.add_fact", "Facts.attach_graph", "Facts.create_graph")
async def first_facts_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    yield (
        lambda one: agent.facts.add_fact("Ada lives in Oslo", subject="Ada", object_="Oslo"),
        lambda one: agent.facts.add_fact("Ada likes tea", subject="Ada", object_="tea"),
    )
    assert (await agent.facts.counts()).facts == 2
    assert room.results[0].subject.id == room.results[1].subject.id
    graphs = [await room.first.facts.create_graph("g") for _ in range(2)]
    await room.at_once(
        lambda one: agent.facts.attach_graph(graphs[0].id), lambda one: agent.facts.attach_graph(graphs[1].id)
    )


@case("Facts.update", "Facts.edit", "Facts.accept")
async def fact_fields(room: Room) -> Changes:
    agent = await room.agent()
    made = (await agent.facts.add_fact("Ada lives in Oslo")).fact
    yield (
        lambda one: one.facts.edit(made.id, {"rating": 0.5}),
        lambda one: one.facts.edit(made.id, {"text": "Ada lives in Rome"}),
    )
    now = (await room.first.facts.get(made.id)).fact
    assert (now.rating, now.text) == (0.5, "Ada lives in Rome")


@case("Entities.change_entity", "Entities.merge_entities", "Entities.split_entity")
async def entities_of_a_graph(room: Room) -> Changes:
    """Of two merges one of which would be a circle, one counts."""
    agent = await room.agent()
    ada = (await agent.facts.add_fact("Ada lives in Oslo", subject="Ada")).subject
    countess = (await agent.facts.add_fact("The Countess writes", subject="The Countess")).subject
    yield (
        lambda one: one.facts.change_entity(ada.id, type="person"),
        lambda one: one.facts.change_entity(ada.id, aliases=["A. L."]),
    )
    now = await agent.facts.get_entity(ada.id)
    assert (now.type, now.aliases) == ("person", ("A. L.",))
    await room.at_once(
        lambda one: one.facts.merge_entities(countess.id, ada.id),
        lambda one: one.facts.merge_entities(ada.id, countess.id),
    )
    merged = [one for one in (ada, countess) if (await agent.facts.get_entity(one.id)).merged_into is not None]
    assert len(merged) == 1
    await room.at_once(
        lambda one: one.facts.split_entity(merged[0].id), lambda one: one.facts.split_entity(merged[0].id)
    )
    assert (await agent.facts.get_entity(merged[0].id)).merged_into is None


@case("Facts.delete", "Facts.forget", "Facts.restore", "Episodes.delete_episodes")
async def fact_deleted_twice(room: Room) -> Changes:
    agent = await room.agent()
    scope = {"user_id": "u"}
    made = (await agent.facts.add_fact("Ada lives in Oslo", scope=scope)).fact
    yield (lambda one: one.facts.forget([made.id])), (lambda one: one.facts.forget([made.id]))
    assert sorted(len(one) for one in room.results) == [0, 1]
    assert len((await room.first.facts.history(made.id)).versions) == 2
    await room.at_once(lambda one: one.facts.restore(made.id), lambda one: one.facts.restore(made.id))
    assert len((await room.first.facts.history(made.id)).versions) == 3
    await room.at_once(
        lambda one: one.facts.of(made.graph_id).delete_episodes(scope),
        lambda one: one.facts.of(made.graph_id).delete_episodes(scope),
    )


@case(
    "Facts.update_settings",
    "Facts.change_settings",
    "Facts.pause",
    "Facts.resume",
    "Facts.add_rule",
    "Facts.delete_rule",
)
async def settings_of_a_graph(room: Room) -> Changes:
    agent = await room.agent()
    await agent.facts.add_fact("Ada lives in Oslo")
    yield (
        lambda one: agent.facts.change_settings({"paused": True}),
        lambda one: agent.facts.change_settings({"prompt": "Only of tea."}),
    )
    graph = await agent.facts.find_graph()
    assert graph is not None and {"paused", "prompt"} <= graph.settings.keys()
    await room.at_once(lambda one: agent.facts.add_rule(text="health"), lambda one: agent.facts.add_rule(text="money"))
    first, second = room.results
    assert first.seq != second.seq
    await room.at_once(lambda one: agent.facts.delete_rule(first.seq), lambda one: agent.facts.delete_rule(first.seq))
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [NotFound]


@case("Facts.open_graph", "Episodes.add_episodes", "Facts.ingest")
async def graph_of_one_name(room: Room) -> Changes:
    name = room.name("graph")
    yield (lambda one: one.facts.open_graph(name)), (lambda one: one.facts.open_graph(name))
    graph, other = room.results
    assert graph.id == other.id
    await room.at_once(
        lambda one: one.facts.of(graph.id).add_episodes([NewEpisode(text="Ada lives in Oslo.", extract=False)]),
        lambda one: one.facts.of(graph.id).add_episodes([NewEpisode(text="Ada likes tea.", extract=False)]),
    )
    assert len(await room.first.facts.of(graph.id).episodes({})) == 2


@case("FactViews.tidy", "FactViews.restore_last")
async def memories_tidied_twice(room: Room) -> Changes:
    agent = await room.agent()
    await agent.facts.add_fact("Ada lives in Oslo")
    yield (lambda one: agent.facts.tidy()), (lambda one: agent.facts.tidy())
    await room.at_once(lambda one: agent.facts.restore_last(), lambda one: agent.facts.restore_last())


@case("Jobs.send_batch", "Jobs.cancel_batch")
async def batches_of_one_key(room: Room) -> Changes:
    agent = await room.agent()
    parts: list[RunRequest] = [RunRequest(agent_id=agent.id, messages=HELLO)]
    yield (
        lambda one: one.jobs.send_batch(parts, idempotency_key="one"),
        lambda one: one.jobs.send_batch(parts, idempotency_key="one"),
    )
    assert room.results[0].id == room.results[1].id
    await room.at_once(
        lambda one: one.jobs.cancel_batch(room.results[0].id), lambda one: one.jobs.cancel_batch(room.results[0].id)
    )


@case("Sources.revert")
async def source_reverted_twice(room: Room) -> Changes:
    agent = await room.agent()
    reply = await agent.send("Hello.")
    yield (
        (lambda one: one.agent_of(agent.id).sources.revert(reply.run_id)),
        (lambda one: one.agent_of(agent.id).sources.revert(reply.run_id)),
    )


@case("GroupById.edit_message")
async def message_of_a_group_edited_twice(room: Room) -> Changes:
    agents = [await room.agent() for _ in range(2)]
    made = await room.first.groups.add(NewGroup(agent_ids=[one.id for one in agents]))
    turn = await room.first.groups.by_id(made.id).send_messages(HELLO)
    await room.first.groups.by_id(turn.group_id).reply(turn)
    said = (await room.first.groups.by_id(made.id).messages(limit=9, after_seq=None, newest_first=False))[0]
    of = said.message_id
    assert of is not None
    yield (
        lambda one: one.groups.by_id(made.id).edit_message(of, "user", [Text("One.")]),
        lambda one: one.groups.by_id(made.id).edit_message(of, "user", [Text("Two.")]),
    )


@case("Transfer.restore_agent")
async def copy_restored_while_the_agent_gets_a_passage(room: Room) -> Changes:
    one_agent, other = await room.agent(), await room.agent()
    await room.first.agent_of(one_agent.id).archive_passage(NewPassage(text="one"))
    copied = await room.first.transfer.copy_agent(one_agent.id, {0: []})
    yield (
        lambda one: one.transfer.restore_agent(other.id, copied),
        lambda one: one.agent_of(other.id).archive_passage(NewPassage(text="two")),
    )
    assert room.both
    archives = await room.first.agent_of(other.id).archives.list()
    assert sum(one.info.passage_count for one in archives) == 2


@case("History.import_waiting")
async def calls_that_wait_imported_twice(room: Room) -> Changes:
    agent = await room.agent()
    line = await agent.find_conversation()
    parts = (ToolCall("call-1", "pay", "{}", "approval"),)
    rows = [ImportedMessage(role="assistant", text="", parts=parts, occurred_at=line.created_at, id="1")]
    yield (lambda one: one.messages.import_waiting(line, rows), lambda one: one.messages.import_waiting(line, rows))
    assert room.refused == 1
    assert len(await agent.pending()) == 1


@case("Snapshots.make", "Snapshots.restore", "Snapshots.delete")
async def snapshots_of_an_agent(room: Room) -> Changes:
    agent = await room.agent()
    made = await room.first.agent_of(agent.id).blocks.add(NewBlock(label="notes", value="a"))
    yield (
        lambda one: one.agent_of(agent.id).snapshots.make(note="x"),
        lambda one: one.agent_of(agent.id).snapshots.make(note="y"),
    )
    kept = await agent.snapshots.list()
    assert sorted(one.note for one in kept) == ["x", "y"]
    await room.first.agent_of(agent.id).blocks.update("notes", "b")
    await room.at_once(
        lambda one: one.agent_of(agent.id).snapshots.restore(kept[0].number),
        lambda one: one.agent_of(agent.id).snapshots.restore(kept[1].number),
    )
    assert (await room.first.blocks.get(made.id)).value == "a"
    await room.at_once(
        lambda one: one.agent_of(agent.id).snapshots.delete(kept[0].number),
        lambda one: one.agent_of(agent.id).snapshots.delete(kept[0].number),
    )
    assert room.refused == 1


@case("Snapshots.clone", "SnapshotFiles.load_snapshot")
async def clones_of_one_name(room: Room) -> Changes:
    agent, name = await room.agent(), room.name("clone")
    yield (
        lambda one: one.agent_of(agent.id).snapshots.clone(name),
        lambda one: one.agent_of(agent.id).snapshots.clone(name),
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]
    document = await agent.snapshots.document((await agent.snapshots.make()).number)
    name = room.name("loaded")
    await room.at_once(
        lambda one: one.load_snapshot(document, name=name), lambda one: one.load_snapshot(document, name=name)
    )
    assert [type(one) for one in room.results if isinstance(one, Exception)] == [AlreadyExists]
