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

from perdure.core.text.json_strings import json_object

HEARTBEAT = "request_heartbeat"
THINKING = "thinking"
INNER_THOUGHTS = "inner_thoughts"
"""What older agents called it."""
_TRAINED = (THINKING, INNER_THOUGHTS, HEARTBEAT)

SLEEPTIME_TYPES = ("sleeptime_agent", "voice_sleeptime_agent")
"""The types of companions, which tidy the memory of another agent: the usual loop with a prompt of its own."""
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

    def extra_arguments(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the arguments that this loop adds to `parameters`, a tool's JSON schema that lacks them."""
        own = parameters.get("properties", {})
        return tuple(name for name in self.arguments if name not in own)

    def read_arguments(self, parameters: Mapping[str, Any], text: str, *, strict: bool) -> tuple[str, Sequence[str]]:
        """Return (a call's arguments with thoughts under the name `thinking`, the names of those to ignore).

        Models write arguments of loops that they were trained with, also of another one than this: those are ignored
        where the schema `parameters` takes no others than its own. With `strict` all others are ignored.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return text, ()
        own = parameters.get("properties", {})
        if not isinstance(values, dict) or parameters.get("additionalProperties") is not False:
            return text, ()
        extra = self.extra_arguments(parameters)
        if THINKING in extra and INNER_THOUGHTS in values.keys() - own and THINKING not in values:
            values = {THINKING if name == INNER_THOUGHTS else name: value for name, value in values.items()}
            text = json.dumps(values, ensure_ascii=False)
        return text, [name for name in values if name not in (*own, *extra) and (strict or name in _TRAINED)]

    def offer(self, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the tool as the model is offered it: with the arguments of the loop, each required."""
        parameters = tool["parameters"]
        if not (added := self.extra_arguments(parameters)):
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
    """Return the loop of an agent of this type. A model that is set to reason needs no argument for its thoughts."""
    if agent_type not in _HEARTBEAT_TYPES:
        return _SLEEPTIME if agent_type in SLEEPTIME_TYPES else FREE
    effort = settings.get("reasoning_effort")
    reasons = settings.get("max_reasoning_tokens") or effort not in (None, "none", "minimal")
    return _NATIVE if reasons else _WITH_THOUGHTS


def with_text_argument(arguments: str, name: str) -> str:
    """Return a call's `arguments` with the one called `name` as a text, if the model gave it as another value: a list
    of texts or an object with a text becomes that text, any other value becomes JSON."""
    rest, taken = split_arguments(arguments, (name,))
    try:
        words = "" if not taken or isinstance(taken[name], str | None) else _words(taken[name])
    except RecursionError:  # it nests too deep to say anything
        words = ""
    return json.dumps({name: words, **json.loads(rest)}, ensure_ascii=False) if words else arguments


def _words(value: Any) -> str:
    """Return the text in a JSON value, as `with_text_argument` reads it; empty: it has no text."""
    if isinstance(value, str) or not (value or value in (0, False)):
        return value or ""
    if isinstance(value, dict) and (texts := [value[key] for key in ("text", "content", "message") if key in value]):
        return next(filter(None, map(_words, texts)), "")
    if isinstance(value, list) and all(isinstance(one, str | dict | list | None) for one in value):
        return "\n".join(filter(None, map(_words, value)))
    return json.dumps(value, ensure_ascii=False)


def split_arguments(text: str, names: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """Return (a call's arguments as JSON without those in `names`, name -> value of these); no object: (`text`, {})."""
    if not names or (arguments := json_object(text)) is None:
        return text, {}
    taken = {name: arguments.pop(name) for name in names if name in arguments}
    return (json.dumps(arguments, ensure_ascii=False), taken) if taken else (text, {})
