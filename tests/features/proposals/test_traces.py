"""A protected block never changes without a person: random traces of everything by which something else can write.

A hundred traces in `make test-all`, ten thousand with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from perdure import AsyncAgent, AsyncPerdure, ModelReply, PerdureError, Settings
from perdure.core.blocks import Author, Block
from perdure.core.errors import BlockProtected
from perdure.core.ids import AgentId, MessageId, RunId
from perdure.core.runs import Run, RunKey
from perdure.core.specs import BlockChange
from perdure.core.tools.arguments import fit_arguments
from perdure.domain.blocks.units import change_blocks, isolate_blocks
from perdure.domain.tools.calls import MemoryCall
from perdure.domain.tools.memory_tools import MEMORY_TOOLS
from perdure.features.agent_files.exporting import export_text
from perdure.features.agent_files.importing import Import, ImportOptions
from perdure.features.agent_files.reading import read_agent_file
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel, calls, says

FULL = os.environ.get("PERDURE_FAULTS") == "full"
WORLDS = 100 if FULL else 1
WORLD_TRACES = 100
"""The traces in one store."""
STEPS_MAX = 5

VALUE = "Be kind.\nAsk before you pay.\nBe brief."
LABELS = ("policy", "Policy", " policy", "/memories/policy", "notes", "notes", "other", "human")
TEXTS = ("x", "", "Be kind.", "Ask before you pay.", VALUE, f"{VALUE}\nPay at once.", "1→Be kind.", "policy", "e")
PATCHES = ("@@ -1 +1 @@\n-Be kind.\n+Be cruel.", "-Be brief.", "nonsense")
NUMBERS = (-1, 0, 1, 2, 99)
COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")
HOOKED = frozenset({"send_message", "context_expand", "context_grep"})
"""Memory tools that read or speak only."""
FIELDS: Sequence[tuple[str, Sequence[Any]]] = (
    ("value", TEXTS),
    ("metadata", ({}, {"protected": False}, {"protected": True})),
    ("label", ("policy", "other", "notes")),
    ("limit_chars", (1, 50_000)),
    ("description", (None, "x")),
    ("read_only", (True, False)),
    ("tags", (["x"], [])),
)


@dataclass
class World:
    """A store with an agent whose block `policy` is protected, its companion, and another agent that shares it.

    Args:
        seqs: the agent's conversations: its first, and one with blocks of its own.
        script: what its model answers next.
    """

    store: AsyncPerdure
    random: random.Random
    agent: AsyncAgent
    writers: Sequence[AgentId]
    seqs: Sequence[int]
    script: list[ModelReply]

    def pick(self, values: Sequence[Any]) -> Any:
        return self.random.choice(values)

    @property
    def machine(self) -> Author:
        """An author that is no person."""
        agent_id = self.pick(self.writers)
        agent = Author(kind="agent", id=agent_id, agent_id=agent_id)
        return agent if self.random.random() < 0.5 else Author(kind="system", id="perdure")

    async def protected(self) -> Mapping[tuple[AgentId, int], Block]:
        """The block `policy` of each writer in each of its conversations, as a model would be shown it."""

        def load(tx: Tx) -> Mapping[tuple[AgentId, int], Block]:
            places = [*((self.agent.id, seq) for seq in self.seqs), *((one, 0) for one in self.writers[1:])]
            found = {place: tx.blocks.find(place[0], "policy", place[1]) for place in places}
            return {place: block for place, block in found.items() if block is not None}

        return await self.store.app.ports.store.read(load)


async def call_tool(world: World) -> None:
    """A memory tool of the agent, its companion, or the agent that shares the block."""
    name = world.pick([one for one in MEMORY_TOOLS if one not in HOOKED])
    agent_id = world.pick(world.writers)
    seq = world.pick(world.seqs) if agent_id == world.agent.id else 0
    ports = world.store.app.ports
    tool = (await world.store.tools.state(name)).tool
    arguments = {key: some_argument(world, key, shape) for key, shape in tool.spec.parameters["properties"].items()}
    required = tool.spec.parameters.get("required", ())
    given = {key: value for key, value in arguments.items() if key in required or world.random.random() < 0.7}

    def write(tx: Tx) -> None:
        run = Run(
            id=RunId(ports.ids.new("run")),
            key=RunKey(agent_id, 0),
            conversation_seq=seq,
            conversation_id=tx.conversations.get_by_seq(agent_id, seq).id,
            status="running",
            created_at=ports.clock.now(),
        )
        call = MemoryCall(
            agent=tx.agents.get(agent_id),
            run=run,
            message_id=MessageId(ports.ids.new("message")),
            now=ports.clock.now(),
            ids=ports.ids,
        )
        MEMORY_TOOLS[name](tx, call, **fit_arguments(name, tool.spec.parameters, given))

    await ports.store.write(write)


def some_argument(world: World, name: str, shape: Mapping[str, Any]) -> Any:
    """A value for an argument of a tool, mostly one that fits."""
    if name in ("label", "target_block_label"):
        return world.pick(LABELS)
    if name.endswith("path"):
        return world.pick((*LABELS, "/memories/notes", "/memories/new", None))
    if name == "command":
        return world.pick(COMMANDS)
    if name == "patch":
        return world.pick(PATCHES)
    kind = shape.get("type")
    return world.pick(NUMBERS if kind in ("integer", "number") else [[]] if kind == "array" else TEXTS)


async def change_by_own_tool(world: World) -> None:
    """What a custom tool changed in the state that it was given."""
    agent_id = world.pick(world.writers)
    ports = world.store.app.ports
    author = Author(kind="agent", id=agent_id, agent_id=agent_id)

    def write(tx: Tx) -> None:
        changes = [
            BlockChange(label=block.label, version=block.version, value=world.pick(TEXTS))
            for block in tx.blocks.list_by_agent(agent_id)
        ]
        change_blocks(tx, agent_id, world.random.sample(changes, 2), author=author, at=ports.clock.now())

    await ports.store.write(write)


async def change_fields(world: World) -> None:
    """Fields of a block, by its label or its id."""
    name, values = world.pick(FIELDS)
    changes = {name: world.pick(values)}
    if world.random.random() < 0.5:
        await world.agent.blocks.edit(world.pick(LABELS), changes, author=world.machine)
        return
    blocks = list((await world.protected()).values())
    await world.store.blocks.edit(world.pick(blocks).id, changes, author=world.machine)


async def change_lines(world: World) -> None:
    """A line of the block, a text behind it, or an earlier version of it."""
    own, author = world.agent.blocks, world.machine
    ways: Sequence[Callable[[], Awaitable[object]]] = (
        lambda: own.append("policy", "x", author=author),
        lambda: own.restore("policy", world.pick((0, 1)), author=author),
        lambda: own.replace_line("policy", world.pick((1, 2)), world.pick(("x", None)), author=author),
        lambda: world.agent.proposals.protect("policy", on=False, author=author),
    )
    await world.pick(ways)()


async def undo(world: World) -> None:
    """What a person corrected, by somebody else."""
    await world.agent.undo(author=world.machine)


async def forget(world: World) -> None:
    """A text of the block."""
    await world.agent.forget("Ask before you pay", author=world.machine)


async def isolate_again(world: World) -> None:
    """The copies of a conversation, made anew by Perdure."""
    ports = world.store.app.ports
    made = await world.agent.create_conversation(isolated_labels=["policy"], author=world.machine)
    seq = made.conversation.seq

    def write(tx: Tx) -> None:
        isolate_blocks(tx, world.agent.id, seq, ["policy"], ports.ids, author=world.machine, at=ports.clock.now())
        copy = tx.blocks.find(world.agent.id, "policy", seq)
        assert copy is not None and copy.is_protected
        with pytest.raises(BlockProtected):
            tx.blocks.put(replace(copy, value="x"), expected=copy.version, author=world.machine, at=ports.clock.now())

    await ports.store.write(write)
    fork = await world.agent.fork_conversation(made.conversation.id)
    copy = await ports.store.read(lambda tx: tx.blocks.find(world.agent.id, "policy", fork.seq))
    assert copy is not None and copy.is_protected


async def import_file(world: World) -> None:
    """The agent from its own file, whose block was changed there."""
    text = await export_text(world.store, world.agent.id, with_messages=False)
    text = text.replace("Be brief.", world.pick(("Be brief.", "Be long.")))
    (made,) = await Import(world.store, read_agent_file(text.encode()), ImportOptions(name="copy")).run()
    copy = await world.store.agent_of(made).blocks.get("policy")
    assert copy.is_protected
    await world.store.delete_agent(made)


async def run(world: World) -> None:
    """A whole run, with calls of memory tools and of a proposal."""
    name, arguments = world.pick(
        (
            ("memory_insert", {"label": "policy", "new_string": "x"}),
            ("memory_rethink", {"label": "policy", "new_memory": "x"}),
            ("memory", {"command": "delete", "path": "/memories/policy"}),
            ("memory", {"command": "rename", "old_path": "policy", "new_path": "gone"}),
            ("propose_change", {"label": "policy", "new_value": "x", "reason": "x", "evidence": "x"}),
        )
    )
    world.script[:] = [calls(name, **arguments)]
    await world.agent.send("Go on.")


async def decide(world: World) -> None:
    """A person decides about a proposal: one that is approved is what the block says then."""
    waiting = await world.agent.proposals.list()
    if not waiting:
        return
    one = world.pick(waiting)
    if world.random.random() < 0.5:
        await world.agent.proposals.refuse(one.number, "no")
        return
    await world.agent.proposals.approve(one.number)
    block = await world.store.blocks.get(one.target_id)
    assert block.value == one.new_value


async def correct(world: World) -> None:
    """A person changes a line, which can be undone."""
    await world.agent.blocks.replace_line("policy", 1, world.pick(("Be kind.", "Be fair.")))


MACHINES: Sequence[tuple[int, Callable[[World], Awaitable[None]]]] = (
    (40, call_tool),
    (10, change_by_own_tool),
    (10, change_fields),
    (10, change_lines),
    (4, undo),
    (2, forget),
    (2, isolate_again),
    (1, import_file),
    (2, run),
)
"""Weight and step: what something else than a person does."""
PERSONS: Sequence[tuple[int, Callable[[World], Awaitable[None]]]] = ((4, decide), (4, correct))
STEPS = [step for weight, step in (*MACHINES, *PERSONS) for _ in range(weight)]
OF_PERSONS = {step for _, step in PERSONS}


async def make_world(seed: int) -> World:
    settings = replace(Settings(), model="test/scripted", embedding="none", facts="off")
    script = list[ModelReply]()
    model = ScriptedModel(otherwise=lambda request: script.pop() if script else says("Done."))
    store = await AsyncPerdure.open(":memory:", store=InlineStore(), models={"test/scripted": model}, settings=settings)
    tools = ["memory_insert", "memory_rethink", "memory", "propose_change"]
    agent = await store.create_agent("ann", tools=tools)
    block = await agent.blocks.create("policy", "")
    await agent.blocks.update("policy", VALUE)
    await agent.proposals.protect("policy")
    await agent.blocks.create("notes", "Something.")
    companion = await agent.companion.enable()
    other = await store.create_agent("ben", tools=tools)
    await other.blocks.attach(block.id)
    isolated = await agent.create_conversation(isolated_labels=["policy"])
    writers = (agent.id, companion.companion.id, other.id)
    return World(store, random.Random(seed), agent, writers, (0, isolated.conversation.seq), script)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(WORLDS))
async def test_nothing_but_a_person_changes_a_protected_block(seed: int) -> None:
    """After each step of each trace every conversation shows the block as it was, unless a person took the step."""
    tried, refused = Counter[str](), Counter[str]()
    world = await make_world(seed)
    before = await world.protected()
    assert len(before) == 4 and all(block.is_protected for block in before.values())
    for _ in range(WORLD_TRACES):
        for _ in range(world.random.randint(1, STEPS_MAX)):
            step = world.pick(STEPS)
            tried[step.__name__] += 1
            try:
                await step(world)
            except BlockProtected:
                refused[step.__name__] += 1
            except PerdureError:
                pass
            after = await world.protected()
            if step not in OF_PERSONS:
                assert after == before, step.__name__
            before = after
    await world.store.close()

    for name in ("call_tool", "change_by_own_tool", "change_fields", "change_lines"):
        assert refused[name] > 2, (name, tried, refused)
