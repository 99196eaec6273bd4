"""The least that a server of agents does: one endpoint, one durable row, one call of a model.

`python -m benchmarks.floor_server PORT MODEL_URL FILE`
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

__all__ = ["floor_app"]


def floor_app(model_url: str, file: str) -> FastAPI:
    """An endpoint `/message` that writes its body as one row at `synchronous=FULL` and asks the model once."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)"
    )
    app, client = FastAPI(), httpx.AsyncClient(base_url=model_url, trust_env=False)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/message")
    async def message(body: dict[str, Any]) -> dict[str, Any]:
        connection.execute("INSERT INTO messages (body) VALUES (?)", (json.dumps(body),))
        asked = {"model": "gpt-4.1", "messages": [{"role": "user", "content": body["input"]}]}
        answer = (await client.post("/chat/completions", json=asked)).json()
        return {"answer": answer["choices"][0]["message"]["content"]}

    return app


if __name__ == "__main__":
    config = uvicorn.Config(floor_app(sys.argv[2], sys.argv[3]), port=int(sys.argv[1]), log_level="error")
    asyncio.run(uvicorn.Server(config).serve())
