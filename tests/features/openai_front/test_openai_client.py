"""OpenAI's own Python client against `/openai/v1`; its types validate each answer."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from perdure.core.messages import Image
from perdure.core.runs import Usage
from perdure.testing import calls, fails, says
from tests.features.openai_front.support import Program, program
from tests.server.routed import BASE

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"], "additionalProperties": False}
TOOL: Any = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK}}
FUNCTION: Any = {"type": "function", "name": "look", "description": "Look.", "parameters": LOOK, "strict": True}


@asynccontextmanager
async def client(*script: Any) -> AsyncIterator[tuple[AsyncOpenAI, Program]]:
    async with program(*script) as chat:
        http = cast(Any, chat.server.http)
        own = AsyncOpenAI(base_url=f"{BASE}/openai/v1", api_key="none", http_client=http, max_retries=0)
        yield own, chat


def checked(kind: Any, value: Any) -> Any:
    """The answer, if the client's own type takes it strictly."""
    return kind.model_validate(value.model_dump(mode="json", by_alias=True, exclude_unset=True))


async def test_agents_and_models_are_listed() -> None:
    """By name; of two with one name each by its id; and each model with memory."""
    async with client() as (own, chat):
        twins = [await chat.server.library.create_agent() for _ in range(2)]
        for twin in twins:
            await chat.server.letta.agents.update(twin.id, name="twin")
        listed = [checked(Model, one).id async for one in own.models.list()]
        one = checked(Model, await own.models.retrieve("ann"))
        model = await own.models.retrieve("memory/test/scripted")

        assert {"ann", *(twin.id for twin in twins), "memory/test/scripted"} <= {*listed} and "twin" not in listed
        assert (one.id, one.owned_by, model.id) == ("ann", "perdure", "memory/test/scripted")


async def test_a_chat() -> None:
    """The text, the reason, the tokens with those from the cache."""
    async with client(says("Hi.", usage=Usage(input_tokens=9, output_tokens=2, cached_input_tokens=4))) as (own, chat):
        answer = checked(
            ChatCompletion,
            await own.chat.completions.create(
                model="ann", messages=[{"role": "user", "content": "Hello"}], temperature=0.1
            ),
        )

        assert (answer.choices[0].message.content, answer.choices[0].finish_reason, answer.model) == (
            "Hi.",
            "stop",
            "ann",
        )
        assert answer.usage.prompt_tokens_details.cached_tokens == 4
        assert chat.requests[0].options.temperature == 0.1


async def test_a_stream() -> None:
    """Each chunk has the client's type; the last one the tokens."""
    async with client(says("one two three")) as (own, _):
        stream = await own.chat.completions.create(
            model="ann",
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [checked(ChatCompletionChunk, one) async for one in stream]

        assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "one two three"
        assert chunks[-1].usage.total_tokens > 0 and len(chunks) > 3


@pytest.mark.parametrize("streams", [False, True])
async def test_tools_of_the_program(streams: bool) -> None:
    """Calls end the answer; their results go on with it, in the same conversation."""
    async with client(calls("look", at="sky"), says("It is blue."), says("Bye.")) as (own, chat):
        messages: list[Any] = [{"role": "user", "content": "what do you see"}]

        async def ask() -> Any:
            if not streams:
                return checked(
                    ChatCompletion, await own.chat.completions.create(model="ann", messages=messages, tools=[TOOL])
                )
            async with own.chat.completions.stream(model="ann", messages=messages, tools=[TOOL]) as stream:
                return await stream.get_final_completion()

        message = (await ask()).choices[0].message
        [call] = message.tool_calls
        messages += [message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})]
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "blue"}]
        answer = (await ask()).choices[0].message.content
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "Bye"}]
        bye = (await ask()).choices[0].message.content

        assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"at": "sky"})
        assert (answer, bye) == ("It is blue.", "Bye.")
        assert len(await chat.conversations()) == 1


async def test_images_and_the_form_of_the_answer() -> None:
    """Pictures reach the model, and so does the schema."""
    async with client(says('{"seen": true}')) as (own, chat):
        content: Any = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]
        form: Any = {"type": "json_schema", "json_schema": {"name": "seen", "schema": LOOK, "strict": True}}
        await own.chat.completions.create(
            model="ann", messages=[{"role": "user", "content": content}], response_format=form
        )
        [request] = chat.requests

        assert any(isinstance(part, Image) for message in request.messages for part in message.parts)
        assert request.options.response_format == form


async def test_a_response() -> None:
    """As text, with what the request said; the next one goes on behind it, and an older one forks."""
    async with client(says("A1"), says("A2"), says("A3")) as (own, chat):
        first = checked(
            Response, await own.responses.create(model="ann", input="U1", instructions="Rhyme.", metadata={"a": "b"})
        )
        second = await own.responses.create(model="ann", input="U2", previous_response_id=first.id)
        await own.responses.create(model="ann", input="U3", previous_response_id=first.id)
        again = checked(Response, await own.responses.retrieve(first.id))

        assert (first.output_text, first.status, first.instructions) == ("A1", "completed", "Rhyme.")
        assert again.model_dump() == first.model_dump()
        assert second.previous_response_id == first.id
        assert await chat.conversations() == [["Rhyme.", "U1", "A1", "U2", "A2"], ["Rhyme.", "U1", "A1", "U3", "A3"]]


async def test_responses_by_history_and_by_conversation() -> None:
    """The whole input again, references to earlier answers, and names of conversations."""
    async with client(says("A1"), says("A2"), says("A3"), says("A4"), says("A5")) as (own, chat):
        first = await own.responses.create(model="ann", input="U1")
        items: list[Any] = [{"role": "user", "content": "U1"}, *(one.model_dump() for one in first.output)]
        await own.responses.create(model="ann", input=[*items, {"role": "user", "content": "U2"}])
        short: Any = [{"role": "user", "content": "U1"}, {"type": "item_reference", "id": first.output[0].id}]
        chat.clock.advance(60)
        await own.responses.create(model="ann", input=[*short, {"role": "user", "content": "U2b"}])
        named: Any = await own.responses.create(model="ann", input="V1", conversation="tea")
        await own.responses.create(model="ann", input="V2", conversation=named.conversation.id)

        assert await chat.conversations() == [
            ["U1", "A1", "U2", "A2"],
            ["U1", "A1", "U2b", "A3"],
            ["V1", "A4", "V2", "A5"],
        ]


async def test_a_response_is_streamed() -> None:
    """Each event has the client's type, its number and its name; the last one has the whole answer."""
    async with client(says("one two three")) as (own, _):
        stream = await own.responses.create(model="ann", input="Hello", stream=True)
        events = [
            EVENT.validate_python(one.model_dump(mode="json", by_alias=True, exclude_unset=True))
            async for one in stream
        ]

        kinds = [one.type for one in events]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert [one.sequence_number for one in events] == [*range(len(events))]
        assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == "one two three"
        assert events[-1].response.output_text == "one two three" and kinds[-1] == "response.completed"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_response_calls_the_tools_of_the_program(streams: bool) -> None:
    """By function calls among its items, answered by an item of the next input."""
    async with client(calls("look", at="sky"), says("It is blue.")) as (own, chat):

        async def ask(**fields: Any) -> Any:
            if not streams:
                return checked(Response, await own.responses.create(model="ann", tools=[FUNCTION], **fields))
            async with own.responses.stream(model="ann", tools=[FUNCTION], **fields) as stream:
                return await stream.get_final_response()

        first = await ask(input="what do you see")
        [call] = first.output
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
        second = await ask(input=[result], previous_response_id=first.id)

        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "look", {"at": "sky"})
        assert second.output_text == "It is blue."
        assert len(await chat.conversations()) == 1


async def test_responses_are_deleted_and_not_stored() -> None:
    """Then they are not found; the conversation knows what was said."""
    async with client(says("A1"), says("A2")) as (own, chat):
        kept = await own.responses.create(model="ann", input="U1")
        await own.responses.delete(kept.id)
        unkept = await own.responses.create(model="ann", input="U2", store=False)
        for response in (kept, unkept):
            with pytest.raises(openai.NotFoundError, match=f"response '{response.id}' not found"):
                await own.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError, match=f"response '{kept.id}' not found"):
            await own.responses.create(model="ann", input="U3", previous_response_id=kept.id)

        assert [one[0] for one in await chat.conversations()] == ["U1", "U2"]


async def test_errors_have_openai_s_form() -> None:
    """A model that is not there, a bad value, and a model that is down."""
    async with client(fails("slow down", kind="llm_rate_limit"), fails("it is down")) as (own, chat):
        user: Any = [{"role": "user", "content": "x"}]
        with pytest.raises(openai.NotFoundError) as missing:
            await own.chat.completions.create(model="nobody", messages=user)
        with pytest.raises(openai.BadRequestError) as wrong:
            await own.chat.completions.create(model="ann", messages=user, n=2)
        with pytest.raises(openai.RateLimitError) as limited:
            await own.chat.completions.create(model="ann", messages=user)
        chat.clock.advance(60)
        with pytest.raises(openai.APIError) as broken:
            async for _ in await own.chat.completions.create(model="ann", messages=user, stream=True):
                pass

        assert missing.value.code == "model_not_found" and missing.value.type == "invalid_request_error"
        assert "n is 2" in wrong.value.message
        assert limited.value.code == "llm_rate_limit"
        assert "it is down" in str(broken.value)


@pytest.mark.parametrize(
    ("fields", "helps"),
    [
        ({"functions": [TOOL["function"]]}, "use tools"),
        ({"functions": [TOOL["function"]], "function_call": {"name": "look"}}, "use tools"),
        ({"tool_choice": "required"}, "tool_choice is only allowed when tools are given"),
        ({"tool_choice": {"type": "function", "function": {"name": "look"}}}, "only allowed when tools are given"),
        ({"tool_choice": "required", "tools": []}, "only allowed when tools are given"),
    ],
)
async def test_tools_that_can_not_be_called_are_refused(fields: Any, helps: str) -> None:
    """In OpenAI's older form, or a choice without tools; nothing is kept."""
    async with client() as (own, chat):
        with pytest.raises(openai.BadRequestError, match=helps):
            user: Any = [{"role": "user", "content": "x"}]
            await own.chat.completions.create(model="ann", messages=user, **fields)

        assert await chat.conversations() == [] and not chat.requests


async def test_what_a_response_was_asked_is_listed() -> None:
    async with client(says("A1")) as (own, _):
        first = await own.responses.create(model="ann", input=[{"role": "user", "content": f"U{n}"} for n in (1, 2, 3)])
        items: list[Any] = [one async for one in own.responses.input_items.list(first.id, limit=2)]
        page: Any = await own.responses.input_items.list(first.id, limit=1, after=items[2].id, order="asc")

        said = [(one.type, one.role, one.content[0].text) for one in items]
        assert said == [("message", "user", text) for text in ("U3", "U2", "U1")]
        assert (page.has_more, [one.content[0].text for one in page.data]) == (True, ["U2"])


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_file_reaches_the_agent_as_text(api: str) -> None:
    """Below its name; one that is only named is refused."""
    async with client(says("A1")) as (own, chat):
        data = base64.b64encode(b"The gate is green.\n").decode()

        async def ask(file: dict[str, str]) -> Any:
            text = "What colour is it?"
            if api == "responses":
                parts: Any = [{"type": "input_text", "text": text}, {"type": "input_file", **file}]
                return await own.responses.create(model="ann", input=[{"role": "user", "content": parts}])
            parts = [{"type": "text", "text": text}, {"type": "file", "file": file}]
            return await own.chat.completions.create(model="ann", messages=[{"role": "user", "content": parts}])

        await ask({"filename": "gate.txt", "file_data": f"data:text/plain;base64,{data}"})
        with pytest.raises(openai.BadRequestError, match="file_data"):
            await ask({"file_id": "file-1"})
        [request] = chat.requests

        assert "[file gate.txt]\nThe gate is green." in request.messages[-1].text


async def test_a_response_shows_what_its_request_set() -> None:
    async with client(says("A1")) as (own, _):
        shown: Any = {
            "truncation": "auto",
            "service_tier": "flex",
            "parallel_tool_calls": False,
            "metadata": {"a": "b"},
            "safety_identifier": "me",
            "prompt_cache_key": "p",
            "max_tool_calls": 3,
            "temperature": 0.5,
            "top_p": 0.9,
            "user": "u",
        }
        answer = checked(Response, await own.responses.create(model="ann", input="U1", tools=[FUNCTION], **shown))

        assert {name: getattr(answer, name) for name in shown} == shown
