"""`run_code`: Python of a model, run in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.core.tools.sandbox import Sandbox, SandboxJob, SandboxResult
from perdure.core.tools.spec import ToolOutcome

PYTHON_NAMES = frozenset({"python", "py", "python3"})


async def run_code(sandbox: Sandbox, arguments: Mapping[str, Any], *, owner: str) -> ToolOutcome:
    """Run code, and return its output, the value of its last line, and its error. Raises: SandboxUnavailable.

    Args:
        owner: the agent that runs it.
    """
    language = str(arguments.get("language") or "python").strip().lower()
    if language not in PYTHON_NAMES:
        text = f"code in {language[:40]!r} was not run: only Python can be run safely here. Write it in Python."
        return ToolOutcome(text=text, status="error")
    result = await sandbox.run(SandboxJob(source=str(arguments["code"]), owner=owner))
    return ToolOutcome(text=render_result(result), status="success" if result.status == "success" else "error")


def render_result(result: SandboxResult) -> str:
    """The result as text for the model, a section for each part that is not empty."""
    parts = [
        ("stdout", result.stdout),
        ("stderr", result.stderr),
        ("value", "" if result.value is None else _render_value(result.value)),
        ("error", render_error(result)),
    ]
    sections = [f"{name}:\n{text.rstrip()}" for name, text in parts if text.strip()]
    return (
        "\n\n".join(sections) or "It ran, printed nothing, and its last line has no value. print(...) shows something."
    )


def _render_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def render_error(result: SandboxResult) -> str:
    """The traceback and the error of a job; empty if it succeeded."""
    if result.status == "success":
        return ""
    lines = [f"  line {frame.line}, in {frame.function}: {frame.text}" for frame in result.traceback]
    return "\n".join([*lines, result.error or f"it ended with {result.status}"])
