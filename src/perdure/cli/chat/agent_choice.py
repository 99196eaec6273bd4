"""Which agent a chat is with: the one used last, one by name, or one that is made."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.app import model_registry
from perdure.cli.chat.models import known_models, what_helps, with_help
from perdure.cli.views.view import View
from perdure.core.errors import AlreadyExists, InvalidInput, ModelNotFound, NotFound
from perdure.core.ids import ConversationId
from perdure.core.text.zones import is_zone
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = [
    "FIRST_NAME",
    "ModelElsewhere",
    "Opened",
    "check_first_model",
    "choose",
    "context_command",
    "existing_agent",
    "go_on_with",
    "greet",
    "last_conversation",
    "open_agent",
    "shell_word",
    "warn_of_model",
]

FIRST_NAME = "Perdure"
KNOWN_AGENTS = 10


@dataclass(frozen=True, slots=True)
class Opened:
    agent: AsyncAgent
    made: bool
    conversation: ConversationId | None
    """The one used last; None is the agent's first."""


class ModelElsewhere(ModelNotFound):
    """The agent is here, its model is not: another program brought it along."""

    def __init__(self, agent: AsyncAgent, perdure: AsyncPerdure) -> None:
        known = perdure.models
        super().__init__(agent.info.model, known=known)
        self.args = (
            f"model {agent.info.model!r} is not available here: there are {known_models(known)}. Nothing was sent."
            f" {what_helps(agent, perdure.app)}, or give the agent another model: /model {known[0]} in"
            f" `{go_on_with(agent)}`",
        )


def check_first_model(settings: Settings, model: str | None) -> None:
    """Nothing, when a first agent could be made: an unknown model must not leave an empty store behind.

    Raises: ModelNotFound.
    """
    handle, models = settings.model if model is None else model, model_registry()
    if handle and not models.takes(handle) and not settings.store_path.exists():
        raise with_help(ModelNotFound(handle, known=models.handles()), models)


async def open_agent(perdure: AsyncPerdure, *, name: str | None, new: bool, model: str | None, view: View) -> Opened:
    """The agent to chat with.

    Args:
        name: by default the one used last; when there is none at all, one is made.
        new: make it, under this name.
        model: the handle of an agent that is made.
    Raises: NotFound, AlreadyExists, NameInvalid, ModelNotFound; InvalidInput: the agent is there, with another model.
    """
    agent = await _existing(perdure, name, new=new)
    if agent is None:
        if model is None:
            await choose(perdure, view)
        try:
            made = await perdure.create_agent(
                name or FIRST_NAME, model=model, timezone=local_zone(), settings={"auto_recall": True}
            )
        except ModelNotFound as error:
            raise with_help(error, perdure.app.models) from error
        return Opened(made, True, None)
    if model is not None and model != agent.info.model:
        raise InvalidInput(
            f"agent {agent.name!r} has the model {agent.info.model}: --model is for an agent that is made,"
            " as in `perdure chat NAME --new --model HANDLE`"
        )
    return Opened(agent, False, await last_conversation(agent))


async def existing_agent(perdure: AsyncPerdure, name: str | None) -> Opened | None:
    """The agent of this name, or the one used last, in its last conversation; None when there is none at all.

    Raises: NotFound: there is none of this name.
    """
    agent = await _existing(perdure, name, new=False)
    return None if agent is None else Opened(agent, False, await last_conversation(agent))


async def choose(perdure: AsyncPerdure, view: View) -> None:
    """Find out which model new agents get, and tell what was tried in vain."""
    choice = await perdure.app.choose(progress=view.waiting)
    view.idle()
    for note in choice.notes:
        view.note(note)


async def greet(opened: Opened, view: View, *, path: Path, why: str) -> None:
    """Say who answers: of a new agent where its memory is, which model it has and why; of an old one what it holds.

    Args:
        path: of the store; why: the reason for the model of an agent that was made.
    """
    agent = opened.agent
    if not opened.made:
        count = await agent.message_count()
        view.greet(
            f"Agent {agent.name!r} (model {agent.info.model}), {count:,} message{'' if count == 1 else 's'} remembered."
            " /help lists the commands."
        )
        return
    view.greet(
        f"Made agent {agent.name!r}; its memory is in {path}",
        f"Model {agent.info.model} ({why}). Tell it something, such as “My name is Ada.”; /help lists the commands.",
    )


def warn_of_model(agent: AsyncAgent, perdure: AsyncPerdure, view: View) -> None:
    """Say beforehand that no message will be sent; the / commands work."""
    if agent.info.model not in perdure.models:
        view.note(f"The model {agent.info.model} is not available here: there are {known_models(perdure.models)}.")


def go_on_with(agent: AsyncAgent) -> str:
    """The command that goes on with this agent."""
    return f"perdure chat {shlex.quote(agent.name)}"


def context_command(agent: AsyncAgent) -> str:
    """The command that shows what this agent's model was told."""
    return f"perdure context {shell_word(agent.name)}"


def shell_word(name: str) -> str:
    """An agent's name as a shell takes it for one word."""
    # Names have no characters that double quotes would not keep; theirs read better, where a name has a single one.
    return name if shlex.quote(name) == name else f'"{name}"'


async def _existing(perdure: AsyncPerdure, name: str | None, *, new: bool) -> AsyncAgent | None:
    if name is None:
        return await perdure.last_agent()
    try:
        agent = await perdure.agent(name)
    except NotFound as error:
        if new:
            return None
        names = dict.fromkeys(known.name for known in await perdure.agents())  # several agents may have one name
        known = ", ".join(map(repr, list(names)[:KNOWN_AGENTS]))
        there = f"there are {known} (`perdure agents` lists all)" if known else "there is none yet"
        raise NotFound("agent", name, hint=f"{there}; `perdure chat {shlex.quote(name)} --new` makes it") from error
    if new:
        raise AlreadyExists("agent", name)
    return agent


async def last_conversation(agent: AsyncAgent) -> ConversationId | None:
    """The one used last of those that are not archived; None: the first."""
    newest: tuple[datetime, ConversationId] | None = None
    after = -1
    while page := await agent.conversations(limit=100, after_seq=after):
        for line in page:
            at = line.last_message_at
            if at is not None and line.archived_at is None and (newest is None or at >= newest[0]):
                newest = (at, line.id)
        after = page[-1].seq
    return newest[1] if newest else None


def local_zone() -> str:
    """The IANA name of this machine's time zone; UTC if it has none that is known."""
    try:
        _, found, place = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    except OSError:
        found = place = ""
    for name in (os.environ.get("TZ", "").lstrip(":"), place if found else "", *time.tzname[:1]):
        if name and is_zone(name):
            return name
    return "UTC"
