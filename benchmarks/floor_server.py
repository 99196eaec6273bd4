"""The least that a server of agents does: one endpoint, one durable row, one call of a model.

`python -m benchmarks.floor_server PORT MODEL_URL FILE`; in place of a file the address of a PostgreSQL database.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

__all__ = ["floor_app"]


def floor_app(model_url: str, file: str) -> FastAPI:
    """An endpoint `/message` that writes its body as one durable row and asks the model once."""
    app, client = FastAPI(), httpx.AsyncClient(base_url=model_url, trust_env=False)
    write = _postgres(app, file) if file.startswith("postgresql:") else _sqlite(file)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/message")
    async def message(body: dict[str, Any]) -> dict[str, Any]:
        await write(json.dumps(body))
        asked = {"model": "gpt-4.1", "messages": [{"role": "user", "content": body["input"]}]}
        answer = (await client.post("/chat/completions", json=asked)).json()
        return {"answer": answer["choices"][0]["message"]["content"]}

    return app


def _sqlite(file: str) -> Callable[[str], Awaitable[None]]:
    """Writes a row at `synchronous=FULL`."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)"
    )

    async def write(body: str) -> None:
        connection.execute("INSERT INTO messages (body) VALUES (?)", (body,))

    return write


def _postgres(app: FastAPI, address: str) -> Callable[[str], Awaitable[None]]:
    """Writes a row with the server's default durability."""
    import psycopg
    from psycopg_pool import AsyncConnectionPool

    with psycopg.connect(address) as first:
        first.execute("CREATE TABLE IF NOT EXISTS floor (id BIGSERIAL PRIMARY KEY, body TEXT)")
    pool = AsyncConnectionPool(address, min_size=1, max_size=8, open=False)

    async def write(body: str) -> None:
        await pool.open()
        async with pool.connection() as connection:
            await connection.execute("INSERT INTO floor (body) VALUES (%s)", (body,))

    return write


if __name__ == "__main__":
    config = uvicorn.Config(floor_app(sys.argv[2], sys.argv[3]), port=int(sys.argv[1]), log_level="error")
    asyncio.run(uvicorn.Server(config).serve())
