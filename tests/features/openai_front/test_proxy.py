"""Models with memory around them: what reaches the provider, what comes back, and what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from perdure import AsyncPerdure, Settings
from perdure.features.openai_front.open_answers import OpenAnswers
from perdure.library.memory.search import AsyncSearch
from perdure.server.config import ServerConfig
from perdure.testing import InlineStore, ScriptedModel, calls, says
from perdure.testing.http_model import Hanging, HttpModel, Later, Status
from tests.features.openai_front.support import PATH
from tests.server.routed import MODEL
from tests.support.servers import listening

HANDLE = "memory/openai/test"


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server in front of a provider, and the store behind it."""

    http: httpx.AsyncClient
    provider: HttpModel
    library: AsyncPerdure

    async def ask(self, *chat: str, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx.Response:
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(chat)]
        body = {"model": HANDLE, "messages": messages, **fields}
        answer = await self.http.post(PATH, json=body, headers=dict(headers or {}))
        await self.kept()
        return answer

    async def kept(self) -> None:
        """Wait until what was answered is kept."""
        if tasks := set(self.library.app.service(OpenAnswers).tasks):
            await asyncio.wait(tasks)

    async def conversations(self, name: str = "memory") -> list[list[str]]:
        agent = await self.library.agent(name)
        found = [one for one in await agent.conversations() if one.seq > 0]
        return [[row.text for row in await agent.messages(conversation=one.id)] for one in found]


@contextlib.asynccontextmanager
async def proxied(
    monkeypatch: pytest.MonkeyPatch, *script: Any, config: ServerConfig | None = None
) -> AsyncIterator[Proxied]:
    async with HttpModel(*script, otherwise=says("hi")) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        library = await AsyncPerdure.open(
            store=InlineStore(), models={MODEL: ScriptedModel(says("scripted one two"))}, settings=Settings(model=MODEL)
        )
        serving = listening(library, config or ServerConfig(port=0))
        async with library, serving as address, httpx.AsyncClient(base_url=address) as http:
            yield Proxied(http, provider, library)


async def test_a_model_gets_memory_in_front_and_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one chat says is recalled in another; the provider's own parameters reach it as they came."""
    async with proxied(monkeypatch, says("Noted."), says("Tea.")) as proxy:
        await proxy.ask("My favourite drink is oolong tea.")
        odd: dict[str, Any] = {"top_k": 7, "temperature": 0.25, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}}
        answer = await proxy.ask("What is my favourite drink?", **odd)
        first, second = proxy.provider.requests

        assert answer.json()["choices"][0]["message"]["content"] == "Tea."
        assert [one["role"] for one in first["messages"]] == ["user"] and first["model"] == "test"
        [user] = second["messages"]
        assert "oolong" in user["content"] and user["content"].endswith("What is my favourite drink?")
        assert {name: second[name] for name in odd} == odd
        assert await proxy.conversations() == [
            ["My favourite drink is oolong tea.", "Noted."],
            ["What is my favourite drink?", "Tea."],
        ]


async def test_the_built_in_program_answers_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads what is put in front of a question as memory, not as a part of the question."""
    async with proxied(monkeypatch) as proxy:
        await proxy.ask("The ferry to Hven leaves at 7:40.", model="memory/perdure/extractive")
        answer = await proxy.ask("When does the ferry leave?", model="memory/perdure/extractive")
        said = answer.json()["choices"][0]["message"]["content"]

        assert 'you said: "The ferry to Hven leaves at 7:40."' in said
        assert "found nothing" not in said


async def test_a_chat_with_a_model_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rules of an agent's chats: only what is new is added, an edit forks."""
    async with proxied(monkeypatch, says("A1"), says("A2"), says("A3")) as proxy:
        await proxy.ask("U1")
        await proxy.ask("U1", "A1", "U2", stream=True)
        await proxy.ask("U1", "A1", "U2, edited")

        assert await proxy.conversations() == [["U1", "A1", "U2", "A2"], ["U1", "A1", "U2, edited", "A3"]]


async def test_a_stream_is_passed_on_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the provider, the first before the last is there."""
    async with proxied(monkeypatch, Hanging(says("one two three four"), after=3)) as proxy:
        body = {"model": HANDLE, "messages": [{"role": "user", "content": "U1"}], "stream": True}
        async with proxy.http.stream("POST", PATH, json=body) as answer, asyncio.timeout(5):
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if "two" in text:
                    break

        assert '"content": "one ' in text or '"content":"one ' in text


async def test_work_in_the_background_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins once nobody is answered, whether by a run or by a model with memory."""
    async with proxied(monkeypatch, Later(1.0, says("hi"))) as proxy:
        pauses, begun = proxy.library.app.runner.pauses, asyncio.Event()

        async def work() -> None:
            async with pauses.piece():
                begun.set()

        asking = asyncio.create_task(proxy.ask("U1"))
        await asyncio.sleep(0.3)
        working = asyncio.create_task(work())
        await asyncio.sleep(0.3)
        had_begun = begun.is_set()
        await asking
        async with asyncio.timeout(5):
            await working

        assert not had_begun


async def test_an_answer_is_kept_when_the_program_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read to its end."""
    async with proxied(monkeypatch, Later(0.3, says("a long answer"))) as proxy:
        body = {"model": HANDLE, "messages": [{"role": "user", "content": "U1"}], "stream": True}
        with contextlib.suppress(httpx.ReadTimeout):
            async with proxy.http.stream("POST", PATH, json=body, timeout=0.1) as answer:
                async for _ in answer.aiter_text():
                    break
        for _ in range(100):
            await asyncio.sleep(0.05)
            with contextlib.suppress(Exception):
                if len((await proxy.conversations())[0]) == 2:
                    break

        assert await proxy.conversations() == [["U1", "a long answer"]]


async def test_a_model_of_another_api_is_asked_through_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and as a stream, in OpenAI's shape."""
    async with proxied(monkeypatch) as proxy:
        whole = await proxy.ask("U1", model=f"memory/{MODEL}")
        stream = await proxy.ask("U2", model=f"memory/{MODEL}", stream=True, stream_options={"include_usage": True})
        lines = [line.removeprefix("data: ") for line in stream.text.splitlines() if line]

        assert whole.json()["choices"][0]["message"]["content"] == "scripted one two"
        assert lines[-1] == "[DONE]" and "usage" in json.loads(lines[-2])
        assert (await proxy.conversations())[0] == ["U1", "scripted one two"]


async def test_a_header_names_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is recalled, and the chat becomes a conversation of its own."""
    async with proxied(monkeypatch, says("A1")) as proxy:
        await proxy.library.create_agent("ann")
        await proxy.ask("U1", headers={"X-Agent": "ann"})

        assert await proxy.conversations("ann") == [["U1", "A1"]]


async def test_a_provider_s_error_has_openai_s_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its key; what the user said is kept."""
    refusal = {"error": {"message": "Incorrect API key provided: sk-secret", "type": "x", "code": "invalid_api_key"}}
    async with proxied(monkeypatch, Status(401, refusal), Status(429, "slow down")) as proxy:
        refused, limited = await proxy.ask("U1"), await proxy.ask("U2")

        assert refused.status_code == 401 and "sk-secret" not in refused.text
        assert refused.json()["error"]["code"] == "llm_authentication"
        assert limited.status_code == 429
        assert await proxy.conversations() == [["U1"], ["U2"]]


async def test_chores_of_a_program_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """They reach the model as they are."""
    async with proxied(monkeypatch, says('{"title": "Tea"}')) as proxy:
        text = "### Task:\nGenerate a title.\n### Output:\nJSON\n<chat_history>\nUSER: hi\n</chat_history>"
        answer = await proxy.ask(text)

        assert answer.json()["choices"][0]["message"]["content"] == '{"title": "Tea"}'
        assert [one["content"] for one in proxy.provider.requests[0]["messages"]] == [text]
        assert await proxy.conversations() == []


async def test_a_chore_of_an_agent_has_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program sets none; the form of the agent's own answers is none of the chore's."""
    async with proxied(monkeypatch, says("Tea")) as proxy:
        settings = {"temperature": 0.25, "max_output_tokens": 77, "response_format": {"type": "json_object"}}
        await proxy.library.create_agent("ann", model="openai/test", settings=settings)
        text = "### Task:\nGenerate a title.\n### Output:\nJSON\n<chat_history>\nUSER: hi\n</chat_history>"
        answer = await proxy.ask(text, model="ann", temperature=0.5)
        [sent] = proxy.provider.requests

        assert answer.json()["choices"][0]["message"]["content"] == "Tea"
        assert (sent["temperature"], sent["max_tokens"]) == (0.5, 77) and "response_format" not in sent


async def test_tools_of_the_program_are_passed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of an answer that calls them are kept, and what follows their results stands behind it."""
    async with proxied(monkeypatch, calls("look", at="sky"), says("It is blue."), says("Bye.")) as proxy:
        messages: list[Any] = [{"role": "user", "content": "What do you see?"}]
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

        async def ask() -> dict[str, Any]:
            answer = await proxy.http.post(PATH, json={"model": HANDLE, "messages": messages, "tools": tools})
            await proxy.kept()
            message: dict[str, Any] = answer.json()["choices"][0]["message"]
            messages.append(message)
            return message

        call = (await ask())["tool_calls"][0]
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "blue"})
        await ask()
        messages.append({"role": "user", "content": "Bye"})
        await ask()

        assert await proxy.conversations() == [["What do you see?", "It is blue.", "Bye", "Bye."]]


async def test_what_is_remembered_stands_before_the_newest_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """All before that message is as it came, so that a provider has it in its cache."""
    async with proxied(monkeypatch) as proxy:
        await proxy.ask("My favourite drink is oolong tea.")
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        said = {"type": "text", "text": "What is my favourite drink?"}
        before = [
            {"role": "system", "content": "Rhyme."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "Hi."},
        ]
        messages = [*before, {"role": "user", "content": [said, picture]}]
        await proxy.http.post(PATH, json={"model": HANDLE, "messages": messages})
        *sent, newest = proxy.provider.requests[-1]["messages"]

        assert sent == before
        assert "oolong" in newest["content"][0]["text"] and newest["content"][1:] == [said, picture]


async def test_what_is_said_is_kept_before_the_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is killed meanwhile has it; the next try adds the answer."""
    async with proxied(monkeypatch, Status(500, "it is down"), says("A1"), says("A2")) as proxy:
        await proxy.ask("U1", headers={"x-stainless-retry-count": "0"})
        before = await proxy.conversations()
        await proxy.ask("U1", headers={"x-stainless-retry-count": "1"})
        await proxy.ask("U1", "A1", "U2")

        assert before == [["U1"]]
        assert await proxy.conversations() == [["U1", "A1", "U2", "A2"]]


async def test_two_models_that_are_asked_the_same_at_once_have_conversations_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a program asks that shows both answers side by side."""
    async with proxied(monkeypatch, Later(0.3, says("A1")), says("A2")) as proxy:
        first = asyncio.create_task(proxy.ask("U1"))
        await asyncio.sleep(0.15)
        await proxy.ask("U1", temperature=0.5)
        await first
        await proxy.kept()

        assert sorted(await proxy.conversations()) == [["U1", "A1"], ["U1", "A2"]]


async def test_the_same_word_again_in_a_named_conversation_is_kept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own answer."""
    async with proxied(monkeypatch, *[says(f"A{number}") for number in range(3)]) as proxy:
        for _ in range(3):
            await proxy.ask("next", headers={"X-Conversation": "game"})

        assert await proxy.conversations() == [["next", "A0", "next", "A1", "next", "A2"]]


@pytest.mark.parametrize("fields", [{"headers": {"X-Conversation": "c1"}}, {"user": "bob"}])
async def test_a_conversation_that_is_not_sent_again_is_remembered(
    monkeypatch: pytest.MonkeyPatch, fields: Any
) -> None:
    """A program that names it, and sends the new words only, sends nothing of it."""
    async with proxied(monkeypatch, says("Noted."), says("Rex.")) as proxy:
        await proxy.ask("My dog is called Rex.", **fields)
        await proxy.ask("What is my dog called?", **fields)

        assert "called Rex" in proxy.provider.requests[-1]["messages"][-1]["content"]
        assert await proxy.conversations() == [["My dog is called Rex.", "Noted.", "What is my dog called?", "Rex."]]


async def test_behind_the_result_of_a_tool_the_model_still_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the question is about, without the question."""
    async with proxied(monkeypatch, says("Noted."), calls("menu"), says("Take it.")) as proxy:
        await proxy.ask("My favourite drink is oolong tea.")
        tools = [{"type": "function", "function": {"name": "menu", "parameters": {"type": "object"}}}]
        messages: list[Any] = [{"role": "user", "content": "Which of the menu is my favourite drink?"}]
        answer = await proxy.http.post(PATH, json={"model": HANDLE, "messages": messages, "tools": tools})
        await proxy.kept()
        messages.append(answer.json()["choices"][0]["message"])
        call_id = messages[-1]["tool_calls"][0]["id"]
        messages.append({"role": "tool", "tool_call_id": call_id, "content": "coffee, wine"})
        await proxy.http.post(PATH, json={"model": HANDLE, "messages": messages, "tools": tools})
        await proxy.kept()
        asked = proxy.provider.requests[-1]["messages"][0]["content"]

        assert "oolong tea" in asked and asked.count("Which of the menu") == 1


ODD = {
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
            ],
        }
    ],
    "tools": [
        {"type": "function", "function": {"name": "a.b", "parameters": {}}},
        {"type": "custom", "custom": {"name": "grep"}},
        {"type": "web_search", "x": 1},
    ],
}


async def test_whatever_a_provider_may_take_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound, files, other kinds of tools and names: the provider decides."""
    async with proxied(monkeypatch, says("A1")) as proxy:
        answer = await proxy.http.post(PATH, json={"model": HANDLE, **ODD})
        await proxy.kept()

        assert answer.status_code == 200, answer.text
        assert {name: proxy.provider.requests[0][name] for name in ODD} == ODD
        assert await proxy.conversations() == [["[audio]", "A1"]]


@pytest.mark.parametrize("name", [*ODD])
async def test_a_model_of_another_api_refuses_what_it_can_not_have(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With the reason; nothing is kept."""
    async with proxied(monkeypatch) as proxy:
        body = {"messages": [{"role": "user", "content": "U1"}], name: ODD[name]}
        answer = await proxy.http.post(PATH, json={"model": f"memory/{MODEL}", **body})

        assert answer.status_code == 400
        assert ("input_audio" if name == "messages" else "custom") in answer.json()["error"]["message"]
        assert await proxy.conversations() == []


async def test_what_is_kept_waits_for_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what an agent is told does."""
    async with proxied(monkeypatch, says("A1")) as proxy:
        noted: list[Any] = []
        proxy.library.app.ports.unread.listeners.append(lambda line, **_: noted.append(line))
        await proxy.ask("I planted a quince.")
        agent = await proxy.library.agent("memory")

        assert noted == [(agent.id, 1)]


async def test_what_the_chat_says_itself_is_not_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the request; what other chats said is."""
    async with proxied(monkeypatch, says("Noted."), says("Good.")) as proxy:
        await proxy.ask("My favourite tea is a smoky lapsang.")
        await proxy.ask("My favourite tea pot is blue.")
        await proxy.ask("My favourite tea pot is blue.", "Good.", "What is my favourite tea and its pot?")
        newest = proxy.provider.requests[-1]["messages"][-1]["content"]

        assert "smoky lapsang" in newest and "pot is blue" not in newest


async def test_a_deleted_agent_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, though the key's agent is remembered for a while."""
    async with proxied(monkeypatch) as proxy:
        await proxy.ask("U1")
        await proxy.library.delete_agent((await proxy.library.agent("memory")).id)
        answer = await proxy.ask("U2")

        assert answer.status_code == 200 and await proxy.conversations() == [["U2", "hi"]]


async def test_memory_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model answers all the same; the end of a long message is what is looked for."""
    asked: list[str] = []

    async def broken(self: Any, query: str, **options: Any) -> None:
        asked.append(query)
        raise RuntimeError("the index is broken")

    monkeypatch.setattr(AsyncSearch, "recall", broken)
    async with proxied(monkeypatch) as proxy:
        answer = await proxy.ask("word " * 20_000 + "What is it?")

        assert answer.status_code == 200 and await proxy.conversations()
        assert len(asked[0]) <= 1_000 and asked[0].endswith("What is it?")
