"""`perdure mcp` as a program: the SDK's client over stdio, and clients that send anything."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel.server import Server

from perdure.core.errors import InvalidInput
from perdure.core.incoming.json_rpc import find_id
from perdure.features.mcp_server.stdio import serve_stdio
from perdure.features.notes.folders import CONTEXT_FILE
from tests.features.mcp_server.clients import READING, TOOLS, over_stdio, refused, said
from tests.features.mcp_server.test_shell import ended, is_started
from tests.support.library import open_sync
from tests.support.programs import environment, perdure
from tests.support.warm import warm

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a project."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "build.log").write_text("step 1 ok\nstep 2 failed\n")
    return folder


async def test_the_sdks_client_uses_every_tool_resource_and_prompt(home: Path, project: Path) -> None:
    """With no model and no key; what was remembered is there after a restart."""
    async with over_stdio(home, "--project", str(project)) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        await said(client, "memory_remember", text="My name is Ada and I live in Ghent.", level="global")
        await said(client, "memory_edit_block", label="project", value="Built with make.")
        await said(client, "note", kind="handoff", title="State of work", fields={"state": "half done"})
        await said(client, "index_output", path="build.log")
        await said(client, "track", files=["a.py"])
        gone = await said(client, "memory_remember", text="wrong")
        await said(client, "memory_forget", undo=gone.rpartition("undo='")[2].partition("'")[0])
    async with over_stdio(home, "--project", str(project)) as client:
        answers = {
            "memory_context": await said(client, "memory_context", about="the build"),
            "memory_search": await said(client, "memory_search", query="where does Ada live?"),
            "memory_list": await said(client, "memory_list", kind="notes"),
            "memory_timeline": await said(client, "memory_timeline"),
            "memory_entity": await said(client, "memory_entity", name="Ada"),
            "search_output": await said(client, "search_output", output="output:1", grep="fail"),
        }
        resources = {one.uri: one for one in (await client.list_resources()).resources}
        texts = {uri: (await client.read_resource(str(uri))).contents[0] for uri in resources}
        prompts = [one.name for one in (await client.list_prompts()).prompts]
        catch_up: Any = (await client.get_prompt("catch_up", {"about": "the build"})).messages[0].content
        handoff: Any = (await client.get_prompt("handoff", {"next": "tests"})).messages[0].content

    assert tools == TOOLS
    assert "Built with make." in answers["memory_context"] and "half done" in answers["memory_context"]
    assert all("Ghent" in answers[name] for name in ("memory_search", "memory_timeline", "memory_entity"))
    assert "State of work" in answers["memory_list"] and "step 2 failed" in answers["search_output"]
    kinds = sorted(str(uri).removeprefix("memory://").partition("/passage-")[0] for uri in resources)
    assert kinds == [
        *("global/blocks/human", "global/blocks/preferences", "global/profile"),
        *("project/blocks/project", "project/notes", "project/profile"),
    ]
    found = {str(uri): getattr(content, "text", "") for uri, content in texts.items()}
    assert found["memory://project/blocks/project"] == "Built with make."
    assert "Ghent" in found["memory://global/profile"]
    assert any("half done" in text for text in found.values())
    assert prompts == ["catch_up", "handoff"]
    assert "half done" in catch_up.text and "What comes next: tests" in handoff.text


@pytest.mark.parametrize("name", ["stdin", "stdout"])
async def test_a_closed_stream_is_no_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)

    with pytest.raises(InvalidInput, match="have to be open"):
        await serve_stdio(Server("none"))


def contexts_in(home: Path) -> list[str]:
    """What the next sessions of projects begin with."""
    return [one.read_text("utf-8") for one in home.rglob(CONTEXT_FILE)]


async def test_half_a_character_in_memory_ends_no_session(home: Path, project: Path) -> None:
    """A program that cuts an emoji in two has sent it to the server, or a conversation that was captured holds it."""
    async with over_stdio(home, "--project", str(project)) as client:
        await said(client, "memory_remember", text="x", level="global")
    with open_sync(home / "perdure.db") as store:
        agent = store.agent("global-memory")
        agent.archive("tea \ud83d here")
        agent.blocks.update("human", value="tea \ud83d here")
    async with over_stdio(home, "--project", str(project)) as client:
        read: Any = (await client.read_resource("memory://global/blocks/human")).contents[0]
        answers = [
            read.text,
            await said(client, "memory_list", kind="blocks"),
            await said(client, "memory_search", query="tea"),
            await said(client, "memory_context"),
        ]
        await said(client, "memory_remember", text="y")  # what the next session begins with is written anew

    assert all("tea \ufffd here" in answer for answer in answers)
    assert any("tea \ufffd here" in text for text in contexts_in(home))


async def test_resources_and_prompts_that_are_not_there_are_named(home: Path, project: Path) -> None:
    async with over_stdio(home, "--project", str(project)) as client:
        await said(client, "memory_remember", text="x")
        for uri in ("memory://project/blocks/none", "memory://project/notes/x", "memory://other/profile", "file:///x"):
            with pytest.raises(Exception, match="not found"):
                await client.read_resource(uri)
        for name, arguments in (("none", {}), ("handoff", {"x": "y"}), ("handoff", {"next": "x" * 20_000})):
            with pytest.raises(Exception, match=r"not found|not an argument|limit"):
                await client.get_prompt(name, arguments)


async def test_options_of_the_command(home: Path, project: Path, tmp_path: Path) -> None:
    """`--read-only`, `--nudges`, `--root` and `--agent`; a folder that is not there is named at once."""
    more = tmp_path / "more"
    more.mkdir()
    (more / "a.txt").write_text("of a further root")
    assert perdure(home, "agent", "create", "ann").returncode == 0
    async with over_stdio(home, "--agent", "ann", "--root", str(more), "--nudges", "strict") as client:
        told = await said(client, "memory_remember", text="ann's own")
        read = await said(client, "index_output", path=str(more / "a.txt"))
        nudges = await said(client, "track", files=["a", "b", "a", "b"])
    async with over_stdio(home, "--agent", "ann", "--read-only") as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        error = await refused(client, "memory_remember", text="x")
        found = await said(client, "memory_list", kind="passages")
    wrong = [perdure(home, "mcp", *one) for one in (("--project", "/no/such"), ("--nudges", "loud"))]

    assert "(project)" in told and "of a further root" in read and "write it down" in nudges
    assert tools == READING and "only reads" in error and "ann's own" in found
    assert all(one.returncode and not one.stdout for one in wrong)
    assert "/no/such" in wrong[0].stderr and "loud" in wrong[1].stderr


async def test_two_programs_use_one_projects_memory_at_once(home: Path, project: Path) -> None:
    """Two editors write one block in turn: no line is lost, and each sees what the other wrote."""
    async with over_stdio(home, "--project", str(project)) as one, over_stdio(home, "--project", str(project)) as two:
        for number in range(10):
            for name, client in (("one", one), ("two", two)):
                await said(client, "memory_edit_block", label="project", append=f"{name} {number}")
        await said(one, "memory_remember", text="one wrote this")
        await said(two, "index_output", text="two stored this")
        blocks = await said(two, "memory_list", kind="blocks")
        passages = await said(two, "memory_list", kind="passages")
        output = await said(one, "search_output", output="output:1", query="stored")

    assert blocks.count("one ") == blocks.count("two ") == 10
    assert "one wrote this" in passages and "two stored this" in output


@contextlib.contextmanager
def serving(home: Path) -> Iterator[None]:
    """`perdure serve`, while it answers."""
    ours = environment(home)
    command = [str(warm("perdure", ours)), "serve", "--port", "0"]
    server = subprocess.Popen(command, env=ours, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert server.stdout is not None and any(b"serving on" in line for line in server.stdout)
        yield
    finally:
        server.terminate()
        server.communicate(timeout=30)


async def test_the_memory_is_open_in_a_server_at_the_same_time(home: Path, project: Path) -> None:
    with serving(home):
        async with over_stdio(home, "--project", str(project)) as client:
            await said(client, "memory_remember", text="beside a server")
            found = await said(client, "memory_search", query="what is beside a server?")

    assert "beside a server" in found


class RawClient:
    """A client that sends bytes to `perdure mcp`, and reads the lines that come back."""

    def __init__(self, home: Path, project: Path, *options: str) -> None:
        ours = {**environment(home), "HOME": str(home)}
        self.program = subprocess.Popen(
            [warm("perdure", ours), "mcp", "--project", str(project), *options],
            env=ours,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.send({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO})
        assert self.answer()["id"] == "hello"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: bytes | Mapping[str, Any]) -> None:
        """Send a line."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.program.stdin is not None
        self.program.stdin.write(line + b"\n")
        self.program.stdin.flush()

    def call(self, id: int, tool: str, **arguments: Any) -> None:
        """Call a tool without waiting."""
        parameters = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": parameters})

    def answer(self) -> dict[str, Any]:
        """The next line, which is a message of the protocol."""
        assert self.program.stdout is not None
        found: dict[str, Any] = json.loads(self.program.stdout.readline())
        assert found["jsonrpc"] == "2.0"
        return found

    def end(self) -> tuple[int, bytes]:
        """Close stdin; the exit code and what else came."""
        rest, errors = self.program.communicate(timeout=60)
        assert b"Traceback" not in errors, errors
        return self.program.returncode, rest


@pytest.fixture
def raw(home: Path, project: Path) -> Iterator[RawClient]:
    with started(home, project) as client:
        yield client


@contextlib.contextmanager
def started(home: Path, project: Path, *options: str) -> Iterator[RawClient]:
    """Such a client, whose server is killed at the end."""
    client = RawClient(home, project, *options)
    yield client
    client.program.kill()
    client.program.wait()
    for stream in (client.program.stdin, client.program.stdout, client.program.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def test_what_is_no_message_is_answered_with_its_id(raw: RawClient) -> None:
    """JSON of 100,000 levels, broken and strange JSON: a tool error for a call, else an error of the protocol."""
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"note","arguments":'
    raw.send(call + b'{"a":' * 100_000 + b"1" + b"}" * 100_002)
    deep = raw.answer()
    raw.send(call + b"[" * 150 + b"]" * 150 + b"}}")
    levels = raw.answer()
    raw.send(call)
    cut = raw.answer()
    errors = []
    for line in (b"nonsense", b"[]", b'"text"', b'{"jsonrpc":"2.0","id":8}', b"\xff\xfe{", b'{"id":{"id":9}}'):
        raw.send(line)
        errors.append(raw.answer())
    raw.send(b"")
    raw.send(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')

    assert raw.answer()["id"] == "last"
    for one in (deep, levels, cut):
        assert one["id"] == 7 and one["result"]["isError"] is True and one["result"]["content"][0]["text"]
    assert [one["id"] for one in errors] == [None, None, None, 8, None, None]
    assert [one["error"]["code"] for one in errors] == [-32700, -32600, -32600, -32600, -32600, -32600]
    assert raw.end() == (0, b"")


def test_a_long_line_that_is_no_message_is_answered_by_the_id_at_its_end(raw: RawClient) -> None:
    """Where the SDK for TypeScript writes it; and soon, however the line is made."""
    begin = time.monotonic()
    call = b'{"method":"tools/call","params":{"name":"note","arguments":{"x":'
    raw.send(call + b'"' + b"x" * 48_000_000 + b'"}},"jsonrpc":"2.0","id":7}')
    raw.send(call + b"[" + b'"x",' * 300_000 + b']}},"jsonrpc":"2.0","id":"8",}')
    raw.send(call + b'"' + b"x" * 48_000_000 + b'","id":9}},"jsonrpc":"2.0"}')
    raw.send(call + b'"' + b'\\"' * 1_000_000)
    raw.send(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
    answers = [raw.answer() for _ in range(5)]

    assert [one["id"] for one in answers] == [7, "8", None, None, "last"]
    assert all(one["result"]["isError"] for one in answers[:2]) and time.monotonic() - begin < 20


@pytest.mark.parametrize("unit", [b'\\"', b"\\", b'"', b"[", b'{"id":', b'"id":"a', b'x"id"', b' "id"\\'])
def test_the_time_to_find_an_id_grows_with_the_length(unit: bytes) -> None:
    """Ten times the length takes less than forty times the time."""
    spent = []
    for count in (2_000, 20_000):
        begin = time.process_time()
        for _ in range(5):
            find_id(b'{"method":"ping","params":{"x":"' + unit * count)
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * max(spent[0], 0.001)


def test_arguments_of_10_mb_are_refused_or_stored_whole(raw: RawClient) -> None:
    raw.call(1, "memory_remember", text="x" * 10_000_000)
    raw.call(2, "memory_search", query="x" * 10_000_000)
    raw.call(3, "note", kind="plan", title="x" * 10_000_000, fields={"goal": "g"})
    raw.call(4, "index_output", text="a line of text\n" * 700_000)
    raw.call(5, "no_such_tool" * 1_000_000)
    raw.send(b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"x":"' + b"x" * 50_000_000 + b'"}}')
    raw.call(7, "memory_list", kind="passages")
    answers = {one["id"]: one["result"] for one in (raw.answer() for _ in range(7))}
    texts = {id: result["content"][0]["text"] for id, result in answers.items()}

    assert [id for id, result in sorted(answers.items()) if result["isError"]] == [1, 2, 3, 5, 6]
    assert "10,500,000 characters" in texts[4] and texts[7] == "There are no passages yet."
    assert "48,000,000" in texts[6] and max(map(len, texts.values())) < 3_000


def test_a_thousand_calls_at_once_are_all_answered(raw: RawClient, project: Path) -> None:
    """And lose nothing that was written among them; memory does not grow with calls that wait."""

    def send() -> None:
        for id in range(1_000):
            if id % 20:
                raw.call(id, "memory_list", kind="notes")
            else:
                raw.call(id, "memory_edit_block", label="project", append=f"line {id}")

    thread = threading.Thread(target=send)
    thread.start()
    answers = [raw.answer() for _ in range(1_000)]
    thread.join()
    raw.call(5_000, "memory_list", kind="blocks")
    blocks = raw.answer()["result"]["content"][0]["text"]

    assert {one["id"] for one in answers} == {*range(1_000)}
    assert not any(one["result"]["isError"] for one in answers)
    lines = [line for line in blocks.splitlines() if line.startswith("line ")]
    assert lines == [f"line {id}" for id in range(0, 1_000, 20)]


def test_calls_that_wait_can_be_taken_back(raw: RawClient) -> None:
    """However many wait: what comes behind them is read."""
    raw.call(1, "index_output", text="x" * 400_000 + "!")
    raw.answer()
    for id in range(100):
        raw.call(id, "search_output", output="output:1", grep="(x+x+)+y")
    for id in range(100):
        raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    raw.send({"jsonrpc": "2.0", "id": "last", "method": "ping"})
    answers = [raw.answer()["id"]]
    while answers[-1] != "last":
        answers.append(raw.answer()["id"])

    assert len(answers) < 10


def test_a_client_that_dies_in_a_call_leaves_whole_memory(raw: RawClient, home: Path, project: Path) -> None:
    for id in range(50):
        raw.call(id, "note", kind="plan", title=f"plan {id}", fields={"goal": "g"})
    raw.answer()
    assert raw.program.stdin is not None and raw.program.stdout is not None
    raw.program.stdin.close()
    raw.program.stdout.close()
    assert raw.program.stderr is not None
    code, errors = raw.program.wait(60), raw.program.stderr.read()
    listed = perdure(home, "note", "list", "--project", str(project), "--json")
    verified = perdure(home, "store", "verify")

    assert (code, errors) == (0, b"")
    assert listed.returncode == 0 and verified.returncode == 0
    assert all(note["fields"] == {"goal": "g"} for note in json.loads(listed.stdout))


def test_a_project_that_vanished_keeps_its_memory(raw: RawClient, project: Path) -> None:
    (project / "build.log").unlink()
    (project / ".git").rmdir()
    project.rmdir()
    raw.call(1, "memory_remember", text="after it went")
    raw.call(2, "index_output", path="build.log")
    raw.call(3, "memory_list", kind="passages")
    answers = {one["id"]: one["result"] for one in (raw.answer() for _ in range(3))}

    assert not answers[1]["isError"] and "after it went" in answers[3]["content"][0]["text"]
    assert answers[2]["isError"] and "can't be read" in answers[2]["content"][0]["text"]


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT does what it does in a terminal, also where these tests run in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("interrupts")
def test_a_signal_ends_it(raw: RawClient, number: signal.Signals) -> None:
    """Though stdin stays open, and a thread waits for its next line."""
    raw.program.send_signal(number)

    assert raw.program.wait(30) in (0, 130)
    assert raw.program.stderr is not None and raw.program.stderr.read() == b""


@pytest.mark.parametrize("reaction", [signal.default_int_handler, signal.SIG_IGN])
async def test_a_signal_ends_a_command_that_runs(
    home: Path, project: Path, reaction: signal.Handlers, interrupts: None
) -> None:
    """Also where SIGINT is ignored, as in the background of a script."""
    signal.signal(signal.SIGINT, reaction)
    with started(home, project, "--allow-run") as client:
        client.call(1, "index_output", command="echo $$ > pid; sleep 300; sleep 300")
        assert await is_started(project / "pid")
        client.program.terminate()
        client.program.wait(30)

        assert await ended(project / "pid")


async def test_each_start_of_the_server_is_a_session_for_the_light_reminder(home: Path, project: Path) -> None:
    """A program without hooks reports none."""
    seen = list[bool]()
    for _ in range(2):
        async with over_stdio(home, "--project", str(project), "--nudges", "light") as client:
            for _ in range(2):
                seen.append("write it down" in await said(client, "track", files=["a", "b"] * 4))
                await said(client, "note", kind="doc", title="t", fields={"text": "x"})

    assert seen == [True, False, True, False]
