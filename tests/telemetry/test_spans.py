"""Spans by the conventions for generative AI, as an SDK receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import AsyncPerdure, RunFailed
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, fails, says
from tests.server.routed import new_agent, routed

MODEL = "test/scripted"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
_EXPORTER = InMemorySpanExporter()
_LISTENED: list[TracerProvider] = []


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What the SDK receives. A process has one SDK, so it stays, whichever test has set it up."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        trace.set_tracer_provider(provider := TracerProvider())
    if provider not in _LISTENED:
        _LISTENED.append(provider)
        provider.add_span_processor(SimpleSpanProcessor(_EXPORTER))
    _EXPORTER.clear()
    yield _EXPORTER
    _EXPORTER.clear()


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


async def test_a_run_is_a_tree_of_spans(spans: InMemorySpanExporter) -> None:
    """The agent's invocation; below it model calls with their tokens, and tools. Nothing of what was said."""
    script = (calls("memory_insert", label="human", new_string="my-secret"), says("my-secret answer"))
    model = ScriptedModel(*script)
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(settings=settings, store=InlineStore(), models={MODEL: model}) as perdure:
        agent = await perdure.create_agent("my-secret-name")
        await agent.send("my-secret question")
    found = spans.get_finished_spans()

    (run,) = named(found, "invoke_agent")
    chats, (tool,) = named(found, "chat test/scripted"), named(found, "execute_tool memory_insert")
    assert run.attributes is not None and run.context is not None and tool.attributes is not None
    assert run.parent is None
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["gen_ai.agent.id"] == agent.id
    assert str(run.attributes["perdure.run.id"]).startswith("run-")
    assert run.attributes["perdure.run.stop_reason"] == "end_turn"
    assert len(chats) == 2
    for span in (*chats, tool):
        assert span.parent is not None and span.parent.span_id == run.context.span_id
    for chat in chats:
        assert chat.attributes is not None
        assert chat.kind is trace.SpanKind.CLIENT
        assert chat.attributes["gen_ai.operation.name"] == "chat"
        assert chat.attributes["gen_ai.request.model"] == "scripted"
        assert chat.attributes["gen_ai.provider.name"] == "own"
        assert "gen_ai.usage.input_tokens" in chat.attributes
    assert tool.attributes["gen_ai.tool.name"] == "memory_insert"
    assert tool.attributes["gen_ai.tool.type"] == "datastore"
    assert "my-secret" not in "".join(span.to_json() for span in found)


async def test_content_is_recorded_where_the_setting_says_so(spans: InMemorySpanExporter) -> None:
    """Messages in the conventions' shape, arguments and results; collectors take no half of a character."""
    model = ScriptedModel(calls("memory_insert", label="human", new_string="Ada"), says("Hello Ada \ud83d"))
    settings = Settings(model=MODEL, embedding="none", trace_content="on")
    async with await AsyncPerdure.open(settings=settings, store=InlineStore(), models={MODEL: model}) as perdure:
        await (await perdure.create_agent("ada")).send("I am Ada")
    found = spans.get_finished_spans()

    last, (tool,) = named(found, "chat test/scripted")[-1], named(found, "execute_tool memory_insert")
    assert last.attributes is not None and tool.attributes is not None
    asked, answered = (json.loads(str(last.attributes[f"gen_ai.{name}.messages"])) for name in ("input", "output"))
    assert {"type": "text", "content": "I am Ada"} in [part for message in asked for part in message["parts"]]
    assert answered == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Hello Ada \ufffd"}], "finish_reason": "end_turn"}
    ]
    assert json.loads(str(tool.attributes["gen_ai.tool.call.arguments"]))["new_string"] == "Ada"


async def test_an_error_is_a_kind_and_no_text(spans: InMemorySpanExporter) -> None:
    """A provider's error may quote what was said."""
    model = ScriptedModel(fails("my-secret", kind="llm_rate_limit"))
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(settings=settings, store=InlineStore(), models={MODEL: model}) as perdure:
        agent = await perdure.create_agent("ada")
        with pytest.raises(RunFailed):
            await agent.send("hello")
    found = spans.get_finished_spans()

    for span in (*named(found, "chat test/scripted"), *named(found, "invoke_agent")):
        assert span.attributes is not None and span.attributes["error.type"] == "llm_rate_limit"
        assert not span.status.is_ok
    assert "my-secret" not in "".join(span.to_json() for span in found)


async def test_a_run_belongs_to_the_trace_of_its_request(spans: InMemorySpanExporter) -> None:
    """Two requests to one conversation at once, each in a trace of its own: so are their runs."""
    async with routed(says("one"), says("two")) as server:
        agent = await new_agent(server)
        body = {"messages": [{"role": "user", "content": "hi"}]}
        for parent in ("1" * 16, "2" * 16):
            header = {"traceparent": f"00-{TRACE}-{parent}-01"}
            answer = await server.http.post(f"/v1/agents/{agent['id']}/messages", json=body, headers=header)
            assert answer.status_code == 200
        await server.http.post(f"/v1/agents/{agent['id']}/messages", json=body, headers={"traceparent": "no"})
    runs = named(spans.get_finished_spans(), "invoke_agent")

    assert [run.parent and f"{run.parent.span_id:016x}" for run in runs] == ["1" * 16, "2" * 16, None]
    assert [run.context is not None and f"{run.context.trace_id:032x}" == TRACE for run in runs] == [True, True, False]
