"""Open WebUI's requests, as version 0.12.4 of its package builds them: the prompts in `open_webui.json` are its own,
with their headings and without most of the advice between them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from perdure.features.openai_front.chores import is_chore
from perdure.testing import says
from tests.features.openai_front.support import PATH, Program, program

PROMPTS: Mapping[str, str] = json.loads(Path(__file__).with_name("open_webui.json").read_text("utf-8"))
USAGE = {"stream_options": {"include_usage": True}}


class OpenWebui:
    """A chat of the program: it keeps the messages, and sends all of them each time."""

    def __init__(self, chat: Program, system: str = "") -> None:
        self.chat = chat
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    async def send(self, text: str) -> str:
        """Say something, as its page does: by a stream; then ask for what it shows beside the chat."""
        self.messages.append({"role": "user", "content": text})
        body = {"stream": True, "model": "ann", "messages": self.messages, **USAGE}
        answer = await self.chat.server.http.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        chunks = [json.loads(line) for line in lines[:-1]]
        said = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        self.messages.append({"role": "assistant", "content": said})
        self.chat.clock.advance(30)
        return said

    async def edit(self, text: str) -> str:
        """Change the newest message of the user, and send it."""
        del self.messages[-2:]
        return await self.send(text)

    async def ask_beside(self, task: str) -> str:
        """Ask for a title, tags or the like of the chat."""
        shown = "\n".join(f"{one['role'].upper()}: {one['content']}" for one in self.messages[-6:])
        content = re.sub(r"{{MESSAGES:END:\d}}", lambda _: shown, PROMPTS[task])
        content = content.replace("{{PROMPT}}", "I want").replace("{{TYPE}}", "General").replace("{{prompt}}", shown)
        body = {"model": "ann", "messages": [{"role": "user", "content": content}], "stream": False, "max_tokens": 1000}
        answer = await self.chat.server.http.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])


def texts_of(requests: Sequence[Any]) -> str:
    """All that a model was sent in the newest request."""
    return "\n".join([requests[-1].system, requests[-1].tail, *(one.text for one in requests[-1].messages)])


async def test_a_chat_remembers_what_another_chat_said() -> None:
    """By the agent's memory: the second chat sends nothing of the first."""
    async with program(says("Noted."), says('{"title": "Tea"}'), says("Oolong.")) as chat:
        first = OpenWebui(chat)
        await first.send("My favourite drink is oolong tea.")
        await first.ask_beside("title")
        second = OpenWebui(chat)
        await second.send("Which drink is my favourite drink?")

        assert "oolong tea" in texts_of(chat.requests)
        assert await chat.conversations() == [
            ["My favourite drink is oolong tea.", "Noted."],
            ["Which drink is my favourite drink?", "Oolong."],
        ]


@pytest.mark.parametrize("task", [*PROMPTS])
async def test_what_is_asked_beside_a_chat_leaves_no_trace(task: str) -> None:
    """No message, no run, no memory in the request; the chat goes on as before."""
    async with program(says("A1"), says('{"x": "y"}'), says("A2")) as chat:
        window = OpenWebui(chat)
        await window.send("I planted a quince.")
        runs = await chat.agent.runs()
        beside = await window.ask_beside(task)
        request = chat.requests[-1]
        await window.send("And a fig.")

        assert beside == '{"x": "y"}' and (request.tools, request.system, len(request.messages)) == ((), "", 1)
        assert len(await chat.agent.runs()) == len(runs) + 1
        assert await chat.conversations() == [["I planted a quince.", "A1", "And a fig.", "A2"]]


async def test_an_edited_message_forks_and_a_regenerated_answer_too() -> None:
    """The first conversation stays; the new one has what was said before."""
    async with program(says("A1"), says("A2"), says("A3"), says("A4")) as chat:
        window = OpenWebui(chat, "You are a helpful bot.")
        await window.send("U1")
        await window.send("U2")
        await window.edit("U2, edited")
        await window.edit("U2, edited")

        start = ["You are a helpful bot.", "U1", "A1"]
        assert await chat.conversations() == [
            [*start, "U2", "A2"],
            [*start, "U2, edited", "A3"],
            [*start, "U2, edited", "A4"],
        ]


PEOPLE = (
    "",
    "Generate a concise title for my novel.",
    "### Task:\nwrite the tests of this module\n### Output:\npytest",
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions.",
    "What is a chat history?",
    "Summarize this conversation:\nUser: hi\nAI: hello",
    "Write a summary of this conversation:\nUser: hi\nAssistant: hello",
    "Give me a good name for our chat group.",
    "Give this conversation a name:\n```\nI planted a quince.\n```",
    "My name is Ann and I work on the chat widget. Why does this chat crash?\n```js\nlet a;\n```",
    "I keep a list of tags for my notes. Our conversation yesterday was about birds. Fix this:\n```sql\nselect 1\n```",
    "My name is Ann. The messages of my boss worry me, one is: user: do it\nWhat shall I do?",
    "User: I am Ann, allergic to nuts.\nAssistant: noted\nUser: what may I eat?",
    "Write a reply to this chat:\nUser: where is my parcel?\nAssistant: on its way",
    "Who is right in this conversation?\nHuman: it is blue\nAI: it is green",
    "Translate the following conversation into French:\nUser: hi\nBot: hello",
    "Could you suggest tags for my shop? Here is our chat log:\nuser: hi",
    "Create a table with the title, the name and the tags of these books: Dune, Emma.",
    "Extract all keywords from this text: the quince is a fruit of the rose family.",
    "Write SQL queries for this table: users(id, name), messages(id, user_id, text)",
    "Why does my parser drop <chat_history> and </chat_history>?",
    "How do I render <messages> in React? I want to create a title above it.",
    "Return the title of this chat page:\n<ChatHeader/>",
    "Return the title of the page as JSON. The messages on it are not needed.",
    "Make the follow-up appointment with Dr. Bo and note that I am allergic to penicillin.",
    "What do the tags in this chat template mean?\n<|user|> hi <|assistant|> hello",
    "Our conversation about the title of my thesis helped. Now the second chapter, please.",
    "Mein Name ist Anna. Gib mir einen Titel für meinen Roman.",
    "Fasse dieses Gespräch zusammen:\nKunde: Hallo\nBerater: Guten Tag",
    "Schreibe Tags für mein Foto: Sonnenuntergang am Meer.",
    "Was heißt ,conversation' und ,title' auf Deutsch?",
    "我叫安，请给我的小说起一个标题。",
    "请总结这段对话：\n用户：你好\n助手：你好",
    "帮我给照片加标签：海边的日落",
)


@pytest.mark.parametrize("text", PEOPLE)
@pytest.mark.parametrize("system", ["", "You help people. Give a short answer, and produce a clear dialogue."])
def test_what_people_ask_is_no_chore(text: str, system: str) -> None:
    """Only whole prompts of programs are, and a task together with a dialogue."""
    assert not is_chore(text, system, is_alone=True)


LIBRECHAT = (
    "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the title"
    " itself.\n\nConversation:\nUser: hi\nAI: hello",
    "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the"
    " detected language (5 words or less, no punctuation or quotation)\n\nUser: hi\nAI: hello",
)


@pytest.mark.parametrize("text", LIBRECHAT)
def test_titles_of_librechat_are_chores(text: str) -> None:
    """Both of its forms."""
    assert is_chore(text)


async def test_a_message_with_what_was_found_for_it_is_known_without_that() -> None:
    """Open WebUI puts only the newest message into its template for documents and searches of the web."""
    template = (
        "### Task:\nRespond to the user query using the provided context.\n### Output:\nBe clear.\n<context>\n"
        '<source id="1">It is by the gate.</source>\n</context>\n\n<user_query>\n{}\n</user_query>\n'
    )
    async with program(says("A1"), says("A2"), says("A3")) as chat:
        said: list[str] = []
        for word in ("U1", "U2", "U3"):
            said += [word, await chat.ask(*said, template.format(word))]

        [conversation] = await chat.conversations()
        wanted = [template.format(one).strip() if one.startswith("U") else one for one in said]
        assert [one.strip() for one in conversation] == wanted


@pytest.mark.parametrize(
    "text",
    [
        "Please generate a four to five word title summarizing our conversation without any lead-in, punctuation,"
        " quotation marks, periods, symbols, bold text, or additional text. Remove enclosing quotation marks.",
        "Summarize the conversation between user and assistant in 3-5 words as a title:\nuser: I planted a quince."
        "\nassistant: How nice.",
        "Generate a short title for this chat:\n\nUSER: hi\nASSISTANT: hello",
        'Write a summary and 3 tags of this chat as JSON: {"tags": []}\n<chat>\nuser: hi\n</chat>',
    ],
)
async def test_titles_of_other_programs_are_chores(text: str) -> None:
    """By their own words, or because they hold a chat and ask for its title."""
    async with program(says("Quince")) as chat:
        await chat.ask(text)

        assert await chat.conversations() == []


async def test_a_title_of_a_chat_may_be_asked_in_it() -> None:
    """By a person: what is said before it is not in the message."""
    async with program(says("A1"), says("A2")) as chat:
        await chat.ask("I planted a quince.")
        await chat.ask("I planted a quince.", "A1", "Generate a short title for this chat:\nuser: me")

        assert len((await chat.conversations())[0]) == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_titles_by_the_responses_api_leave_no_trace(stream: bool) -> None:
    """Its answer has the form of that API."""
    async with program(says('{"title": "Tea"}')) as chat:
        body = {"model": "ann", "input": PROMPTS["title"], "stream": stream}
        answer = await chat.server.http.post("/openai/v1/responses", json=body)
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        shape = json.loads(lines[-1])["response"] if stream else answer.json()

        assert Response.model_validate(shape).output_text == '{"title": "Tea"}'
        assert await chat.conversations() == []


TALK = "user: I planted a quince.\nassistant: How nice.\nuser: And a fig."


@pytest.mark.parametrize(
    "system",
    [
        "You summarize the user's conversation into a title of at most ten words, without punctuation.",
        "Generate a brief summary of the conversation, which replaces it in later requests.",
        "Write 3 tags for this chat, separated by commas.",
    ],
)
async def test_a_task_in_the_system_text_leaves_no_trace(system: str) -> None:
    """The message is the chat that it is about."""
    async with program(says("Quince")) as chat:
        await chat.ask(TALK, system=system)

        assert await chat.conversations() == []


async def test_a_person_who_shows_a_chat_is_remembered() -> None:
    """What is said beside the message is a role, and no task."""
    async with program(says("Nice.")) as chat:
        await chat.ask(f"What do you think?\n{TALK}", system="Your name is Bob. Keep this conversation short.")

        assert len(await chat.conversations()) == 1


async def test_a_system_text_behind_a_chat_asks_about_it() -> None:
    """As NextChat asks for a summary: nothing of it is kept, and the chat goes on."""
    async with program(says("A1"), says("They greet."), says("A2")) as chat:
        await chat.ask("U1")
        body = chat.body("U1", "A1")
        body["messages"].append({"role": "system", "content": "Summarize the discussion briefly."})
        answer = await chat.server.http.post(PATH, json=body)
        await chat.ask("U1", "A1", "U2")

        assert answer.json()["choices"][0]["message"]["content"] == "They greet."
        assert await chat.conversations() == [["U1", "A1", "U2", "A2"]]
