"""Commands on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from perdure.engine.records.run_request import MAX_STEPS
from perdure.features.slash_commands.values import SlashCommand
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import ConversationOrDefault, keywords
from perdure.server.wire.shapes import WireShape, computed


class CommandShape(WireShape, of=SlashCommand, fields="name layer"):
    """A command. `tools`: the only ones that a run of it may call; null: all of the agent's. `missing`: what it allows
    besides, and nothing is called so."""

    description: str = computed(lambda command: command.about)
    argument_hint: str = computed(lambda command: command.hint)
    model: str
    plugin: str = computed(lambda command: command.definition.plugin)
    tools: list[str] | None = computed(lambda command: None if command.tools is None else list(command.tools))
    missing: list[str] = computed(lambda command: list(command.missing))
    notes: list[str] = computed(lambda command: list(command.definition.notes))
    text: str = computed(lambda command: command.definition.body)


class CommandRunIn(WireRequest):
    """How a command is run. `arguments`: the text behind its name."""

    arguments: str = ""
    conversation_id: ConversationOrDefault | None = None
    max_steps: Annotated[int, keywords(minimum=1, maximum=MAX_STEPS)] | None = None
