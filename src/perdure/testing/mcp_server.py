"""A small MCP server, written with the official SDK, that can misbehave. It is run as a program of its own:

    python -P mcp_server.py [--state FILE] [--http PORT | --sse PORT]

Without a port it speaks over stdin and stdout. FILE is JSON, read whenever the tools are listed: `described` is what
the tool `look` is said to do, `without` are tools that are left out, `more` is one that is offered besides, with
`schema` as its input schema.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import Tool, ToolAnnotations

__all__ = ["make"]


class Changing(MCPServer):
    """A server whose definitions come from a file as well."""

    state: Path | None = None

    async def list_tools(self) -> list[Tool]:
        said: dict[str, Any] = json.loads(self.state.read_text()) if self.state and self.state.exists() else {}
        tools = [tool for tool in await super().list_tools() if tool.name not in said.get("without", ())]
        for tool in tools:
            if tool.name == "look" and "described" in said:
                tool.description = said["described"]
        if "more" in said:
            tools.append(Tool(name=said["more"], input_schema=said.get("schema", {"type": "object"})))
        return tools


def make() -> Changing:
    """The server and its tools."""
    server = Changing("testing", log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def look(at: str) -> str:
        """Look at something."""
        return f"{at}: nothing unusual"

    @server.tool()
    def pid() -> str:
        """The number of this process."""
        return str(os.getpid())

    @server.tool()
    async def hang(mark: str = "") -> str:
        """Never answer; a file `mark` is made when it begins."""
        if mark:
            Path(mark).touch()  # noqa: ASYNC240 - nothing else waits here
        await asyncio.sleep(3_600)
        return "too late"

    @server.tool()
    def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        """A caption and a picture."""
        return ["a caption", Image(data=b"\x89PNG1234", format="png")]

    @server.tool()
    def told(context: Context) -> dict[str, Any]:
        """The environment and the headers that this server was given."""
        return {"environment": dict(os.environ), "headers": dict(context.headers or {})}

    @server.tool()
    async def announce(context: Context) -> str:
        """Say that the tools have changed."""
        await context.notify_tools_changed()
        await context.session.send_tool_list_changed()
        return "said"

    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path)
    parser.add_argument("--http", type=int)
    parser.add_argument("--sse", type=int)
    chosen = parser.parse_args()
    server = make()
    server.state = chosen.state
    if chosen.http is not None:
        server.run("streamable-http", port=chosen.http)
    elif chosen.sse is not None:
        server.run("sse", port=chosen.sse)
    else:
        server.run()


if __name__ == "__main__":
    main()
