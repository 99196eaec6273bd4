"""The loop of a bot: updates are taken, stored as messages to the agent, and answered."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import telegram
from telegram import error as telegram_error
from telegram.request import HTTPXRequest

from perdure.core.errors import ApprovalPending, InvalidInput, NotFound, PerdureError
from perdure.core.events import Delta, RunEnded, StoredEvent
from perdure.core.ids import ConversationId, RunId
from perdure.core.messages import Message, ToolDecision
from perdure.core.runs import FAILED_REASONS
from perdure.core.tools.answers import PendingCall
from perdure.features.interfaces.interface import AgentInterface, InterfaceFeed
from perdure.features.interfaces.telegram import texts
from perdure.features.interfaces.telegram.content import read_edit, read_messages
from perdure.features.interfaces.telegram.deliveries import Delivery, DeliveryLog
from perdure.library.agent import AsyncAgent
from perdure.library.perdure import AsyncPerdure

T = TypeVar("T")

POLL_S = 50
LOOK_S = 0.2
ALBUM_S = 1.0
"""How long the next part of an album is waited for: each comes as a message of its own."""
ANSWER_S = 60.0
"""How long Telegram has to answer: what is sent again after less may have arrived."""
QUESTION_CHARS = 20_000
"""A call with more arguments can't be allowed in a chat: nobody allows what they can't read."""
TYPING_S = 4.5
"""How often Telegram is told that the agent types; it forgets after 5 s."""
RETRY_MAX_S = 60.0
COMMANDS = ("/start", "/help", "/new", "/stop")
os.environ.setdefault("PTB_TIMEDELTA", "1")  # python-telegram-bot's waits are numbers otherwise, with a warning


class TelegramBot:
    """Lets people talk to an agent.

    A message is stored before Telegram is told that it was taken, under the number of its update, so that each is
    answered once, also over restarts. An answer may come twice if the process is killed between sending and noting it.

    Args:
        allowed: ids or @names of the users who may talk to it.
        note: takes what the operator should know, a sentence each.
    """

    def __init__(
        self,
        perdure: AsyncPerdure,
        agent: AsyncAgent,
        bot: telegram.Bot,
        log: DeliveryLog,
        *,
        allowed: Collection[str],
        note: Callable[[str], None],
    ) -> None:
        self._perdure, self._agent, self._bot, self._log, self._note = perdure, agent, bot, log, note
        self._allowed = {name.removeprefix("@").lower() for name in allowed}
        self._lines: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._intake: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._albums: dict[tuple[int, str], list[telegram.Update]] = {}
        self._seen, self._done = set[int](), set[int]()
        """The updates since this process began: that Telegram sent, and that were taken."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Answer updates until cancelled. Raises: InvalidInput: a wrong token, or another program uses this bot."""
        for number in sorted(self._log.open):
            self._start(number)
        try:
            while True:
                updates = await self._poll()
                # A poll that began before updates were taken brings them again: `newest` is past them by now.
                fresh = [one for one in updates if one.update_id > self._log.newest and one.update_id not in self._seen]
                for update in fresh:
                    self._seen.add(update.update_id)
                    self._begin(update)
                if updates and not fresh:
                    await asyncio.sleep(LOOK_S)  # Telegram sends them again until all before them are taken
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *self._sending, return_exceptions=True)

    async def _poll(self) -> Sequence[telegram.Update]:
        """Return the next updates, after waiting for some."""
        try:
            return await self._again(
                lambda: self._bot.get_updates(
                    offset=self._log.newest + 1 if self._log.newest else None,
                    timeout=POLL_S,
                    allowed_updates=["message", "edited_message", "callback_query"],
                )
            )
        except telegram_error.Conflict as error:
            raise InvalidInput(f"another program takes the updates of this bot: end it first ({error})") from error
        except telegram_error.InvalidToken as error:
            raise InvalidInput("PERDURE_TELEGRAM_TOKEN is not the token of a bot: ask @BotFather for one") from error

    def _begin(self, update: telegram.Update) -> None:
        """Start handling an update, or add it to the others of its album."""
        message, updates = update.message, [update]
        if message is not None and message.media_group_id:
            album = (message.chat_id, message.media_group_id)
            if album in self._albums:
                self._albums[album].append(update)
                return
            self._albums[album] = updates
        self._spawn(self._take_in_line(updates))

    async def _take_in_line(self, updates: list[telegram.Update]) -> None:
        """Take an update, or an album, after the chat's earlier ones, and tell Telegram how far all are taken."""
        chat, message = updates[0].effective_chat, updates[0].message
        async with self._intake[chat.id if chat else 0]:
            if message is not None and message.media_group_id:
                await _grown(updates)
                del self._albums[message.chat_id, message.media_group_id]
            if chat is not None and updates[0].update_id not in self._log.taken:
                await self._try_take(updates, chat.id)
        self._done |= {update.update_id for update in updates}
        first = min(self._seen - self._done, default=None)
        taken = [number for number in self._done if first is None or number < first]
        self._log.newest = max([self._log.newest, *taken])
        for numbers in (self._seen, self._done, self._log.taken):
            numbers.difference_update([number for number in numbers if number < self._log.newest])
        self._log.save()

    async def _try_take(self, updates: Sequence[telegram.Update], chat: int) -> None:
        """Take updates, or say in the chat why that didn't work."""
        try:
            await self._take(updates, chat)
        except ApprovalPending:
            await self._send_text(chat, texts.WAITS)
        except PerdureError as error:
            await self._send_text(chat, f"That didn't work: {error}")
        except Exception as error:  # a defect of one update must not hold all that follow
            self._note(f"update {updates[0].update_id} of chat {chat} could not be taken: {error!r:.300}")
            await self._send_text(chat, texts.NOT_READ)

    async def _take(self, updates: Sequence[telegram.Update], chat: int) -> None:
        """Store what updates ask for, and start answering. Raises: PerdureError, TelegramError."""
        update, user, message = updates[0], updates[0].effective_user, updates[0].effective_message
        if update.callback_query is None and message and message.text is None and not message.effective_attachment:
            return  # nobody wrote it: somebody joined a group, or a message was pinned
        if user is None or not {str(user.id), (user.username or "").lower()} & self._allowed - {""}:
            if user is not None:
                name = f"@{user.username}" if user.username else user.full_name
                self._note(f"refused {name!r:.80}: --allow {user.id} lets them talk to the agent")
                await self._send_text(chat, texts.refusal(user.id))
            return
        if update.callback_query is not None:
            await self._decide(update.update_id, update.callback_query, chat)
        elif message is not None:
            text = message.text or ""
            command, _, name = (text.split()[0] if text.startswith("/") else "").partition("@")
            if name.lower() not in ("", self._bot.username.lower()) or (update.edited_message and command in COMMANDS):
                return  # it is another bot's command, or was done before it was edited
            match command:
                case "/start" | "/help":
                    await self._send_text(chat, texts.HELP)
                case "/new":
                    self._log.chats[str(chat)] = (await self._agent.new_conversation(summary=_title(update))).id
                    self._log.save()
                    await self._send_text(chat, "A new conversation.")
                case "/stop":
                    stopped = await self._agent.cancel_all(conversation=await self._conversation(chat, update))
                    if all(one.chat != chat for one in self._log.open.values()):  # else the answer says that it stopped
                        await self._send_text(chat, "Stopped." if stopped else texts.IDLE)
                case _:
                    await self._send_on(updates, chat)

    async def _send_on(self, updates: Sequence[telegram.Update], chat: int) -> None:
        """Send a message of a chat to the agent, as it is now if the user has edited it."""
        if (edited := updates[0].edited_message) is not None:
            if (content := await read_edit(edited, self._again)) is None:
                return
        else:
            messages = [one.message for one in updates if one.message is not None]
            content = await read_messages(messages, self._perdure, self._agent, self._again)
        if content is None:
            await self._send_text(chat, texts.NOT_TAKEN)
            return
        conversation = await self._conversation(chat, updates[0])
        accepted = await self._agent.submit(
            content.text,
            conversation=conversation,
            images=content.images,
            background=False,
            idempotency_key=f"telegram-{self._bot.id}-{updates[0].update_id}",
        )
        numbers = [update.update_id for update in updates]
        self._open(numbers, Delivery(chat, conversation, run_id=accepted.run.id))

    async def _decide(self, number: int, query: telegram.CallbackQuery, chat: int) -> None:
        """Answer a call that waits, as the button says that was pressed."""
        choice, _, key = (query.data or "").partition(":")
        conversation = self._log.questions.get(key)  # which need not be the chat's present one
        waiting = [] if conversation is None else await self._agent.pending(conversation=ConversationId(conversation))
        call = next((one for one in waiting if _key_of(one) == key), None)
        self._log.questions.pop(key, None)
        if call is None or conversation is None:
            await self._try(lambda: self._bot.answer_callback_query(query.id, texts.DECIDED))
            return
        self._open([number], Delivery(chat, conversation, call_id=call.call_id, approve=choice == "allow"))
        await self._try(lambda: self._bot.answer_callback_query(query.id))
        if isinstance(query.message, telegram.Message):
            word, place = "Allowed" if choice == "allow" else "Denied", query.message
            text = f"{place.text}\n{word}."
            await self._try(lambda: self._bot.edit_message_text(text, chat, place.message_id))

    def _open(self, numbers: Sequence[int], delivery: Delivery) -> None:
        """Note that the answer to updates is on its way, and begin to deliver it."""
        self._log.open[numbers[0]] = delivery
        self._log.taken.update(numbers)
        self._log.save()
        self._start(numbers[0])

    def _start(self, number: int) -> None:
        """Deliver an answer in the background."""
        self._spawn(self._deliver(number))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task that is kept until it ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, number: int) -> None:
        """Send the answer to an update to its chat, from where it was left."""
        delivery = self._log.open[number]
        async with self._lines[delivery.chat]:
            try:
                async with self._typing(delivery.chat):
                    await self._show(delivery)
            except NotFound:
                self._note(f"the answer to update {number} is gone: its run or conversation was deleted")
            except PerdureError as error:
                await self._send_text(delivery.chat, f"That didn't work: {error}")
            del self._log.open[number]
            self._log.save()

    async def _show(self, delivery: Delivery) -> None:
        """Send what a run says, and what it asks. Raises: PerdureError."""
        interface = _ChatInterface(self, delivery)
        feed = InterfaceFeed(interface)
        async for sent in await self._events(delivery):
            await feed.show(sent)
        if interface.ended is not None and interface.ended.stop_reason == "requires_approval":
            for call in await self._agent.pending(conversation=ConversationId(delivery.conversation)):
                if not call.awaits_client:
                    self._log.questions[_key_of(call)] = delivery.conversation
                    await interface.say(_question(call), _buttons(call))

    async def _events(self, delivery: Delivery) -> AsyncIterator[StoredEvent | Delta]:
        """Return the events of the run whose answer is delivered."""
        if delivery.run_id:
            return self._agent.follow_run(await self._agent.run(RunId(delivery.run_id)))
        decision = ToolDecision(delivery.call_id, delivery.approve)
        return self._agent.stream_answer([decision], conversation=ConversationId(delivery.conversation))

    async def _conversation(self, chat: int, update: telegram.Update) -> ConversationId:
        """Return the conversation of a chat, which is made with its first message."""
        known = self._log.chats.get(str(chat))
        if known:
            try:
                return (await self._agent.find_conversation(ConversationId(known))).id
            except NotFound:
                self._note(f"the conversation of chat {chat} was deleted: it begins a new one")
        made = await self._agent.new_conversation(summary=_title(update))
        self._log.chats[str(chat)] = made.id
        self._log.save()
        return made.id

    @asynccontextmanager
    async def _typing(self, chat: int) -> AsyncIterator[None]:
        """Show that the agent types."""

        async def repeat() -> None:
            """Show "typing" until cancelled."""
            while True:
                with suppress(telegram_error.TelegramError):  # it is only a sign
                    await self._bot.send_chat_action(chat, "typing")
                await asyncio.sleep(TYPING_S)

        task = asyncio.create_task(repeat())
        try:
            yield
        finally:
            task.cancel()

    async def send_part(self, delivery: Delivery, text: str, buttons: Any) -> None:
        """Send one message of an answer and note that it is sent; a cancellation in between waits."""

        async def send() -> None:
            """Send the text, and note that it was sent."""
            await self._send_text(delivery.chat, text, buttons)
            delivery.sent += 1
            self._log.save()

        task = asyncio.create_task(send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        await asyncio.shield(task)

    async def _send_text(self, chat: int, text: str, buttons: Any = None) -> None:
        """Send a text to a chat. Somebody who has blocked the bot gets none."""
        try:
            for piece in texts.split_text(text):
                await self._again(lambda piece=piece: self._bot.send_message(chat, piece, reply_markup=buttons))  # type: ignore[misc]
        except telegram_error.ChatMigrated as error:  # a group became a larger one, under another number
            self._log.chats.setdefault(str(error.new_chat_id), self._log.chats.pop(str(chat), ""))
            await self._send_text(error.new_chat_id, text, buttons)
        except (telegram_error.Forbidden, telegram_error.BadRequest) as error:
            self._note(f"chat {chat} takes no messages: {error}")

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call Telegram, and again where it asks to wait or the connection broke."""
        pause = 1.0
        while True:
            try:
                return await call()
            except telegram_error.RetryAfter as error:
                await asyncio.sleep(error.retry_after.total_seconds())  # type: ignore[union-attr]
            except telegram_error.BadRequest:
                raise
            except telegram_error.NetworkError as error:
                self._note(f"Telegram can't be reached ({error}): trying again in {pause:.0f} s")
                await asyncio.sleep(pause)
                pause = min(RETRY_MAX_S, 2 * pause)

    async def _try(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call Telegram for what may be too old to be changed, such as a button pressed while the bot was down."""
        with suppress(telegram_error.BadRequest):
            await self._again(call)


class _ChatInterface(AgentInterface):
    """Sends what the agent says to a chat, without what the chat has already."""

    def __init__(self, bot: TelegramBot, delivery: Delivery) -> None:
        self._bot, self._delivery = bot, delivery
        self._count = 0
        self.ended: RunEnded | None = None

    async def assistant_message(self, text: str, message: Message) -> None:
        """Send what the agent said."""
        await self.say(text)

    async def run_ended(self, end: RunEnded) -> None:
        """If there is no answer, send why."""
        self.ended = end
        if end.stop_reason in FAILED_REASONS:
            await self.say(f"That didn't work: {end.failure.message if end.failure else end.stop_reason}")
        elif end.stop_reason == "cancelled":
            await self.say("Stopped.")

    async def say(self, text: str, buttons: Any = None) -> None:
        """Send a text, in pieces."""
        pieces = list(texts.split_text(text))
        for place, piece in enumerate(pieces, 1):
            self._count += 1
            if self._count > self._delivery.sent:
                await self._bot.send_part(self._delivery, piece, buttons if place == len(pieces) else None)


def client(token: str, server: str) -> telegram.Bot:
    """Return a client of a server of the Bot API."""
    request = HTTPXRequest(connection_pool_size=64, pool_timeout=60, read_timeout=ANSWER_S)
    return telegram.Bot(token, base_url=f"{server}/bot", base_file_url=f"{server}/file/bot", request=request)


async def _grown(updates: list[telegram.Update]) -> None:
    """Wait until an album has all its parts: no more have come for a while."""
    count = 0
    while count < len(updates):
        count = len(updates)
        await asyncio.sleep(ALBUM_S)


def _title(update: telegram.Update) -> str:
    """Return what the conversation of a chat is called."""
    chat = update.effective_chat
    return f"Telegram: {(chat.title or chat.full_name or chat.id) if chat else ''}"[:200]


def _key_of(call: PendingCall) -> str:
    """Return a short text that stands for a call: a button's data has at most 64 bytes."""
    return hashlib.sha256(f"{call.message_id} {call.call_id}".encode()).hexdigest()[:32]


def _question(call: PendingCall) -> str:
    """Return what a person reads who is asked whether a call may run."""
    reason = f"\n{call.reason}" if call.reason else ""
    arguments = call.call.own_arguments
    shown = arguments if len(arguments) <= QUESTION_CHARS else texts.UNSEEN.format(chars=len(arguments))
    return f"May I call {call.name}?{reason}\n{shown}"


def _buttons(call: PendingCall) -> telegram.InlineKeyboardMarkup:
    key = _key_of(call)
    choices = ["Deny"] if len(call.call.own_arguments) > QUESTION_CHARS else ["Allow", "Deny"]
    row = [telegram.InlineKeyboardButton(name, callback_data=f"{name.lower()}:{key}") for name in choices]
    return telegram.InlineKeyboardMarkup([row])
