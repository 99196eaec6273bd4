"""Code of a model: what it is told of a run in the sandbox, and what is not run at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId, ConversationId, RunId, ToolId
from perdure.core.ports import CallContext
from perdure.core.specs import Tool, ToolOutcome, ToolSpec
from perdure.core.tools.engine_specs import BUILTIN_TOOL_SPECS
from perdure.core.tools.sandbox import Isolation, Sandbox, SandboxJob, SandboxResult, ToolFrame
from perdure.features.files.converters.convert import convert_file
from perdure.toolbox.builtin.toolbox import NO_TOOLS_IN_CODE, Builtins, WebSettings

CONTEXT = CallContext(
    agent_id=AgentId("agent-1"), conversation_id=ConversationId("conv-1"), run_id=RunId("run-1"), call_id="1"
)


class GivenResults:
    """`Sandbox` that has one result for everything; `jobs` are what it was given."""

    def __init__(self, result: SandboxResult) -> None:
        self.result, self.jobs = result, list[SandboxJob]()

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        self.jobs.append(job)
        return self.result

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="nothing is run")

    async def close(self) -> None:
        pass


async def no_files(agent_id: AgentId, name: str, most_chars: int) -> tuple[str, str]:
    raise NotFound("file", name)


def toolbox(sandbox: Sandbox | None) -> Builtins:
    return Builtins(
        converter=convert_file, web=WebSettings(), sandbox=sandbox, load_file=no_files, counter=ScriptTokenCounter()
    )


def tool(name: str) -> Tool:
    return Tool(id=ToolId("tool-1"), spec=BUILTIN_TOOL_SPECS[name])


async def ran(result: SandboxResult, **arguments: Any) -> ToolOutcome:
    return await toolbox(GivenResults(result)).call(tool("run_code"), arguments, CONTEXT)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (SandboxResult(status="success", stdout="hi\n", value=42), "stdout:\nhi\n\nvalue:\n42"),
        (SandboxResult(status="success", value={"a": ["é", None]}), 'value:\n{"a": ["é", null]}'),
        (SandboxResult(status="success", value="  two\nlines"), "value:\n  two\nlines"),
        (SandboxResult(status="success", stderr="warned"), "stderr:\nwarned"),
        (
            SandboxResult(
                status="error", stdout="so far", error="ZeroDivisionError: x", traceback=(ToolFrame(2, "f", "1 / 0"),)
            ),
            "stdout:\nso far\n\nerror:\n  line 2, in f: 1 / 0\nZeroDivisionError: x",
        ),
        (SandboxResult(status="crash"), "error:\nit ended with crash"),
    ],
)
async def test_a_run_is_told_in_its_parts(result: SandboxResult, text: str) -> None:
    """What was printed, the value, the error with the code's own lines; and nothing of what there is not."""
    outcome = await ran(result, code="...")

    assert outcome.text == text
    assert outcome.status == ("success" if result.status == "success" else "error")


async def test_a_run_without_output_says_so() -> None:
    """An empty result looks like a failure to a model."""
    assert "printed nothing" in (await ran(SandboxResult(status="success"), code="x = 1")).text


async def test_the_code_is_a_script_of_its_own() -> None:
    """As the model wrote it, with no arguments, environment or network, and counted as its agent's."""
    sandbox = GivenResults(SandboxResult(status="success"))
    await toolbox(sandbox).call(tool("run_code"), {"code": "1 + 1", "language": "Python"}, CONTEXT)

    assert sandbox.jobs == [SandboxJob(source="1 + 1", owner="agent-1")]


@pytest.mark.parametrize("language", ["js", "ts", "r", "java"])
async def test_other_languages_are_refused_in_words(language: str) -> None:
    """Nothing isolates them here."""
    sandbox = GivenResults(SandboxResult(status="success"))
    outcome = await toolbox(sandbox).call(tool("run_code"), {"code": "1", "language": language}, CONTEXT)

    assert outcome.status == "error"
    assert "only Python can be run safely here" in outcome.text
    assert sandbox.jobs == []


def test_what_can_not_be_run_here_says_why() -> None:
    """Without a sandbox, without a search engine, and of another Perdure's tools."""
    other = Tool(id=ToolId("tool-1"), spec=ToolSpec(name="fly", description="", parameters={}, kind="builtin"))

    assert toolbox(None).missing(tool("run_code")) == "there is no sandbox here, so no code is run"
    assert "EXA_API_KEY" in (toolbox(None).missing(tool("web_search")) or "")
    assert "no built-in tool 'fly'" in (toolbox(None).missing(other) or "")
    assert toolbox(None).missing(tool("fetch_webpage")) is None


async def test_code_is_run_in_the_sandbox_of_this_machine() -> None:
    """A notebook's cell: prints, a value, an error with its line; a value that is not JSON is shown as Python shows it;
    nothing is left for the next run, and there is no network."""
    if sys.platform != "linux":
        pytest.skip("the sandbox works on Linux only")
    from perdure.toolbox.sandbox.linux import LinuxSandbox

    sandbox = LinuxSandbox()
    try:
        isolation = await sandbox.isolation()
        if not isolation.enough:
            pytest.skip(f"this machine can't hold code back: {isolation.summary}")
        box = toolbox(sandbox)

        async def run_code(code: str) -> str:
            return (await box.call(tool("run_code"), {"code": code}, CONTEXT)).text

        texts = [
            await run_code("import math\nprint('hi')\nx = 6\nmath.factorial(x)"),
            await run_code("1j"),
            await run_code("def f():\n    return 1 / 0\nf()"),
            await run_code("x"),
            await run_code("import socket\nsocket.create_connection(('127.0.0.1', 80), 2)"),
            await run_code("this is no Python"),
        ]
    finally:
        await sandbox.close()

    assert texts[0] == "stdout:\nhi\n\nvalue:\n720"
    assert texts[1] == "value:\n1j"
    assert "line 2, in f: return 1 / 0\nZeroDivisionError: division by zero" in texts[2]
    assert "NameError: name 'x' is not defined" in texts[3]
    assert texts[4].startswith("error:\n") and "Error" in texts[4]
    assert texts[5].startswith("error:\n") and "line 1" in texts[5]


def test_code_that_calls_tools_is_not_run() -> None:
    """The tool is listed, for agents that have it from elsewhere; the model is told what to do."""
    missing = toolbox(GivenResults(SandboxResult(status="success"))).missing(tool("run_code_with_tools"))

    assert missing == NO_TOOLS_IN_CODE
