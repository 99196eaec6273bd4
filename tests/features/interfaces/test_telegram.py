"""The bot for Telegram, against a stand-in for its API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("telegram", reason="python-telegram-bot is installed by `make setup`")

from starlette.responses import JSONResponse

from perdure import AsyncPerdure
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId
from perdure.core.messages import Text
from perdure.features.interfaces.telegram.bot import TelegramBot, client
from perdure.features.interfaces.telegram.deliveries import DeliveryLog
from perdure.features.interfaces.telegram.texts import EDITED, split_text
from perdure.library.agent import AsyncAgent
from perdure.testing import ScriptedModel, calls, fails, says
from tests.support.servers import open_library
from tests.support.telegram_api import BOT, BotApi


class Running:
    """A bot that runs, with its agent and the API it talks to."""

    def __init__(self, perdure: AsyncPerdure, agent: AsyncAgent, api: BotApi, log: DeliveryLog) -> None:
        self.perdure, self.agent, self.api, self.log = perdure, agent, api, log
        self.notes: list[str] = []


@contextlib.asynccontextmanager
async def running(
    path: Path, api: BotApi, model: Any, *, tools: Any = (), allowed: Any = tuple(map(str, range(1, 60)))
) -> AsyncIterator[Running]:
    """A bot on the store of this folder."""
    async with open_library(path, model, tools) as perdure, api.bot() as bot:
        agent = await perdure.get_or_create_agent("ann")
        if tools:
            await agent.tools.attach("pay")
            await agent.require_approval("pay")
        log = DeliveryLog.load(path / "telegram.json")
        run = Running(perdure, agent, api, log)
        made = TelegramBot(perdure, agent, bot, log, allowed=allowed, note=run.notes.append)
        task = asyncio.create_task(made.run())
        try:
            yield run
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def echo(request: Any) -> Any:
    """An answer that repeats the newest message of the user."""
    text = [one.text for one in request.messages if one.role == "user" and one.kind == "message"][-1]
    return says(f"echo {text}")


async def test_a_message_is_answered_in_a_conversation_of_its_chat(tmp_path: Path) -> None:
    api = BotApi()
    async with running(
        tmp_path, api, ScriptedModel(says("Hello \ud83d Ada."), says("Hello Bob."), says("Again."))
    ) as bot:
        for chat, text in ((1, "I am Ada"), (2, "I am Bob"), (1, "Still me")):
            api.say(text, chat=chat)
            await api.until(lambda chat=chat, text=text: len(api.texts(chat)) == (2 if text == "Still me" else 1))

        assert (api.texts(1), api.texts(2)) == (["Hello \ufffd Ada.", "Again."], ["Hello Bob."])  # half a character
        own = [ConversationId(bot.log.chats[chat]) for chat in ("1", "2")]
        said = [[one.text for one in await bot.agent.messages(conversation=one)] for one in own]
        assert said == [["I am Ada", "Hello \ud83d Ada.", "Still me", "Again."], ["I am Bob", "Hello Bob."]]


async def test_nobody_but_those_allowed_talks_to_it(tmp_path: Path) -> None:
    api = BotApi()
    async with running(tmp_path, api, ScriptedModel(says("Yes?")), allowed=["@User7"]) as bot:
        api.say("", chat=9, new_chat_members=[BOT])  # a message of the group, to which nothing is said
        api.say("", chat=7, pinned_message={"message_id": 1, "date": 1, "chat": {"id": 7, "type": "group"}})
        api.say("let me in", chat=8)
        api.say("it is me", chat=7)
        await api.until(lambda: len(api.sent) == 2)

        assert api.texts(8) == ["You can't talk to me. Whoever runs me can allow you: your id is 8."]
        assert api.texts(7) == ["Yes?"] and len(api.sent) == 2
        assert await bot.agent.message_count() == 2
        assert "--allow 8" in bot.notes[0]


@pytest.mark.slow
async def test_fifty_chats_at_once_with_a_restart_in_the_middle(tmp_path: Path) -> None:
    """Each message is stored and answered once, in its chat."""
    api, chats = BotApi(), range(1, 51)

    class Slow(ScriptedModel):
        """Takes its time, so that the restart finds answers half made."""

        async def respond(self, request: Any) -> Any:
            await asyncio.sleep(0.05)
            async for piece in super().respond(request):
                yield piece

    for text in ("first", "second"):
        for chat in chats:
            api.say(f"{text} {chat}", chat=chat)
    async with running(tmp_path, api, Slow(*[echo] * 500)):
        await api.until(lambda: len(api.sent) > 20)
    for chat in chats:
        api.say(f"third {chat}", chat=chat)
    async with running(tmp_path, api, Slow(*[echo] * 500)) as bot:
        await api.until(lambda: len(api.sent) >= 150)
        await api.until(lambda: not bot.log.open)

        for chat in chats:
            assert api.texts(chat) == [f"echo {text} {chat}" for text in ("first", "second", "third")]
            conversation = ConversationId(bot.log.chats[str(chat)])
            assert len(await bot.agent.messages(conversation=conversation)) == 6


async def test_a_delivery_goes_on_where_it_was_left(tmp_path: Path) -> None:
    """Of an answer in three messages the chat has one."""
    api, text = BotApi(), "\n\n".join(letter * 3_000 for letter in "abc")
    async with running(tmp_path, api, ScriptedModel(says(text))) as bot:
        api.say("tell me")
        await api.until(lambda: len(api.sent) == 3)
        run = (await bot.agent.runs())[0].id
        conversation = bot.log.chats["1"]
    state = json.loads((tmp_path / "telegram.json").read_text())
    state["taken"], state["open"] = [9], {"9": {"chat": 1, "conversation": conversation, "run_id": run, "sent": 1}}
    (tmp_path / "telegram.json").write_text(json.dumps(state))
    api.sent.clear()

    async with running(tmp_path, api, ScriptedModel()) as bot:
        await api.until(lambda: not bot.log.open)
        assert [one[0] for one in api.texts()] == ["b", "c"]


@pytest.mark.parametrize(("button", "paid"), [("Allow", ["5"]), ("Deny", [])])
async def test_calls_are_decided_by_buttons(tmp_path: Path, button: str, paid: list[str]) -> None:
    done: list[str] = []

    def pay(amount: str) -> str:
        """Pay.

        Args:
            amount: how much.
        """
        done.append(amount)
        return "paid"

    api = BotApi()
    async with running(
        tmp_path, api, ScriptedModel(calls("pay", amount="5"), says("Well."), calls("pay", amount="6")), tools=[pay]
    ) as bot:
        api.say("pay 5")
        await api.until(lambda: api.sent)
        (row,) = json.loads(api.sent[0]["reply_markup"])["inline_keyboard"]
        data = {one["text"]: one["callback_data"] for one in row}
        assert "pay" in api.texts()[0]
        api.say("/stop", chat=2)
        await api.until(lambda: api.texts(2) == ["There is nothing to stop."])
        api.sent.pop()
        api.say("and now?")
        await api.until(lambda: len(api.sent) == 2)
        assert "decide" in api.texts()[1]
        api.press(data[button])
        await api.until(lambda: len(api.sent) == 3)
        api.press(data[button])
        await api.until(lambda: len(api.answered) == 2)

        assert (done, api.texts()[2]) == (paid, "Well.")
        assert "decided already" in api.answered[1]["text"]
        assert not bot.log.open
        api.say("pay 6")
        await api.until(lambda: len(api.sent) == 4)
        api.say("/stop")  # also what waits for a person
        await api.until(lambda: len(api.sent) == 5)
        assert not await bot.agent.pending(conversation=ConversationId(bot.log.chats["1"]))
        assert api.texts()[4] == "Stopped."


async def test_a_button_that_was_pressed_while_the_bot_was_down_decides(tmp_path: Path) -> None:
    """Telegram takes no answer to it any more, and no change of an old message."""
    done: list[str] = []

    def pay(amount: str) -> str:
        """Pay.

        Args:
            amount: how much.
        """
        done.append(amount)
        return "paid"

    class LateApi(BotApi):
        async def _call(self, request: Any) -> Any:
            if request.path_params["method"] in ("answerCallbackQuery", "editMessageText"):
                refusal = {"ok": False, "error_code": 400, "description": "Bad Request: query is too old"}
                return JSONResponse(refusal, 400)
            return await super()._call(request)

    api = LateApi()
    async with running(tmp_path, api, ScriptedModel(calls("pay", amount="5"), says("Well.")), tools=[pay]) as bot:
        api.say("pay 5")
        await api.until(lambda: api.sent)
        (row,) = json.loads(api.sent[0]["reply_markup"])["inline_keyboard"]
        for _ in range(2):
            api.press(row[0]["callback_data"])
        await api.until(lambda: not api.updates and not bot.log.open and len(api.sent) >= 2)

        assert (done, api.texts()[1:], bot.notes) == (["5"], ["Well."], [])


async def test_a_call_of_an_earlier_conversation_is_decided_still(tmp_path: Path) -> None:
    done: list[str] = []

    def pay(amount: str) -> str:
        """Pay.

        Args:
            amount: how much.
        """
        done.append(amount)
        return "paid"

    api = BotApi()
    async with running(tmp_path, api, ScriptedModel(calls("pay", amount="5"), says("Well.")), tools=[pay]):
        api.say("pay 5")
        await api.until(lambda: api.sent)
        (row,) = json.loads(api.sent[0]["reply_markup"])["inline_keyboard"]
        api.say("/new")
        await api.until(lambda: len(api.sent) == 2)
        api.press(row[0]["callback_data"])
        await api.until(lambda: len(api.sent) == 3)

        assert (done, api.texts()[2]) == (["5"], "Well.")


async def test_somebody_elses_button_decides_nothing(tmp_path: Path) -> None:
    def pay(amount: str) -> str:
        """Pay.

        Args:
            amount: how much.
        """
        raise AssertionError

    api = BotApi()
    async with running(tmp_path, api, ScriptedModel(calls("pay", amount="5")), tools=[pay]) as bot:
        api.say("pay 5")
        await api.until(lambda: api.sent)
        (row,) = json.loads(api.sent[0]["reply_markup"])["inline_keyboard"]
        api.press(row[0]["callback_data"], user=99)
        await api.until(lambda: bot.notes)

        assert len(await bot.agent.pending(conversation=ConversationId(bot.log.chats["1"]))) == 1


async def test_photos_and_files_reach_the_agent(tmp_path: Path) -> None:
    api = BotApi()
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
    api.files = {"photo": png, "doc": b"The spare key is in the blue drawer."}
    size = {"file_unique_id": "u", "width": 1, "height": 1}
    async with running(tmp_path, api, ScriptedModel(says("A photo."), says("A file."), says("More."))) as bot:
        api.say("", photo=[{**size, "file_id": "small"}, {**size, "file_id": "photo"}], caption="Look")
        await api.until(lambda: len(api.sent) == 1)
        api.say("", document={"file_id": "doc", "file_unique_id": "d", "file_name": "../keys.txt"})
        await api.until(lambda: len(api.sent) == 2)
        api.say("", location={"longitude": 1.0, "latitude": 2.0})
        await api.until(lambda: len(api.sent) == 3)
        api.say("", document={"file_id": "big", "file_unique_id": "b", "file_size": 30_000_000})
        await api.until(lambda: len(api.sent) == 4)
        (folder,) = await bot.agent.files.folders()
        await bot.agent.files.detach(folder.name)
        api.say("", document={"file_id": "doc", "file_unique_id": "d", "file_name": "more.txt"})
        await api.until(lambda: len(api.sent) == 5)

        first, _, second, *_ = await bot.agent.messages(conversation=ConversationId(bot.log.chats["1"]))
        assert [type(part).__name__ for part in first.parts] == ["Text", "Image"]
        assert "keys.txt" in second.text and folder.name in second.text
        assert [one.name for one in await bot.agent.files.folders()] == [folder.name]
        assert api.texts()[2:4] == [
            "I can take text, photos and files.",
            "That didn't work: The file is too large: Telegram lets bots read at most 20 MB.",
        ]


async def test_an_album_is_one_message(tmp_path: Path) -> None:
    """Its parts are updates of their own, and the last one comes later; what is written after it is read after it."""
    api = BotApi()
    api.files = {f"photo{number}": b"\x89PNG\r\n\x1a\n" + bytes([number]) * 40 for number in range(3)}
    size = {"file_unique_id": "u", "width": 1, "height": 1}
    async with running(tmp_path, api, ScriptedModel(says("Three."), says("A text."), says("Two."))) as bot:
        for number in range(3):
            caption: Any = {"caption": "The boat"} if number == 0 else {}
            api.say("", photo=[{**size, "file_id": f"photo{number}"}], media_group_id="g", **caption)
            if number == 1:
                api.say("Nice?")
                await asyncio.sleep(0.3)
        await api.until(lambda: len(api.sent) == 2)

        album, answer, text, _ = await bot.agent.messages(conversation=ConversationId(bot.log.chats["1"]))
        assert [type(part).__name__ for part in album.parts] == ["Text", "Image", "Image", "Image"]
        assert album.parts[0] == Text("The boat")
        assert (answer.text, text.text) == ("Three.", "Nice?")
        assert not bot.log.open
        state = json.loads((tmp_path / "telegram.json").read_text())
        assert state["newest"] == max(state["taken"])


async def test_an_edit_is_read_as_a_message_that_says_so(tmp_path: Path) -> None:
    """But not an edit without words, as those that move a place on the map."""
    api = BotApi()
    async with running(tmp_path, api, ScriptedModel(says("In Turin."), says("In Milan."))) as bot:
        api.say("I live in Turin")
        await api.until(lambda: len(api.sent) == 1)
        api.say("", kind="edited_message", location={"longitude": 1.0, "latitude": 2.0})
        api.say("I live in Milan", kind="edited_message", edit_date=2)
        await api.until(lambda: len(api.sent) == 2)

        messages = await bot.agent.messages(conversation=ConversationId(bot.log.chats["1"]))
        assert messages[2].text == "(I have edited an earlier message. It says now:)\n\nI live in Milan"
        assert api.texts() == ["In Turin.", "In Milan."]


async def test_a_photo_of_an_edited_message_reaches_the_agent(tmp_path: Path) -> None:
    api = BotApi()
    api.files = {"photo": b"\x89PNG\r\n\x1a\n" + b"\0" * 40}
    photo = {"file_id": "photo", "file_unique_id": "u", "width": 1, "height": 1}
    async with running(tmp_path, api, ScriptedModel(says("A boat."), says("I see."))) as bot:
        api.say("", kind="edited_message", edit_date=2, photo=[photo])
        await api.until(lambda: len(api.sent) == 1)
        api.say("", kind="edited_message", edit_date=3, photo=[photo], caption="My boat")
        await api.until(lambda: len(api.sent) == 2)

        first, _, second, _ = await bot.agent.messages(conversation=ConversationId(bot.log.chats["1"]))
        for message, text in ((first, "(a photo)"), (second, "My boat")):
            assert [type(part).__name__ for part in message.parts] == ["Text", "Image"]
            assert message.parts[0] == Text(EDITED + text)


def test_telegram_has_time_to_answer() -> None:
    """What was sent is sent again if no answer comes in time, and may have arrived."""
    assert client("1:a", "http://127.0.0.1:1").request.read_timeout == 60.0


async def test_commands_begin_a_conversation_and_stop_an_answer(tmp_path: Path) -> None:
    api, waiting = BotApi(), asyncio.Event()

    class Stuck(ScriptedModel):
        """Never answers."""

        async def respond(self, request: Any) -> Any:
            waiting.set()
            await asyncio.sleep(60)
            yield

    async with running(tmp_path, api, Stuck()) as bot:
        api.say("/start")
        api.say("hello")
        await asyncio.wait_for(waiting.wait(), 10)
        before = bot.log.chats["1"]
        api.say("/stop@other_bot")
        await api.until(lambda: not api.updates)
        assert "Stopped." not in api.texts()
        api.say("/stop@Perdure_bot")
        await api.until(lambda: "Stopped." in api.texts())
        api.say("/new")
        await api.until(lambda: "A new conversation." in api.texts())
        made = bot.log.chats["1"]
        api.say("/new", kind="edited_message", edit_date=2)
        api.say("/help")
        await api.until(lambda: len(api.texts()) == 4)

        assert "/new" in api.texts()[0]
        assert bot.log.chats["1"] == made != before


async def test_limits_and_failures_of_the_api_are_waited_out(tmp_path: Path) -> None:
    api = BotApi()
    limit = {"error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}
    async with running(tmp_path, api, ScriptedModel(says("Here."))):
        api.refusals = [(429, limit), (500, {"error_code": 500, "description": "Internal Server Error"})]
        api.say("hello")
        await api.until(lambda: api.sent)

        assert api.texts() == ["Here."]


async def test_a_failed_answer_and_a_blocked_bot_are_told(tmp_path: Path) -> None:
    api = BotApi()
    async with running(tmp_path, api, ScriptedModel(says("Here."), fails(), fails())) as bot:
        api.say("hello")
        await api.until(lambda: api.sent)
        api.say("hello again")
        await api.until(lambda: len(api.sent) == 2)
        assert "That didn't work" in api.texts()[1]
        await bot.agent.delete_conversation(ConversationId(bot.log.chats["1"]))
        api.say("and now")
        await api.until(lambda: len(api.sent) == 3)
        assert any("was deleted" in note for note in bot.notes)


def test_a_broken_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "telegram.json").write_text("{")

    with pytest.raises(InvalidInput, match="move it away"):
        DeliveryLog.load(tmp_path / "telegram.json")
    assert (tmp_path / "telegram.json").read_text() == "{"


@pytest.mark.parametrize("text", ["x" * 10_000, "🐈" * 5_000, "a b\n" * 5_000, "word " * 3_000, "", " \n"])
def test_long_texts_are_cut_into_messages(text: str) -> None:
    pieces = list(split_text(text))

    assert all(len(piece.encode("utf-16-le")) <= 8192 and piece.strip() for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
