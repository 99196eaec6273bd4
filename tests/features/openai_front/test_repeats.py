"""Requests that look alike: which are one sent twice, and which ask for an answer of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.testing import calls, fails, says
from tests.features.openai_front.support import PATH, Program, program
from tests.server.routed import MODEL

RETRY = {"x-stainless-retry-count": "1"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


async def send(chat: Program, body: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    answer = await chat.server.http.post(PATH, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def pictured(url: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": "ann", "messages": [{"role": "user", "content": parts}]}


@pytest.mark.parametrize("at_once", [True, False])
async def test_requests_with_equal_words_and_other_parts_have_answers_of_their_own(at_once: bool) -> None:
    """Another picture, system text, form, tool or option is another request, however soon it comes."""
    async with program(*[says(f"A{number}") for number in range(6)]) as chat:
        bodies = [
            pictured(f"data:image/png;base64,{PIXEL}"),
            pictured(f"data:image/png;base64,{PIXEL.replace('mNk', 'mNg')}"),
            chat.body("What is it?", system="Answer in French."),
            chat.body("What is it?", system="Answer in German."),
            chat.body("What is it?", tools=LOOK),
            chat.body("What is it?", temperature=0.5),
        ]
        if at_once:
            answers = await asyncio.gather(*(send(chat, body) for body in bodies))
        else:
            answers = [await send(chat, body) for body in bodies]

        assert sorted(answers) == [f"A{number}" for number in range(6)]
        said = await chat.conversations()
        assert [sum(text.startswith("A") and len(text) == 2 for text in one) for one in said] == [1] * 6


async def test_what_is_told_beside_the_first_message_is_told_a_new_try() -> None:
    async with program(says("A1"), says("A2")) as chat:
        for _ in range(2):
            await chat.ask("U1", system="Rhyme.")

        assert await chat.conversations() == [["Rhyme.", "U1", "A1"], ["Rhyme.", "U1", "A2"]]


async def test_a_failed_answer_is_not_given_to_a_program_that_tries_again() -> None:
    """The model is asked anew; a later try gets the answer that came of it."""
    async with program(fails("it is down"), says("A1")) as chat:
        failed = await chat.server.http.post(PATH, json=chat.body("U1"))
        answers = [await send(chat, chat.body("U1"), RETRY) for _ in range(2)]

        assert failed.status_code == 500
        assert answers == ["A1", "A1"] and len(chat.requests) == 2


async def test_the_same_word_again_in_a_named_conversation_is_said_again() -> None:
    """A second later, too, once it is answered; a program that says so tries again for ten minutes."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        named = {"X-Conversation": "game"}
        answers = [await send(chat, chat.body("next"), headers) for headers in (named, named, named | RETRY)]
        chat.clock.advance(3_600)
        answers.append(await send(chat, chat.body("next"), named | RETRY))

        assert answers == ["A1", "A2", "A2", "A3"]
        assert await chat.conversations() == [["next", "A1", "next", "A2", "next", "A3"]]


async def test_a_text_that_is_too_long_changes_nothing() -> None:
    """The second try finds no conversation without the history."""
    async with program(says("A1")) as chat:
        body = chat.body("My name is Ann.", "x" * 600_000, "What is my name?")
        refused = [(await chat.server.http.post(PATH, json=body)).status_code for _ in range(2)]

        assert refused == [400, 400] and await chat.conversations() == []


async def test_a_long_chat_that_comes_twice_at_once_keeps_its_history() -> None:
    async with program() as chat:
        texts = [text for number in range(40) for text in (f"q{number}", f"a{number}")]
        await asyncio.gather(*(send(chat, chat.body(*texts, "last")) for _ in range(2)))

        assert (await chat.conversations())[0][:-1] == [*texts, "last"]


async def test_results_of_tools_go_where_their_calls_wait() -> None:
    """Two chats that are alike; sent again, they get the same answer."""
    async with program(calls("look", at="a"), calls("look", at="b"), says("A1"), says("A2")) as chat:
        bodies: list[dict[str, Any]] = []
        for _ in range(2):
            body = chat.body("go", tools=LOOK)
            made = (await chat.server.http.post(PATH, json=body)).json()["choices"][0]["message"]
            chat.clock.advance(60)
            result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": f"seen {len(bodies)}"}
            bodies.append({**body, "messages": [*body["messages"], made, result]})
        answers = [await send(chat, body) for body in (*bodies, *bodies)]

        assert answers == ["A1", "A2"] * 2
        said = await chat.conversations()
        assert [("seen 0" in one, "seen 1" in one) for one in said] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"role": "user", "content": 5}]},
        {"input": [{"role": "assistant", "content": 7}, {"role": "user", "content": "hi"}]},
        {"input": [{"type": "function_call_output", "call_id": "x", "output": 5}]},
        {"input": [{"role": "user", "content": ["hi"]}]},
        {"input": "hi", "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "g"}},
        {"messages": [{"role": "assistant", "tool_calls": 5}, {"role": "user", "content": "x"}]},
    ],
)
async def test_wrong_types_are_refused_before_anything_is_made(fields: dict[str, Any]) -> None:
    async with program() as chat:
        path, model = (PATH, f"memory/{MODEL}") if "messages" in fields else ("/openai/v1/responses", "ann")
        answer = await chat.server.http.post(path, json={"model": model, **fields})

        assert answer.status_code == 400, answer.text
        assert await chat.conversations() == []


async def test_results_of_tools_that_come_again_after_a_failure_are_answered() -> None:
    """The model is asked anew; the chat goes on in its conversation."""
    async with program(calls("look", at="a"), fails("it is down"), says("A1"), says("A2")) as chat:
        body = chat.body("go", tools=LOOK)
        made = (await chat.server.http.post(PATH, json=body)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "seen"}
        again = {**body, "messages": [*body["messages"], made, result]}
        failed = await chat.server.http.post(PATH, json=again)
        answer = await send(chat, again)
        messages = [*again["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "go on"}]
        last = await send(chat, {**body, "messages": messages})

        assert failed.status_code == 500 and (answer, last) == ("A1", "A2")
        [said] = await chat.conversations()
        assert said[-3:] == ["A1", "go on", "A2"] and "seen" in said


@pytest.mark.parametrize("later", [says("A1"), calls("look", at="b")])
@pytest.mark.parametrize(
    ("first", "then"), [(("seen", "And now?"), ("seen",)), (("seen",), ("other",)), (("seen", "And now?"), ("other",))]
)
async def test_results_of_tools_that_were_answered_otherwise_are_refused(
    first: tuple[str, ...], then: tuple[str, ...], later: Any
) -> None:
    """They never get the answer to another request, which the same request still gets."""
    async with program(calls("look", at="a"), later, says("A2")) as chat:
        body = chat.body("go", tools=LOOK)
        made = (await chat.server.http.post(PATH, json=body)).json()["choices"][0]["message"]
        call_id = made["tool_calls"][0]["id"]

        async def send_results(result: str, *said: str) -> Any:
            users = [{"role": "user", "content": text} for text in said]
            results = [{"role": "tool", "tool_call_id": call_id, "content": result}]
            again = {**body, "messages": [*body["messages"], made, *results, *users]}
            return await chat.server.http.post(PATH, json=again, headers=RETRY)

        answer, refused, retried = [await send_results(*one) for one in (first, then, first)]

        assert answer.status_code == retried.status_code == 200 and len(chat.requests) == 2
        assert answer.json()["choices"] == retried.json()["choices"]
        assert refused.status_code == 400 and "before" in refused.json()["error"]["message"], refused.text


async def test_results_of_tools_that_come_a_third_time_get_the_answer_of_the_second() -> None:
    """The model is not asked again once a try behind a failure was answered."""
    async with program(calls("look", at="a"), fails("it is down"), says("A1"), says("A2")) as chat:
        body = chat.body("go", tools=LOOK)
        made = (await chat.server.http.post(PATH, json=body)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "seen"}
        again = {**body, "messages": [*body["messages"], made, result]}
        await chat.server.http.post(PATH, json=again)
        answers = [await send(chat, again) for _ in range(3)]

        assert answers == ["A1"] * 3 and len(chat.requests) == 3
