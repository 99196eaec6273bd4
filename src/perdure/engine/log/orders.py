"""The order to ask the user, which an agent gets after too many steps that brought nothing new."""

from __future__ import annotations

import json
from collections.abc import Collection

from perdure.core.errors import AnswerDemanded
from perdure.core.messages import SEND_MESSAGE
from perdure.engine.log.tool_rules import RuleState

ASK_USER = "ask_user"
ORDER = "stop: "
"""The beginning of an order to ask the user."""


def order_to_ask(why: str, tools: Collection[str]) -> str:
    """Return the order. `why`: what the agent has done so far; `tools`: the names of its tools."""
    return f"{ORDER}{why}. {_ask_user_order(tools)}: say where you stand, and ask for what you need."


def why_not_after_order(tail: str, name: str, tools: Collection[str], rules: RuleState | None) -> str | None:
    """Return why a tool may not be called by an answer to a request with this `tail`, in words for the model; None: it
    may, because the tail had no order to ask the user, or tool rules demand a call, too."""
    if name in (ASK_USER, SEND_MESSAGE) or (rules and (rules.missing or rules.goes_on)):
        return None
    try:
        notices = json.loads(tail).get("notices", ())
    except (ValueError, AttributeError):
        return None
    ordered = any(isinstance(notice, str) and notice.startswith(ORDER) for notice in notices)
    return str(AnswerDemanded(name, how=_ask_user_order(tools))) if ordered else None


def _ask_user_order(tools: Collection[str]) -> str:
    """How an agent with these tools asks the user, as an order."""
    if ASK_USER in tools:
        return f"Your next call has to be {ASK_USER}"
    return f"Call {SEND_MESSAGE}" if SEND_MESSAGE in tools else "Answer the user, without another call"
