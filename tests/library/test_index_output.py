"""Large outputs stay outside the window: stored whole, shown in a few lines, searched and opened by their handle."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Settings
from perdure.app import start
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.context.window.summary import transcript
from perdure.core.messages import ToolResult
from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxResult, ToolFrame
from perdure.testing import InlineStore, ScriptedEmbedder, ScriptedModel, calls, says
from perdure.toolbox.builtin.index_output import KEPT_CHARS

MODEL = "test/scripted"
SETTINGS = Settings(model=MODEL, embedding="none")
LOG = "".join(
    f"12:{number // 60:02}:{number % 60:02} INFO worker-{number % 7} handled request {number}\n"
    if number != 777
    else "12:12:57 ERROR worker-3 lost its connection to the billing database\n"
    for number in range(1_000)
)
COUNTER = ScriptTokenCounter()


class Prints:
    """`Sandbox` whose programs end with this result; `inputs` is what they could read."""

    def __init__(self, **result: Any) -> None:
        self.result = SandboxResult(**{"status": "success", **result})
        self.inputs = list[str]()

    async def run(self, job: SandboxJob, *, progress: Any = None, lines: Any = None) -> SandboxResult:
        if job.input is not None:
            self.inputs.append(Path(job.input).read_text())  # noqa: ASYNC240
        return self.result

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="a stand-in")

    async def close(self) -> None: ...


@asynccontextmanager
async def asked(
    sandbox: Prints, *script: Any, embedder: ScriptedEmbedder | None = None
) -> AsyncIterator[tuple[Any, ScriptedModel]]:
    """The agent, whose model has called these tools, and the model."""
    model = ScriptedModel(*script, says("done"), otherwise=says("Yes."))
    app = await start(SETTINGS, models={MODEL: model}, store=InlineStore(), sandbox=sandbox, embedder=embedder or None)
    async with AsyncPerdure(app) as perdure:
        agent = await perdure.create_agent("reader", tools=["index_output", "search_output"])
        await agent.send("Go.")
        yield agent, model


def shown(model: ScriptedModel, call: int = 1) -> ToolResult:
    """What the model saw as the result of this call, from 1."""
    return model.requests[call].messages[-1].results[0]


async def stored(agent: Any) -> list[ToolResult]:
    """The results in the log, oldest first."""
    return [result for message in await agent.messages(limit=100) for result in message.results]


async def test_a_large_output_is_stored_whole_and_shown_by_its_edges() -> None:
    """The first line counts what is saved, and every later request has the same bytes."""
    async with asked(Prints(stdout=LOG), calls("index_output", command="..."), says("ok")) as (agent, model):
        await agent.send("And now?")
        (whole,) = await stored(agent)
        overview = await agent.context()
        text = shown(model).text
        tokens = COUNTER.count(LOG)

    assert whole.text == LOG
    assert text.startswith(f"[{tokens:,} tokens indexed, ")
    assert "1| 12:00:00 INFO" in text and "1000| 12:16:39 INFO" in text and "billing" not in text
    said = int(text.split(" indexed, ")[1].split(" shown")[0])
    assert COUNTER.count(text) <= said < 500
    assert model.requests[-1].messages[2].results[0].text == text
    assert overview.results.whole_tokens == tokens and overview.results.saved_share > 0.97


async def test_search_output_finds_passages_with_their_lines() -> None:
    """In a few tokens, and only what has the words; `offset` goes on."""
    script = (
        calls("index_output", command="..."),
        calls("search_output", handle="msg-2", query="lost billing connection"),
        calls("search_output", handle="msg-2", query="request", max_tokens=300, offset=2),
        calls("context_expand", handle="msg-2", lines="778"),
        calls("context_expand", handle="msg-2", grep="ERROR"),
    )
    async with asked(Prints(stdout=LOG), *script) as (_, model):
        found, page, line, matching = (shown(model, call).text for call in (2, 3, 4, 5))

    assert found.startswith("[passages 1-1 of 1 that match in msg-2]\n\nlines 77")
    assert "lost its connection" in found and COUNTER.count(found) < 400
    assert page.startswith("[passages 3-") and "; the next: offset=" in page and COUNTER.count(page) <= 300
    assert "778| 12:12:57 ERROR" in line and "778> 12:12:57 ERROR" in matching


async def test_a_query_has_a_limit() -> None:
    """The same as other searches have."""
    script = calls("index_output", command="..."), calls("search_output", handle="msg-2", query="billing " * 2_000)
    async with asked(Prints(stdout=LOG), *script) as (_, model):
        assert "PERDURE_QUERY_LIMIT_CHARS" in shown(model, 2).text


async def test_vectors_count_where_there_is_an_embedder() -> None:
    """A passage that shares no word with the query, as the index counts words, is found by its vector."""
    embedder = ScriptedEmbedder()
    script = calls("index_output", command="..."), calls("search_output", handle="msg-2", query="billing database")
    async with asked(Prints(stdout=LOG), *script, embedder=embedder) as (_, model):
        found = shown(model, 2).text
    embedder.fail()

    assert ("billing database",) in embedder.requests
    assert "lost its connection" in found.split("\n\n")[1]


async def test_a_place_within_a_long_line_opens() -> None:
    """A document of one line is searched in parts, whose place `context_expand` takes."""
    text = json.dumps([{"id": number, "note": "rare pearl" if number == 400 else "common"} for number in range(900)])
    script = calls("index_output", command="..."), calls("search_output", handle="msg-2", query="pearl")
    async with asked(Prints(stdout=text), *script) as (_, model):
        found = shown(model, 2).text
    place = found.split("\n\nlines ")[1].split("\n")[0]
    first, last = map(int, place.removeprefix("1:").split(".."))

    assert "rare pearl" in found and "rare pearl" in text[first - 1 : last]
    assert found.endswith(text[first - 1 : last])


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        ({"stdout": "few words\n"}, "success", "few words\n"),
        ({"stdout": ""}, "success", "There is no output, so nothing was indexed."),
        ({"stdout": "\ufffd\x00\x01" * 9_000}, "error", "not text, so nothing was indexed"),
        (
            {
                "status": "error",
                "stdout": LOG,
                "error": "ValueError: no luck",
                "traceback": (ToolFrame(2, "f", "raise"),),
            },
            "error",
            "The program failed: line 2, in f: raise\nValueError: no luck",
        ),
        ({"status": "timeout", "stdout": LOG, "error": "it did not end within 30 s"}, "error", "within 30 s"),
        ({"stdout": LOG, "stderr": "a warning"}, "success", "a warning"),
    ],
)
async def test_odd_outputs_are_told_as_they_are(result: Any, status: str, text: str) -> None:
    """A small one whole, none as none, bytes as no text; the error of a program that failed is in view."""
    async with asked(Prints(**result), calls("index_output", command="...")) as (agent, model):
        assert (shown(model).status, text in shown(model).text) == (status, True), shown(model).text
        if result["stdout"] is LOG:
            assert LOG.strip() in (await stored(agent))[0].text and "tokens indexed" in shown(model).text


async def test_what_is_too_long_to_keep_is_cut() -> None:
    """With a line that says so; the model sees as little of it as of any other."""
    async with asked(Prints(stdout="a line\n" * 400_000), calls("index_output", command="...")) as (agent, model):
        (whole,) = await stored(agent)

    assert len(whole.text) < KEPT_CHARS + 100 and whole.text.endswith("only the first 2,000,000 characters are kept]")
    assert len(shown(model).text) < 1_000 and "99.9 % saved" in shown(model).text


@pytest.mark.uses("files")
async def test_a_program_reads_a_file_of_the_agent() -> None:
    """From standard input; without a program, the file itself is indexed."""
    box = Prints(stdout=LOG)
    script = calls("index_output", file="a.txt", command="..."), calls("index_output", file="docs/a.txt")
    model = ScriptedModel(*script, says("done"))
    app = await start(SETTINGS, models={MODEL: model}, store=InlineStore(), sandbox=box)
    async with AsyncPerdure(app) as perdure:
        folder = await perdure.folders.create("docs")
        await folder.upload(LOG.encode(), name="a.txt")
        await folder.wait(timeout_s=30)
        agent = await perdure.create_agent("reader", tools=["index_output"])
        await agent.files.attach("docs")
        await agent.send("Go.")
        whole = await stored(agent)

    assert box.inputs == [LOG] and [one.text for one in whole] == [LOG, LOG]
    assert shown(model, 2).text.splitlines()[1] == "File docs/a.txt."


@pytest.mark.uses("files")
@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("index_output", {}, "give a command, a file, a command that reads the file, or a url"),
        ("index_output", {"command": "1", "url": "https://a.example"}, "give a command, a file"),
        ("index_output", {"url": "http://127.0.0.1/"}, "this machine"),
        ("index_output", {"url": "http://169.254.169.254/latest"}, "metadata"),
        ("index_output", {"file": "no.txt"}, "your folders have no files"),
        ("search_output", {"handle": "msg-99", "query": "x"}, "msg-99 does not exist"),
        ("search_output", {"handle": "node-1", "query": "x"}, "node-1 does not exist"),
        ("search_output", {"handle": "msg-0..1", "query": "x"}, "is not one message"),
        ("search_output", {"handle": "msg-0", "query": " "}, "the query is empty"),
        ("search_output", {"handle": "msg-0", "query": "x", "offset": -1}, "offset=-1"),
        ("search_output", {"handle": "msg-0", "query": "x", "max_tokens": 1}, "max_tokens=1 is too small"),
    ],
)
async def test_bad_input_gets_a_result_that_helps(tool: str, arguments: dict[str, Any], problem: str) -> None:
    """An error result, and nothing stored beside it."""
    async with asked(Prints(), calls(tool, **arguments)) as (agent, _):
        (result,) = await stored(agent)

    assert (result.status, problem in result.text) == ("error", True), result.text


async def test_nothing_matches_says_so() -> None:
    """A search for what is not there is no error."""
    script = calls("index_output", command="..."), calls("search_output", handle="msg-2", query="zebra")
    async with asked(Prints(stdout=LOG), *script) as (_, model):
        assert "Nothing in msg-2" in shown(model, 2).text and shown(model, 2).status == "success"


@pytest.mark.uses("origins")
async def test_what_is_forgotten_is_gone_from_the_output() -> None:
    """The model does not see the megabytes of an output whose lines in view were rewritten."""
    async with asked(Prints(stdout=LOG), calls("index_output", command="...")) as (agent, model):
        await agent.forget("lost its connection to the billing database")
        await agent.send("And now?")
        (whole,) = await stored(agent)
        text = model.requests[-1].messages[2].results[0].text

    assert "[redacted]" in whole.text and "billing" not in whole.text
    assert len(text) < 4_200 and 'context_expand("msg-2")' in text


async def test_a_summariser_reads_of_an_output_what_the_model_saw() -> None:
    """Megabytes would leave no room for what was said."""
    async with asked(Prints(stdout=LOG), calls("index_output", command="...")) as (agent, _):
        source = transcript(await agent.messages(limit=100), max_tokens=100_000, counter=COUNTER)

    assert "tokens indexed" in source and 'search_output("msg-2", query)' in source
    assert COUNTER.count(source) < 2_000


async def test_no_agent_has_the_tools_from_the_start() -> None:
    """They are attached by name, as the other tools of the sandbox are."""
    app = await start(SETTINGS, models={MODEL: ScriptedModel()}, store=InlineStore(), sandbox=Prints())
    async with AsyncPerdure(app) as perdure:
        agent = await perdure.create_agent("reader")

        assert not {"index_output", "search_output"} & {tool.name for tool in await agent.tools.list()}
