"""The chain of a chat: what a program sends again with each request, and the digests by which it is found."""

from __future__ import annotations

import functools
import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from perdure.core.conversations import Conversation
from perdure.core.errors import InvalidInput
from perdure.core.ids import ConversationId, KeyId, MessageId, RunId
from perdure.features.openai_front.feature import MEMORY_OF
from perdure.server.wire.fields import KeyIdIn

FOR_KEY = "key"


class KeySetting(TypedDict):
    """The setting `memory_of` in requests: the key whose requests to models get the agent's memory."""

    key: KeyIdIn


def check_key_setting(settings: Mapping[str, Any]) -> None:
    """Check the setting `memory_of`. Raises: InvalidInput: it names no key."""
    value = settings[MEMORY_OF]
    if not isinstance(value, Mapping) or not isinstance(value.get(FOR_KEY), str):
        raise InvalidInput(f'{MEMORY_OF} is {value!r:.80}: give {{"key": the id of a key}}')


TELLING_CHARS = 20
"""The least length of an answer by which its chat is known."""


class ChatText(NamedTuple):
    """A text of a chat: of a user, or of the assistant."""

    role: str
    text: str


class ChatTurn(NamedTuple):
    """What users say together, the answer to it (empty: there is none), and the digest of all up to here but that."""

    users: tuple[str, ...]
    answer: str
    digest: str


def chain_of(texts: Iterable[ChatText], *seed: str) -> Sequence[ChatTurn]:
    """Return the turns of a chat, in order. Chats with another seed have other digests."""
    said: list[tuple[list[str], list[str]]] = []  # what users say together, and the answers to it
    is_answered = True
    for role, text in texts:
        text = typed_text(text) if role == "user" else in_one_form(text)
        if role == "user" and text:
            if is_answered:
                said.append(([], []))
            said[-1][0].append(text)
            is_answered = False
        elif role != "user" and (said or text):  # an answer may be a call alone, or stopped before its first word
            said = said or [([], [])]
            said[-1][1].extend([text] if text else [])
            is_answered = True
    turns: list[ChatTurn] = []
    digest, before = _digest(*seed), ""
    for users, answers in said:
        digest = _digest(digest, before, *users)
        before = "\n".join(answers)
        turns.append(ChatTurn(tuple(users), before, digest))
    return turns


def in_one_form(text: str) -> str:
    """Return a text as chat programs may send it again: without the white space at the ends of its lines."""
    if text.isascii() and "\n" not in text and "\r" not in text:
        return text.strip()
    text = unicodedata.normalize("NFC", text)
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")).strip()


def is_sent_again(answer: str, sent: str) -> bool:
    """Return whether a program sends an answer again, which may be cut, and its texts joined in another way."""
    return answer.startswith(sent) or answer.replace("\n", "").startswith(sent.replace("\n", ""))


def typed_text(text: str) -> str:
    """Return the text that a person typed: without the template in which Open WebUI wraps it together with search
    results, as later requests repeat only the text."""
    text = in_one_form(text)
    if not text.startswith("### Task:") or "<context>" not in text:
        return text
    _, _, query = text.rpartition("<user_query>")
    query, end, _ = query.partition("</user_query>")
    return query.strip() if end and query.strip() else text


def digest_of(text: str) -> str:
    """Return the digest of a text; empty for an empty one."""
    return _digest(text) if text else ""


def _digest(*parts: str) -> str:
    text = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationAnchor:
    """How a request names its conversation: `name` or id, the `user` whose chat it is, or the run whose answer it
    follows (`behind`); without any, the repeated messages decide."""

    name: str = ""
    user: str = ""
    behind: RunId | None = None


@dataclass(frozen=True, kw_only=True)  # without slots, for what is cached
class Chat:
    """A request of a chat program.

    Args:
        texts: what users and assistants say in it, in order; those behind the last answer are new.
        results: the ids of the calls whose results it brings.
        system: what the program says to the model beside the chat.
        key: whose chat it is: the id of the key of the server.
        is_retry: the program says that it has sent the request before.
        whole: the digest of all that the request says: equal ones are the same request.
    """

    texts: Sequence[ChatText]
    results: Sequence[str] = ()
    system: str = ""
    anchor: ConversationAnchor = field(default_factory=ConversationAnchor)
    key: KeyId | str = ""
    is_retry: bool = False
    whole: str = ""

    @property
    def _seed(self) -> tuple[str, ...]:
        return self.key, self.anchor.name or self.anchor.user, self.anchor.behind or ""

    @property
    def name(self) -> str:
        """The name of the conversation, if the request gives one. A user names the conversation of a first message."""
        return self.anchor.name or (self.anchor.user if len(self.turns) == 1 else "")

    @property
    def sends_again(self) -> bool:
        """Whether it sends something that was said before: an answer, or the words before a call."""
        answers = [text.text for text in self.texts if text.role == "assistant"]
        return any(answers) or bool(answers and self.texts[0].role == "user")

    def window_digest(self, place: int) -> str:
        """Return the digest for finding the turn at this index if the chat's beginning is no longer sent: of its words
        and the answer before; empty if that is too little."""
        if place < 1 or len(answer := self.turns[place - 1].answer) < TELLING_CHARS:
            return ""
        return _digest("window", *self._seed, answer, *self.turns[place].users)

    @property
    def habit_digest(self) -> str:
        """The digest by which it is known that this user's program sends whole chats again; empty: it names no user."""
        return _digest("sends chats again", *self._seed) if self.anchor.user and not self.anchor.name else ""

    @property
    def request_digest(self) -> str:
        """The digest by which the same request is known."""
        return _digest("request", *self._seed, self.turns[-1].digest, self.whole)

    @functools.cached_property
    def new(self) -> Sequence[str]:
        """The users' messages after the last answer."""
        roles = [one.role for one in self.texts]
        return [text.text for text in self.texts[len(roles) - [*reversed(roles), "assistant"].index("assistant") :]]

    @functools.cached_property
    def turns(self) -> Sequence[ChatTurn]:
        """Its chain."""
        return chain_of(self.texts, *self._seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChain:
    """A row of `openai_histories`: a chain that is known, up to what users say. `said_in`: the id of the run that was
    begun for it, or of the message, where no run was; `system_digest`: of what the program said beside it."""

    digest: str
    said_in: RunId | MessageId | str
    conversation_id: ConversationId
    system_digest: str = ""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a request goes on.

    Args:
        said_in: the run that answers it, or the message, see `KnownChain`.
        turn: its newest turn; the ids of messages are made by the digest in it.
        is_repeat: it is there already, or another process is about to begin it.
        is_full: whether the view of the conversation may have become too large, see `make_room`.
        system_is_new: whether the conversation has not been told yet what the program says beside the chat.
    """

    conversation: Conversation
    said_in: str
    turn: ChatTurn
    is_repeat: bool = False
    is_full: bool = False
    system_is_new: bool = False
