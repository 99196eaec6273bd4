"""What stands in a program's configuration, as a text to copy."""

from __future__ import annotations

import json
from typing import Any

from perdure.features.connect.programs import ConfigEntry
from perdure.features.connect.tomltext import set_table


def entry_text(entry: ConfigEntry) -> str:
    """Return an entry as a file that has nothing else."""
    if entry.format == "toml":
        return set_table("", entry.names, entry.value).rstrip("\n")
    value: Any = [entry.value] if entry.mark else entry.value
    for name in reversed(entry.names):
        value = {name: value}
    return json.dumps(value, indent=2, ensure_ascii=False)
