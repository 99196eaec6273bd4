"""Agents: their order, their settings revision, and that deleting one takes everything with it."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.agents import DEFAULT_AGENT_TYPE, Agent, AgentFilter, AgentOrder
from perdure.core.errors import AlreadyExists, NotFound, PerdureError
from perdure.core.events import RunQueued
from perdure.core.ids import AgentId, ArchiveId, BlockId, ConversationId, MessageId, OrgId, PassageId, RunId, StepId
from perdure.core.runs import Prefix, Recipe, Usage
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, Contract, claimed, list_texts, match_messages, raises


class AgentContract(Contract):
    async def test_agents_are_numbered_and_listed_newest_first(self) -> None:
        """A later agent has a higher number; pages follow each other without gap or overlap."""
        async with self.open_store() as store:
            made = [await store.write(self.add_agent, f"agent {index}") for index in range(5)]

            def pages(tx: Tx) -> list[list[str]]:
                pages: list[list[str]] = []
                after: AgentId | None = None
                while page := tx.agents.list(limit=2, after=after):
                    pages.append([agent.name for agent in page])
                    after = page[-1].id
                return pages

            numbers = [agent.number for agent in made]
            assert numbers == sorted(set(numbers))
            assert await store.read(pages) == [["agent 4", "agent 3"], ["agent 2", "agent 1"], ["agent 0"]]

    async def test_an_agent_comes_back_as_it_was_put(self) -> None:
        """Every field survives, whatever characters it holds."""
        async with self.open_store() as store:
            org_id = await store.read(lambda tx: tx.org_id)

            def add(tx: Tx, agent: Agent) -> Agent:
                return tx.agents.add(agent)

            def find(tx: Tx, agent: Agent) -> tuple[Agent, Agent | None]:
                return tx.agents.get(agent.id), tx.agents.find_by_name(agent.name)

            for text in AWKWARD:
                agent = Agent(
                    id=AgentId(self.ids.new("agent")),
                    org_id=org_id,
                    name=text,
                    agent_type="letta_v1_agent",
                    model=text,
                    system=text,
                    description=text,
                    timezone="Europe/Rome",
                    tags=("a", text),
                    metadata={"key": [text, 1, None]},
                    settings={text: {"deep": text}},
                    settings_revision=7,
                    hidden=True,
                    created_at=AT,
                    updated_at=AT + timedelta(microseconds=1),
                    created_by=text,
                    updated_by=text,
                )
                added = await store.write(add, agent)

                assert replace(added, number=0) == agent
                assert await store.read(find, agent) == (added, added)

    async def test_the_newest_of_a_name_is_found(self) -> None:
        """Names may repeat; the newest one is meant. An unknown name finds nothing."""
        async with self.open_store() as store:
            await store.write(self.add_agent, "twin")
            newest = await store.write(self.add_agent, "twin")

            assert await store.read(lambda tx: tx.agents.find_by_name("twin")) == newest
            assert await store.read(lambda tx: tx.agents.find_by_name("nobody")) is None

    async def test_the_last_used_agent_is_the_one_with_the_newest_run(self) -> None:
        """Without any run it is the newest agent; without agents there is none. Hidden ones don't count."""
        async with self.open_store() as store:
            assert await store.read(lambda tx: tx.agents.find_latest()) is None

            older, newer = await store.write(self.add_agent, "older"), await store.write(self.add_agent, "newer")
            assert await store.read(lambda tx: tx.agents.find_latest()) == newer

            await store.write(lambda tx: self.add_run(tx, older.id, at=AT + timedelta(seconds=1)))
            assert await store.read(lambda tx: tx.agents.find_latest()) == older

            await store.write(lambda tx: self.add_run(tx, newer.id, at=AT + timedelta(seconds=2)))
            assert await store.read(lambda tx: tx.agents.find_latest()) == newer

            await store.write(lambda tx: tx.agents.put(replace(newer, hidden=True)))
            assert await store.read(lambda tx: tx.agents.find_latest()) == older

    async def test_putting_an_agent_raises_its_settings_revision(self) -> None:
        """Every change makes a new revision, also one made from an outdated copy: two settings never share one."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first = await store.write(lambda tx: tx.agents.put(replace(agent, system="Be kind.")))
            second = await store.write(lambda tx: tx.agents.put(replace(agent, system="Be brief.")))

            assert (first.settings_revision, second.settings_revision) == (1, 2)
            assert await store.read(lambda tx: tx.agents.get(agent.id)) == replace(
                agent, system="Be brief.", settings_revision=2
            )

    async def test_a_change_that_shapes_no_request_leaves_the_revision_alone(self) -> None:
        """A prefix need not be written anew because of a name or a tag."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            renamed = await store.write(lambda tx: tx.agents.put(replace(agent, name="other", tags=("x",))))

            assert (renamed.name, renamed.settings_revision) == ("other", agent.settings_revision)

    async def test_tags_are_listed_once(self) -> None:
        """Those of agents, and those of blocks."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            await store.write(lambda tx: tx.agents.put(replace(ada, tags=("red", *AWKWARD))))
            await store.write(lambda tx: tx.agents.put(replace(bob, tags=("red", "blue"))))

            assert await store.read(lambda tx: tx.agents.list_tags()) == sorted({"red", "blue", *AWKWARD})
            block = await store.write(lambda tx: self.add_block(tx, tags=("x", "y")))
            assert await store.read(lambda tx: tx.blocks.list_tags()) == ["x", "y"]
            await store.write(lambda tx: tx.blocks.delete(block.id))
            assert await store.read(lambda tx: tx.blocks.list_tags()) == []

    async def test_pages_of_agents_go_both_ways(self) -> None:
        """In every order, forwards by `after` and backwards by `before`, each agent is met once."""
        async with self.open_store() as store:
            made = [await store.write(self.add_agent, f"agent {index}") for index in range(5)]
            await store.write(lambda tx: tx.agents.put(replace(made[1], updated_at=AT + timedelta(seconds=9))))
            await store.write(lambda tx: self.add_run(tx, made[3].id))

            def walk(tx: Tx, order: AgentOrder, ascending: bool) -> list[list[int]]:
                numbers = {agent.id: index for index, agent in enumerate(made)}
                page = functools.partial(tx.agents.page, where=AgentFilter(), order=order, ascending=ascending, limit=2)
                forwards, found = [], page()
                while found:
                    forwards += [numbers[agent.id] for agent in found]
                    found = page(after=found[-1].id)
                last = made[forwards[-1]].id
                backwards, found = [forwards[-1]], page(before=last)
                while found:
                    backwards = [numbers[agent.id] for agent in found] + backwards
                    found = page(before=found[0].id)
                between = page(after=made[forwards[0]].id, before=last)
                assert [numbers[agent.id] for agent in between] == forwards[1:3]
                return [forwards, backwards]

            orders: dict[AgentOrder, list[int]] = {
                "created": [0, 1, 2, 3, 4],
                "updated": [0, 2, 3, 4, 1],
                "used": [0, 1, 2, 4, 3],
            }
            for order, expected in orders.items():
                assert await store.read(walk, order, True) == [expected] * 2
                assert await store.read(walk, order, False) == [expected[::-1]] * 2
            nobody = AgentId(self.ids.new("agent"))
            with raises(NotFound):
                await store.read(lambda tx: tx.agents.page(where=AgentFilter(), after=nobody))
            with raises(NotFound):
                await store.read(lambda tx: tx.agents.page(where=AgentFilter(), before=nobody))

    async def test_agents_are_filtered(self) -> None:
        """All conditions hold; texts are looked for as they are, whatever they mean to a database."""
        async with self.open_store() as store:
            block = await store.write(self.add_block)
            ada = await store.write(self.add_agent, "Ada")
            odd = await store.write(self.add_agent, "50%_! of \\ Ünal")
            await store.write(lambda tx: tx.agents.put(replace(ada, tags=("a", "b"), hidden=True)))
            await store.write(lambda tx: tx.agents.put(replace(odd, tags=("b", 'say "a"', "x\\", *AWKWARD))))
            await store.write(lambda tx: tx.blocks.attach(ada.id, block.id))
            run = await store.write(self.add_run, ada.id)
            await store.write(
                lambda tx: tx.runs.end(run, reason="end_turn", usage=Usage(), step_count=0, failure=None, at=AT)
            )

            async def find(**conditions: Any) -> list[str]:
                where = AgentFilter(**conditions)
                agents = await store.read(lambda tx: tx.agents.page(where=where, ascending=True))
                assert await store.read(lambda tx: tx.agents.count(where)) == len(agents)
                return [{ada.id: "ada", odd.id: "odd"}[agent.id] for agent in agents]

            assert await find() == ["ada", "odd"]
            assert await find(name="Ada") == ["ada"]
            assert await find(name="ada") == []
            assert await find(text="aDA") == ["ada"]
            for text in ("50%_! of", "%_", "!", "\\ Ünal", "OF"):
                assert await find(text=text) == ["odd"]
            assert await find(text="_") == ["odd"]
            assert await find(tags=("a",)) == ["ada"]
            assert await find(tags=("A",)) == []
            assert await find(tags=("a", "b")) == ["ada", "odd"]
            assert await find(tags=("a", "b"), all_tags=True) == ["ada"]
            for tag in ('say "a"', "x\\", *AWKWARD):
                assert await find(tags=(tag,)) == ["odd"]
            assert await find(tags=("x",)) == []
            assert await find(block_id=block.id) == ["ada"]
            assert await find(created_by="somebody") == []
            assert await find(stop_reason="end_turn") == ["ada"]
            assert await find(stop_reason="cancelled") == []
            assert await find(hidden=False) == ["odd"]
            assert await find(hidden=True, tags=("b",), text="ad") == ["ada"]

    async def test_what_an_agent_shows_its_model(self) -> None:
        """The ids of its default conversation's messages since the prefix, the newest ones, oldest first."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[AgentId, list[MessageId]]:
                agent = self.add_agent(tx)
                first = self.say(tx, agent.id, "one", "two")
                self.say(tx, agent.id, self.draft("{}", role="system", kind="memory_delta"))
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                self.say(tx, agent.id, "elsewhere", conversation_seq=1)
                rest = self.say(tx, agent.id, "three", "four", "five")
                tx.messages.revise(rest[1].id, None, author=ADA, at=AT)
                return agent.id, [message.id for message in (*first, rest[0], rest[2])]

            agent_id, ids = await store.write(fill)
            line = (agent_id, 0)
            assert await store.read(lambda tx: tx.conversations.list_view_ids([line])[line]) == ids
            assert await store.read(lambda tx: tx.conversations.list_view_ids([line], limit=2)[line]) == ids[2:]

            def rewrite(tx: Tx) -> None:
                prefix = Prefix(
                    agent_id=agent_id,
                    seq=0,
                    conversation_seq=0,
                    reason="first",
                    system="s",
                    tools=(),
                    from_message_seq=1,
                    created_at=AT,
                )
                tx.conversations.put_seen_versions(agent_id, 0, {}, prefix=tx.prefixes.add(prefix))

            await store.write(rewrite)
            assert await store.read(lambda tx: tx.conversations.list_view_ids([line])[line]) == ids[1:]

    async def test_unknown_agents_are_not_found(self) -> None:
        """Getting, changing and deleting what is not there says so."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            ghost = replace(agent, id=AgentId(self.ids.new("agent")))
            with raises(NotFound):
                await store.read(lambda tx: tx.agents.get(ghost.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.agents.put(ghost))
            with raises(NotFound):
                await store.write(lambda tx: tx.agents.delete(ghost.id))

            assert await store.read(lambda tx: tx.agents.list()) == [agent]

    async def test_an_id_is_given_once(self) -> None:
        """Adding an agent under a taken id is refused and changes nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            with raises(AlreadyExists):
                await store.write(lambda tx: tx.agents.add(replace(agent, name="impostor")))

            assert await store.read(lambda tx: tx.agents.list()) == [agent]

    async def test_an_id_leads_to_its_row_without_naming_the_agent(self) -> None:
        """Conversations, messages, runs, steps and passages are found by their ids alone."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[Any, ...]:
                agent = self.add_agent(tx)
                (message,) = self.say(tx, agent.id, "hello")
                conversation = tx.conversations.get_by_seq(agent.id, 0)
                run = self.add_run(tx, agent.id)
                step = tx.steps.add(
                    run,
                    StepId(self.ids.new("step")),
                    index=0,
                    model="m",
                    recipe=Recipe(prefix_seq=0, upto_message_seq=0, tail="", settings_revision=0),
                    at=AT,
                )
                passage = self.add_passage(tx, self.add_archive(tx).id, "a note")
                return conversation, message, run, step, passage

            conversation, message, run, step, passage = filled = await store.write(fill)

            def look_up(tx: Tx) -> tuple[Any, ...]:
                return (
                    tx.conversations.get(conversation.id),
                    tx.messages.get(message.id),
                    tx.runs.get(run.id),
                    tx.steps.get(step.id),
                    tx.passages.get(passage.id),
                )

            assert await store.read(look_up) == filled

    async def test_nonsense_is_no_id(self) -> None:
        """Whatever text is looked up as an id, the answer is that there is no such thing."""
        async with self.open_store() as store:
            for text in (*AWKWARD, "agent-1", "' OR 1=1 --", "%s", ":id"):
                for look_up in (
                    lambda tx, text: tx.agents.get(AgentId(text)),
                    lambda tx, text: tx.blocks.get(BlockId(text)),
                    lambda tx, text: tx.archives.get(ArchiveId(text)),
                    lambda tx, text: tx.passages.get(PassageId(text)),
                    lambda tx, text: tx.conversations.get(ConversationId(text)),
                    lambda tx, text: tx.messages.get(MessageId(text)),
                    lambda tx, text: tx.runs.get(RunId(text)),
                    lambda tx, text: tx.steps.get(StepId(text)),
                ):
                    with raises(NotFound):
                        await store.read(look_up, text)

    async def test_deleting_an_agent_removes_all_that_was_its_own(self) -> None:
        """Messages, conversations, runs, steps, events, prefixes and what search knew are gone; shared blocks stay."""
        async with self.open_store() as store:

            def fill(tx: Tx, name: str, block_id: BlockId) -> tuple[AgentId, list[str]]:
                agent = self.add_agent(tx, name)
                tx.blocks.attach(agent.id, block_id)
                run = self.add_run(tx, agent.id)
                tx.runs.remember_key(run.key, 0, "key", digest="digest")
                run = claimed(tx, run.key)
                messages = self.say(tx, agent.id, "the walrus sings", "and leaves", run=run)
                tx.messages.revise(messages[1].id, None, author=ADA, at=AT)
                tx.events.add(run.key, [RunQueued(run.id)], at=AT)
                prefix = tx.prefixes.add(
                    Prefix(
                        agent_id=agent.id,
                        seq=0,
                        conversation_seq=0,
                        reason="first",
                        system="s",
                        tools=(),
                        created_at=AT,
                    )
                )
                step = tx.steps.add(
                    run,
                    StepId(self.ids.new("step")),
                    index=0,
                    model="m",
                    recipe=Recipe(prefix_seq=prefix.seq, upto_message_seq=0, tail="", settings_revision=0),
                    at=AT,
                )
                tx.runs.start_calls(run, ["call"], at=AT)
                return agent.id, [messages[0].id, run.id, step.id, tx.conversations.get_by_seq(agent.id, 0).id]

            block = await store.write(self.add_block)
            gone, ids = await store.write(fill, "gone", block.id)
            kept, _ = await store.write(fill, "kept", block.id)
            await store.write(lambda tx: tx.agents.delete(gone))

            def what_is_left(tx: Tx) -> list[object]:
                left: list[object] = []
                look_ups = (
                    lambda: tx.messages.get(MessageId(ids[0])),
                    lambda: tx.runs.get(RunId(ids[1])),
                    lambda: tx.steps.get(StepId(ids[2])),
                    lambda: tx.conversations.get(ConversationId(ids[3])),
                    lambda: tx.agents.get(gone),
                    lambda: tx.prefixes.get(gone, 0),
                    lambda: tx.conversations.get_by_seq(gone, 0),
                )
                for look_up in look_ups:
                    try:
                        left.append(look_up())
                    except PerdureError:
                        continue
                left += tx.messages.list(gone, kinds=None)
                left += tx.runs.list(gone)
                left += tx.blocks.list_by_agent(gone)
                left += match_messages(tx, gone, "walrus")
                return left

            assert await store.read(what_is_left) == []
            assert await store.read(list_texts, kept) == ["the walrus sings"]
            assert await store.read(match_messages, kept, "walrus") == [0]
            assert await store.read(lambda tx: tx.blocks.list_by_agent(kept)) == [block]
            assert await store.read(lambda tx: tx.agents.find_latest()) is not None

    async def test_a_model_and_tool_rules_are_read_by_themselves(self) -> None:
        """The settings come with rules only; nobody else's agent has either."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            settings = {"tool_rules": [{"type": "run_first", "tool_name": AWKWARD[1]}], "timezone": "UTC"}
            plain = await store.write(self.add_agent, "plain")
            ruled = await store.write(self.add_agent, "ruled")
            await store.write(lambda tx: tx.agents.put(replace(ruled, model="other/model", settings=settings)))

            assert await store.read(lambda tx: tx.agents.model(plain.id)) == plain.model
            assert await store.read(lambda tx: tx.agents.model(ruled.id)) == "other/model"
            assert await store.read(lambda tx: tx.agents.loop_settings(plain.id)) == (DEFAULT_AGENT_TYPE, {})
            assert await store.read(lambda tx: tx.agents.loop_settings(ruled.id)) == (DEFAULT_AGENT_TYPE, settings)
            assert await other.read(lambda tx: tx.agents.loop_settings(ruled.id)) == (DEFAULT_AGENT_TYPE, {})
            with raises(NotFound):
                await other.read(lambda tx: tx.agents.model(ruled.id))
