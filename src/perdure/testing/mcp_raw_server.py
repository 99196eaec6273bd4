"""A small MCP server without the SDK, over stdin and stdout, that lists whatever it is told to. It is run as a program:

    python -P mcp_raw_server.py FILE

FILE is JSON, read whenever the tools are listed: the entries of the listing, whether they are tools or not. Every tool
answers with its own name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["answer"]

METHOD_NOT_FOUND = -32601


def answer(method: str, params: dict[str, Any], listing: Path) -> dict[str, Any] | None:
    """The result of a request; None: it is not known here."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": json.loads(listing.read_text(encoding="utf-8"))}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["name"]}]}
    return None


def main() -> None:
    listing = Path(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = answer(asked["method"], asked.get("params", {}), listing)
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        if result is None:
            told["error"] = {"code": METHOD_NOT_FOUND, "message": f"no method {asked['method']}"}
        else:
            told["result"] = result
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
