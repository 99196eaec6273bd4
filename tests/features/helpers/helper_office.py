"""An agent with helpers, whose models answer from scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.messages import ToolCall
from perdure.core.models import Model
from perdure.core.text.json_strings import compact_json
from perdure.settings import Settings


def define(home: Path, name: str, body: str = "You help.", **fields: Any) -> None:
    """Write the definition of a helper into the folder of the user."""
    folder = home / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}: {value}" for key, value in {"name": name, "description": f"Helps as {name}.", **fields}.items()]
    (folder / f"{name}.md").write_text("\n".join(["---", *lines, "---", body, ""]), encoding="utf-8")


@asynccontextmanager
async def lead(
    path: Path,
    models: Mapping[str, Model],
    *,
    tools: tuple[str, ...] = (),
    functions: Sequence[Any] = (),
    **changes: Any,
) -> AsyncIterator[tuple[AsyncPerdure, AsyncAgent]]:
    """The store, and its agent `Lead` with `run_helper` and these tools, on the model `test/lead`."""
    settings = replace(Settings(), **{"embedding": "none", "home": str(path), "helper_reply_s": 30.0, **changes})
    named = {f"test/{name}": model for name, model in models.items()}
    async with await AsyncPerdure.open(path / "agents.db", models=named, settings=settings, tools=functions) as perdure:
        agent = await perdure.create_agent("Lead", model="test/lead")
        for tool in ("run_helper", *tools):
            await agent.tools.attach(tool)
        yield perdure, agent


def helper_call(name: str, prompt: str, call_id: str = "", **arguments: Any) -> ToolCall:
    """A call of `run_helper`, for an answer with several."""
    return ToolCall(call_id, "run_helper", compact_json({"name": name, "prompt": prompt, **arguments}))
