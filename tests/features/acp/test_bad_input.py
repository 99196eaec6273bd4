"""What is no message, what a session does not take, and the program as an editor starts it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from perdure import AsyncPerdure
from perdure.core.ids import ConversationId
from perdure.features.acp.transport import LINE_LIMIT_BYTES
from perdure.features.notes.projects import ProjectMemory
from perdure.testing import ScriptedModel, calls
from tests.features.acp.editors import Desk, Editor, connected
from tests.support.programs import environment, perdure
from tests.support.warm import warm

BROKEN = [
    *("{nope", "[" * 5_000, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "[1]", "3", "null", "{}"),
    *('{"id": {}, "method": "session/list"}', '{"id": [1], "result": {}}', '{"id": 1, "error": "x"}', '{"method": 3}'),
    '{"a":' * 900 + "1" + "}" * 900,
]


async def replies(program: asyncio.subprocess.Process, *lines: str, count: int) -> list[dict[str, Any]]:
    """What a program answers to these lines: the next `count` lines that are no notification."""
    assert program.stdin is not None
    assert program.stdout is not None
    for line in lines:
        program.stdin.write(line.encode() + b"\n")
    found = list[dict[str, Any]]()
    while len(found) < count:
        answer = json.loads(await asyncio.wait_for(program.stdout.readline(), 20))
        if "method" not in answer:
            found.append(answer)
    return found


@asynccontextmanager
async def started(home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`perdure acp` with this data folder; it ends when its stdin does."""
    ours, pipe = environment(home), asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(warm("perdure", ours), "acp", env=ours, stdin=pipe, stdout=pipe)
    try:
        yield program
    finally:
        await asyncio.wait_for(program.communicate(b""), 20)


@pytest.mark.parametrize("is_memory", [False, True])
async def test_a_first_agent_is_made_for_the_first_session(tmp_path: Path, is_memory: bool) -> None:
    """Whoever only looks whether it answers, as `perdure connect zed` does, makes none."""
    hello = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}})
    begin = '{"jsonrpc": "2.0", "id": 8, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}'
    if is_memory:
        async with await AsyncPerdure.open(tmp_path / "perdure.db") as perdure:
            await ProjectMemory(perdure).open()
    async with started(tmp_path) as program:
        await replies(program, hello, count=1)
    async with await AsyncPerdure.open(tmp_path / "perdure.db") as perdure:
        before = [one.name for one in await perdure.agents()]
    async with started(tmp_path) as program:
        await replies(program, hello, begin, count=2)
    async with await AsyncPerdure.open(tmp_path / "perdure.db") as perdure:
        after = {one.name for one in await perdure.agents()}

    assert before == ["global-memory"] * is_memory
    assert after == {"Perdure", *before}


async def test_lines_that_are_no_messages_are_answered_and_end_nothing(tmp_path: Path) -> None:
    """Each with an error; stdout has nothing but messages, although a first agent is made."""
    hello = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": 1}})
    async with started(tmp_path) as program:
        errors = await replies(program, *BROKEN, "", "  ", count=len(BROKEN))
        (answer,) = await replies(program, hello, count=1)
        (listed,) = await replies(program, '{"jsonrpc": "2.0", "id": 8, "method": "session/list"}', count=1)
        (last,) = await replies(program, hello, count=1)
    assert {error["error"]["code"] for error in errors} == {-32700, -32600}
    assert all(error["id"] is None and error["error"]["message"] for error in errors)
    assert (answer["id"], answer["result"]["agentInfo"]["name"]) == (7, "perdure")
    assert (listed["id"], listed["result"]) == (8, {"sessions": []})
    assert (last["id"], program.returncode) == (7, 0)


@pytest.mark.slow
@pytest.mark.parametrize("is_out", [False, True])
def test_without_pipes_it_says_what_starts_it(tmp_path: Path, is_out: bool) -> None:
    """/dev/null or a file on either side: one line, and no wait."""
    file, pipe = tmp_path / "out", subprocess.PIPE
    with file.open("w") as out, Path(os.devnull).open() as null:
        ends: dict[str, Any] = {"input": b"", "stdout": out} if is_out else {"stdin": null, "stdout": pipe}
        ours = environment(tmp_path / "data")
        program = [warm("perdure", ours)] if is_out else [sys.executable, "-m", "perdure"]
        done = subprocess.run([*program, "acp"], env=ours, stderr=pipe, timeout=60, **ends)

    assert done.returncode == 1
    assert done.stderr == b"error: stdin and stdout have to be pipes: an editor starts `perdure acp`\n"


@pytest.mark.slow
async def test_a_request_that_is_not_read_is_answered_with_its_id(tmp_path: Path) -> None:
    """If the id stands at the start or the end of the line, where SDKs write it: its sender would wait for ever."""
    long, deep = "x" * (LINE_LIMIT_BYTES + 10), "[" * 100_000
    lines = [
        '{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":"' + long + '"}',
        '{"jsonrpc": "2.0", "method": "session/prompt", "id": "a-8", "params": "' + long + long + '"}',
        '{"jsonrpc":"2.0","method":"session/prompt","params":"' + long + '","id":8}',
        '{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":' + deep,
        '{"jsonrpc":"2.0","id":10,"method":3}',
        '{"id":"\\"","params":1,' + deep,
    ]
    async with started(tmp_path) as program:
        errors = await replies(program, *lines, count=len(lines))

    assert [error["id"] for error in errors] == [8, "a-8", 8, 9, 10, None]
    assert ["64,000,000 bytes" in error["error"]["message"] for error in errors] == [True] * 4 + [False, True]


async def test_a_program_reloads_what_another_one_was_told(tmp_path: Path) -> None:
    """Two processes, one after the other, each started as an editor does."""
    ours = environment(tmp_path)
    command = str(warm("perdure", ours))
    first: Any = Editor()
    async with acp.spawn_agent_process(first, command, "acp", env=ours, use_unstable_protocol=True) as (connection, _):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        await connection.prompt(session_id=session, prompt=[acp.text_block("My name is Ada.")])
    second: Any = Editor()
    async with acp.spawn_agent_process(second, command, "acp", env=ours, use_unstable_protocol=True) as (connection, _):
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        (listed,) = (await connection.list_sessions(cwd=str(tmp_path))).sessions
        await connection.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        shown = second.texts(session)
        await connection.prompt(session_id=session, prompt=[acp.text_block("What is my name?")])

    assert (listed.session_id, listed.title) == (session, "My name is Ada.")
    assert second.texts(session, schema.UserMessageChunk) == "My name is Ada."
    assert second.diffs() == first.diffs() != []
    assert shown == first.texts(session)
    assert "Ada" in second.texts(session).removeprefix(shown)


def test_an_unknown_agent_is_an_error_beside_the_protocol(tmp_path: Path) -> None:
    """On stderr, with nothing on stdout."""
    unknown = perdure(tmp_path, "acp", "--agent", "nobody")

    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "nobody" in unknown.stderr


async def refused(desk: Desk, session: str, *blocks: Any) -> acp.RequestError:
    """The error of a prompt of these blocks."""
    with pytest.raises(acp.RequestError) as error:
        await desk.connection.prompt(session_id=session, prompt=[*blocks])
    return error.value


async def test_what_a_session_does_not_take_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    """With a reason; the session goes on."""
    audio = schema.AudioContentBlock(type="audio", data="AAAA", mime_type="audio/wav")
    blob = acp.resource_block(acp.embedded_blob_resource("file:///a.bin", "AAAA"))
    async with connected(tmp_path / "a.db") as desk:
        session = await desk.begin()
        errors = [
            await refused(desk, session, audio),
            await refused(desk, session, blob),
            await refused(desk, session, acp.image_block("***", "image/png")),
            await refused(desk, session, acp.image_block("AAAA", "image/png")),
            await refused(desk, session),
            await refused(desk, session, acp.text_block("x" * 10_000_000)),
        ]
        texts = ["audio", "not text", "base64", "not an image", "", "10,000,000"]

        assert [error.code for error in errors] == [-32602] * 6
        assert all(text in str(error) for text, error in zip(texts, errors, strict=True)), errors
        assert list(await desk.agent.messages()) == []
        assert await desk.say(session, "hello") == "end_turn"


async def test_an_unknown_session_is_named(tmp_path: Path) -> None:
    """By every method that takes one; to cancel it is nothing."""
    async with connected(tmp_path / "a.db") as desk:
        text: list[Any] = [acp.text_block("x")]
        connection = desk.connection
        for ask in (
            lambda: connection.prompt(session_id="nope", prompt=text),
            lambda: connection.load_session(cwd="/", session_id="nope", mcp_servers=[]),
            lambda: connection.resume_session(cwd="/", session_id="nope"),
            lambda: connection.fork_session(cwd="/", session_id="nope"),
        ):
            with pytest.raises(acp.RequestError, match="nope") as error:
                await ask()
            assert error.value.code == -32002
        await connection.cancel(session_id="nope")

        assert await desk.say(await desk.begin(), "hello") == "end_turn"


async def test_wrong_parameters_are_named_and_not_repeated(tmp_path: Path) -> None:
    """However large they are."""
    async with connected(tmp_path / "a.db") as desk:
        with pytest.raises(acp.RequestError, match="sessionId") as error:
            await desk.connection._conn.send_request("session/prompt", {"prompt": "x" * 1_000_000})

        assert error.value.code == -32602
        assert len(str(error.value)) < 300
        long, session = "x" * 1_000_000, await desk.begin()
        for asked in (
            desk.connection.load_session(cwd="/", session_id=long, mcp_servers=[]),
            desk.connection.set_config_option(config_id="model", session_id=session, value=long),
        ):
            with pytest.raises(acp.RequestError, match="xxx") as error:
                await asked
            assert len(str(error.value)) < 3_000


async def test_a_call_that_another_program_runs_is_no_question_for_the_editor(tmp_path: Path) -> None:
    """The prompt says for whom the conversation waits."""
    model = ScriptedModel(calls("look", at="x"))
    async with connected(tmp_path / "a.db", model=model) as desk:
        session = await desk.begin()
        shape = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
        await desk.agent.send("look", conversation=ConversationId(session), client_tools=[shape])
        error = await refused(desk, session, acp.text_block("and?"))
        assert "look" in str(error)
        assert desk.editor.questions == []
