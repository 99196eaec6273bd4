"""A small MCP server without the SDK, over stdin and stdout, that lists any entries. It runs as a program:

    python -P mcp_raw_server.py FILE

FILE is JSON, read at each listing of the tools: the entries of the listing, valid tools or not. Every tool returns its
own name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

METHOD_NOT_FOUND = -32601


def answer(method: str, params: dict[str, Any], listing: Path) -> dict[str, Any] | None:
    """The result of a request; None: the method is unknown."""
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
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params", {}), listing)
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            response["error"] = {"code": METHOD_NOT_FOUND, "message": f"no method {request['method']}"}
        else:
            response["result"] = result
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
