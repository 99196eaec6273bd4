"""Whatever a chat program does with its chats, the agent sees exactly the chat that it is asked about."""

from __future__ import annotations

import os
import random

import pytest

from perdure.core.models import ModelReply, ModelRequest
from perdure.testing import says
from tests.features.openai_front.support import Program, program

ACTS = ("say", "say", "say", "edit", "retry", "change", "cut", "foreign", "new")
WORDS = ("yes", "no", "go on")
"""Few, so that chats begin alike, and are answered alike."""


def seen(request: ModelRequest) -> list[str]:
    """The chat in a request to the model."""
    return [one.text for one in request.messages if one.kind == "message" and one.role in ("user", "assistant")]


def act(kind: str, chats: list[list[str]], chance: random.Random) -> list[str]:
    """Do something to one of the chats, each of which ends with an answer; return it with what is asked now."""
    if kind == "new" or not chats:
        chats.append([])
    chat = chats[-1] if kind == "new" else chance.choice(chats)
    word = chance.choice(WORDS)
    place = 2 * chance.randrange(len(chat) // 2) if chat else 0
    if kind == "edit" and chat:  # an old message, which what followed goes with
        del chat[place:]
    elif kind == "retry" and chat:
        word = chat[-2]
        del chat[-2:]
    elif kind == "change" and chat:  # a text in the middle, which what followed stays behind
        chat[chance.randrange(len(chat))] = f"{chance.choice(WORDS)}, changed"
    elif kind == "cut" and chat:  # a person stopped the answer
        chat[-1] = chat[-1][: max(1, len(chat[-1]) // 2)].rstrip()
    elif kind == "foreign":
        chat += [word, "an answer of another model"]
    chat.append(word)
    return chat


async def play(program: Program, chance: random.Random, steps: int) -> None:
    chats: list[list[str]] = []
    for _ in range(steps):
        kind = chance.choice(ACTS)
        chat = act(kind, chats, chance)
        chat.append(await program.ask(*chat))
        before, shown = chat[:-1], seen(program.requests[-1])
        if kind == "cut":  # the agent's own answer is whole
            assert len(shown) == len(before) and all(map(str.startswith, shown, before)), (kind, before, shown)
            chat[:-1] = shown
        else:
            assert shown == before, (kind, before, shown)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 if os.environ.get("PERDURE_FAULTS") == "full" else 3))
async def test_the_agent_sees_the_chat_that_it_is_asked_about(seed: int) -> None:
    """After any number of edits, new tries, changes and cuts in chats that begin alike."""
    chance = random.Random(seed)

    def answer(request: ModelRequest) -> ModelReply:
        return says(chance.choice(("sure", "never", "a somewhat longer answer, which tells chats apart")))

    async with program(*[answer] * 40) as one:
        await play(one, chance, 30)
