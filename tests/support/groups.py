"""Groups in tests: agents with scripts, and what came of a turn in words."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from perdure import AsyncPerdure
from perdure.core.ids import AgentId, GroupId, MessageId, Uuids
from perdure.core.messages import Draft, Text
from perdure.features.groups.runner import GroupRunner
from perdure.features.groups.tables import GroupMessages, Groups
from perdure.features.groups.units import GroupRequest, NewGroup, create_group
from perdure.features.groups.values import (
    Group,
    GroupMessage,
    GroupTurn,
    GroupTurnEnded,
    SpeakerEvent,
    SpeakerFailed,
    SpeakerStarted,
)
from perdure.storage.store import Store
from perdure.storage.tx import Tx
from perdure.testing import InlineStore, ScriptedModel
from perdure.testing.scripted_model import Line


def request(group_id: GroupId, message: str | Sequence[Draft], **options: Any) -> GroupRequest:
    """The request of a user's message to a group."""
    if isinstance(message, str):
        message = [Draft(id=MessageId(Uuids().new("message")), role="user", parts=(Text(message),))]
    return GroupRequest(group_id=group_id, drafts=message, **options)


@dataclass(frozen=True)
class Team:
    """A program with agents, each with a model of its own: `test/` and its name."""

    perdure: AsyncPerdure
    agents: Mapping[str, AgentId]
    models: Mapping[str, ScriptedModel]

    @property
    def turns(self) -> GroupRunner:
        return self.perdure.app.service(GroupRunner)

    @property
    def store(self) -> Store:
        return self.perdure.app.store

    async def group(self, *names: str, manager: str | None = None, **values: Any) -> Group:
        """A group of these agents."""
        ports = self.perdure.app.ports
        manager_id = None if manager is None else self.agents[manager]
        members = {"agent_ids": [self.agents[name] for name in names], "manager_agent_id": manager_id}
        new = cast(NewGroup, {**members, **values})
        return await self.store.write(lambda tx: create_group(tx, new, ids=ports.ids, at=ports.clock.now()))

    async def send(self, group_id: GroupId, message: str | Sequence[Draft], **options: Any) -> GroupTurn:
        """The turn that answers a user's message."""
        return await self.turns.send(request(group_id, message, **options))

    async def ended(self, turn: GroupTurn) -> GroupTurn:
        """The turn once it has ended."""
        async for event in self.turns.follow(turn):
            if isinstance(event, GroupTurnEnded):
                return event.turn
        raise AssertionError("the turn has no end")

    async def say(self, group: Group, text: str = "Hello") -> GroupTurn:
        """A turn of the group, once it has ended."""
        return await self.ended(await self.send(group.id, text))

    async def stream(self, turn: GroupTurn) -> list[str]:
        """Who begins and who fails, in the order of the stream, and how the turn ends; `Max?` chooses."""
        told: list[str] = []
        async for event in self.turns.follow(turn):
            match event:
                case SpeakerStarted(speaker):
                    told.append(speaker.name + ("?" if speaker.task == "choose" else ""))
                case SpeakerFailed(speaker):
                    told.append(f"{speaker.name} ✗")
                case GroupTurnEnded(ended):
                    told.append(str(ended.stop_reason))
                case SpeakerEvent(speaker):
                    assert told[-1].rstrip("?") == speaker.name
        return told

    async def transcript(self, group: Group) -> list[str]:
        """The entries of the group's transcript in words."""
        return await self.store.read(_transcript, group)

    def input_of(self, name: str, number: int = -1) -> str:
        """The text that an agent was sent with one of its requests."""
        return next(one.text for one in reversed(self.models[name].requests[number].messages) if one.role == "user")


def _transcript(tx: Tx, group: Group) -> list[str]:
    return [
        f"{entry.sender_name or 'User'}: {_text_of(tx, group, entry)}"
        for entry in tx.of(GroupMessages).list(group.id, limit=1_000)
    ]


def _text_of(tx: Tx, group: Group, entry: GroupMessage) -> str:
    if entry.kind == "choice":
        names = {member[0]: member[1] for member in tx.of(Groups).members(group.id)}
        return "→ " + (names.get(entry.chosen_id, "?") if entry.chosen_id else "end" if entry.ends_turn else "nobody")
    if entry.kind in ("failure", "approval"):
        return f"✗ {entry.text}"
    if entry.kind == "silence":
        return "–"
    if entry.kind == "user":
        return entry.text
    assert entry.sender_id is not None and entry.message_seq is not None
    return tx.messages.list_by_seqs(entry.sender_id, [entry.message_seq])[0].text


@contextlib.asynccontextmanager
async def open_team(
    scripts: Mapping[str, Sequence[Line]], *, store: Store | None = None, **values: Any
) -> AsyncIterator[Team]:
    """A program with an agent of each name, whose model says its lines and then `OK.`."""
    models = {name: ScriptedModel(*lines) for name, lines in scripts.items()}
    async with await AsyncPerdure.open(
        store=store or InlineStore(), models={f"test/{name}": model for name, model in models.items()}, **values
    ) as perdure:
        agents = {name: (await perdure.create_agent(name, model=f"test/{name}")).id for name in scripts}
        yield Team(perdure, agents, models)
