"""Which conversation a request goes on: each row of the table in docs/openai.md is a test here."""

from __future__ import annotations

import asyncio

from perdure.testing import calls, fails, says
from tests.features.openai_front.support import PATH, program


async def test_a_chat_that_is_sent_again_goes_on_in_its_conversation() -> None:
    """Only what is new is added; the agent is asked once for each message."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        first = await chat.ask("U1")
        second = await chat.ask("U1", first, "U2")
        await chat.ask("U1 \r\n", first, "U2", second, "U3")

        assert await chat.conversations() == [["U1", "A1", "U2", "A2", "U3", "A3"]]
        assert await chat.said() == []


async def test_messages_of_users_alone_begin_a_conversation() -> None:
    """Another time, too, the same words begin one: without the answer that they had before."""
    async with program(says("A1"), says("A2")) as chat:
        await chat.ask("hello")
        await chat.ask("hello")

        assert await chat.conversations() == [["hello", "A1"], ["hello", "A2"]]


async def test_a_chat_whose_beginning_is_not_sent_any_more_goes_on() -> None:
    """Programs send a window of the newest messages; the conversation keeps the rest."""
    answers = [f"A{number}, and some more words" for number in range(6)]
    async with program(*map(says, answers)) as chat:
        said = ["U0"]
        for number, answer in enumerate(answers):
            assert await chat.ask(*said[-5:]) == answer
            said += [answer, f"U{number + 1}"]

        assert await chat.conversations() == [said[:-1]]


async def test_a_header_names_the_conversation() -> None:
    """It wins over the fields; only what is behind the last answer is added."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        await chat.ask("U1", headers={"X-Conversation": "tea"})
        await chat.ask("other", "words", "U2", headers={"X-Conversation": "tea"}, user="bob")
        await chat.ask("U3", headers={"X-Conversation": "rum"})

        assert await chat.conversations() == [["U1", "A1", "U2", "A2"], ["U3", "A3"]]


async def test_metadata_names_it_before_the_user() -> None:
    """Both are names; without either the chat decides."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        await chat.ask("U1", user="bob")
        await chat.ask("U2", user="bob", metadata={"conversation": "rum"})
        await chat.ask("U3", user="bob")

        assert await chat.conversations() == [["U1", "A1", "U3", "A3"], ["U2", "A2"]]


async def test_an_edited_old_message_forks() -> None:
    """What was said before it is in the fork; the first conversation stays as it is."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "A1", "U2")
        await chat.ask("U1", "A1", "U2, edited")

        assert await chat.conversations() == [["U1", "A1", "U2", "A2"], ["U1", "A1", "U2, edited", "A3"]]


async def test_an_edited_answer_forks_with_the_edit() -> None:
    """The agent sees the answer as the program has it."""
    async with program(says("A1"), says("A2")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "no, B1", "U2")

        assert await chat.conversations() == [["U1", "A1"], ["U1", "no, B1", "U2", "A2"]]


async def test_a_chat_from_elsewhere_is_imported_first() -> None:
    """The agent knows what was said before it came, and goes on there."""
    async with program(says("A2"), says("A3"), says("A4")) as chat:
        await chat.ask("U1", "A1", "U2")
        await chat.ask("U1", "A1", "U2", "A2", "U3")
        await chat.ask("U1, edited", "A1", "U2")

        assert await chat.conversations() == [["U1", "A1", "U2", "A2", "U3", "A3"], ["U1, edited", "A1", "U2", "A4"]]


async def test_what_another_model_answered_is_imported_where_it_stands() -> None:
    """Programs let people change the model in the middle of a chat."""
    async with program(says("A1"), says("A3")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "A1", "U2", "of another", "U3")

        assert await chat.conversations() == [["U1", "A1", "U2", "of another", "U3", "A3"]]


async def test_the_same_request_again_is_a_new_try() -> None:
    """What came before goes on in a fork, without the answer that was not wanted."""
    async with program(says("A1"), says("A2"), says("B2"), says("A3")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "A1", "U2")
        assert await chat.ask("U1", "A1", "U2") == "B2"
        await chat.ask("U1", "A1", "U2", "B2", "U3")

        assert await chat.conversations() == [["U1", "A1", "U2", "A2"], ["U1", "A1", "U2", "B2", "U3", "A3"]]


async def test_a_request_that_is_sent_again_is_answered_once() -> None:
    """At once, or later where the program says that it tries again."""
    async with program(says("A1"), says("A2")) as chat:
        body = chat.body("U1")
        both = await asyncio.gather(*(chat.server.http.post(PATH, json=body) for _ in range(3)))
        chat.clock.advance(60)
        again = await chat.ask("U1", headers={"x-stainless-retry-count": "1"})

        assert {one.json()["choices"][0]["message"]["content"] for one in both} == {"A1"} == {again}
        assert await chat.conversations() == [["U1", "A1"]]


async def test_a_failed_answer_is_tried_anew() -> None:
    """The message is there once in the conversation that goes on."""
    async with program(fails("it is down"), says("A1"), says("A2")) as chat:
        failed = await chat.server.http.post(PATH, json=chat.body("U1"))
        chat.clock.advance(60)
        await chat.ask("U1")
        await chat.ask("U1", "A1", "U2")

        assert failed.status_code == 500 and failed.json()["error"]["code"]
        assert (await chat.conversations())[-1] == ["U1", "A1", "U2", "A2"]


async def test_an_answer_that_a_person_stopped_is_known() -> None:
    """The program has its beginning only; the agent's own is whole."""
    async with program(says("one two three"), says("A2")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "one tw", "U2")

        assert await chat.conversations() == [["U1", "one two three", "U2", "A2"]]


async def test_what_the_program_tells_the_model_is_told_once() -> None:
    """And again where it changes; it is no part of the chain."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        await chat.ask("U1", system="Rhyme.")
        await chat.ask("U1", "A1", "U2", system="Rhyme.")
        await chat.ask("U1", "A1", "U2", "A2", "U3", system="Be short.")

        assert await chat.conversations() == [["Rhyme.", "U1", "A1", "U2", "A2", "Be short.", "U3", "A3"]]


async def test_two_chats_with_the_same_beginning_stay_apart() -> None:
    """Each goes on in the one that nothing follows yet."""
    async with program(says("Hi"), says("Hi"), says("A"), says("B"), says("C")) as chat:
        await chat.ask("hello", headers={"X-Conversation": "x"})
        await chat.ask("hello")
        await chat.ask("hello", "Hi", "one")
        await chat.ask("hello", "Hi", "two")

        assert await chat.conversations() == [["hello", "Hi"], ["hello", "Hi", "one", "A"], ["hello", "Hi", "two", "B"]]


async def test_a_fork_leaves_out_what_the_program_told_later() -> None:
    """Each turn begins with what the program said to the model for it."""
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        await chat.ask("U1")
        await chat.ask("U1", "A1", "U2", system="Rhyme.")
        await chat.ask("U1", "A1", "V2")

        assert await chat.conversations() == [["U1", "A1", "Rhyme.", "U2", "A2"], ["U1", "A1", "V2", "A3"]]


async def test_results_of_calls_of_another_model_do_no_harm() -> None:
    """A chat may come in the middle of such a call: its result is no answer to this agent."""
    async with program(says("A1")) as chat:
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "U1"},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "blue"},
            {"role": "user", "content": "U2"},
        ]
        answer = await chat.server.http.post(PATH, json={"model": "ann", "messages": messages})

        assert answer.status_code == 200, answer.text
        assert await chat.conversations() == [["U1", "Let me look.", "U2", "A1"]]


async def test_an_empty_message_is_refused_before_anything_is_made() -> None:
    """It is no new try of what was said before it."""
    async with program(says("A1")) as chat:
        await chat.ask("U1")
        chats = (("U1", "A1", " "), ("",), ("U1", "A1"))
        refused = [await chat.server.http.post(PATH, json=chat.body(*texts)) for texts in chats]

        assert [one.status_code for one in refused] == [400, 400, 400]
        assert await chat.conversations() == [["U1", "A1"]]


async def test_a_chat_with_another_beginning_is_not_taken_for_a_window() -> None:
    """Its last turns are those of another person's chat: that one stays unseen."""
    hello, joke = "Hello! How can I help you today?", "Why did the hen cross the road?"
    async with program(says(hello), says(joke), says("A3")) as chat:
        await chat.ask("I am Ann, my PIN is 4711")
        await chat.ask("I am Ann, my PIN is 4711", hello, "Tell me a joke")
        await chat.ask("I am Bob", hello, "Tell me a joke", joke, "Who am I?")

        assert (await chat.conversations())[1] == ["I am Bob", hello, "Tell me a joke", joke, "Who am I?", "A3"]


async def test_a_chat_whose_answer_has_no_words_goes_on() -> None:
    """It was a call of a tool, or a person stopped it before its first word."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with program(calls("look", at="sky"), says("A2"), says("A3")) as chat:
        made = (await chat.server.http.post(PATH, json=chat.body("U1", tools=tools))).json()["choices"][0]["message"]
        body = chat.body("U1", tools=tools)
        body["messages"] += [made, {"role": "user", "content": "U2"}]
        assert (await chat.server.http.post(PATH, json=body)).status_code == 200
        await chat.ask("V1", "", "V2")

        first, second = await chat.conversations()
        assert (first[0], first[-2:], second) == ("U1", ["U2", "A2"], ["V1", "V2", "A3"])


async def test_a_named_conversation_takes_only_what_is_new() -> None:
    """Of a chat that is sent again; an edited message forks; a new name begins with all that was said."""
    async with program(*[says(f"A{number}") for number in range(1, 7)]) as chat:
        tea = {"X-Conversation": "tea"}
        await chat.ask("Q", "old", "U1", headers=tea)
        await chat.ask("Q", "old", "U1", "A1", "U2", headers=tea)
        await chat.ask("Q", "old", "U1", "A1", "U2, edited", headers=tea)
        await chat.ask("Q", "old", "U1", "A1", "U2, edited", "A3", "U3", headers=tea)
        await chat.ask("Q, edited", "old", "U1", headers=tea)
        await chat.ask("U4", headers=tea)

        start = ["Q", "old", "U1", "A1"]
        assert await chat.conversations() == [
            [*start, "U2", "A2", "U4", "A6"],
            [*start, "U2, edited", "A3", "U3", "A4"],
            ["Q, edited", "old", "U1", "A5"],
        ]


async def test_a_user_names_no_conversation_of_a_chat_that_is_sent_again() -> None:
    """Programs send one user with all chats; chats of different users never meet."""
    async with program(*[says(f"A{number}") for number in range(1, 6)]) as chat:
        await chat.ask("old", "answer", "U1", user="bob")
        await chat.ask("other", "answer", "V1", user="bob")
        await chat.ask("old", "answer", "U1", "A1", "U2", user="bob")
        await chat.ask("old", "answer", "U1", "A1", "W2", user="eve")

        assert await chat.conversations() == [
            ["old", "answer", "U1", "A1", "U2", "A3"],
            ["other", "answer", "V1", "A2"],
            ["old", "answer", "U1", "A1", "W2", "A4"],
        ]


async def test_a_name_means_another_conversation_when_the_first_was_deleted() -> None:
    """As often as one is."""
    async with program(*[says(f"A{number}") for number in range(4)]) as chat:
        for number in range(4):
            await chat.ask(f"U{number}", headers={"X-Conversation": "game"})
            if number < 2:
                [found] = [one for one in await chat.agent.conversations() if one.seq > 0]
                await chat.agent.delete_conversation(found.id)

        assert await chat.conversations() == [["U2", "A2", "U3", "A3"]]


async def test_chats_of_a_user_whose_program_sends_them_again_are_conversations_of_their_own() -> None:
    """LibreChat names the same user in each request: from the first chat that is sent again on, the name alone says
    nothing."""
    async with program(*[says(f"A{number}") for number in range(1, 5)]) as chat:
        await chat.ask("U1", user="me")
        await chat.ask("U1", "A1", "U2", user="me")
        await chat.ask("V1", user="me")
        await chat.ask("V1", "A3", "V2", user="me")

        assert await chat.conversations() == [["U1", "A1", "U2", "A2"], ["V1", "A3", "V2", "A4"]]
