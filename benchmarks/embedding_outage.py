"""`python -m benchmarks.embedding_outage`: an embedding endpoint is killed and started again during 5,000 inserts.

The endpoint is a child process on 127.0.0.1 that speaks OpenAI's embeddings API. Told is how many texts were lost,
whether all were found by their words at once, and how long after its return the last one had its vector.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from perdure import AsyncPerdure
from perdure.settings import Settings

__all__ = ["main"]

TEXTS = 5_000
BATCH = 50
DIMENSIONS = 384


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        rows = [{"object": "embedding", "index": at, "embedding": _vector(text)} for at, text in enumerate(texts)]
        body = json.dumps({"object": "list", "data": rows, "model": asked["model"], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _vector(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    vector[hash(text) % DIMENSIONS] = 1.0
    return vector


def _endpoint(port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.embedding_outage", "--serve", str(port)])


async def outage(folder: Path, port: int) -> None:
    """Insert, kill, insert, start again, and wait for the last vector."""
    os.environ["VLLM_BASE_URL"] = f"http://127.0.0.1:{port}/v1"
    settings = Settings(home=str(folder), embedding="vllm/test")
    endpoint = _endpoint(port)
    await asyncio.sleep(1)
    async with await AsyncPerdure.open(settings=settings) as perdure:
        agent = await perdure.create_agent("ada")
        slowest = 0.0

        async def insert(first: int, last: int) -> None:
            nonlocal slowest
            for number in range(first, last):
                began = time.perf_counter()
                await agent.archive(f"Text number {number} of many, word{number}x.")
                slowest = max(slowest, time.perf_counter() - began)

        await insert(0, TEXTS // 4)
        endpoint.kill()
        endpoint.wait()
        await insert(TEXTS // 4, TEXTS)
        missed = 0
        for number in range(0, TEXTS, 100):
            hits = await agent.search_archive(f"word{number}x", limit=3)
            missed += not any(f"word{number}x" in hit.passage.text for hit in hits)
        waiting = TEXTS - await _vectors(perdure)
        endpoint = _endpoint(port)
        try:
            while not await _answers(port):  # noqa: ASYNC110 - another process knows nothing of events
                await asyncio.sleep(0.02)
            back = time.perf_counter()
            while await _vectors(perdure) < TEXTS and time.perf_counter() - back < 60:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            took = time.perf_counter() - back
            print(f"{TEXTS:,} inserts, none failed; the slowest took {slowest * 1000:.0f} ms")
            print(f"found by words while it was down: {TEXTS // 100 - missed} of {TEXTS // 100} tried")
            print(f"{waiting:,} waited; all {await _vectors(perdure):,} had vectors {took:.1f} s after it was back")
        finally:
            endpoint.kill()
            endpoint.wait()


async def _vectors(perdure: AsyncPerdure) -> int:
    return await perdure.app.store.read(lambda tx: sum(one.scope.row_count for one in tx.vectors.counts()))


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def main() -> None:
    """Measure; with `--serve PORT`, be the endpoint."""
    if sys.argv[1:2] == ["--serve"]:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), _Answer).serve_forever()
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(outage(Path(folder), 18_765))


if __name__ == "__main__":
    main()
