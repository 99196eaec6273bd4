"""The table of turns.md is what groups do: each row is tried on the engine."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.features.groups.values import SLEEPTIME_KINDS, Group, GroupKind
from perdure.testing.scripted_model import Line, calls, fails, says
from tests.support.groups import Team, open_team

TURNS = Path(__file__).with_name("turns.md")
NAMES = ("Anna", "Bob", "Carl")


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    kind: str
    settings: Mapping[str, Any]
    scripts: Mapping[str, list[Line]]
    transcript: list[str]
    stream: list[str]
    reason: str


async def group_of(team: Team, row: Row) -> Group:
    """A group as the row has it. Calls of the tool `order` need approval."""
    for agent_id in team.agents.values():
        agent = await team.perdure.agent(agent_id)
        await agent.tools.attach("order")
        await agent.require_approval("order")
    manager = None if row.kind == "round_robin" else "Max"
    names = ("Carl",) if row.kind in SLEEPTIME_KINDS else NAMES
    return await team.group(*names, kind=row.kind, manager=manager, **row.settings)


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def items(cell: str) -> list[str]:
    return [item.strip() for item in cell.split("·")]


def line_of(text: str) -> Line:
    """What a model does that `says` this in the table."""
    if text == "fails":
        return fails()
    return calls("order") if text == "asks" else says(text)


def row_of(line: str) -> Row:
    kind, settings, agents, transcript, stream, reason = cells_of(line)
    scripts: defaultdict[str, list[Line]] = defaultdict(list)
    for item in items(agents):
        name, _, text = item.partition(": ")
        scripts[name].append(line_of(text))
    values = dict(one.split("=") for one in settings.split())
    numbers = {name: value if name == "termination_token" else int(value) for name, value in values.items()}
    return Row(kind, numbers, scripts, ["User: Hello", *items(transcript)], [*items(stream), reason], reason)


def rows() -> list[str]:
    """The lines of the table of turns."""
    lines = TURNS.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| kind | settings |"))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append(line)
    return table


def test_the_table_is_there() -> None:
    """Every kind, and every stop reason but those that need more than a script."""
    table = [row_of(line) for line in rows()]

    assert len(table) > 25
    assert {row.kind for row in table} == set(get_args(GroupKind))
    assert {row.reason for row in table} == {
        *("end_turn", "termination_token", "max_turns", "max_tokens", "max_cost"),
        *("no_speaker", "requires_approval", "error"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("line", rows())
async def test_a_turn_does_what_the_table_says(line: str) -> None:
    """Transcript, order, stop reason and stream."""
    row = row_of(line)

    def order() -> str:
        """Order something."""
        return "ordered"

    scripts = {name: row.scripts[name] for name in (*NAMES, "Max")}
    async with open_team(scripts, tools=[order]) as team:
        group = await group_of(team, row)
        turn = await team.send(group.id, "Hello")
        stream = await team.stream(turn)
        transcript = [re.sub("✗.*", "✗", entry) for entry in await team.transcript(group)]

        assert (transcript, stream) == (row.transcript, row.stream)
        assert (await team.ended(turn)).stop_reason == row.reason
        assert await team.stream(turn) == row.stream
        assert all(len(model.requests) == len(row.scripts[name]) for name, model in team.models.items())
