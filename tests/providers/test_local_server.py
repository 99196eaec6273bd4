"""The double of a local server: what a client of any kind gets from it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from perdure.testing import LocalServer, Status, says

CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "x" * 4_000}]}


def client_of(server: LocalServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, trust_env=False)


@pytest.mark.parametrize(("kind", "words"), [("llamacpp", "n_ctx"), ("vllm", "maximum context length is 500 tokens")])
async def test_a_prompt_above_the_window_is_refused(kind: Any, words: str) -> None:
    """In the words of its kind; the script loses no line."""
    async with LocalServer(says("one"), kind=kind, window_tokens=500) as server, client_of(server) as client:
        refused = await client.post(CHAT, json=LONG)
        taken = await client.post(CHAT, json={"messages": []})

    assert refused.status_code == 400
    assert words in refused.text
    assert taken.json()["choices"][0]["message"]["content"] == "one"


@pytest.mark.parametrize(
    ("kind", "path"), [("llamacpp", "/props"), ("lmstudio", "/api/v0/models"), ("ollama", "/api/ps")]
)
async def test_it_says_its_window(kind: Any, path: str) -> None:
    """At the path where its kind does."""
    async with LocalServer(kind=kind, window_tokens=2_048) as server, client_of(server) as client:
        told = await client.get(path)

    assert "2048" in told.text


async def test_one_slot_answers_one_request_at_a_time() -> None:
    """The second one waits, and a prompt that begins like the last one is read from there."""
    async with LocalServer(read_tokens_s=20_000) as server, client_of(server) as client:
        await asyncio.gather(client.post(CHAT, json=LONG), client.post(CHAT, json=LONG))

    assert sorted(row.waited_behind for row in server.served) == [0, 1]
    assert [row.cached_tokens for row in server.served] == [0, server.served[1].prompt_tokens]


async def test_an_error_of_the_script_comes_as_it_is() -> None:
    """With its status, and no progress before it."""
    async with LocalServer(Status(500, "broken")) as server, client_of(server) as client:
        answer = await client.post(CHAT, json={**LONG, "stream": True, "return_progress": True})

    assert (answer.status_code, answer.text) == (500, "broken")


async def test_progress_is_streamed_if_it_is_asked_for() -> None:
    """In chunks before the first word, as llama.cpp has them."""
    async with LocalServer() as server, client_of(server) as client:
        asked = await client.post(CHAT, json={**LONG, "stream": True, "return_progress": True})
        plain = await client.post(CHAT, json={**LONG, "stream": True})

    lines = [line.removeprefix("data: ") for line in asked.text.split("\n\n") if "prompt_progress" in line]
    reports = [json.loads(line)["prompt_progress"] for line in lines]
    assert [report["processed"] for report in reports] == sorted(report["processed"] for report in reports)
    assert reports[-1]["processed"] == reports[-1]["total"]
    assert "prompt_progress" not in plain.text


async def test_a_server_that_loads_or_has_no_tools_says_so() -> None:
    """With the words of llama.cpp."""
    body = {"messages": [], "tools": [{"type": "function"}]}
    async with LocalServer(loading=1, tools="refused") as server, client_of(server) as client:
        loading = await client.post(CHAT, json=body)
        refused = await client.post(CHAT, json=body)

    assert (loading.status_code, loading.json()["error"]["message"]) == (503, "Loading model")
    assert (refused.status_code, refused.json()["error"]["message"]) == (500, "tools param requires --jinja flag")


async def test_a_client_that_leaves_the_line_gets_no_turn() -> None:
    """Its request uses up no line of the script, and is not done."""
    async with LocalServer(says("one"), says("two"), read_tokens_s=10_000) as server, client_of(server) as client:
        first = asyncio.create_task(client.post(CHAT, json=LONG))
        async with client_of(server) as other:
            second = asyncio.create_task(other.post(CHAT, json=LONG))
            while len(server.served) < 2:  # noqa: ASYNC110, both requests run in this loop
                await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
        await first
        last = await client.post(CHAT, json={"messages": []})

    assert last.json()["choices"][0]["message"]["content"] == "two"
    assert [row.is_done for row in server.served] == [True, False, True]
