"""The JSON schema of files of agents, by which they are read, and editors complete them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.domain.agents.units import KNOWN_SETTINGS


@functools.cache
def manifest_schema() -> Mapping[str, Any]:
    """The JSON schema of a file of agents."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))
    settings = schema["$defs"]["agents"]["additionalProperties"]["properties"]["settings"]
    settings |= {"properties": {name: {} for name in sorted(KNOWN_SETTINGS)}, "additionalProperties": False}
    return schema
