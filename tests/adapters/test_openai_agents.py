"""`PerdureSession` against the SQLite session of OpenAI's Agents SDK."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.testing import InlineStore

pytestmark = pytest.mark.usefixtures("frameworks")

ITEMS: list[Any] = [
    {"role": "user", "content": "Hello 🐈"},
    {"role": "user", "content": [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": "x"}]},
    {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "1", "output": "2"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {"role": "assistant", "type": "message", "content": [{"type": "output_text", "text": "Two.", "annotations": []}]},
]

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.sampled_from(ITEMS), max_size=3)),
        st.tuples(st.just("get"), st.sampled_from([None, 0, 1, 2, 50])),
        st.tuples(st.just("pop"), st.none()),
        st.tuples(st.just("clear"), st.none()),
    ),
    max_size=12,
)


async def apply(session: Any, operation: str, argument: Any) -> Any:
    """Do one operation of a session, and return what it returns."""
    match operation:
        case "add":
            return await session.add_items(argument)
        case "get":
            return await session.get_items(argument)
        case "pop":
            return await session.pop_item()
    return await session.clear_session()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(operations=OPERATIONS)
def test_each_operation_answers_as_the_sdks_own_session(operations: list[tuple[str, Any]]) -> None:
    from agents.memory import SQLiteSession

    from perdure.adapters.openai_agents import PerdureSession

    async def run() -> None:
        own = SQLiteSession("s1")
        for operation, argument in operations:
            assert await apply(session, operation, argument) == await apply(own, operation, argument)
        assert await session.get_items() == await own.get_items()

    with PerdureSession("s1", store=InlineStore()) as session:
        asyncio.run(run())


async def test_an_agent_of_the_sdk_remembers_after_a_restart(tmp_path: Path) -> None:
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Session, Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from perdure.adapters.openai_agents import PerdureSession

    class Counting(Model):  # type: ignore[misc]
        """Answers with how many items it was sent."""

        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **named: Any) -> Any:
            text = ResponseOutputText(text=f"{len(input)} items", type="output_text", annotations=[])
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **named: Any) -> Any:
            raise NotImplementedError

    agent, config = Agent(name="a", model=Counting()), RunConfig(tracing_disabled=True)
    answers = []
    for text in ("one", "two"):
        with PerdureSession("s1", tmp_path / "a.db") as session:
            assert isinstance(session, Session)
            answers.append((await Runner.run(agent, text, session=session, run_config=config)).final_output)

    assert answers == ["1 items", "3 items"]
