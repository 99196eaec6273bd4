"""The request for a summary by a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perdure.context.prompts import summary_prompt
from perdure.core.messages import Message, unlogged_message
from perdure.core.models import ModelOptions, ModelRequest
from perdure.core.text.markup import escape_tags

_INTRODUCTION = "The messages to record follow. Answer with the record only."
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
    # The estimate takes 2.4 tokens for an English word with its space, 1.5 for a Chinese character.
    system = (prompt or summary_prompt()).replace("{words}", str(max(5, limit * 2 // 5)))
    system = system.replace("{characters}", str(max(8, limit * 3 // 5)))
    before = (
        f"<earlier>\n{escape_tags(previous)}\n</earlier>\nThat is recorded already.\n\n" if previous.strip() else ""
    )
    text = f"{before}<source>\n{escape_tags(transcript)}\n</source>\n\nWrite the record of the source."
    messages: tuple[Message, ...] = (unlogged_message("user", text),)
    if acknowledge:
        messages = (unlogged_message("user", _INTRODUCTION), unlogged_message("assistant", _ACKNOWLEDGEMENT), *messages)
    # Room for a summary that is a little too long: it is better than one that breaks off.
    own = replace(ModelOptions.from_settings(options), max_output_tokens=limit * 3 // 2 + 64)
    return ModelRequest(model=model, system=system, messages=messages, options=own, purpose="summary")
