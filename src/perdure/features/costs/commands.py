"""`perdure context`: what fills the window, one request, the difference of two, and costs as plot and tables."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from perdure.cli.commands.run import LastAgent, command, flag, for_work, option
from perdure.core.errors import file_errors

if for_work(__name__):
    import asyncio

    from perdure.cli.session.agent_choice import chat_command, context_command, last_conversation
    from perdure.cli.views.context import context_view, steps_view
    from perdure.cli.views.json import context_shape, explanation_shape, step_shape
    from perdure.cli.views.view import Output, short_id
    from perdure.context.request.explain import diff as compare
    from perdure.context.sections.assemble import canonical
    from perdure.core.errors import NotFound
    from perdure.core.ids import ConversationId, StepId
    from perdure.features.costs import plot
    from perdure.features.costs.views import costs_view, explanation_view, request_diff_view
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure

STEPS_MAX = 10
COSTS_MAX = 10_000
PAGE = 1_000
_LAST = re.compile(r"last(?:-(\d{1,9}))?", re.ASCII)


@command(
    "context",
    refuses=(
        (
            lambda args: args["cost"] and (args["diff"] or args["step"] or args["raw"]),
            "it is about the whole conversation: leave --step, --diff and --raw out",
            "--cost",
        ),
        (lambda args: args["svg"] and not args["cost"], "it is the plot of --cost: add --cost", "--svg"),
        (
            lambda args: args["diff"] and (args["step"] or args["raw"]),
            "it names its two steps itself: leave --step and --raw out",
            "--diff",
        ),
        (lambda args: args["raw"] and args["as_json"], "it prints JSON lines already: leave --json out", "--raw"),
    ),
)
async def context(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    step: Annotated[str | None, option("Explain one request: an id, its beginning, last, last-1, ...", "STEP")] = None,
    diff: Annotated[tuple[str, str] | None, option("Compare the requests of two steps.", "STEP STEP")] = None,
    raw: Annotated[bool, flag("--raw", "Print the request of --step, or the last, in its canonical form.")] = False,
    cost: Annotated[bool, flag("--cost", "Show what the conversation's requests and summaries cost.")] = False,
    svg: Annotated[Path | None, option("Also write the plot of --cost to a file.", "FILE")] = None,
) -> None:
    """Show the context window, the requests to models and their cost.

    Requests are built again from the log, byte for byte.
    """
    conversation = await last_conversation(agent) or (await agent.conversations(limit=1))[0].id
    if cost:
        await _show_cost(agent, conversation, svg, view)
    elif diff is not None:
        old, new = [await find_step(perdure, agent, conversation, name) for name in diff]
        found = compare(await agent.request(old), await agent.request(new))
        shape, names = {"steps": [old, new], **asdict(found)}, (short_id(old), short_id(new))
        view.show({"diff": shape}, request_diff_view(found, names=names))
        view.hint(f"`{context_command(agent)} --step {names[1]}` tells what the provider's cache gave of it")
    elif raw:
        request = canonical(await agent.request(await find_step(perdure, agent, conversation, step or "last")))
        sys.stdout.flush()
        sys.stdout.buffer.write(request)  # byte for byte: no text stream takes lone surrogates
        sys.stdout.buffer.flush()
        view.hint("that is the canonical form: `| sha256sum` gives the digest that the step recorded")
    elif step is not None:
        explanation = await agent.explain(await find_step(perdure, agent, conversation, step))
        view.show({"step": explanation_shape(explanation)}, explanation_view(explanation))
        command = f"{context_command(agent)} --step {short_id(explanation.step_id)}"
        view.hint(f"`{command} --raw` prints the request itself, a JSON line each")
    else:
        await _show_window(agent, conversation, view)


async def find_step(perdure: AsyncPerdure, agent: AsyncAgent, conversation: ConversationId, name: str) -> StepId:
    """The id of the step of this name: an id or the beginning of one, or `last`, `last-1`, ... of the conversation.

    Raises: NotFound; InvalidInput: several ids begin with the name.
    """
    if last := _LAST.fullmatch(name):
        return await _step_from_end(agent, conversation, int(last[1] or 0), name)
    try:
        return StepId(await perdure.ids.find(name, "step"))
    except NotFound as error:
        hint = f"`{context_command(agent)}` lists the newest of agent {agent.name!r}; last, last-1, ... name them"
        raise NotFound("step", name, hint=hint) from error


async def _step_from_end(agent: AsyncAgent, conversation: ConversationId, back: int, name: str) -> StepId:
    """The step that comes `back` steps before the last one of the conversation. Raises: NotFound."""
    before: StepId | None = None
    while page := await agent.steps(conversation=conversation, limit=min(PAGE, back + 1), before=before):
        if back < len(page):
            return page[back].id
        back -= len(page)
        before = page[-1].id
    raise NotFound("step", name, hint=f"the conversation has fewer: `{context_command(agent)}` lists the newest")


async def _show_window(agent: AsyncAgent, conversation: ConversationId, view: Output) -> None:
    """Show what fills the context window of a conversation, and its newest steps."""
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


async def _show_cost(agent: AsyncAgent, conversation: ConversationId, svg: Path | None, view: Output) -> None:
    """Show what the requests and summaries of a conversation cost; `svg`: also write the plot to this file."""
    ledger = await agent.costs(conversation=conversation, limit=COSTS_MAX)
    if svg is not None:
        title = f"What a conversation of {agent.name} costs"
        with file_errors("the plot", f"written to {str(svg)!r}"):
            await asyncio.to_thread(svg.write_text, plot.render_svg(ledger, title=title), encoding="utf-8")
    view.show({"costs": ledger.to_dict()}, costs_view(ledger))
    if svg is not None:
        view.hint(f"the plot is in {svg}")
    elif ledger.requests:
        view.hint(f"`{context_command(agent)} --cost --svg FILE` writes the plot to a file")
    else:
        view.hint(f"nothing was asked of the model yet: `{chat_command(agent)}` begins")
