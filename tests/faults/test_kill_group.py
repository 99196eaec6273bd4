"""`kill -9` of a program in the middle of a group's turn: the next one goes on where it stands, nobody speaks twice.

Ten kills in `make test-all`, a hundred with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from perdure.core.ids import GroupId
from perdure.core.messages import Message
from perdure.core.runs import Run
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.values import GroupMessage, GroupTurn
from perdure.features.groups.work_tables import GroupTurns
from perdure.storage.tx import Tx
from tests.faults.group_program import KINDS, MANAGERS, MEMBERS, NAMES, TASK, WHAT_IS_SAID, do_task, open_store
from tests.faults.killing import lines_until_killed
from tests.support.stores import POSTGRES, new_address

DELAY_S = 0.6 if POSTGRES else 0.15
KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 10


@pytest.mark.faults
async def test_nobody_in_a_group_speaks_twice(tmp_path: Path) -> None:
    """Whatever the moment of the kill: each turn has each speech once, in order, and each agent one run for it."""
    store, chance, task = new_address(tmp_path), random.Random(0), 0
    async with await open_store(store) as perdure:
        agents = {name: await perdure.create_agent(name, model=f"test/{name}") for name in NAMES}
        for kind in KINDS:
            members = [agents[name] for name in MEMBERS.get(kind, ("Anna", "Bob"))]
            manager = MANAGERS.get(kind)
            await perdure.groups.create(kind, agents=members, manager=None if manager is None else agents[manager])
    interrupted = 0
    for _ in range(KILLS):
        task += len(
            lines_until_killed("group_program.py", store, task, chance=chance, delay_s=0.6 if POSTGRES else 0.15)
        )

    async with await open_store(store) as perdure:
        groups = [group.id for group in reversed(await perdure.groups.list())]
        last = max(task, len(KINDS) - 1)  # a slow machine may not have come to each kind
        for number in range(task, last + 1):
            await do_task(perdure, groups, number)
        for kind, group_id in zip(KINDS, groups, strict=True):
            turns, entries, runs, messages = await perdure.app.store.read(_load, group_id)
            said = WHAT_IS_SAID[kind]
            interrupted += sum(turn.lease_number - 1 for turn in turns)

            tasks = [number for number in range(last + 1) if KINDS[number % len(KINDS)] == kind]
            assert [entry.text for entry in entries if entry.kind == "user"] == [TASK.format(one) for one in tasks]
            assert [entry.sender_name for entry in entries] == ["", *said] * len(tasks)
            assert {turn.status for turn in turns} == {"completed"}
            assert Counter(run.status for run in runs) == {"completed": len(said) * len(tasks)}
            assert len([one for one in messages if one.role == "user"]) == len(said) * len(tasks)
            assert len([one for one in messages if one.role == "assistant"]) == len(said) * len(tasks)
    assert interrupted > 0  # or the kills miss what they are for


def _load(tx: Tx, group_id: GroupId) -> tuple[list[GroupTurn], list[GroupMessage], list[Run], list[Message]]:
    """The turns of a group, its transcript, and all runs and messages in its agents' conversations for it."""
    runs, messages = list[Run](), list[Message]()
    group = tx.of(Groups).get(group_id)
    for agent_id, _, conversation_seq in tx.of(Groups).members(group_id):
        if group.kind == "sleeptime":
            if agent_id != group.manager_agent_id:
                continue  # nobody writes to a companion
            conversation_seq = 0
        own = [run for run in tx.runs.list(agent_id, limit=100_000) if run.conversation_seq == conversation_seq]
        runs += own
        messages += [message for run in own for message in tx.messages.list_by_run(run) if message.kind == "message"]
    entries = tx.of(GroupMessages).list(group_id, limit=100_000)
    return list(tx.of(GroupTurns).list(group_id, limit=100_000)), list(entries), runs, messages
