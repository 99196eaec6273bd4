"""The agent that a chat is with: the one used last, one by name, or a new one; and its model: which there are, which
one it has and why, what to do if it is missing.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from perdure.app import App, ModelRegistry, facts_of, model_registry, own_models
from perdure.cli.session.work import get_agent, has_store, load_conversations
from perdure.cli.views.terminal import program
from perdure.cli.views.view import ModelRow, Output, first_names, plural, visible
from perdure.core.agents import OWN_TAGS, Agent
from perdure.core.errors import AlreadyExists, InvalidInput, ModelNotFound, NotFound
from perdure.core.ids import ConversationId
from perdure.core.models import EXTRACTIVE
from perdure.core.text.zones import is_zone
from perdure.domain.agents.profile import PROFILE
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

MODELS_MAX = 8
DEFAULT = "default"
"""In place of a handle: the agent follows the default."""


def model_row(agent: AsyncAgent, app: App) -> ModelRow:
    """The model of an agent with its facts. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
    handle = agent.info.model
    problem = "" if app.models.takes(handle) else f"it is not available here: {what_helps(agent, app)}"
    how = "follows the default" if agent.info.follows_default else "pinned"
    reason = f"{how}; {app.choice.reason}" if handle == app.choice.handle else how
    return ModelRow(handle, reason, facts_of(handle), problem)


async def set_model(agent: AsyncAgent, handle: str, app: App) -> AsyncAgent:
    """Pin the agent to a model, or with `default` have it follow the default. Raises: ModelNotFound, InvalidInput."""
    facts_of(handle)  # fails before anything changes if the catalog is wrong
    if handle != DEFAULT:
        await ask_for_models(handle, app.models)
    try:
        return await agent.update(model=None if handle == DEFAULT else handle)
    except ModelNotFound as error:
        raise with_help(error, app.models) from error


async def ask_for_models(handle: str, models: ModelRegistry) -> None:
    """List the providers' models, unless the handle needs none of them; for at most 3 s."""
    if handle not in models.own_handles:
        await models.refresh()


def what_helps(agent: AsyncAgent, app: App) -> str:
    """What to do about a model that is not available; the start of a sentence."""
    return app.models.what_helps(agent.info.model) or (
        f"Agent {agent.name!r} belongs to a program that brings this model along: talk to it from there"
    )


def with_help(error: ModelNotFound, models: ModelRegistry) -> ModelNotFound:
    """The error, with what to do and only the first of the known models."""
    help = models.what_helps(error.handle)
    text = f"model {error.handle!r} is not available here: there are {first_names(error.known, MODELS_MAX)}"
    error.args = (f"{text}. {help}" if help else text,)
    return error


FIRST_NAME = "Perdure"
KNOWN_AGENTS = 10
AGENTS_MAX = 100
"""How many of the newest agents are looked through for one to talk to."""


@dataclass(frozen=True, slots=True)
class ChatAgent:
    """The agent of a chat, whether it is new, and its conversation used last; None is the agent's first."""

    agent: AsyncAgent
    is_new: bool
    conversation: ConversationId | None


def model_elsewhere(agent: AsyncAgent, perdure: AsyncPerdure) -> ModelNotFound:
    """The error of an agent whose model is not available in this program; another program brings it."""
    error = ModelNotFound(agent.info.model, known=(handles := perdure.models))
    known = first_names(handles, MODELS_MAX)
    error.args = (
        f"model {agent.info.model!r} is not available here: there are {known}. Nothing was sent."
        f" {what_helps(agent, perdure.app)}, or give the agent another model: /model {handles[0]} in"
        f" `{chat_command(agent)}`",
    )
    return error


async def check_first_model(settings: Settings, model: str | None) -> None:
    """Check the model of a first agent, so that an unknown one leaves no empty store behind. Raises: ModelNotFound."""
    models = model_registry(own=own_models(settings))
    chosen = models.first_choice(settings.model)
    handle = model or (chosen.handle if chosen.is_setting else "")
    if not handle or has_store(settings):
        return
    await ask_for_models(handle, models)
    if not models.takes(handle):
        raise with_help(ModelNotFound(handle, known=models.handles()), models)


async def open_agent(
    perdure: AsyncPerdure,
    *,
    name: str | None,
    new: bool,
    model: str | None,
    view: Output,
    profile: str | None = None,
    persona: str | None = None,
    human: str | None = None,
) -> ChatAgent:
    """The agent to chat with.

    Args:
        name: by default the agent used last; without any agent, a first one is made.
        new: make an agent of this name.
        model: the handle for a new agent.
        profile: for a new agent; by default it follows from its model.
        persona, human: what the blocks of a new agent hold.
    Raises: NotFound, AlreadyExists, NameInvalid, ModelNotFound; InvalidInput: the agent has another model or profile.
    """
    agent = await _find_agent(view, perdure, name, new=new)
    if agent is None:
        if model is None:
            await choose_model(perdure, view)
        else:
            await ask_for_models(model, perdure.app.models)
        try:
            agent = await perdure.create_agent(
                FIRST_NAME if name is None else name,
                model=model,
                timezone=local_zone(),
                profile=profile,
                persona=persona,
                human=human,
            )
        except ModelNotFound as error:
            raise with_help(error, perdure.app.models) from error
        return ChatAgent(agent, True, None)
    if model is not None and model != agent.info.model:
        raise InvalidInput(
            f"agent {agent.name!r} has the model {agent.info.model}: --model is for an agent that is made,"
            " as in `perdure chat NAME --new --model HANDLE`"
        )
    if profile is not None and profile != agent.info.settings.get(PROFILE):
        helps = f"`perdure agent settings {shlex.quote(agent.name)} profile={shlex.quote(profile)}` changes it"
        raise InvalidInput(f"--profile {profile} is for an agent that is made, and there is {agent.name!r}: {helps}")
    return ChatAgent(agent, False, await last_conversation(agent))


async def choose_model(perdure: AsyncPerdure, view: Output) -> None:
    """Choose the model of new agents, and show what was tried in vain."""
    choice = await perdure.app.decide(progress=view.show_status)
    view.clear_status()
    for note in choice.notes:
        view.note(note)


async def greet(target: ChatAgent, view: Output, *, place: str, reason: str) -> None:
    """Show which agent answers, what it remembers and, for a new one, where its memory is stored.

    Args:
        place: where the store is.
        reason: why a new agent has its model.
    """
    agent = target.agent
    if not target.is_new:
        count = plural(await agent.message_count(), "message")
        lines = [f"Agent {agent.name!r} (model {agent.info.model}), {count} remembered. /help lists the commands."]
    else:
        first = "Tell it something, such as “My name is Ada.”; /help lists the commands."
        lines = [
            f"Made agent {agent.name!r}; its memory is in {place}",
            f"Model {agent.info.model} ({reason}). {first}",
        ]
        if agent.info.model == EXTRACTIVE:
            get = f"`{program()} model get small`"
            lines.append(f"{get} fetches a language model that runs on this machine, without a key.")
    view.print_note(*(Text(visible(line)) for line in lines))


def chat_command(agent: AsyncAgent) -> str:
    """The command that continues the chat with this agent."""
    return f"{program()} chat {shlex.quote(agent.name)}"


def context_command(agent: AsyncAgent) -> str:
    """The command that shows the requests of this agent."""
    return f"perdure context {shell_word(agent.name)}"


def shell_word(name: str) -> str:
    """A name or path, quoted for a shell where it needs quotes."""
    # Names contain nothing that double quotes change, and they read better around an apostrophe.
    return name if shlex.quote(name) == name else f'"{name}"'


def _is_memory(agent: Agent) -> bool:
    """Whether an agent only keeps the memory of other programs. With a model of its own it can be talked to."""
    return agent.model == EXTRACTIVE and any(tag.startswith(OWN_TAGS) for tag in agent.tags)


async def find_last_agent(perdure: AsyncPerdure) -> AsyncAgent | None:
    """The agent used last of those that can be talked to; None: there is none."""
    latest = await perdure.last_agent()
    if latest is None or not _is_memory(latest.info):
        return latest
    return next((agent for agent in await perdure.agents(limit=AGENTS_MAX) if not _is_memory(agent.info)), None)


async def _find_agent(view: Output, perdure: AsyncPerdure, name: str | None, *, new: bool) -> AsyncAgent | None:
    """Return the agent of this name, else the one used last; None: there is none, or the `new` name is free."""
    if name is None:
        return await find_last_agent(perdure)
    try:
        agent = await get_agent(view, perdure, name)
    except NotFound as error:
        if new:
            return None
        names = dict.fromkeys(other.name for other in await perdure.agents())  # several agents can have one name
        examples = ", ".join(map(repr, list(names)[:KNOWN_AGENTS]))
        hint = f"there are {examples} (`perdure agent list` lists all)" if examples else "there is none yet"
        raise NotFound("agent", name, hint=f"{hint}; `perdure chat {shlex.quote(name)} --new` makes it") from error
    if new:
        raise AlreadyExists("agent", name, helps=f"`{chat_command(agent)}` goes on with it")
    return agent


async def last_conversation(agent: AsyncAgent) -> ConversationId | None:
    """The conversation used last of those that are not archived; None: the first."""
    candidates = [
        (conversation.last_message_at, conversation.seq, conversation.id)
        for conversation in await load_conversations(agent)
        if conversation.last_message_at is not None and conversation.archived_at is None
    ]
    return max(candidates)[2] if candidates else None


def local_zone() -> str:
    """The IANA name of this machine's time zone; UTC if it is unknown."""
    try:
        _, _, file_zone = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    except OSError:
        file_zone = ""
    for name in (os.environ.get("TZ", "").lstrip(":"), file_zone, *time.tzname[:1]):
        if name and is_zone(name):
            return name
    return "UTC"
