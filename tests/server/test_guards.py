"""What stands before every route: who may ask, how much, and what is never said."""

from __future__ import annotations

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from perdure import AsyncPerdure, InvalidInput, Settings
from perdure.core.errors import StoreDamaged
from perdure.core.incoming import json_limits
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.server.serving import guards
from perdure.server.serving.serve import serve
from perdure.testing import InlineStore, says
from tests.support.servers import BASE, MODEL, in_process, served

KEY = "a long random text"
HEALTH = "/v1/health/"
JSON = {"content-type": "application/json"}


async def test_only_known_hosts_are_answered(tmp_path: Path) -> None:
    """Loopback names with any port and the configured ones; a page of another site gets nothing, on any path."""
    config = ServerConfig(allowed_hosts=("agents.example.org", "other.example.org:9000"))
    async with in_process(tmp_path, config=config) as (client, _):
        for host in ("localhost", "127.0.0.1:1", "[::1]:8283", "LOCALHOST:80", "agents.example.org:444"):
            assert (await client.get(HEALTH, headers={"host": host})).status_code == 200, host
        assert (await client.get(HEALTH, headers={"host": "other.example.org:9000"})).status_code == 200
        for host in (
            "evil.example",
            "localhost.evil.example",
            "other.example.org",
            "127.0.0.1@evil.example",
            "",
            "a b",
        ):
            for path in (HEALTH, "/openapi.json", "/nothing/here"):
                refused = await client.get(path, headers={"host": host})
                assert refused.status_code == 403, host
                assert "detail" in refused.json()


async def test_a_key_is_asked_for_when_there_is_one(tmp_path: Path) -> None:
    """As a bearer or as Letta's password, but for the probes."""
    async with in_process(tmp_path, config=ServerConfig(api_key=KEY)) as (client, _):
        right = [{"authorization": f"Bearer {KEY}"}, {"x-bare-password": f"password {KEY}"}]
        wrong = [{}, {"authorization": f"Bearer {KEY}x"}, {"authorization": KEY}, {"x-bare-password": KEY}]
        for headers in right:
            assert (await client.get("/v1/runs/", headers=headers)).status_code == 200
        for headers in wrong:
            refused = await client.get("/v1/runs/", headers=headers)
            assert (refused.status_code, refused.json()) == (401, {"detail": "Unauthorized"})
            assert (await client.get("/openapi.json", headers=headers)).status_code == 401
        for path in (HEALTH, "/v1/health", "/v1/ready/"):
            assert (await client.get(path)).status_code == 200
            probe = await client.head(path)
            assert (probe.status_code, probe.content) == (200, b"")


async def test_bodies_are_bounded(tmp_path: Path) -> None:
    """By their length, told or not, and by how deep they nest."""
    async with in_process(tmp_path, config=ServerConfig(max_body_bytes=1_000, max_depth=20)) as (client, _):

        async def chunked() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        for content in (b"x" * 1_001, chunked()):
            refused = await client.post("/v1/agents/", content=content, headers=JSON)
            assert (refused.status_code, "1,000 bytes" in refused.json()["detail"]) == (413, True)
        deep = await client.post("/v1/agents/", content=b'{"a":' * 21 + b"1" + b"}" * 21, headers=JSON)
        assert (deep.status_code, "20 levels" in deep.json()["detail"]) == (422, True)
        flat = await client.post("/v1/agents/", content=b'{"name":"' + b"[{" * 30 + b'","model":7}', headers=JSON)
        assert (flat.status_code, "model" in flat.json()["detail"]) == (422, True)


async def test_a_client_that_sends_all_before_it_reads_sees_why(tmp_path: Path) -> None:
    """A body that is too long is taken in before it is refused, its length told or not; who asks first sends none."""

    def answer_to(address: str, head: bytes, pieces: Sequence[bytes]) -> bytes:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"POST /v1/agents/ HTTP/1.1\r\nhost: localhost\r\n" + head + b"\r\n\r\n")
            for piece in pieces:
                connection.sendall(piece)
            return connection.makefile("rb").read()

    some = b"x" * 1_000_000
    cases: list[tuple[bytes, list[bytes]]] = [
        (b"content-length: 20000000", [some] * 20),
        (b"transfer-encoding: chunked", [*[b"f4240\r\n" + some + b"\r\n"] * 20, b"0\r\n\r\n"]),
        (b"expect: 100-continue\r\ncontent-length: 20000000", []),
    ]
    async with served(tmp_path) as (address, _):
        for head, pieces in cases:
            answer = await asyncio.to_thread(answer_to, address, head, pieces)
            assert answer.startswith(b"HTTP/1.1 413 ") and b"5,242,880 bytes" in answer, head


async def test_a_body_of_brackets_does_not_stop_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 MB of arrays are refused by their number: nobody waits for a parser, nor for a walk over the brackets.

    As many in a text are no arrays.
    """

    def walked(brackets: bytes) -> int:
        raise AssertionError("the brackets were looked at one by one")

    async with in_process(tmp_path) as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(json_limits, "_depth", walked)
            patch.setattr(Request, "json", walked)
            for content in (b"[" + b"[]," * 1_500_000 + b"0]", b"[" * 5_000_000, b'{"a":1}' * 700_000):
                refused = await client.post("/v1/agents/", content=content, headers=JSON)
                assert (refused.status_code, "200,000 arrays" in refused.json()["detail"]) == (422, True)
        content = b'{"name":"' + b"[" * 1_000_000 + b'","model":7}'
        text = await client.post("/v1/agents/", content=content, headers=JSON)
        assert (text.status_code, "name" in text.json()["detail"]) == (422, True)


async def test_a_body_of_numbers_does_not_stop_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More values than anybody needs are refused before a parser makes objects of them; commas in a text are none."""

    def parsed(request: Request) -> object:
        raise AssertionError("the body was parsed")

    async with in_process(tmp_path) as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(Request, "json", parsed)
            for content in (b"[" + b"1e9," * 1_000_000 + b"0]", b"{" + b'"a":0,' * 300_000 + b'"b":0}'):
                refused = await client.post("/v1/agents/", content=content, headers=JSON)
                assert (refused.status_code, "250,000 values" in refused.json()["detail"]) == (422, True)
        text = await client.post("/v1/agents/", content=b'{"name":"' + b"," * 1_000_000 + b'"}', headers=JSON)
        assert (text.status_code, "name" in text.json()["detail"]) == (422, True)


async def test_bodies_that_arrive_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While slow clients hold what there may be, the next is told to come back; after them all is as before."""
    monkeypatch.setattr(guards, "PENDING_BODY_BYTES", 250_000)
    ended = asyncio.Event()
    begun = asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"label":"a","value":"' + b"x" * 1_000 + b'"'
        yield b" " * 100_000
        begun.release()
        await ended.wait()
        yield b"}"

    async with in_process(tmp_path) as (client, _):
        held = [asyncio.create_task(client.post("/v1/blocks/", content=slow(), headers=JSON)) for _ in range(2)]
        for _ in held:
            await begun.acquire()
        large = {"label": "a", "value": "x" * 90_000}
        refused = await client.post("/v1/blocks/", json=large)
        assert (refused.status_code, len(refused.json()["trace_id"])) == (503, 32)
        assert refused.json()["trace_id"] == refused.headers["x-trace-id"]
        assert refused.headers["retry-after"] == "1"
        ended.set()
        assert [(await one).status_code for one in held] == [200, 200]
        assert (await client.post("/v1/blocks/", json=large)).status_code == 200


async def test_a_body_is_let_go_of_before_its_answer_ends(tmp_path: Path) -> None:
    """A stream may take an hour, and hundreds of them together all the memory."""
    begun, free = asyncio.Event(), asyncio.Event()

    class Waits:
        async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
            begun.set()
            await free.wait()
            yield says("at last")

    def held_bytes() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def body() -> Iterator[bytes]:
        yield b'{"input": "hi", "streaming": true' + b" " * 4_000_000 + b"}"

    async with in_process(tmp_path, model=Waits()) as (client, perdure):
        agent = await perdure.create_agent()
        pieces = body()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": next(pieces), "more_body": False}

        async def send(message: Any) -> None:
            pass

        path = f"/v1/agents/{agent.id}/messages"
        headers = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in JSON.items())]
        headers.append((b"content-length", b"4000034"))
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        tracemalloc.start()
        try:
            before = held_bytes()
            answer = asyncio.create_task(client._transport.app(scope, receive, send))  # type: ignore[attr-defined]
            await begun.wait()
            assert held_bytes() - before < 2_000_000
        finally:
            tracemalloc.stop()
            free.set()
            await answer


async def test_no_body_is_read_before_the_key(tmp_path: Path) -> None:
    """Slow bodies of strangers would take the room that there is for those of others, on the probes' paths too."""

    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    async with in_process(tmp_path, config=ServerConfig(api_key=KEY)) as (client, _):
        for method, path, status in (
            ("POST", HEALTH, 405),
            ("POST", "/v1/ready", 405),
            ("GET", HEALTH, 200),
            ("POST", "/v1/blocks/", 401),
            ("POST", "/v1/folders/any/upload", 401),
        ):
            answer = await client.request(method, path, content=body(), headers=JSON)
            assert answer.status_code == status, (method, path)


async def test_who_asks_whether_the_store_is_ready_learns_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No key is needed to ask. The log says what is wrong."""
    async with in_process(tmp_path, config=ServerConfig(api_key=KEY)) as (client, perdure):

        async def damaged(*_: object) -> None:
            raise StoreDamaged(f"{tmp_path}/p.db is damaged")

        monkeypatch.setattr(perdure.app.store, "read", damaged)
        answer = await client.get("/v1/ready/")
        monkeypatch.undo()

    assert (answer.status_code, answer.json()["detail"]) == (503, "store_damaged")
    assert answer.json()["trace_id"] == answer.headers["x-trace-id"]
    assert str(tmp_path) not in answer.text
    assert f"{tmp_path}/p.db is damaged" in caplog.text


@pytest.mark.uses("files")
async def test_a_client_that_leaves_its_upload_is_no_defect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is answered, nothing is logged as an error, and the next is served."""
    async with served(tmp_path) as (address, _), httpx.AsyncClient(base_url=address) as client:
        folder = (await client.post("/v1/folders/", json={"name": "notes"})).json()["id"]
        host, port = address.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/folders/{folder}/upload HTTP/1.1\r\nhost: localhost\r\nx-requested-with: test\r\n"
        head += "content-type: multipart/form-data; boundary=x\r\ncontent-length: 1000000\r\n\r\n--x\r\n"
        writer.write(head.encode())
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        assert (await client.get(f"/v1/folders/{folder}/files")).json() == []

    assert "defect" not in caplog.text


async def test_an_upgrade_that_would_lose_the_body_is_refused(tmp_path: Path) -> None:
    """Some clients offer HTTP/2 with every first request. Without a body they are answered as if they did not."""
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
    async with served(tmp_path) as (address, _), httpx.AsyncClient(base_url=address) as client:
        assert (await client.get(HEALTH, headers=upgrade)).status_code == 200
        refused = await client.post("/v1/agents/", json={"model": MODEL}, headers=upgrade)
        assert (refused.status_code, "Upgrade" in refused.json()["detail"]) == (400, True)
        assert refused.headers["connection"] == "close"
        named = {"connection": "keep-alive", "upgrade": "h2c"}  # no upgrade is asked for
        assert (await client.post("/v1/agents/", json={"model": MODEL}, headers=named)).status_code == 200


async def test_both_forms_of_a_path_are_the_same(tmp_path: Path) -> None:
    """With a slash at its end and without, no redirect between them."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for path in ("/v1/health", "/v1/health/", "/v1/runs", "/v1/runs/", f"/v1/agents/{agent.id}/messages/"):
            assert (await client.get(path)).status_code == 200
        said = await client.post(f"/v1/agents/{agent.id}/messages/", json={"input": "hi"})
        assert said.status_code == 200
        assert "no '/v1/nothing'" in (await client.get("/v1/nothing")).json()["detail"]
        assert (await client.put("/v1/health")).status_code == 405


async def test_a_defect_is_an_answer_without_a_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the client is told nothing of the inside."""
    async with in_process(tmp_path) as (client, perdure):

        async def broken(request: object) -> None:
            raise ZeroDivisionError("a secret of the inside")

        perdure.app.runner.accept = broken  # type: ignore[assignment,method-assign]
        agent = await perdure.create_agent()
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "hi"})

    trace_id = answered.headers["x-trace-id"]
    assert len(trace_id) == 32
    assert (answered.status_code, answered.json()) == (
        500,
        {"detail": "An unknown error occurred", "trace_id": trace_id},
    )
    assert "stopped at a defect" in caplog.text


async def test_a_server_for_others_needs_a_key() -> None:
    """The message says what helps."""
    others = ServerConfig(host="0.0.0.0", port=0)
    async with await AsyncPerdure.open(store=InlineStore(), settings=Settings(model="perdure/extractive")) as perdure:
        with pytest.raises(InvalidInput, match="PERDURE_API_KEY"):
            await serve(perdure, others)
    with pytest.raises(InvalidInput, match=r"\*"):
        ServerConfig(allowed_hosts=("*",))
    assert ServerConfig(host="0.0.0.0", api_key=KEY, allowed_hosts=("*",)).port == 8283
    for host in ("localhost", "127.0.0.2", "::1", "[::1]"):
        assert ServerConfig(host=host).api_key is None


def test_the_environment_configures() -> None:
    """Names are separated by commas; a port that is none is refused; what is given wins."""
    given = {"PERDURE_PORT": "9000", "LETTA_SERVER_PASSWORD": KEY, "PERDURE_ALLOWED_HOSTS": "A.example, b.example:1 ,"}

    config = ServerConfig.from_environment(given, port=9001)

    assert config == ServerConfig(port=9001, api_key=KEY, allowed_hosts=("a.example", "b.example:1"))
    assert ServerConfig.from_environment({}) == ServerConfig()
    for port in ("x", "70000", "-1"):
        with pytest.raises(InvalidInput, match=r"(?i)port is"):
            ServerConfig.from_environment({"PERDURE_PORT": port})


async def test_any_host_with_a_key(tmp_path: Path) -> None:
    """`*` lets any name in, for servers behind a proxy."""
    config = ServerConfig(api_key=KEY, allowed_hosts=("*",))
    async with in_process(tmp_path, config=config) as (client, _):
        asked = httpx.Request("GET", BASE + HEALTH, headers={"host": "whatever.example"})
        assert (await client.send(asked)).status_code == 200


async def test_a_crowd_of_messages_is_refused_at_once(tmp_path: Path) -> None:
    """All of a request is written in one transaction, which everybody else would wait for."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        said = {"messages": [{"role": "user", "content": "x"}] * 1_001}

        answer = await client.post(f"/v1/agents/{agent.id}/messages", json=said)

        assert answer.status_code == 422
        assert "messages" in answer.json()["detail"]
        assert not await agent.messages()


async def test_another_encoding_is_no_way_around_the_depth_limit(tmp_path: Path) -> None:
    """In UTF-16 brackets could hide behind what looks like a string."""
    deep = ('{"label":"Ģ","value":' + "[" * 5_000 + "]" * 5_000 + "}").encode("utf-16-le")
    async with in_process(tmp_path) as (client, _):
        answer = await client.post("/v1/blocks/", content=deep, headers=JSON)

        assert answer.status_code == 422
        assert "UTF-8" in answer.json()["detail"]


async def test_an_allowed_host_may_have_a_port(tmp_path: Path) -> None:
    """The usual ones are left out by clients; brackets of an address don't matter; patterns are refused at start."""
    config = ServerConfig(allowed_hosts=("agents.example.org:443", "[fd00::2]:9000"))
    async with in_process(tmp_path, config=config) as (client, _):
        for host, status in (
            ("agents.example.org", 200),
            ("agents.example.org:443", 200),
            ("agents.example.org:9", 403),
            ("[fd00::2]:9000", 200),
            ("[fd00::2]", 403),
        ):
            assert (await client.get("/v1/health/", headers={"Host": host})).status_code == status, host

    with pytest.raises(InvalidInput, match="can never match"):
        ServerConfig(allowed_hosts=("*.example.org",))


def test_each_limit_of_the_server_has_a_variable() -> None:
    """Numbers are read by the type of their default; one that is no positive number is refused by its name."""
    given = {"PERDURE_MAX_BODY_BYTES": "1000", "PERDURE_WRITE_S": "1.5", "PERDURE_DRAIN_S": "0"}

    assert ServerConfig.from_environment(given) == ServerConfig(max_body_bytes=1_000, write_s=1.5, drain_s=0)
    for text in ("0", "many", "inf"):
        with pytest.raises(InvalidInput, match="PERDURE_HEADER_S is"):
            ServerConfig.from_environment({"PERDURE_HEADER_S": text})
