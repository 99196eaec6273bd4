"""Forms for tools: fields made from a schema, and arguments, permissions and rules made from what was filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.errors import InvalidInput
from perdure.domain.tools.units import ToolChanges

PREFIX = "argument-"
"""Begins the name of each field of an argument, so that none is taken for a field of the form's own."""

PLAIN = {"string": "text", "integer": "number", "number": "number", "boolean": "choice"}


def fields_of(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a form for these arguments: `text`, `number`, `choice` of `choices`, or `json` for the rest."""
    required, fields = parameters.get("required", ()), []
    for name, schema in parameters.get("properties", {}).items():
        choices = [True, False] if schema.get("type") == "boolean" else list(schema.get("enum", ()))
        fields.append(
            {
                "name": PREFIX + name,
                "label": name,
                "description": schema.get("description", ""),
                "kind": "choice" if choices else PLAIN.get(str(schema.get("type")), "json"),
                "choices": [json.dumps(one) if not isinstance(one, str) else one for one in choices],
                "required": name in required,
            }
        )
    return fields


def arguments_of(parameters: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that a form holds: as JSON in `arguments`, or field by field. An empty field that need not be
    there is left out. Raises: InvalidInput."""
    if "arguments" in form:
        found = parse_json("arguments", form["arguments"].strip() or "{}")
        if not isinstance(found, dict):
            raise InvalidInput("arguments: write a JSON object such as {}")
        return found
    arguments: dict[str, Any] = {}
    for field in fields_of(parameters):
        text, name = form.get(field["name"], ""), field["label"]
        schema = parameters["properties"][name]
        if not text.strip() and not (field["required"] and schema.get("type") == "string"):
            continue
        is_text = schema.get("type") == "string" or (text in schema.get("enum", ()))
        arguments[name] = text if is_text else parse_json(name, text)
    return arguments


def parse_json(name: str, text: str) -> Any:
    """The value of a field of JSON. Raises: InvalidInput."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}; write JSON such as 3, true, [1, 2] or {{}}") from error


def permissions_of(form: Mapping[str, str]) -> ToolChanges:
    """The permissions of a tool as its form has them. Raises: InvalidInput."""
    timeout, memory = form.get("timeout_s", "").strip(), form.get("memory_mb", "").strip()
    return {
        "network": _names(form.get("network", "")),
        "requirements": _names(form.get("requirements", "")),
        "timeout_s": parse_json("timeout_s", timeout) if timeout else None,
        "memory_mb": parse_json("memory_mb", memory) if memory else None,
    }


def rule_of(form: Mapping[str, str], tools: Sequence[str]) -> dict[str, Any]:
    """The rule that a form describes: its `type`, `tool_name`, the other `tools` that it needs, and its number."""
    rule: dict[str, Any] = {"type": form.get("type", ""), "tool_name": form.get("tool_name", "")}
    match rule["type"]:
        case "constrain_child_tools" | "parent_last_tool":
            rule["children"] = list(tools)
        case "max_count_per_step":
            rule["max_count_limit"] = parse_json("how often", form.get("count", "") or "1")
        case "conditional":
            lines = [line.partition("=") for line in form.get("outputs", "").splitlines() if line.strip()]
            rule["child_output_mapping"] = {text.strip(): tool.strip() for text, _, tool in lines}
    return rule


def _names(text: str) -> list[str]:
    """Names that are separated by commas or line ends."""
    return [name.strip() for name in text.replace("\n", ",").split(",") if name.strip()]
