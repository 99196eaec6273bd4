"""Which of the MCP server's tools a model chooses: `python -m benchmarks.tool_choice URL [MODEL]`.

The model behind an OpenAI-compatible URL gets the twelve descriptions and one request of a user at a time. A small
model that writes its call as JSON in its answer counts as well.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx

from perdure.features.mcp_server.specs import instructions, tool_specs

TIMEOUT_S = 600.0
_NAME = re.compile(r'"name"\s*:\s*"([a-z_]+)"')


def main(url: str, model: str = "model") -> None:
    """Print a line for each request, and how many calls fit."""
    requests = tomllib.loads(Path(__file__).with_name("tool_choice.toml").read_text("utf-8"))["request"]
    tools = [
        {"type": "function", "function": {"name": one.name, "description": one.description, "parameters": one.schema}}
        for one in tool_specs().values()
    ]
    fitting = 0
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        for request in requests:
            body = {
                "model": model,
                "temperature": 0,
                "max_tokens": 200,
                "tools": tools,
                "messages": [
                    {"role": "system", "content": f"You are a coding agent. {instructions()}"},
                    {"role": "user", "content": request["text"]},
                ],
            }
            answer = client.post("/chat/completions", json=body).raise_for_status().json()
            name = chosen_tool(answer["choices"][0]["message"])
            fitting += name in request["fits"]
            print(
                f"{'yes' if name in request['fits'] else 'NO ':3} {name or '-':18} {request['text'][:80]}", flush=True
            )
    print(f"{fitting} of {len(requests)} requests: a fitting tool")


def chosen_tool(message: dict[str, Any]) -> str:
    """Return the name of the first tool that an answer calls; empty: none."""
    if calls := message.get("tool_calls"):
        return str(calls[0]["function"]["name"])
    found = _NAME.search(message.get("content") or "") or re.search(
        rf"\b({'|'.join(tool_specs())})\b", json.dumps(message.get("content") or "")
    )
    return found[1] if found else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
