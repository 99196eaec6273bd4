"""Forms made from a tool's JSON schema: for trying a tool, and for a call that waits for approval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.core.errors import InvalidInput, NotFound
from perdure.core.ids import ConversationId
from perdure.core.messages import ToolDecision
from perdure.core.tools.answers import PendingCall
from perdure.library.agent import AsyncAgentById
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.chat_items import pending_shape
from perdure.ui.render import Data, field_of

PREFIX = "argument-"
"""Begins the name of each field of an argument, so that none is taken for a field of the form's own."""

PLAIN = {"string": "text", "integer": "number", "number": "number", "boolean": "choice"}


def fields_of(parameters: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> list[Data]:
    """The fields of a form for these arguments: `text`, `number`, `choice` of `choices`, or `json` for the rest; each
    with the `value` that it has in `arguments`, as a text."""
    required, fields = _list_in(parameters, "required"), []
    properties = parameters.get("properties")
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        kind, enum = _type_of(schema)
        description = schema.get("description") if isinstance(schema, Mapping) else None
        choices = [True, False] if kind == "boolean" else enum
        value = (arguments or {}).get(name)
        fields.append(
            {
                "name": PREFIX + name,
                "label": name,
                "description": description if isinstance(description, str) else "",
                "kind": "choice" if choices else PLAIN.get(kind, "json"),
                "choices": [_field_text(choice) for choice in choices],
                "required": name in required,
                "value": "" if value is None else _field_text(value),
            }
        )
    return fields


def _type_of(schema: Any) -> tuple[str, list[Any]]:
    """Return (type, choices) of an argument; if it may be null, those of its only other type; empty for an invalid
    schema, as other programs may have."""
    if not isinstance(schema, Mapping):
        return "", []
    others = [one for one in _list_in(schema, "anyOf") if not isinstance(one, Mapping) or one.get("type") != "null"]
    if len(others) == 1:
        return _type_of(others[0])
    kinds = schema.get("type")
    named = [kinds] if isinstance(kinds, str) else [one for one in _list_in(schema, "type") if one != "null"]
    return named[0] if len(named) == 1 and isinstance(named[0], str) else "", _list_in(schema, "enum")


def _list_in(schema: Mapping[str, Any], name: str) -> list[Any]:
    """The list that a schema has under this name; empty: it has none, or something else."""
    found = schema.get(name)
    return list(found) if isinstance(found, list | tuple) else []


def _field_text(value: Any) -> str:
    """Return a value as its form field shows it: a text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def arguments_of(parameters: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that a form holds: as JSON in `arguments`, or field by field. An empty field that need not be
    there is left out. Raises: InvalidInput."""
    return _read(parameters, form, {})


def _read(parameters: Mapping[str, Any], form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments `before` with the changes of a form; a field left as it was shown changes nothing."""
    if "arguments" in form:
        found = parse_json("arguments", form["arguments"].strip() or "{}")
        if not isinstance(found, dict):
            raise InvalidInput("arguments: write a JSON object such as {}")
        return found
    arguments = dict(before)
    for field in fields_of(parameters, before):
        text, name = form.get(field["name"], ""), field["label"]
        if name in before and text == field["value"].replace("\r\n", "\n"):
            continue
        kind, enum = _type_of(parameters["properties"][name])
        if not text.strip() and not (field["required"] and kind == "string"):
            arguments.pop(name, None)
            continue
        arguments[name] = text if kind == "string" or text in enum else parse_json(name, text, kind)
    return arguments


def parse_json(name: str, text: str, kind: str = "json") -> Any:
    """The value of a field of JSON, which is for a number if its `kind` is one. Raises: InvalidInput."""
    try:
        return json.loads(text)
    except ValueError as error:
        if kind in ("number", "integer"):
            raise InvalidInput(f"{name} is {text!r:.40}: write a number") from error
        place = f", from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidInput(f"{name}: it is not JSON{place}; write JSON such as 3, true, [1, 2] or {{}}") from error


async def approval_shape(library: AsyncPerdure, call: PendingCall) -> Data:
    """A call that waits, with the fields of its form; none if its tool is not known here."""
    parameters = {} if call.awaits_client else await _parameters_of(library, call)
    return pending_shape(call) | {"fields": fields_of(parameters, call.arguments)}


async def _parameters_of(library: AsyncPerdure, call: PendingCall) -> Mapping[str, Any]:
    """The schema of the arguments of a call; empty: its tool is not known, or is no object of fields."""
    try:
        parameters = (await library.tools.state(call.name)).tool.spec.parameters
    except NotFound:
        return {}
    return parameters if parameters.get("properties") else {}


async def decision_of(
    library: AsyncPerdure,
    agent: AsyncAgentById,
    conversation: ConversationId | None,
    form: Mapping[str, str],
    *,
    approves: bool,
) -> ToolDecision:
    """Return the form's decision about a waiting call, with changed arguments if any. Raises: InvalidInput."""
    call_id, edited = field_of(form, "call_id"), None
    waiting = await agent.pending(conversation=conversation) if approves else ()
    holds = "arguments" in form or any(name.startswith(PREFIX) for name in form)
    for call in waiting:
        if call.call_id == call_id and holds:
            arguments = _read(await _parameters_of(library, call), form, call.arguments)
            edited = None if arguments == call.arguments else json.dumps(arguments, ensure_ascii=False)
    return ToolDecision(call_id, approves, form.get("reason") or None, edited)
