"""`perdure context`: what fills the window, the request of one step, the difference of two, or the costs."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from perdure.cli.chat.agent_choice import chat_command, context_command, existing_agent
from perdure.cli.views.context import context_view, explanation_view, request_diff_view, short_id, steps_view
from perdure.cli.views.costs import costs_view
from perdure.cli.views.json import context_shape, explanation_shape, step_shape
from perdure.cli.views.view import View
from perdure.cli.work import no_agent, open_store
from perdure.context.costs.plot import render_svg
from perdure.context.request.assemble import canonical
from perdure.context.request.explain import diff as compare
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ConversationId, StepId, is_id
from perdure.library.agent import AsyncAgent

STEPS_MAX = 10
COSTS_MAX = 10_000
PAGE = 1_000

_LAST = re.compile(r"last(?:-(\d{1,9}))?", re.ASCII)


async def context(
    view: View,
    *,
    agent: str | None,
    step: str | None,
    diff: tuple[str, str] | None,
    raw: bool,
    cost: bool,
    svg: Path | None,
) -> None:
    """Print the window, one step, the difference of two, or what a conversation costs. No store is made."""
    async with open_store(view, empty=no_agent(agent)) as perdure:
        target = await existing_agent(view, perdure, agent)
        if target is None:
            raise no_agent(agent)
        owner = target.agent
        conversation = target.conversation or (await owner.conversations(limit=1))[0].id
        if cost:
            await _show_cost(owner, conversation, svg, view)
        elif diff is not None:
            await _show_diff(owner, conversation, diff, view)
        elif raw:
            _write_bytes(canonical(await owner.request(await find_step(owner, conversation, step or "last"))))
            view.hint("that is the canonical form: `| sha256sum` gives the digest that the step recorded")
        elif step is not None:
            await _show_step(owner, conversation, step, view)
        else:
            await _show_window(owner, conversation, view)


def _write_bytes(data: bytes) -> None:
    """Write data to stdout byte for byte, lone surrogates included, which no text stream takes."""
    sys.stdout.flush()
    if (buffer := getattr(sys.stdout, "buffer", None)) is not None:
        buffer.write(data)
        buffer.flush()
    else:
        sys.stdout.write(data.decode("utf-8", "replace"))


async def find_step(agent: AsyncAgent, conversation: ConversationId, name: str) -> StepId:
    """The step of this name: an id or the beginning of one, or `last`, `last-1`, ... of the conversation.

    Raises: NotFound; InvalidInput: several ids begin with the name.
    """
    if is_id("step", name):
        return StepId(name)
    if last := _LAST.fullmatch(name):
        return await _step_from_end(agent, conversation, int(last[1] or 0), name)
    matches: list[StepId] = []
    before: StepId | None = None
    while len(name) > len("step-") and (page := await agent.steps(limit=PAGE, before=before)):
        matches += [step.id for step in page if step.id.startswith(name)]
        before = page[-1].id
    if not matches:
        hint = f"`{context_command(agent)}` lists the newest of agent {agent.name!r}; last, last-1, ... name them"
        raise NotFound("step", name, hint=hint)
    if len(matches) > 1:
        raise InvalidInput(f"step {name!r} is not one but several: {matches[0]}, {matches[1]}; give more of the id")
    return matches[0]


async def _step_from_end(agent: AsyncAgent, conversation: ConversationId, back: int, name: str) -> StepId:
    """The step that comes `back` steps before the last one of the conversation. Raises: NotFound."""
    before: StepId | None = None
    while page := await agent.steps(conversation=conversation, limit=min(PAGE, back + 1), before=before):
        if back < len(page):
            return page[back].id
        back -= len(page)
        before = page[-1].id
    raise NotFound("step", name, hint=f"the conversation has fewer: `{context_command(agent)}` lists the newest")


async def _show_window(agent: AsyncAgent, conversation: ConversationId, view: View) -> None:
    """Show what fills the window, and the newest steps."""
    steps = await agent.steps(conversation=conversation, limit=STEPS_MAX)
    overview = await agent.context(conversation=conversation)
    shape = {"context": context_shape(overview), "steps": [step_shape(step) for step in steps]}
    view.show(shape, context_view(overview), *(["", steps_view(steps)] if steps else []))
    if missing := await agent.rules.missing():
        view.hint(f"its tool rules name tools that it has not got, and are asleep until it has: {', '.join(missing)}")
    command = context_command(agent)
    view.hint(
        f"`{command} --step last` explains the newest request, `--diff last-1 last` what is new in it"
        if steps
        else f"nothing was asked of the model yet: `{chat_command(agent)}` begins"
    )


async def _show_step(agent: AsyncAgent, conversation: ConversationId, name: str, view: View) -> None:
    """Show the parts of a step's request and what they cost."""
    step_id = await find_step(agent, conversation, name)
    explanation = await agent.explain(step_id)
    view.show({"step": explanation_shape(explanation)}, explanation_view(explanation))
    command = f"{context_command(agent)} --step {short_id(step_id)}"
    view.hint(f"`{command} --raw` prints the request itself, a JSON line each")


async def _show_cost(agent: AsyncAgent, conversation: ConversationId, svg: Path | None, view: View) -> None:
    """Show what the requests and summaries of a conversation cost, and write the plot to a file."""
    ledger = await agent.costs(conversation=conversation, limit=COSTS_MAX)
    if svg is not None:
        title = f"What a conversation of {agent.name} costs"
        try:
            await asyncio.to_thread(svg.write_text, render_svg(ledger, title=title), encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"the plot can't be written to {str(svg)!r}: {error.strerror or error}") from error
    view.show({"costs": ledger.to_dict()}, costs_view(ledger))
    if svg is not None:
        view.hint(f"the plot is in {svg}")
    elif ledger.requests:
        view.hint(f"`{context_command(agent)} --cost --svg FILE` writes the plot to a file")
    else:
        view.hint(f"nothing was asked of the model yet: `{chat_command(agent)}` begins")


async def _show_diff(agent: AsyncAgent, conversation: ConversationId, pair: Sequence[str], view: View) -> None:
    """Show how the requests of two steps differ."""
    old, new = [await find_step(agent, conversation, name) for name in pair]
    diff = compare(await agent.request(old), await agent.request(new))
    names = (short_id(old), short_id(new))
    view.show({"diff": {"steps": [old, new], **asdict(diff)}}, request_diff_view(diff, names=names))
    view.hint(f"`{context_command(agent)} --step {short_id(new)}` tells what the provider's cache gave of it")
