"""The schema of an answer in the prompt, for models and servers that take none beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perdure.core.models import ModelRequest
from perdure.core.text.json_strings import spaced_json

REFUSED_SCHEMA = re.compile(
    r"response[ _]?(?:format|schema|json|mime)|json[ _]?(?:schema|object|mode)|grammar|output[ _]?(?:format|config)"
    r"|text\.format|structured[ _]?output|native ?output|guided",
    re.IGNORECASE,
)
"""Matches the error of a server that refuses the form in which an answer was asked for."""


def with_schema_in_prompt(request: ModelRequest, *, response_format: Mapping[str, Any] | None = None) -> ModelRequest:
    """Return the request with its answer's JSON schema put in the system text, and this `response_format`."""
    shape = request.options.response_format or {}
    if shape.get("type") not in ("json_schema", "json_object"):
        return request
    schema = spaced_json(shape.get("json_schema", shape).get("schema") or {"type": "object"})
    system = f"{request.system}\n\nAnswer with one JSON object of this schema, and with nothing else:\n{schema}".strip()
    return replace(request, system=system, options=replace(request.options, response_format=response_format))
