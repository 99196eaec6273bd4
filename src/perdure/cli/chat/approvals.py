"""Ask a person about waiting calls, one after the other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from perdure.cli.chat.source import Source
from perdure.cli.views.text import plain_json
from perdure.cli.views.view import View
from perdure.core.answers import PendingCall
from perdure.core.errors import AnswerInvalid
from perdure.core.messages import ToolDecision

QUESTION = "[y]es / [n]o / [e]dit: "
HELP = "y lets it run, n refuses it, e changes its arguments first; Ctrl-C decides nothing, and it waits on"

Check = Callable[[PendingCall, str], Awaitable[None]]
"""Checks arguments in JSON for a call. Raises: AnswerInvalid: they don't fit the tool."""


async def ask_decisions(
    calls: Sequence[PendingCall], source: Source, view: View, check: Check
) -> tuple[ToolDecision, ...] | None:
    """The decisions about all calls; None: the person gave up before the last one, so nothing is decided."""
    decisions: list[ToolDecision] = []
    for number, call in enumerate(calls, 1):
        view.show_question(call, number, len(calls))
        decision = await _ask_decision(call, source, view, check)
        if decision is None:
            return None
        decisions.append(decision)
    return tuple(decisions)


async def _ask_decision(call: PendingCall, source: Source, view: View, check: Check) -> ToolDecision | None:
    """The decision of a person about one call; None: the person gave up."""
    while (answer := await source.ask(QUESTION)) is not None:
        match answer.strip().lower():
            case "y" | "yes":
                return ToolDecision(call.call_id, True)
            case "n" | "no":
                reason = await source.ask("reason (Enter: none): ")
                return None if reason is None else ToolDecision(call.call_id, False, reason.strip() or None)
            case "e" | "edit":
                if (decision := await _ask_arguments(call, source, view, check)) is not None:
                    return decision
            case _:
                view.hint(HELP)
    return None


async def _ask_arguments(call: PendingCall, source: Source, view: View, check: Check) -> ToolDecision | None:
    """An approval with other arguments; None: the person gave up the edit."""
    draft = plain_json(call.arguments)
    view.hint(
        "Enter runs it with these arguments; Ctrl-C leaves it as it was"
        if source.prefills
        else "type the arguments as JSON, in place of those above; Ctrl-C leaves them as they were"
    )
    while (text := await source.ask("arguments: ", prefill=draft)) is not None:
        draft = text
        try:
            arguments = json.loads(text)
            if not isinstance(arguments, dict):
                raise AnswerInvalid("give a JSON object, as in {" + '"name": "value"' + "}")
            if _sorted_json(arguments) == _sorted_json(call.arguments):  # unlike ==, JSON tells 1 from true
                return ToolDecision(call.call_id, True)
            await check(call, text)
        except (ValueError, RecursionError) as error:
            view.error(AnswerInvalid(f"that is not valid JSON: {error}"))
        except AnswerInvalid as error:
            view.error(error)
        else:
            return ToolDecision(call.call_id, True, None, text)
    return None


def _sorted_json(arguments: Mapping[str, Any]) -> str:
    """The arguments as JSON, in one order."""
    return json.dumps(arguments, sort_keys=True)
