"""Tools made of a source: created, tried, run for an agent in the sandbox, with secrets and blocks."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from perdure import AsyncPerdure, Perdure, tool
from perdure.app import start
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound, SandboxUnavailable, SourceInvalid, ToolBuiltIn
from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxResult, ToolFrame, is_requirement
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says

MODEL = "test/m"
SETTINGS = Settings(secret_key="for tests, this one", embedding="none")

NOTE = '''
def note(text: str, client, agent_state=None) -> str:
    """Note a text."""
    return text
'''

Answer = SandboxResult | Callable[[SandboxJob], SandboxResult] | Exception


@dataclass
class Boxed:
    """`Sandbox` that answers as it is told; `jobs` are what it was given."""

    answer: Answer = field(default_factory=lambda: SandboxResult(status="success", value="noted"))
    jobs: list[SandboxJob] = field(default_factory=list)

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        self.jobs.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, SandboxResult) else self.answer(job)

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="a stand-in")

    async def close(self) -> None: ...


@asynccontextmanager
async def open_library(box: Boxed, *script: Any) -> AsyncIterator[tuple[AsyncPerdure, ScriptedModel]]:
    model = ScriptedModel(*script)
    app = await start(SETTINGS, models={MODEL: model}, store=InlineStore(), sandbox=box)
    async with AsyncPerdure(app) as perdure:
        yield perdure, model


def results(reply: Any) -> list[Any]:
    return [result for message in reply.messages for result in message.results]


async def test_a_call_runs_the_source_with_what_the_tool_was_given() -> None:
    """Its environment with secrets, over it the agent's own; limits; the agent; nothing for what nobody fills."""
    box = Boxed(SandboxResult(status="success", value={"a": None}, stdout="hi\n", stderr="oh\n"))
    async with open_library(box, calls("note", text=5), says("done")) as (perdure, _):
        await perdure.secrets.set("SHARED", "s1")
        await perdure.tools.create(
            NOTE,
            environment={"A": "1", "KEY": "secret:SHARED", "OWN": "tool's"},
            requirements=["httpx==0.28.1"],
            timeout_s=7,
            memory_mb=64,
            network=["API.example.org", "db.example.org:5432", "api.example.org"],
        )
        agent = await perdure.create_agent("ann", model=MODEL, human="Ann", tools=["note"])
        await agent.secrets.set("OWN", "agent's")
        (result,) = results(await agent.send("Go."))

        (job,) = box.jobs
        assert (result.text, result.status, result.stdout, result.stderr) == (
            "{'a': None}",
            "success",
            ("hi\n",),
            ("oh\n",),
        )
        assert (job.function, job.arguments) == ("note", {"text": "5", "client": None})
        assert job.environment == {"LETTA_AGENT_ID": agent.id, "A": "1", "KEY": "s1", "OWN": "agent's"}
        assert (job.requirements, job.network) == (("httpx==0.28.1",), ("api.example.org", "db.example.org:5432"))
        assert (job.limits.wall_s, job.limits.memory_mb) == (7, 64)
        assert job.agent is not None
        assert (job.agent["id"], job.agent["blocks"]) == (agent.id, {"persona": "", "human": "Ann"})


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        (
            SandboxResult(
                status="error", error="ValueError: no", traceback=(ToolFrame(3, "note", "raise ValueError('no')"),)
            ),
            "ValueError: no\n  line 3, in note: raise ValueError('no')",
        ),
        (SandboxResult(status="timeout", error="it took more than 30 s"), "it took more than 30 s"),
        (SandboxResult(status="crash"), "the tool ended with crash"),
        (SandboxUnavailable("no isolation here"), "no isolation here"),
    ],
)
async def test_what_goes_wrong_in_the_sandbox_is_a_result(answer: Answer, error_text: str) -> None:
    """The model sees it, and the run goes on."""
    async with open_library(Boxed(answer), calls("note", text="x"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE)
        agent = await perdure.create_agent(model=MODEL, tools=["note"])
        reply = await agent.send("Go.")

        (result,) = results(reply)
        assert result.status == "error" and error_text in result.text
        assert reply.text == "done"


async def test_a_secret_that_a_tool_gives_back_is_not_shown_and_not_stored() -> None:
    """Returned, raised, printed or written into a block: the secret's name stands there, by an agent or by hand."""
    value = 'canary-5f "1d/7c'
    text = f"GET http://x/?key={quote_plus(value)} {value!r} {json.dumps(value)} {b64encode(value.encode()).decode()}"
    secret = f"{text} of the agent"

    def answer(job: SandboxJob) -> SandboxResult:
        if job.arguments["text"] == "raise":
            return SandboxResult(status="error", error=secret, stdout=secret, stderr=secret)
        blocks = {"human": secret} if job.agent else None
        return SandboxResult(status="success", value={secret: [secret]}, stdout=secret, stderr=secret, agent=blocks)

    script = (calls("note", text="return"), calls("note", text="raise"), says("done"))
    async with open_library(Boxed(answer), *script) as (perdure, model):
        await perdure.secrets.set("SHARED", value)
        await perdure.tools.create(NOTE, environment={"KEY": "secret:SHARED", "PLAIN": "Release"})
        agent = await perdure.create_agent(model=MODEL, human="Ann", tools=["note"])
        await agent.secrets.set("OWN", "of the agent")
        await agent.secrets.set("SHORT", "http")
        returned, raised = results(await agent.send("Go."))
        tried = await perdure.tools.test("note", {"text": "return"})
        by_hand = await agent.tools.run("note", {"text": "raise"})
        stored = [repr(message) for message in await agent.messages()]
        block = (await agent.blocks.get("human")).value
        shown = [repr(request) for request in model.requests]

        masked = "GET http://x/?key=[secret SHARED]"
        for one in (returned, raised, tried, by_hand):
            for part in (one.text, one.stdout[0], one.stderr[0]):
                assert masked in part and part.count("[secret SHARED]") in (4, 8)
                assert ("[secret OWN]" in part) is (one is not tried)
        assert masked in block and block.endswith("[secret OWN]")
        everything = "".join([*stored, *shown, block, repr(by_hand)])
        for form in ("canary", b64encode(value.encode()).decode(), "of the agent"):
            assert form not in everything


async def test_a_value_of_the_tool_itself_is_masked_as_a_secret_is() -> None:
    """It may be a key. By an agent, by hand, and of a source that is only tried; not if it is short, or a word that
    every program's settings have."""
    key, url = "canary-5f1d7c", "https://x.example"
    environment = {"TOKEN": key, "STAGE": "Production", "FLAG": "true", "URL": url}
    secret = f"{key} at {url} in Production: true"

    def answer(job: SandboxJob) -> SandboxResult:
        blocks = {"human": secret} if job.agent else None
        return SandboxResult(status="success", value=secret, stdout=secret, stderr=secret, agent=blocks)

    async with open_library(Boxed(answer), calls("note", text="x"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, environment=environment)
        agent = await perdure.create_agent(model=MODEL, human="Ann", tools=["note"])
        (called,) = results(await agent.send("Go."))
        tried = await perdure.tools.test("note", {"text": "x"})
        other = await perdure.tools.test_source(NOTE, {"text": "x"}, environment=environment)

        block = (await agent.blocks.get("human")).value
        shown = [part for one in (called, tried, other) for part in (one.text, one.stdout[0], one.stderr[0])]
        assert {*shown, block} == {"[secret TOKEN] at [secret URL] in Production: true"}


async def test_a_requirement_is_checked_when_a_tool_is_made() -> None:
    """By the same rule as when it is installed."""
    async with open_library(Boxed()) as (perdure, _):
        for wrong in ("a" * 201, "-r x", "a @ http://x", "a==1;x"):
            with pytest.raises(InvalidInput, match="can't be used"):
                await perdure.tools.create(NOTE, requirements=[wrong])
            assert not is_requirement(wrong)


async def test_a_missing_secret_is_a_result() -> None:
    """The tool is not run."""
    box = Boxed()
    async with open_library(box, calls("note", text="x"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE, environment={"KEY": "secret:GONE"})
        agent = await perdure.create_agent(model=MODEL, tools=["note"])
        (result,) = results(await agent.send("Go."))

        assert (result.status, box.jobs) == ("error", [])
        assert "was not run: secret 'GONE' not found" in result.text


async def test_changed_blocks_are_edits_by_the_agent() -> None:
    """With the result, as new versions; the next request shows the new value."""
    box = Boxed(SandboxResult(status="success", value="ok", agent={"human": "Ann, 36"}))
    async with open_library(box, calls("note", text="x"), says("done")) as (perdure, model):
        await perdure.tools.create(NOTE)
        agent = await perdure.create_agent(model=MODEL, human="Ann", tools=["note"])
        reply = await agent.send("Go.")

        (edit,) = reply.edits
        (newest, _) = await agent.blocks.history("human")
        assert (edit.label, edit.version) == ("human", 1)
        assert (newest.author.kind, newest.author.id, newest.author.run_id) == ("agent", agent.id, reply.run_id)
        assert '"value": "Ann, 36"' in model.requests[1].messages[-1].text
        assert [result.text for result in results(reply)] == ["ok"]


async def test_changes_that_can_not_be_stored_leave_nothing_half_written() -> None:
    """A block changed meanwhile, read-only or too small: none of the changes holds, and the result says so."""
    box = Boxed()
    async with open_library(box, *[calls("note", text="x"), says("done")] * 3) as (perdure, _):
        await perdure.tools.create(NOTE)
        agent = await perdure.create_agent(model=MODEL, human="Ann", tools=["note"])
        await agent.blocks.create("small", "s", limit_chars=5)
        await agent.blocks.create("fixed", "f", read_only=True)

        for changed, why in (
            ({"human": "new", "small": "too long"}, "would hold 8 characters, its limit is 5"),
            ({"human": "new", "fixed": "x"}, "This block is read-only"),
        ):
            box.answer = SandboxResult(status="success", value="ran", agent=changed)
            reply = await agent.send("Go.")
            (result,) = results(reply)
            assert result.status == "error" and why in result.text
            assert result.text.startswith("ran\n[NOTE: the tool ran, but what it changed of your memory was not stored")
            assert (await agent.blocks.get("human")).version == 0
            assert reply.edits == ()

        loop = asyncio.get_running_loop()

        def meanwhile(job: SandboxJob) -> SandboxResult:
            waiting.append(loop.create_task(agent.blocks.update("human", "somebody else's")))
            return SandboxResult(status="success", value="ran", agent={"human": "mine"})

        waiting: list[asyncio.Task[Any]] = []
        box.answer = meanwhile
        (result,) = results(await agent.send("Go."))
        await waiting[0]
        human = await agent.blocks.get("human")
        assert human.value in ("somebody else's", "mine")
        if human.version == 1:  # the other one was first: the tool's own change is not stored over it
            assert "is at version 1, not 0" in result.text


async def test_a_tool_is_tried_by_hand() -> None:
    """With the same checks; for an agent, its block edits are the caller's."""
    box = Boxed(SandboxResult(status="success", value="ok", agent={"human": "Ann!"}))
    async with open_library(box) as (perdure, _):
        made = await perdure.tools.create(NOTE)
        agent = await perdure.create_agent(model=MODEL, human="Ann", tools=["note"])
        refused = await perdure.tools.test("note", {"text": 1.5})
        assert (refused.status, refused.refused, box.jobs) == ("error", True, [])
        assert (await perdure.tools.test(made.id, {"text": "x"})).text == "ok"
        assert box.jobs[-1].agent is None
        await agent.tools.run("note", {"text": "x"})
        (newest, _) = await agent.blocks.history("human")
        assert (newest.value, newest.author.kind) == ("Ann!", "user")
        assert (await perdure.tools.test_source(NOTE.replace("note", "other"), {"text": "x"})).text == "ok"
        with pytest.raises(InvalidInput, match="works on an agent's memory"):
            await perdure.tools.test("memory_insert")
        with pytest.raises(NotFound, match="there are archival_memory_insert"):
            await perdure.tools.test("nothing")
        assert [t.spec.name for t in await perdure.tools.list(types=["custom"])] == ["note"]


async def test_tools_are_made_found_changed_and_deleted() -> None:
    """By name or id; of a function, its text is taken, without the mark."""

    @tool(idempotent=True)
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    async with open_library(Boxed()) as (perdure, _):
        made = await perdure.tools.create(shout, tags=["loud"])
        code = await perdure.tools.code("shout")
        assert code is not None
        assert code.source.startswith("def shout(")
        assert await perdure.tools.create(code.source) == made
        with pytest.raises(AlreadyExists):
            await perdure.tools.create(code.source + "\n# newer")
        newer = await perdure.tools.upsert(code.source + "\n# newer", parallel=True)
        assert (newer.id, newer.spec.parallel, newer.tags) == (made.id, True, ())
        assert [hit.tool.id for hit in await perdure.tools.search("loud")] == [made.id]
        changed = await perdure.tools.update("shout", tags=["x"], timeout_s=1.5)
        assert (changed.tags, changed.spec.timeout_s, changed.spec.parallel) == (("x",), 1.5, True)
        assert await perdure.tools.get(made.id) == changed
        with pytest.raises(InvalidInput, match="a tool has no field colour"):
            await perdure.tools.update("shout", colour="red")  # type: ignore[call-arg]
        with pytest.raises(SourceInvalid):
            await perdure.tools.update("shout", source="def f(:")
        with pytest.raises(ToolBuiltIn):
            await perdure.tools.delete("run_code")
        await perdure.tools.delete("shout")
        with pytest.raises(NotFound):
            await perdure.tools.code("shout")


def test_names_of_functions_and_custom_tools_do_not_meet(tmp_path: Path) -> None:
    """A function can't take the name of a built-in or a custom tool; what a user set of a built-in one stays."""

    def memory_insert(text: str) -> str:
        """Mine."""
        return text

    def mine(text: str) -> str:
        """Mine."""
        return text

    path = tmp_path / "a.db"
    with Perdure(path, settings=SETTINGS) as perdure:
        perdure.tools.create("def mine(a: int):\n    'Mine.'\n")
        perdure.tools.update("memory_insert", requires_approval=True, return_limit_chars=77)
    with pytest.raises(ToolBuiltIn, match="give the function another name"):
        Perdure(path, settings=SETTINGS, tools=[memory_insert])
    with pytest.raises(AlreadyExists):
        Perdure(path, settings=SETTINGS, tools=[mine])
    with Perdure(path, settings=SETTINGS) as perdure:
        kept = perdure.tools.get("memory_insert")
        assert (kept.spec.requires_approval, kept.spec.return_limit_chars) == (True, 77)
        assert perdure.tools.get("mine").spec.kind == "custom"


async def test_a_malformed_schema_is_not_stored() -> None:
    """Neither by create nor by update; nothing is left of it."""
    source = "def pick(x: int) -> str:\n    'Pick.'\n    return str(x)\n"
    async with open_library(Boxed()) as (perdure, _):
        broken: Any
        for broken in ({"anyOf": 5}, {"enum": 5}, {"$ref": "#/$defs/No"}, 5, {"type": "int"}):
            with pytest.raises(InvalidInput, match=r"properties\.x"):
                await perdure.tools.create(source, schema={"properties": {"x": broken}, "required": ["x"]})
        with pytest.raises(NotFound):
            await perdure.tools.get("pick")
        made = await perdure.tools.create(source)
        with pytest.raises(InvalidInput, match=r"properties\.x\.items is 5"):
            await perdure.tools.update("pick", schema={"properties": {"x": {"items": 5}}, "required": ["x"]})
        assert await perdure.tools.get("pick") == made


async def test_the_same_source_with_other_options_is_not_dropped() -> None:
    """What is given and differs is named; what is not given may be as it is."""
    async with open_library(Boxed()) as (perdure, _):
        made = await perdure.tools.create(NOTE, requires_approval=True, tags=["a"], environment={"A": "1"})
        assert made.name == "note"
        assert await perdure.tools.create(NOTE) == made
        assert await perdure.tools.create(NOTE, tags=["a"], environment={"A": "1"}) == made
        with pytest.raises(AlreadyExists, match="exists already with other requires_approval, timeout_s:") as caught:
            await perdure.tools.create(NOTE, requires_approval=False, timeout_s=5, tags=["a"])
        assert caught.value.differing == ("requires_approval", "timeout_s")
        other: Any
        for other in ({"tags": ["b"]}, {"environment": {}}, {"network": ["*"]}, {"metadata": {"a": 1}}):
            with pytest.raises(AlreadyExists, match=next(iter(other))):
                await perdure.tools.create(NOTE, **other)
        assert await perdure.tools.get("note") == made


async def test_what_is_no_value_of_a_field_or_argument_is_refused() -> None:
    """Typed, whatever Python says of it; nothing is run or stored."""
    box = Boxed()
    loop: dict[str, Any] = {}
    loop["a"] = loop
    async with open_library(box) as (perdure, _):
        made = await perdure.tools.create(NOTE)
        given: Any
        for given in ({"text": b"x"}, loop, {"text": 10**6000}, {1: 2}, {"text": [float("nan")]}):
            outcome = await perdure.tools.test("note", given)
            assert (outcome.status, outcome.refused) == ("error", True)
        changes: Any
        for changes in (
            {"source": None},
            {"source": b"x"},
            {"return_limit_chars": 10**6000},
            {"tags": None},
            {"metadata": loop},
            {"requirements": [10**6000]},
            {"schema": {"properties": loop}},
        ):
            with pytest.raises(InvalidInput):
                await perdure.tools.update("note", **changes)
        assert (await perdure.tools.get("note"), box.jobs) == (made, [])


async def test_a_tool_that_takes_the_agent_is_run_for_one_that_has_it() -> None:
    """Without an agent it is refused, by what helps; so is a tool that the agent hasn't got."""
    box = Boxed()
    source = NOTE.replace("agent_state=None", "agent_state").replace("client, ", "")
    async with open_library(box) as (perdure, _):
        await perdure.tools.create(source)
        for trial in (perdure.tools.test("note", {"text": "x"}), perdure.tools.test_source(source, {"text": "x"})):
            with pytest.raises(InvalidInput, match=r"takes agent_state: use agent\.tools\.run"):
                await trial
        agent = await perdure.create_agent("ann", model=MODEL)
        with pytest.raises(NotFound, match="tool 'note' of this agent not found: it has "):
            await agent.tools.run("note", {"text": "x"})
        assert box.jobs == []
        await agent.tools.attach("note")
        assert (await agent.tools.run("note", {"text": "x"})).text == "noted"


async def test_a_lambda_is_no_tool() -> None:
    async with open_library(Boxed()) as (perdure, _):
        with pytest.raises(SourceInvalid, match="a lambda can't be a tool: it has no name"):
            await perdure.tools.create(lambda x: x)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ([1, "a", None], "[1, 'a', None]"),
        ({"a": {"b": "it's"}}, """{'a': {'b': "it's"}}"""),
    ],
)
async def test_a_result_is_shown_as_python_writes_it(value: Any, text: str) -> None:
    """As the wire has it."""
    box = Boxed(SandboxResult(status="success", value=value))
    async with open_library(box, calls("note", text="x"), says("done")) as (perdure, _):
        await perdure.tools.create(NOTE)
        agent = await perdure.create_agent(model=MODEL, tools=["note"])
        (result,) = results(await agent.send("Go."))

        assert (result.text, result.status) == (text, "success")


async def test_more_time_than_a_call_gets_is_refused() -> None:
    """When it is made, changed or tried; the limit is named with its setting, and nothing is stored."""
    async with open_library(Boxed()) as (perdure, _):
        assert perdure.app.settings.sandbox_timeout_s == 600
        too_long = "timeout_s is 601, and a call takes at most 600 s here: PERDURE_SANDBOX_TIMEOUT_S"
        for make in (perdure.tools.create, perdure.tools.upsert):
            with pytest.raises(InvalidInput, match=too_long):
                await make(NOTE, timeout_s=601)
        with pytest.raises(InvalidInput, match=too_long):
            await perdure.tools.test_source(NOTE, {"text": "x"}, timeout_s=601)
        assert await perdure.tools.list(types=["custom"]) == []
        await perdure.tools.create(NOTE, timeout_s=600)
        with pytest.raises(InvalidInput, match=too_long):
            await perdure.tools.update("note", timeout_s=601)

        assert (await perdure.tools.get("note")).spec.timeout_s == 600


async def test_more_memory_than_a_call_gets_is_refused() -> None:
    """When it is made, changed or tried; the cap is named, and nothing is stored."""
    async with open_library(Boxed()) as (perdure, _):
        cap = perdure.app.settings.sandbox_memory_mb
        too_much = f"memory_mb is {cap + 1:,}, and a call gets at most {cap:,} MiB"
        for make in (perdure.tools.create, perdure.tools.upsert):
            with pytest.raises(InvalidInput, match=too_much):
                await make(NOTE, memory_mb=cap + 1)
        with pytest.raises(InvalidInput, match=too_much):
            await perdure.tools.test_source(NOTE, {"text": "x"}, memory_mb=cap + 1)
        assert await perdure.tools.list(types=["custom"]) == []
        await perdure.tools.create(NOTE, memory_mb=cap)
        with pytest.raises(InvalidInput, match=too_much):
            await perdure.tools.update("note", memory_mb=cap + 1)

        code = await perdure.tools.code("note")
        assert code is not None
        assert code.memory_mb == cap
