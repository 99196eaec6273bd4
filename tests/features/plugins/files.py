"""Files of definitions, as tests write them."""

from __future__ import annotations

from pathlib import Path

from perdure.features.plugins.definitions import SKILL_FILE, DefinitionKind


def write(path: Path, text: str) -> Path:
    """Write a text to a file, and make its folder; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def define(folder: Path, kind: DefinitionKind, name: str, body: str = "Do it.", /, **fields: object) -> Path:
    """Write a definition with a description below a folder with definitions; return its path."""
    lines = [f"{key}: {value}" for key, value in {"description": f"For {name}", **fields}.items()]
    file = folder / kind / (f"{name}/{SKILL_FILE}" if kind == "skills" else f"{name}.md")
    return write(file, "\n".join(["---", *lines, "---", body, ""]))
