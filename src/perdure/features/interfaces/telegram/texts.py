"""Texts of a chat: pieces that Telegram takes, and what the bot says itself."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.core.text.json_strings import encodable

MESSAGE_UNITS = 4096
"""The most UTF-16 units of one message."""

HELP = (
    "Write to me, or send photos and files. I remember what we talk about.\n"
    "/new begins a new conversation. What I have learned stays.\n"
    "/stop stops the answer that I am giving."
)
EDITED = "(I have edited an earlier message. It says now:)\n\n"
"""What the agent reads before a text that a user has edited."""
NOT_TAKEN = "I can take text, photos and files."
TOO_LARGE = "The file is too large: Telegram lets bots read at most 20 MB."
NOT_READ = "I could not read that. Please send it again."
UNSEEN = "Its arguments have {chars:,} characters, too many for a chat: allow it on the dashboard."
IDLE = "There is nothing to stop."
WAITS = "Please decide about the call above first."
DECIDED = "It is decided already."


def refusal(user_id: int) -> str:
    """What somebody reads who is not allowed to talk to the agent."""
    return f"You can't talk to me. Whoever runs me can allow you: your id is {user_id}."


def split_text(text: str) -> Iterator[str]:
    """Yield a text in pieces of one message each, cut at a paragraph, line or word end in the second half if any."""
    text = encodable(text)
    while len(text.encode("utf-16-le")) > 2 * MESSAGE_UNITS:
        piece = _fitting(text)
        for mark in ("\n\n", "\n", " "):
            if (end := piece.rfind(mark)) > len(piece) // 2:
                piece = piece[:end]
                break
        yield piece
        text = text[len(piece) :].lstrip()
    if text.strip():
        yield text


def _fitting(text: str) -> str:
    """Return the beginning of a text that one message takes."""
    units = 0
    for place, char in enumerate(text):
        units += 2 if ord(char) > 0xFFFF else 1
        if units > MESSAGE_UNITS:
            return text[:place]
    return text
