"""Answers that repeat themselves are ended, with what they said before."""

from __future__ import annotations

import json

import pytest

from perdure.core.errors import ModelReplyEmpty
from perdure.core.messages import unlogged_message
from perdure.core.models import ModelDelta, ModelReply, ModelRequest, ModelTraits
from perdure.core.runs import StopReason
from perdure.features.facts.extraction.model_extractor import parse_extraction
from perdure.providers.loops import LoopWatch, loop_start
from perdure.testing import Hanging, HttpModel, calls, says, thinks
from tests.support.openai_chats import openai_chat

LINE = "I like apples, and you like pears. "
FACT = {"subject": "Ada", "relation": "LIKES", "object": "tea", "text": "Ada likes tea.", "turns": [1]}


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        ("", LINE),
        ("Of course!\n", "- the same line\n"),
        ("好的，", "我喜欢苹果，"),
        ('{"facts": [', json.dumps(FACT) + ", "),
        ("Hmm ", "ha"),
        ("\n".join(f"{number}. Item {number}" for number in range(30)), "\n\n"),
        ("First. ", "A longer paragraph, " + "which says this and that, " * 3 + "until it begins again.\n\n"),
    ],
)
def test_what_is_said_again_and_again_is_a_loop(before: str, unit: str) -> None:
    """It begins behind the first time; where exactly between two of them, nobody can tell."""
    start = loop_start(before + unit * 1_000)

    assert start is not None
    assert len(before) <= start <= len(before) + len(unit)


def test_the_numbers_of_a_list_make_its_items_no_different() -> None:
    items = "\n".join(f"{number}. I like green apples." for number in range(1, 90))
    assert loop_start(items) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        LINE * 8,
        "| --- " * 40 + "|",
        "-" * 200,
        "\n".join(f"2024-01-{day:02}: rest" for day in range(1, 31)) * 2,
        "\n".join(f"{number} times 7 is {number * 7}" for number in range(200)),
        LINE * 200 + "And that is all.",
        json.dumps([{"name": f"Person {number}", "likes": ["tea"]} for number in range(100)]),
    ],
)
def test_what_only_looks_alike_is_none(text: str) -> None:
    assert loop_start(text) is None


def test_a_loop_is_seen_while_it_comes() -> None:
    watch, seen = LoopWatch(), 0
    for piece in ["Well. ", *[LINE] * 1_000]:
        seen += len(piece)
        if watch.sees_loop("text", piece):
            break
    assert seen < 2_000


@pytest.mark.parametrize(
    "text",
    [
        "-" * 3_000,
        "I will not talk in class.\n" * 100,
        "| day | what |\n|---|---|\n" + "| | |\n" * 500,
        "```python\nzeros = [" + "0, " * 5_000 + "0]\n```\nThat is all.",
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 5_000])
def test_what_a_person_may_want_is_no_loop(text: str, piece: int) -> None:
    """Fifty lines, an empty table, a long list in code: other limits hold for what is read."""
    watch = LoopWatch(is_read=True)
    assert not any(watch.sees_loop("text", text[at : at + piece]) for at in range(0, len(text), piece))


@pytest.mark.parametrize(("before", "most"), [("", 5_000), ("```\nx\n```\n", 5_000), ("```\n", 21_000)])
def test_what_a_person_reads_ends_too(before: str, most: int) -> None:
    """Only later."""
    watch, seen = LoopWatch(is_read=True), 0
    for piece in [before, *[LINE] * 1_000]:
        seen += len(piece)
        if watch.sees_loop("text", piece):
            break
    assert seen < most


async def answer_of(line: ModelReply, *, local: bool, purpose: str = "reply") -> tuple[str, str, StopReason]:
    """(What the pieces say, what the reply says, why it ended) of an answer that never ends by itself."""
    async with HttpModel(Hanging(line, after=2_000)) as server:
        model, pieces = openai_chat(model="m", base_url=server.url, traits=lambda: ModelTraits(local=local)), ""
        request = ModelRequest(model="m", system="", messages=(unlogged_message("user", "Hi"),), purpose=purpose)  # type: ignore[arg-type]
        async for piece in model.respond(request):
            if isinstance(piece, ModelReply):
                return pieces, "".join(getattr(part, "text", "") for part in piece.parts), piece.stop_reason
            pieces += piece.text if isinstance(piece, ModelDelta) else ""
        await model.aclose()
    raise AssertionError("there was no reply")


async def test_an_answer_of_a_local_model_ends_before_it_repeats_itself() -> None:
    pieces, said, reason = await answer_of(says("Well. " + LINE * 2_000), local=True)

    assert len(pieces) < 6_000
    assert LINE.strip() in said
    assert said.count("pears") == 1
    assert reason == "max_tokens_exceeded"


async def test_what_nobody_reads_ends_with_every_model() -> None:
    assert (await answer_of(says(LINE * 2_000), local=False, purpose="summary"))[1].count("pears") == 1


async def test_a_call_that_goes_round_is_not_run() -> None:
    _, said, reason = await answer_of(calls("note", text=LINE * 2_000), local=True)

    assert (said, reason) == ("", "max_tokens_exceeded")


async def test_thoughts_that_go_round_are_no_answer() -> None:
    with pytest.raises(ModelReplyEmpty, match="answered nothing but reasoning"):
        await answer_of(thinks(LINE * 2_000, says("Yes.")), local=True)


def test_the_facts_before_a_loop_are_kept() -> None:
    entities = [{"name": "Ada", "type": "Person"}, {"name": "tea", "type": "Concept"}]
    answer = f'{{"entities": {json.dumps(entities)}, "facts": [{json.dumps(FACT)}, {{"subject": "Ada", "text": "she '
    extraction = parse_extraction(answer)

    assert [one.text for one in extraction.facts] == ["Ada likes tea."]
    assert len(extraction.entities) == 2
