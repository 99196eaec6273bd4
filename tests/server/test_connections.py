"""Connections before their requests: crowds, endless heads and slow clients don't keep the server from others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from perdure import InvalidInput
from perdure.core.incoming.addresses import network_of
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.server.serving import serve
from perdure.server.serving.connections import PROBES, Connection, Connections
from perdure.testing import says
from tests.support.servers import served

HEALTH = b"GET /v1/health/ HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST /v1/blocks/ HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
BLOCK = b'{"label":"a","value":"b"}'

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WaitingModel:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.arrived = asyncio.Semaphore(0)

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        self.arrived.release()
        await self.free.wait()
        yield says("at last")


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Pair]:
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answer_to(address: str, pieces: Iterable[bytes], *, pause_s: float = 0) -> tuple[int, int]:
    """(status, bytes sent) of a client that sends these pieces until it is refused; status 0: closed unanswered."""
    sent = status = 0
    async with connected(address) as (reader, writer):
        answer = asyncio.create_task(reader.read(1_000))
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                if answer.done():
                    break
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                await asyncio.sleep(pause_s)
        with contextlib.suppress(ConnectionError):
            status = int((await answer).partition(b" ")[2][:3] or 0)
    return status, sent


def endless(head: bytes, piece: bytes) -> Iterable[bytes]:
    """100 MB of it, if somebody takes them."""
    yield head
    for _ in range(100_000_000 // len(piece)):
        yield piece


async def test_a_crowd_of_silent_connections_leaves_room(tmp_path: Path) -> None:
    """Those that have waited longest are closed for the next, so everybody who sends a request is answered."""
    config = ServerConfig(port=0, connections=40, connections_per_address=30)
    async with served(tmp_path, config=config) as (address, _), contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(connected(address)) for _ in range(150)]
        for _, writer in crowd:
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET /v1/health/ HTTP/1.1\r\nx: ")
        async with httpx.AsyncClient(base_url=address) as client:
            health = await client.get("/v1/health/")
            assert health.status_code == 200, (health.text, health.headers)
            assert (await client.post("/v1/agents/", json={"model": "test/scripted"})).status_code == 200
        await asyncio.sleep(0.05)
        assert sum(not reader.at_eof() for reader, _ in crowd) <= 30


async def test_where_all_places_are_taken_probes_are_answered(tmp_path: Path) -> None:
    """A request under way is never closed for another: the next are told to come back, but the probes."""
    for config in (
        ServerConfig(port=0, connections=3, connections_per_address=0),
        ServerConfig(port=0, connections_per_address=3),
    ):
        model = WaitingModel()
        async with served(tmp_path, model=model, config=config) as (address, perdure):
            agents = [await perdure.create_agent() for _ in range(3)]
            async with httpx.AsyncClient(base_url=address, timeout=30) as client:
                path = "/v1/agents/{}/messages"
                said = [client.post(path.format(agent.id), json={"input": "hi"}) for agent in agents]
                answers = [asyncio.create_task(one) for one in said]
                for _ in range(3):
                    await model.arrived.acquire()
                for _ in range(3):
                    async with httpx.AsyncClient(base_url=address) as other:
                        refused = await other.get("/v1/agents/")
                        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                        assert refused.json()["trace_id"] == refused.headers["x-trace-id"]
                        assert (await other.get("/v1/health/")).status_code == 200
                model.free.set()
                assert [(await answer).status_code for answer in answers] == [200] * 3
                assert (await client.get("/v1/agents/")).status_code == 200


async def test_answered_requests_keep_no_place(tmp_path: Path) -> None:
    """Whoever was refused and goes on with its body is closed for the next, not waited for."""
    config = ServerConfig(port=0, connections=3, connections_per_address=0, api_key="a long random text")
    async with served(tmp_path, config=config) as (address, _), contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            reader, writer = await stack.enter_async_context(connected(address))
            writer.write(POST + b"content-length: 1000000\r\n\r\n{")
            assert b" 401 " in await reader.readline()
        async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {config.api_key}"}) as client:
            assert (await client.get("/v1/agents/")).status_code == 200


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (HEALTH + b"x: ", b"a" * 50_000),
        (HEALTH, b"x: a\r\n" * 50),
        (HEALTH, b"x: " + b"a" * 5_000 + b"\r\n"),
        (b"GET /", b"a" * 50_000),
        (HEALTH, b"a" * 50_000),
        (b"\r\n", b"\r\n" * 20_000),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", b"a" * 50_000),
        (POST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: a\r\n" * 50),
        (POST + b"transfer-encoding: chunked\r\n\r\n1;", b"a" * 50_000),
    ],
    ids=["value", "headers", "large headers", "path", "name", "empty lines", "trailer", "trailers", "chunk extension"],
)
async def test_an_endless_head_is_refused(tmp_path: Path, head: bytes, piece: bytes) -> None:
    """At 64 kB or 100 headers, before and after the body; of 100 MB next to nothing arrives."""
    async with served(tmp_path) as (address, _):
        status, sent = await answer_to(address, endless(head, piece))

        assert status in (431, 400)
        assert sent < 8_000_000
        assert (await answer_to(address, [HEALTH + b"x: " + b"a" * 60_000 + b"\r\n\r\n"]))[0] == 200
        assert (await answer_to(address, [HEALTH + b"x: a\r\n" * 99 + b"\r\n"]))[0] == 200
        assert (await answer_to(address, [HEALTH + b"x: a\r\n" * 100 + b"\r\n"]))[0] == 431


@pytest.mark.parametrize("before", [b"", HEALTH + b"\r\n"], ids=["first", "after another"])
async def test_an_address_that_is_none_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: bytes
) -> None:
    """It is no defect: a traceback for each would fill the disk."""
    async with served(tmp_path) as (address, _), connected(address) as (reader, writer):
        if before:
            writer.write(before)
            assert b" 200 " in await reader.readuntil(b"}")
        writer.write(b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    assert not [record for record in caplog.records if record.exc_info]


async def test_requests_that_nobody_waits_for_are_not_queued(tmp_path: Path) -> None:
    """Thousands of requests fit into what is read at once."""
    async with served(tmp_path) as (address, _):
        status, _ = await answer_to(address, [(HEALTH + b"\r\n") * 10])
        assert status == 200
        async with connected(address) as (reader, writer):
            writer.write((HEALTH + b"\r\n") * 5_000)
            with contextlib.suppress(ConnectionError):
                assert (await reader.read()).count(b"HTTP/1.1 200") <= 20


async def test_slow_clients_are_not_waited_for(tmp_path: Path) -> None:
    """Neither for a head nor for a body; those who wait for the server are, and so are slow bodies that do arrive."""
    model = WaitingModel()
    config = ServerConfig(port=0, header_s=0.4, body_s=0.4)
    body = b'{"label":"a","value":"' + b"b" * 6_000 + b'"}'
    long = POST + b"content-length: %d\r\n\r\n" % len(body)

    async def honest() -> tuple[int, int]:
        return await answer_to(
            address, [long, *(body[at : at + 1_000] for at in range(0, len(body), 1_000))], pause_s=0.3
        )

    async def patient() -> int:
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            return (await client.post(f"/v1/agents/{agent.id}/messages", json={"input": "hi"})).status_code

    async with served(tmp_path, model=model, config=config) as (address, perdure):
        agent = await perdure.create_agent()
        waiting = asyncio.create_task(patient())
        late = await asyncio.gather(
            answer_to(address, [HEALTH]),
            answer_to(address, []),
            answer_to(address, [HEALTH + b"x: ", *[b"a"] * 30], pause_s=0.1),
            answer_to(address, [long, *[b"{"] * 30], pause_s=0.1),
            answer_to(address, [POST + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\n \r\n"] * 30], pause_s=0.1),
            honest(),
        )

        assert [status for status, _ in late] == [408, 408, 408, 408, 408, 200]
        assert not waiting.done()
        model.free.set()
        assert await waiting == 200


@pytest.mark.parametrize("keeps_open", [True, False])
async def test_a_client_that_takes_nothing_is_closed(keeps_open: bool) -> None:
    """Whoever takes no byte of an answer keeps no place; whoever takes some at times gets all of it."""
    answer = b"x" * 8_000_000  # more than the buffers of both sides hold

    async def app(scope: Any, receive: Any, send: Any) -> None:
        head = [(b"content-length", b"%d" % len(answer)), (b"connection", b"keep-alive" if keeps_open else b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def ask(stack: contextlib.AsyncExitStack) -> asyncio.StreamReader:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(address)
        reader, writer = await asyncio.open_connection(sock=client, limit=4_096)
        stack.callback(writer.close)
        writer.write(HEALTH + b"\r\n")
        return reader

    connections = Connections(ServerConfig(header_s=0.2, write_s=0.8), files=1_024)
    config, state = uvicorn.Config(app, lifespan="off", log_config=None, timeout_keep_alive=60), ServerState()
    config.load()
    make = Connection.factory(connections)
    listener = await asyncio.get_running_loop().create_server(
        lambda: make(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    address = listener.sockets[0].getsockname()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        _, slow = await ask(stack), await ask(stack)
        read = steps = 0
        while steps < 28 or (read < len(answer) and not slow.at_eof()):
            read += len(await slow.read(2_000 if steps < 28 else 1_000_000)) if steps % 4 == 0 or steps >= 28 else 0
            steps += 1
            connections.close_overdue()
            await asyncio.sleep(0.05 if steps < 28 else 0)
            assert len(connections) <= (2 if steps < 28 else 1)
        assert read >= len(answer)


class Idle(Connection):
    """One that waits for a request, without a network."""

    has_unread_request = False

    def __init__(self) -> None:
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True


def test_an_address_makes_room_among_its_own_connections() -> None:
    """The longest wait ends; those of other addresses stay, also where they have waited longer."""
    connections = Connections(ServerConfig(connections=10, connections_per_address=2), files=1_000)
    other, *own = [Idle() for _ in range(5)]
    served = [connections.add(other, "10.0.0.1"), *(connections.add(one, "10.0.0.2") for one in own)]

    assert all(served)
    assert [one.is_closed for one in (other, *own)] == [False, True, True, False, False]


def test_beyond_the_places_for_probes_connections_are_closed() -> None:
    """Where none waits for a request that could be closed for them."""
    connections = Connections(ServerConfig(connections=3, connections_per_address=0), files=1_000)
    busy = [Idle() for _ in range(3 + PROBES + 2)]
    served = []
    for one in busy:
        served.append(connections.add(one, "10.0.0.1"))
        connections.stop_waiting(one)

    assert served == [True] * 3 + [False] * (PROBES + 2)
    assert [one.is_closed for one in busy] == [False] * (3 + PROBES) + [True] * 2


def test_the_limit_leaves_files_for_the_store() -> None:
    """A quarter of what the process may open, and the places of the probes; addresses of one network count as one."""
    assert Connections(ServerConfig(), files=1_024).limit == 736
    assert Connections(ServerConfig(), files=65_536).limit == 2_000
    assert Connections(ServerConfig(connections=10), files=1_024).limit == 10
    assert Connections(ServerConfig(), files=16).limit >= 1
    assert PROBES < 1_024 / 4
    names = [
        network_of(host) for host in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "::ffff:10.0.0.1", "::1")
    ]
    assert names == ["2001:db8::/64", "2001:db8::/64", "2001:db8:0:1::/64", "10.0.0.1", "::1"]


def test_the_limits_are_checked() -> None:
    """They are numbers above zero; of one address there may be any number."""
    given = {"PERDURE_CONNECTIONS": "7", "PERDURE_CONNECTIONS_PER_ADDRESS": "0"}

    assert ServerConfig.from_environment(given) == ServerConfig(connections=7, connections_per_address=0)
    for wrong in (
        {"PERDURE_CONNECTIONS": "many"},
        {"PERDURE_CONNECTIONS": "-1"},
        {"PERDURE_CONNECTIONS_PER_ADDRESS": "-1"},
    ):
        with pytest.raises(InvalidInput, match=r"(?i)connections"):
            ServerConfig.from_environment(wrong)


async def second_answer(tmp_path: Path, held_up_s: float) -> bytes:
    """The second answer of a connection whose second request comes while the server reads from another one."""
    request, loop = HEALTH + b"\r\n", asyncio.get_running_loop()
    ours, theirs = socket.socketpair()

    def read_answer(client: socket.socket) -> bytes:
        """Head and body, which may come one after the other."""
        answer = b""
        while not answer.endswith(b"}") and (piece := client.recv(10_000)):
            answer += piece
        return answer

    async with served(tmp_path) as (address, _):
        host, port = address.removeprefix("http://").split(":")
        with ours, theirs, socket.create_connection((host, int(port)), timeout=10) as client:
            client.send(request)
            await asyncio.to_thread(read_answer, client)

            def read_slowly() -> None:
                loop.remove_reader(ours)
                client.send(request)
                time.sleep(held_up_s)

            loop.add_reader(ours, read_slowly)
            theirs.send(b"x")
            return await asyncio.to_thread(read_answer, client)


def test_a_request_that_came_while_the_loop_was_held_up_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop looks at its times between reading and reading: by them the connection has been idle for too long."""
    monkeypatch.setattr(serve, "KEPT_S", 0.2)
    with asyncio.Runner(loop_factory=serve.loop_factory()) as runner:
        answer = runner.run(second_answer(tmp_path, 0.5))

    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_kept_connection_outlives_a_head_that_does_not_come(tmp_path: Path) -> None:
    """Only a request that has begun has to arrive in time; a connection that is kept may wait for its next one."""
    request = HEALTH + b"\r\n"
    async with (
        served(tmp_path, config=ServerConfig(port=0, header_s=0.1)) as (address, _),
        connected(address) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(request)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.read(1_000)
            await asyncio.sleep(1.3)  # the times are looked at every second
        writer.write(HEALTH)  # and no more

        assert (await reader.read(1_000)).startswith(b"HTTP/1.1 408")
