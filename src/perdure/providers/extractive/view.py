"""Reading a request the way a language model would: memory as it now stands, and how far this turn has come."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.core.messages import ToolCall, ToolResult
from perdure.core.models import ModelRequest
from perdure.core.text.markup import unescape_tags
from perdure.core.tools.engine_specs import tools_with
from perdure.providers.extractive.language import clean

_EDIT_TOOLS = frozenset(tools_with("shows_block"))

_SECTION = re.compile(r"^<memory_blocks>[ \t]*\n(.*?)(?:^</memory_blocks>$|\Z)", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"<([^\s<>/][^\s<>]*)>")
_FRAME = re.compile(r"\(.*\)", re.DOTALL)
_SPEAKER = re.compile(r"\[([^\[\]\n]{1,200})\] ")
_USER = "User"
_FROM_ENGINE = "<system-reminder>"


@dataclass(frozen=True, slots=True)
class Turn:
    """The texts since the last reply, and the calls that followed.

    `done` pairs the calls made since the last of `texts` with their results (None: no result came), in order;
    `answers` counts the model answers that held them.
    """

    texts: tuple[str, ...]
    done: tuple[tuple[ToolCall, ToolResult | None], ...]
    answers: int

    @property
    def text(self) -> str:
        """All texts of the turn."""
        return "\n".join(self.texts)


def visible_blocks(request: ModelRequest) -> dict[str, str]:
    """Label -> value of every block the request shows, with the edits further down in the log applied."""
    blocks = _blocks_in_system(request.system)
    calls: dict[str, ToolCall] = {}
    for message in request.messages:
        if message.kind == "memory_delta":
            _apply_delta(blocks, _json_object(message.text))
        elif message.kind == "message":
            calls.update((call.call_id, call) for call in message.calls)
            for result in message.results:
                call = calls.get(result.call_id)
                if call is not None and call.name in _EDIT_TOOLS and result.status == "success":
                    arguments = arguments_of(call)
                    label = arguments.get("label", arguments.get("block_label"))
                    if isinstance(label, str):
                        blocks[label] = result.text
    return {label: clean(value) for label, value in blocks.items()}


def read_turn(request: ModelRequest) -> Turn:
    """The turn this request is about. Without a message since the last reply, `texts` is empty."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    answers = 0
    for message in request.messages:
        if message.kind != "message":
            continue
        if message.role == "user":
            texts.append(clean(words_of_user(message.text)))
            calls, results, answers = [], {}, 0
        elif message.role == "assistant" and message.calls:
            calls.extend(message.calls)
            answers += 1
        elif message.role == "assistant" and message.text.strip():
            texts = []
        results.update((result.call_id, result) for result in message.results)
    return Turn(tuple(texts), tuple((call, results.get(call.call_id)) for call in calls), answers)


def words_of_user(text: str) -> str:
    """The part of a message that its user said: in a group the parts marked as the user's, if there are any; of what
    the engine asks a companion, nothing."""
    if text.startswith(_FROM_ENGINE):
        return ""
    words: list[str] = []
    speaker: str | None = None
    for paragraph in text.split("\n\n"):
        if (opening := _SPEAKER.match(paragraph)) is not None:
            speaker, paragraph = opening[1], paragraph[opening.end() :]
        elif speaker is None and _FRAME.fullmatch(paragraph) is None:
            return text  # nobody is marked: it comes from a user alone
        if speaker == _USER:
            words.append(paragraph)
    return "\n\n".join(words) or text


def offered_tools(request: ModelRequest) -> frozenset[str]:
    """The names of the tools that may be called now."""
    if request.options.tool_choice == "none":
        return frozenset()
    return frozenset(name for tool in request.tools if isinstance(name := tool.get("name"), str))


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """The arguments of a call; empty when its text is no JSON object."""
    return _json_object(call.arguments)


def _blocks_in_system(system: str) -> dict[str, str]:
    """The blocks of the memory section, read line by line: a tag inside a value is text."""
    values: dict[str, str] = {}
    lines = iter(section[1].split("\n") if (section := _SECTION.search(system)) else ())
    for line in lines:
        if (opening := _OPENING.fullmatch(line)) is None:
            continue
        for before in lines:
            if before == "<value>":
                values[opening[1]] = "\n".join(iter(lambda: next(lines, "</value>"), "</value>"))
            elif before == f"</{opening[1]}>":
                break
    return {label: unescape_tags(value, values) for label, value in values.items()}


def _apply_delta(blocks: dict[str, str], delta: Mapping[str, Any]) -> None:
    """Change the blocks as a memory delta of the engine says."""
    label, value = delta.get("label"), delta.get("value")
    if not isinstance(label, str):
        return
    if delta.get("op") == "detached":
        blocks.pop(label, None)
    elif isinstance(value, str):
        blocks.pop(str(delta.get("renamed_from")), None)
        blocks[label] = value


def _json_object(text: str) -> Mapping[str, Any]:
    """The JSON object that this text is; empty if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
