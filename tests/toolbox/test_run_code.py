"""Code of a model: what it is told of a run in the sandbox, and what is not run at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.converters.convert import convert_file
from perdure.core.ids import AgentId, ConversationId, RunId, ToolId
from perdure.core.ports import CallContext
from perdure.core.sandbox import Isolation, SandboxJob, SandboxResult, ToolFrame
from perdure.core.tools import Tool, ToolOutcome, ToolSpec
from perdure.toolbox.builtin.specs import BUILTIN_TOOL_SPECS
from perdure.toolbox.builtin.toolbox import Builtins, WebSettings

CONTEXT = CallContext(
    agent_id=AgentId("agent-1"), conversation_id=ConversationId("conv-1"), run_id=RunId("run-1"), call_id="1"
)


class GivenResults:
    """`Sandbox` that has one result for everything; `jobs` are what it was given."""

    def __init__(self, result: SandboxResult) -> None:
        self.result, self.jobs = result, list[SandboxJob]()

    async def run(self, job: SandboxJob, *, progress: Callable[[str], None] | None = None) -> SandboxResult:
        self.jobs.append(job)
        return self.result

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="nothing is run")

    async def close(self) -> None:
        pass


def toolbox(sandbox: GivenResults | None) -> Builtins:
    return Builtins(converter=convert_file, web=WebSettings(), sandbox=sandbox)


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
    """As the model wrote it, with no arguments, environment or network."""
    sandbox = GivenResults(SandboxResult(status="success"))
    await toolbox(sandbox).call(tool("run_code"), {"code": "1 + 1", "language": "Python"}, CONTEXT)

    assert sandbox.jobs == [SandboxJob(source="1 + 1")]


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
