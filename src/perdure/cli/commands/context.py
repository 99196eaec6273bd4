"""`perdure context`: what fills the window, and why a model was told what it was told: one step explained, or two
compared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TextIO

from perdure.cli.chat.agent_choice import context_command, existing_agent, go_on_with
from perdure.cli.views.context import short_id
from perdure.cli.views.view import View
from perdure.context.request.assemble import canonical
from perdure.context.request.explain import diff
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.ids import ConversationId, StepId, is_id
from perdure.core.models import ModelRequest
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["context", "find_step"]

STEPS_SHOWN = 10
PAGE = 1_000

_LAST = re.compile(r"last(?:-(\d{1,9}))?", re.ASCII)


async def context(*, name: str | None, step: str | None, pair: tuple[str, str] | None, raw: bool, as_json: bool) -> int:
    """Print what is asked for; the exit code. A folder that is not there is left so."""
    from perdure.cli.chat.terminal import Terminal, standard_streams

    out, err = standard_streams()
    view: View
    if as_json:
        from perdure.cli.views.json import JsonView

        view = JsonView(out)
    else:
        from perdure.cli.views.text import TextView

        view = TextView(Terminal(out, err, interactive=False))
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise _no_agent(name)
        async with await AsyncPerdure.open(settings=settings) as perdure:
            opened = await existing_agent(perdure, name)
            if opened is None:
                raise _no_agent(name)
            agent, line = opened.agent, opened.conversation
            if pair is not None:
                await _compare(agent, line, pair, view)
            elif raw:
                _print_raw(await agent.request(await find_step(agent, line, step or "last")), out)
                view.hint("that is the canonical form: `| sha256sum` gives the digest that the step recorded")
            elif step is not None:
                await _explain(agent, line, step, view)
            else:
                await _overview(agent, line, view)
    except PerdureError as error:
        view.error(error)
        return 1
    return 0


async def find_step(agent: AsyncAgent, line: ConversationId | None, name: str) -> StepId:
    """The step of this name: an id or the beginning of one, or `last`, `last-1`, ... of the conversation.

    Raises: NotFound; InvalidInput: several ids begin so.
    """
    if is_id("step", name):
        return StepId(name)
    if last := _LAST.fullmatch(name):
        return await _steps_back(agent, await _line(agent, line), int(last[1] or 0), name)
    found: list[StepId] = []
    before: StepId | None = None
    while len(name) > len("step-") and (page := await agent.steps(limit=PAGE, before=before)):
        found += [step.id for step in page if step.id.startswith(name)]
        before = page[-1].id
    if not found:
        hint = f"`{context_command(agent)}` lists the newest of agent {agent.name!r}; last, last-1, ... name them"
        raise NotFound("step", name, hint=hint)
    if len(found) > 1:
        raise InvalidInput(f"step {name!r} is not one but several: {found[0]}, {found[1]}; give more of the id")
    return found[0]


async def _steps_back(agent: AsyncAgent, line: ConversationId, back: int, name: str) -> StepId:
    before: StepId | None = None
    while page := await agent.steps(conversation=line, limit=min(PAGE, back + 1), before=before):
        if back < len(page):
            return page[back].id
        back -= len(page)
        before = page[-1].id
    raise NotFound("step", name, hint=f"the conversation has fewer: `{context_command(agent)}` lists the newest")


async def _line(agent: AsyncAgent, line: ConversationId | None) -> ConversationId:
    """The conversation used last; before anything was said, the agent's first."""
    return line or (await agent.conversations(limit=1))[0].id


async def _overview(agent: AsyncAgent, line: ConversationId | None, view: View) -> None:
    line = await _line(agent, line)
    steps = await agent.steps(conversation=line, limit=STEPS_SHOWN)
    view.context(await agent.context(conversation=line), steps)
    if missing := await agent.rules.missing():
        view.hint(f"its tool rules name tools that it has not got, and are asleep until it has: {', '.join(missing)}")
    command = context_command(agent)
    view.hint(
        f"`{command} --step last` explains the newest request, `--diff last-1 last` what is new in it"
        if steps
        else f"nothing was asked of the model yet: `{go_on_with(agent)}` begins"
    )


async def _explain(agent: AsyncAgent, line: ConversationId | None, name: str, view: View) -> None:
    step_id = await find_step(agent, line, name)
    view.explanation(await agent.explain(step_id))
    command = f"{context_command(agent)} --step {short_id(step_id)}"
    view.hint(f"`{command} --raw` prints the request itself, a JSON line each")


async def _compare(agent: AsyncAgent, line: ConversationId | None, pair: Sequence[str], view: View) -> None:
    old, new = [await find_step(agent, line, name) for name in pair]
    found = await asyncio.to_thread(diff, await agent.request(old), await agent.request(new))
    view.difference(old, new, found)
    view.hint(f"`{context_command(agent)} --step {short_id(new)}` tells what the provider's cache gave of it")


def _print_raw(request: ModelRequest, out: TextIO) -> None:
    """The canonical form to stdout, byte for byte: also half a surrogate pair, which no text stream takes."""
    data = canonical(request)
    out.flush()
    if (buffer := getattr(out, "buffer", None)) is not None:
        buffer.write(data)
        buffer.flush()
    else:
        out.write(data.decode("utf-8", "replace"))


def _no_agent(name: str | None) -> NotFound:
    error = NotFound("agent", name or "")
    error.args = ("there is no agent yet: `perdure` makes one and starts the chat",)
    return error
