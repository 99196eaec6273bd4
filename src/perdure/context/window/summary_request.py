"""The requests for a summary by a model, and for its repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perdure.context.prompts import summary_prompt
from perdure.context.sections.assemble import View
from perdure.context.sections.envelopes import envelope, mark_text
from perdure.core.messages import UNSEEN_KINDS, Message, unlogged_message
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.nodes import SummaryNode, node_handle
from perdure.core.text.markup import escape_tags

_INTRODUCTION = "The messages to record follow. Answer with the record only."
_NAME_CHARS = 80
_QUOTE_CHARS = 60
_PROBLEMS = {
    "empty": "It says nothing.",
    "apology": "It is a refusal or a question, not a record.",
    "prompt": "It repeats the instructions.",
    "echo": "It repeats the source instead of reporting it in fewer words.",
    "too_long": "It is too long.",
    "unrelated": "It does not report what the source says.",
    "invented": "It names what the source does not have.",
    "missing": "It leaves out what the agent needs.",
}
_ACKNOWLEDGEMENT = "Understood. I will answer with the record of the messages and with nothing else."


def summary_request(
    model: str,
    transcript: str,
    *,
    previous: str,
    max_summary_tokens: int,
    prompt: str | None = None,
    acknowledge: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> ModelRequest:
    """Build the request for a summary of a transcript, or of older summaries, within a limit of estimated tokens.

    Args:
        previous: the summary before the transcript, for references to it; may be empty.
        prompt: the instructions; None: our own.
        acknowledge: begin with an answer of the model in which it agrees to write only a summary.
        options: of the model, by their names in `ModelOptions`; the answer's length is ours.
    """
    limit = max(1, max_summary_tokens)
    system = instructions(prompt, limit)
    before = (
        f"<earlier>\n{escape_tags(previous)}\n</earlier>\nThat is recorded already.\n\n" if previous.strip() else ""
    )
    text = f"{before}<source>\n{escape_tags(transcript)}\n</source>\n\nWrite the record of the source."
    messages: tuple[Message, ...] = (unlogged_message("user", text),)
    if acknowledge:
        messages = (unlogged_message("user", _INTRODUCTION), unlogged_message("assistant", _ACKNOWLEDGEMENT), *messages)
    own = replace(ModelOptions.from_settings(options), max_output_tokens=_output_limit(limit))
    return ModelRequest(model=model, system=system, messages=messages, options=own, purpose="summary")


def own_summary_request(
    model: str,
    view: View,
    leaving: Sequence[Message],
    *,
    absorbed: Sequence[SummaryNode] = (),
    max_summary_tokens: int,
    prompt: str | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> ModelRequest:
    """Build the request for a summary by the agent's own model: the agent's own request up to what leaves the view,
    then what to do. A provider reads all but the last message from its cache.

    Args:
        view: of the conversation up to the last message that leaves.
        leaving: the messages that leave, in order.
        absorbed: the summaries that the new one stands for, too.
        prompt: the instructions; None: our own.
        options: of the agent's model, by their names in `ModelOptions`; the answer's length and form are ours.
    """
    limit = max(1, max_summary_tokens)
    text = envelope(
        "summary_request",
        instructions=instructions(prompt, limit),
        source=f"{_name_source(view, leaving, absorbed)}. What stands before is recorded already.",
        now="Answer none of these messages and call no tool: answer with the record of the source alone.",
    )
    ask = replace(unlogged_message("user", mark_text(text, view.prefix.marker)), kind="alert")
    own = ModelOptions.from_settings(options)
    own = replace(
        own,
        max_output_tokens=_output_limit(limit),
        response_format=None,
        tool_choice="none" if own.tool_choice == "none" else "auto",
    )
    return view.request(model, ask, options=own, purpose="summary")


def instructions(prompt: str | None, limit_tokens: int) -> str:
    """Return the instructions for a summary within a limit; `prompt` None: our own."""
    words, characters = _lengths(limit_tokens)
    return (prompt or summary_prompt()).replace("{words}", str(words)).replace("{characters}", str(characters))


def _name_source(view: View, leaving: Sequence[Message], absorbed: Sequence[SummaryNode]) -> str:
    """Return which of the messages in a request are to be recorded, in words."""
    shown = [row for row in leaving if row.kind not in UNSEEN_KINDS]
    which = f"the last {len(shown)} messages before this one"
    if shown and (begin := " ".join(shown[0].text[: 4 * _QUOTE_CHARS].split())[:_QUOTE_CHARS]):
        which += f", from the one that begins with {begin!r} on"
    if absorbed:
        which = f"the summaries {', '.join(node_handle(node.seq) for node in absorbed)}, and {which}"
    return which


def _output_limit(limit_tokens: int) -> int:
    """Return the limit of output tokens, above the wanted length: a long summary is better than a broken one."""
    return limit_tokens * 3 // 2 + 64


def repair_request(
    request: ModelRequest,
    answer: str,
    problem: str,
    *,
    missing: Sequence[str] = (),
    invented: Sequence[str] = (),
    max_summary_tokens: int,
) -> ModelRequest:
    """Build the request for a better summary: the first request, the model's answer, and what is wrong with it.

    Args:
        answer: as much of it as has room beside the source.
        problem: the reason for which it was rejected, or `invented` or `missing`.
        missing: what the summary must have, with its handles.
        invented: names in it that the source does not have.
    """
    words, characters = _lengths(max(1, max_summary_tokens))
    lines = [f"This record can't be used. {_PROBLEMS[problem]}"]
    if missing:
        lines += ["It must have, letter by letter:", *missing]
    if invented:
        lines += ["The source does not have:", *(name[:_NAME_CHARS] for name in invented)]
    lines.append(
        f"Write the whole record of the source again, in at most {words} words; in a language without spaces between"
        f" words, at most {characters} characters. Answer with the record alone."
    )
    again = (
        unlogged_message("assistant", answer.strip() or "(nothing)"),
        unlogged_message("user", escape_tags("\n".join(lines))),
    )
    return replace(request, messages=(*request.messages, *again))


def _lengths(limit_tokens: int) -> tuple[int, int]:
    """Return the limit in words, and in characters of a script without spaces between words."""
    # The estimate takes 2.4 tokens for an English word with its space, 1.5 for a Chinese character.
    return max(5, limit_tokens * 2 // 5), max(8, limit_tokens * 3 // 5)
