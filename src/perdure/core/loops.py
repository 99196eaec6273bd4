"""The loops of agent types: what the schema of each tool holds besides its own arguments, whether an answer has to call
a tool, and what keeps a run going.

The loop of a `letta_v1_agent` goes on after every call and ends with an answer in words. Older types have a heartbeat
loop: each answer calls a tool, words go out by `send_message`, and the run goes on only if a call requests it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

HEARTBEAT = "request_heartbeat"
THINKING = "thinking"
INNER_THOUGHTS = "inner_thoughts"
"""What older agents called it."""
_TRAINED = (THINKING, INNER_THOUGHTS, HEARTBEAT)

SLEEPTIME_TYPES = ("sleeptime_agent", "voice_sleeptime_agent")
"""The types of companions, which tidy the memory of another agent. Their loop is the usual one, with a prompt of its
own."""
_HEARTBEAT_TYPES = frozenset({"memgpt_agent", "memgpt_v2_agent", "split_thread_agent"})

_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    THINKING: {"type": "string", "description": "What you think before this call. Nobody but you reads it."},
    HEARTBEAT: {
        "type": "boolean",
        "description": "Whether you want to go on after this call. With false your turn ends when the tool has run.",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """The loop of an agent.

    Args:
        heartbeats: every answer calls a tool, one at a time, and the run goes on only on a heartbeat, a rule or a
            failure.
        prompt: the name of the base prompt.
        arguments: what each tool's schema holds besides the tool's own arguments; thoughts come first.
    """

    heartbeats: bool = False
    prompt: Literal["base", "heartbeats", "sleeptime"] = "base"
    arguments: tuple[str, ...] = ()

    def added(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The arguments that this loop adds to a schema: a tool's own argument of such a name stays the tool's."""
        own = parameters.get("properties", {})
        return tuple(name for name in self.arguments if name not in own)

    def read(self, parameters: Mapping[str, Any], text: str, *, strict: bool) -> tuple[str, Sequence[str]]:
        """A call's arguments, with thoughts under their name here, and which of them the tool ignores.

        Models write the arguments of the loops that they were trained with, also those of another one: they are ignored
        where the tool takes no others than its own. With `strict` so is everything that is not the tool's.
        """
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            return text, ()
        own = parameters.get("properties", {})
        if not isinstance(given, dict) or parameters.get("additionalProperties") is not False:
            return text, ()
        if THINKING in self.added(parameters) and INNER_THOUGHTS in given.keys() - own and THINKING not in given:
            given = {THINKING if name == INNER_THOUGHTS else name: value for name, value in given.items()}
            text = json.dumps(given, ensure_ascii=False)
        added = (*own, *self.added(parameters))
        return text, [name for name in given if name not in added and (strict or name in _TRAINED)]

    def offer(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        """The tool as the model is offered it: with the arguments of the loop, each required."""
        parameters = tool["parameters"]
        if not (added := self.added(parameters)):
            return tool
        before = [name for name in added if name == THINKING]
        after = [name for name in added if name != THINKING]
        properties = {
            **{name: _SCHEMAS[name] for name in before},
            **parameters.get("properties", {}),
            **{name: _SCHEMAS[name] for name in after},
        }
        required = [*before, *parameters.get("required", ()), *after]
        return {**tool, "parameters": {**parameters, "properties": properties, "required": required}}


FREE = AgentLoop()
_SLEEPTIME = AgentLoop(prompt="sleeptime")
_WITH_THOUGHTS = AgentLoop(heartbeats=True, prompt="heartbeats", arguments=(THINKING, HEARTBEAT))
_NATIVE = AgentLoop(heartbeats=True, prompt="heartbeats", arguments=(HEARTBEAT,))


def loop_of(agent_type: str, settings: Mapping[str, Any]) -> AgentLoop:
    """The loop of an agent of this type. A model that is set to reason by itself needs no argument for its thoughts."""
    if agent_type not in _HEARTBEAT_TYPES:
        return _SLEEPTIME if agent_type in SLEEPTIME_TYPES else FREE
    effort = settings.get("reasoning_effort")
    reasons = settings.get("max_reasoning_tokens") or effort not in (None, "none", "minimal")
    return _NATIVE if reasons else _WITH_THOUGHTS


def with_words(arguments: str, name: str) -> str:
    """The arguments, with the one of this name as a text if it was given as another value that surely means one: a
    number, texts in a list, the text of an object, any other value as JSON."""
    rest, taken = split_arguments(arguments, (name,))
    try:
        words = "" if not taken or isinstance(taken[name], str | None) else _words(taken[name])
    except RecursionError:  # it nests too deep to say anything
        words = ""
    return json.dumps({name: words, **json.loads(rest)}, ensure_ascii=False) if words else arguments


def _words(value: Any) -> str:
    if isinstance(value, str) or not (value or value in (0, False)):
        return value or ""
    if isinstance(value, dict) and (said := [value[key] for key in ("text", "content", "message") if key in value]):
        return next(filter(None, map(_words, said)), "")
    if isinstance(value, list) and all(isinstance(one, str | dict | list | None) for one in value):
        return "\n".join(filter(None, map(_words, value)))
    return json.dumps(value, ensure_ascii=False)


def split_arguments(text: str, names: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """(A call's arguments as JSON without those of these names, the values of these). What is no JSON object stays."""
    if not names:
        return text, {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text, {}
    if not isinstance(arguments, dict):
        return text, {}
    taken = {name: arguments.pop(name) for name in names if name in arguments}
    return (json.dumps(arguments, ensure_ascii=False), taken) if taken else (text, {})
