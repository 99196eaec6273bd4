"""`perdure` and `perdure chat`: open the store, find the agent, and run the session."""

from __future__ import annotations

import sys
from dataclasses import replace

from perdure.cli.chat.slash import command_help, run_command
from perdure.cli.commands.agents import conversation_named, show_last_turns
from perdure.cli.session.agent_choice import MODELS_MAX, chat_command, check_first_model, greet, open_agent
from perdure.cli.session.exit_codes import WAITING
from perdure.cli.session.needs import NO_AGENT
from perdure.cli.session.session import ChatSession
from perdure.cli.session.source import StdinLines, TextSource
from perdure.cli.session.work import has_store, standard_view
from perdure.cli.views.view import first_names
from perdure.core.errors import NotFound, PerdureError
from perdure.core.incoming.addresses import without_password
from perdure.library.messages.slashes import list_slashes
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings


async def chat(
    *,
    name: str | None,
    new: bool,
    model: str | None,
    profile: str | None = None,
    message: str | None,
    as_json: bool,
    conversation: str | None = None,
    turns: int = 3,
) -> int:
    """Chat until the texts end, and return the exit code."""
    # A prompt needs a terminal at both ends.
    terminals = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    interactive = message is None and not as_json and terminals
    view = standard_view(as_json=as_json, interactive=interactive)
    try:
        settings = Settings.from_environment()
        await check_first_model(settings, model)
        if conversation is not None and not has_store(settings):
            raise NotFound("conversation", conversation, hint=NO_AGENT)
        if message is not None:  # it ends soon: it must not begin runs that nobody goes on with
            settings = replace(settings, schedules="off")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            if conversation is not None and name is None and await perdure.last_agent() is None:
                raise NotFound("conversation", conversation, hint=NO_AGENT)
            target = await open_agent(perdure, name=name, new=new, model=model, profile=profile, view=view)
            conversation_id = target.conversation
            if conversation is not None:
                conversation_id = (await conversation_named(target.agent, conversation)).id
            if target.is_new or message is None:
                reason = perdure.app.choice.reason if model is None else "as you asked"
                await greet(target, view, place=without_password(settings.store_address), reason=reason)
            if interactive and not target.is_new:
                await show_last_turns(view, target.agent, conversation_id, turns)
            model_name = target.agent.info.model
            if message is None and model_name not in perdure.models:  # the / commands still work
                known = first_names(perdure.models, MODELS_MAX)
                view.note(f"The model {model_name} is not available here: there are {known}.")
            source: TextSource = StdinLines()
            if interactive:
                from perdure.cli.session.prompt import PromptLines

                more = await list_slashes(perdure.app, target.agent.id)
                source = PromptLines(settings.folder, command_help(more), view.hint)
            session = ChatSession(
                perdure, target.agent, source, view, conversation=conversation_id, run_command=run_command
            )
            code = await (session.run() if message is None else session.send(message))
    except PerdureError as error:
        view.error(error)
        return 1
    if code in (0, WAITING):
        view.hint(f"Everything is kept: `{chat_command(target.agent)}` goes on.")
    return code
