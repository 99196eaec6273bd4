"""A person is asked about calls that wait, one after the other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from perdure.cli.chat.source import Source
from perdure.cli.views.pending import plain_json
from perdure.cli.views.view import View
from perdure.core.answers import PendingCall
from perdure.core.errors import AnswerInvalid
from perdure.core.messages import ToolDecision

__all__ = ["ask_about"]

QUESTION = "[y]es / [n]o / [e]dit: "
WHAT_IT_MEANS = "y lets it run, n refuses it, e changes its arguments first; Ctrl-C decides nothing, and it waits on"

Check = Callable[[PendingCall, str], Awaitable[None]]
"""Raises: AnswerInvalid: these arguments, as JSON, don't fit the call's tool."""


async def ask_about(
    calls: Sequence[PendingCall], source: Source, view: View, check: Check
) -> tuple[ToolDecision, ...] | None:
    """What a person decides about each of the calls; None: they went away before the last, so nothing is decided."""
    decisions: list[ToolDecision] = []
    for number, call in enumerate(calls, 1):
        view.asked_about(call, number, len(calls))
        decision = await _ask(call, source, view, check)
        if decision is None:
            return None
        decisions.append(decision)
    return tuple(decisions)


async def _ask(call: PendingCall, source: Source, view: View, check: Check) -> ToolDecision | None:
    while (said := await source.ask(QUESTION)) is not None:
        match said.strip().lower():
            case "y" | "yes":
                return ToolDecision(call.call_id, True)
            case "n" | "no":
                reason = await source.ask("reason (Enter: none): ")
                return None if reason is None else ToolDecision(call.call_id, False, reason.strip() or None)
            case "e" | "edit":
                if (decision := await _edit(call, source, view, check)) is not None:
                    return decision
            case _:
                view.hint(WHAT_IT_MEANS)
    return None


async def _edit(call: PendingCall, source: Source, view: View, check: Check) -> ToolDecision | None:
    """The call with other arguments; None: they shall stay as they are."""
    typed = plain_json(call.arguments)
    view.hint(
        "Enter runs it with what stands here then; Ctrl-C leaves it as it was"
        if source.prefills
        else "type the arguments as JSON, in place of those above; Ctrl-C leaves them as they were"
    )
    while (text := await source.ask("arguments: ", prefill=typed)) is not None:
        typed = text
        try:
            arguments = json.loads(text)
            if not isinstance(arguments, dict):
                raise AnswerInvalid("give a JSON object, as in {" + '"name": "value"' + "}")
            if _canonical(arguments) == _canonical(call.arguments):  # 1 is not true here
                return ToolDecision(call.call_id, True)
            await check(call, text)
        except (ValueError, RecursionError) as error:
            view.error(AnswerInvalid(f"that is not valid JSON: {error}"))
        except AnswerInvalid as error:
            view.error(error)
        else:
            return ToolDecision(call.call_id, True, None, text)
    return None


def _canonical(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True)
