"""The commands of an agent's user: listed, and run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Unpack

from perdure.app import App
from perdure.core.errors import InvalidInput, ModelNotFound, NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, ConversationId
from perdure.core.models import Models
from perdure.core.runs import RunOptions
from perdure.core.text.forms import name_form
from perdure.engine.ports import with_next_model
from perdure.engine.run.accept import Accepted
from perdure.features.plugins.definitions import DefinitionProblem, Definitions
from perdure.features.plugins.layers import find_definitions, project_of
from perdure.features.plugins.policy import load_policy
from perdure.features.slash_commands.values import SlashCommand, expand, make_command
from perdure.library.messages.reply import Reply
from perdure.library.messages.sending import AsyncSending, SendOptions
from perdure.library.parts.checks import check_text
from perdure.library.parts.part import AsyncPart
from perdure.settings import Settings

COMMAND_MODEL: Point[[str, str, str, Models, Settings], tuple[str, str]] = Point("command_model")
"""(The handle of the model of a command's run, why it is that one), by the wishes of its definition and of the caller,
and the agent's own model."""

_LINE = re.compile(r"/(\S+)(?:\s+(.*))?", re.DOTALL)


class AsyncSlashCommands(AsyncPart):
    """The commands that the user of an agent can run."""

    async def list(self) -> Sequence[SlashCommand]:
        """The commands, by name. Raises: NotFound: the agent; InvalidInput: the policy can't be read."""
        return list((await self._load())[0].values())

    async def problems(self) -> Sequence[DefinitionProblem]:
        """The files that define no command, each with its line and the reason. Raises: as `list`."""
        return (await self._load())[1].problems

    async def get(self, name: str) -> SlashCommand:
        """The command of exactly this name. Raises: NotFound, with the nearest names; InvalidInput: the policy."""
        check_text("name", name)
        (commands, definitions), name = await self._load(), name_form(name.removeprefix("/"))
        found = commands.get(name)
        if found is None:
            near = get_close_matches(name[:200], commands, n=3, cutoff=0.5)
            there = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(commands) or 'none'}"
            raise NotFound("command", name[:80], hint=definitions.why_refused(name) or there)
        return found

    async def prepare(
        self,
        name: str,
        arguments: str | Sequence[str] = "",
        *,
        model: str | None = None,
        conversation: ConversationId | None = None,
    ) -> tuple[str, RunOptions]:
        """What a command sends: the message's text, the model of its run with the reason, and its tools.

        Args:
            arguments: the text behind the name, where quotes keep words together; or the words.
            model: that of a command which names none; by default the agent's own.
            conversation: where it will be run; by default in the agent's first one.
        Raises: NotFound; MessageTooLarge; ModelNotFound; ToolError, InvalidInput: the policy forbids the model; it is
            broken; or no model is called so.
        """
        words = [*arguments] if isinstance(arguments, list | tuple) else None
        for text in (arguments,) if words is None else words:
            check_text("arguments", text)
        line = arguments.strip() if isinstance(arguments, str) else " ".join(arguments)
        command = await self.get(name)
        text = expand(command, line, words, limit_chars=self._ports.settings.message_limit_chars)
        handle, reason = await self._model_of(command, model or "", conversation)
        return text, RunOptions(model=handle, model_reason=reason, tools=command.tools)

    async def run(
        self,
        name: str,
        arguments: str | Sequence[str] = "",
        *,
        conversation: ConversationId | None = None,
        **options: Unpack[SendOptions],
    ) -> Reply:
        """Run a command and wait for the whole reply. Its `model` and its tools win over those in `options`, which are
        as those of `AsyncAgent.send`. Raises: as `prepare` and `AsyncAgent.send`."""
        text, merged = await self._prepare(name, arguments, conversation, options)
        return await self._sending.send(text, conversation=conversation, **merged)

    async def submit(
        self,
        name: str,
        arguments: str | Sequence[str] = "",
        *,
        conversation: ConversationId | None = None,
        background: bool = True,
        **options: Unpack[SendOptions],
    ) -> Accepted:
        """Run a command without waiting; see `run` and `AsyncAgent.submit`."""
        text, merged = await self._prepare(name, arguments, conversation, options)
        return await self._sending.submit(text, conversation=conversation, background=background, **merged)

    async def _prepare(
        self, name: str, arguments: str | Sequence[str], conversation: ConversationId | None, options: SendOptions
    ) -> tuple[str, SendOptions]:
        """(What a command sends, the options with its model and tools). Raises: as `prepare`."""
        model = options.get("model")
        text, chosen = await self.prepare(name, arguments, model=model, conversation=conversation)
        merged: SendOptions = {**options, "model": chosen.model, "model_reason": chosen.model_reason}
        return text, merged if chosen.tools is None else {**merged, "tools": chosen.tools}

    @property
    def _sending(self) -> AsyncSending:
        return AsyncSending(self._app, self._id)

    async def _load(self) -> tuple[Mapping[str, SlashCommand], Definitions]:
        """Return the commands by name, and all definitions that were found. Raises: as `list`."""
        settings = self._app.settings
        agent, tools = await self._store.read(lambda tx: (tx.agents.get(self._id), tx.tools.list_by_agent(self._id)))
        found = await asyncio.to_thread(find_definitions, "commands", settings, project_of(agent))
        policy = load_policy(settings)
        return {
            name: make_command(one, [tool.spec.name for tool in tools], policy) for name, one in found.by_name.items()
        }, found

    async def _model_of(
        self, command: SlashCommand, asked: str, conversation: ConversationId | None
    ) -> tuple[str | None, str]:
        """(The handle of the model of a command's run, None being the agent's own; why it is that one). The policy
        binds the agent's own model, too. Raises: as `prepare`."""
        seq = await self._seq_of(conversation)
        agent = await self._store.read(lambda tx: tx.conversations.get_agent(self._id, seq))
        models, settings, wish = self._ports.models, self._app.settings, command.model
        own = with_next_model(agent, models).model
        if wish.lower() in ("", "inherit"):
            wish, asked = "", "" if wish else asked
        found = COMMAND_MODEL(wish, asked, own, models, settings)
        handle, reason = next(iter(found), (wish or asked or own, ""))
        if not load_policy(settings).allows_model(handle):
            raise InvalidInput(f"the policy forbids the model {handle!r} of the command /{command.name}")
        if handle == own and not wish and not asked:
            return None, ""
        if models.find(handle) is None:
            raise ModelNotFound(handle, known=models.handles())
        return handle, reason


async def read_slash_text(
    app: App, agent_id: AgentId, text: str, conversation: ConversationId | None
) -> tuple[str, RunOptions] | None:
    """Return what `/NAME ARGUMENTS` sends in a conversation; None: it names no command. Raises: as `prepare`."""
    line, commands = _LINE.fullmatch(text.strip()), AsyncSlashCommands(app, agent_id)
    if line is None or name_form(line[1]) not in {command.name for command in await commands.list()}:
        return None
    return await commands.prepare(line[1], line[2] or "", conversation=conversation)


async def list_slashes(app: App, agent_id: AgentId) -> Mapping[str, str]:
    """Return usage of a command -> what it does; nothing where the policy can't be read. Raises: NotFound."""
    try:
        commands = await AsyncSlashCommands(app, agent_id).list()
    except InvalidInput:  # a person can still talk to the agent
        return {}
    return {f"/{command.name} {command.hint}".rstrip(): command.about for command in commands}
