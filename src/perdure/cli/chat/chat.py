"""`perdure` and `perdure chat`: open the store and the agent, find out who is there, and run the session."""

from __future__ import annotations

import sys
from typing import TextIO

from perdure.cli.chat.agent_choice import check_first_model, go_on_with, greet, open_agent, warn_of_model
from perdure.cli.chat.session import WAITING, Session
from perdure.cli.chat.slash import names, run_command
from perdure.cli.chat.source import GivenLines, Source, StdinLines
from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.commands.conversations import NOTHING, conversation_named
from perdure.cli.views.view import View
from perdure.core.errors import NotFound, PerdureError
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["chat"]


async def chat(
    *,
    name: str | None,
    new: bool,
    model: str | None,
    message: str | None,
    as_json: bool,
    conversation: str | None = None,
) -> int:
    """Chat until there is nothing more to say; the exit code."""
    out, err = standard_streams()
    # A prompt in a file or a pipe helps nobody, so both ends must be a terminal.
    person = message is None and not as_json and sys.stdin is not None and sys.stdin.isatty() and out.isatty()
    view = _view(out, err, as_json=as_json, person=person)
    try:
        settings = Settings.from_environment()
        check_first_model(settings, model)
        if conversation is not None and not settings.store_path.exists():
            raise NotFound("conversation", conversation, hint=NOTHING)
        async with await AsyncPerdure.open(settings=settings) as perdure:
            if conversation is not None and name is None and await perdure.last_agent() is None:
                raise NotFound("conversation", conversation, hint=NOTHING)
            opened = await open_agent(perdure, name=name, new=new, model=model, view=view)
            line = opened.conversation
            if conversation is not None:
                line = (await conversation_named(opened.agent, conversation)).id
            if opened.made or message is None:
                why = perdure.app.choice.reason if model is None else "as you asked"
                await greet(opened, view, path=settings.store_path, why=why)
            if message is None:
                warn_of_model(opened.agent, perdure, view)
            source: Source
            if message is not None:
                source = GivenLines([])
            elif person:
                from perdure.cli.chat.prompt import PromptLines

                source = PromptLines(settings.store_path.parent, names(), view.hint)
            else:
                source = StdinLines()
            session = Session(perdure, opened.agent, source, view, conversation=line, run_command=run_command)
            code = await (session.run() if message is None else session.once(message))
    except PerdureError as error:
        view.error(error)
        return 1
    if code in (0, WAITING):
        view.hint(f"Everything is kept: `{go_on_with(opened.agent)}` goes on.")
    return code


def _view(out: TextIO, err: TextIO, *, as_json: bool, person: bool) -> View:
    if as_json:
        from perdure.cli.views.json import JsonView

        return JsonView(out)
    from perdure.cli.views.text import TextView

    return TextView(Terminal(out, err, interactive=person))
