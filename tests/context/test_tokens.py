"""Both estimates of a text's tokens: they hold real tokenizers between them, and they are well-behaved."""

from __future__ import annotations

import base64
import inspect
import json
import random
import re
import string
import textwrap
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given

from perdure.context.sections.stubs import row_tokens
from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, Part, Reasoning, Role, Text
from tests.support.strategies import any_text, effort

COUNTER = ScriptTokenCounter()
ENCODINGS = ("o200k_base", "cl100k_base", "voyage3_base")  # the third has Qwen's vocabulary: one digit, one token

ENGLISH = """The harbour master had kept a ledger since the spring of his first year, and nobody else was allowed to
write in it. Every ship that came in was entered with its name, its cargo and the hour; those that did
not come back were not struck out but underlined, twice, in the blue pencil he carried behind his ear.
"You can't erase a ship," he used to say when somebody asked, "you can only stop waiting for it." So the
pages filled, and after forty-one years there were thirty-seven volumes on the shelf."""
GERMAN = """Die Wohnungsbaugesellschaft hat angekündigt, dass die Sanierungsarbeiten voraussichtlich im nächsten
Frühjahr beginnen. Bis dahin müssen die Mieterinnen und Mieter mit Einschränkungen rechnen: Das Treppenhaus ist nur über
den Hof zu erreichen, und die Waschküche bleibt geschlossen. Wer Fragen hat, möge sich schriftlich an die Hausverwaltung
wenden."""
CHINESE = """今天上午我去银行办理了一张新的信用卡，工作人员说大约需要两个星期才能寄到家里。
下午和同事讨论了下个月的出差计划，我们决定先坐高铁到上海，再从那里飞往东京。
晚上回家以后，我给父母打了电话，他们身体都很好，还问我什么时候回去看他们。"""
JAPANESE = """昨日は友達と一緒に新しい映画を見に行きました。とても面白かったので、来週もう一度見たいと思っています。
そのあと駅の近くのレストランで晩ご飯を食べて、電車で家に帰りました。"""
RUSSIAN = """Вчера вечером мы долго говорили о том, как изменился город за последние десять лет. Старый рынок снесли,
на его месте построили библиотеку, а у реки появилась широкая набережная, где по выходным играют музыканты."""
ARABIC = """ذهبت أمس إلى المكتبة القديمة في وسط المدينة، وبحثت عن كتاب عن تاريخ التجارة في البحر الأبيض المتوسط.
قال لي الموظف إن النسخة الوحيدة معارة، ولكنها ستعود في الأسبوع القادم."""
HINDI = """कल शाम हम सब लोग नदी के किनारे घूमने गए थे। मौसम बहुत अच्छा था और बच्चे देर तक खेलते रहे।
घर लौटते समय हमने बाज़ार से फल और सब्ज़ियाँ खरीदीं।"""
WORDS = sorted(set(re.findall("[a-z]+", ENGLISH.lower())))

Draw = random.Random


def _characters(alphabet: str) -> Callable[[Draw], str]:
    return lambda draw: "".join(draw.choices(alphabet, k=400))


def _records(draw: Draw) -> list[dict[str, object]]:
    return [
        {"id": str(uuid.UUID(int=draw.getrandbits(128))), "name": draw.choice(WORDS), "size": draw.randint(0, 99_999)}
        for _ in range(8)
    ]


MADE: dict[str, Callable[[Draw], str]] = {
    "json": lambda draw: json.dumps(_records(draw)),
    "json-indented": lambda draw: json.dumps(_records(draw), indent=2),
    "base64": lambda draw: base64.b64encode(draw.randbytes(300)).decode(),
    "hex": lambda draw: draw.randbytes(200).hex(),
    "uuids": lambda draw: "\n".join(str(uuid.UUID(int=draw.getrandbits(128))) for _ in range(10)),
    "digits": _characters(string.digits),
    "sums": lambda draw: "2 + 2 = 4\n" * draw.randint(30, 60),
    "table": lambda draw: "\n".join(f"{draw.uniform(0, 999):.3f}\t{draw.randint(0, 99)}" for _ in range(40)),
    "letters": _characters(string.ascii_letters),
    "lower-case": _characters(string.ascii_lowercase),
    "upper-case": _characters(string.ascii_uppercase),
    "letters-and-digits": _characters(string.ascii_letters + string.digits),
    "punctuation": _characters(string.punctuation),
    "ascii": _characters(string.printable),
    "urls": lambda draw: "\n".join(
        f"https://{w}.example/{w}?q={draw.randint(0, 9999)}" for w in draw.choices(WORDS, k=9)
    ),
    "constants": lambda draw: "_".join(draw.choices(WORDS, k=60)).upper(),
    "camel-case": lambda draw: "".join(draw.choices(WORDS, k=60)).title(),
    "rules": lambda draw: "\n".join(draw.choice("-=_*#.") * draw.randint(1, 70) for _ in range(20)),
    "blanks": lambda draw: "".join(" " * draw.randint(1, 30) + "\n" * draw.randint(1, 3) for _ in range(30)),
    "emoji": lambda draw: "".join(chr(draw.randint(0x1F300, 0x1F64F)) for _ in range(200)),
    "boxes": _characters("│─┌┐└┘├┤┬┴┼═║█░→✓✗•"),
    "rare-scripts": lambda draw: "".join(chr(draw.randint(0x13A0, 0x16EA)) for _ in range(200)),
}
TEXTS = {
    "english": ENGLISH,
    "german": GERMAN,
    "chinese": CHINESE,
    "japanese": JAPANESE,
    "russian": RUSSIAN,
    "arabic": ARABIC,
    "hindi": HINDI,
    "python": inspect.getsource(textwrap),
}


def _samples(name: str) -> Sequence[str]:
    if name in TEXTS:
        return [TEXTS[name]]
    draw = random.Random(name)
    return [MADE[name](draw) for _ in range(10)]


@cache
def _encoding(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its ranks by `resources.open_binary`
        from bpe_openai import get_encoding

        return get_encoding(name)


@cache
def _tokens(encoding: str, text: str) -> int:
    return len(_encoding(encoding).encode_ordinary(text))


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", [*TEXTS, *MADE])
def test_a_real_tokenizer_lies_between_both_estimates(name: str, encoding: str) -> None:
    """For prose in several scripts, code, data, and what is drawn at random."""
    for text in _samples(name):
        assert COUNTER.at_least(text) <= _tokens(encoding, text) <= COUNTER.count(text), text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("english", 1.8), ("python", 1.9), ("german", 2.1), ("chinese", 2.3)])
def test_the_upper_estimate_is_not_needlessly_high(name: str, most: float) -> None:
    """What is spoken and written fills the window before the estimate says so, but not by far."""
    text = TEXTS[name]

    assert COUNTER.count(text) <= most * _tokens("o200k_base", text)


@pytest.mark.parametrize(("name", "least"), [("english", 0.85), ("python", 0.7), ("german", 0.6), ("chinese", 0.3)])
def test_the_lower_estimate_is_not_needlessly_low(name: str, least: float) -> None:
    """Words with their spaces, groups of digits and runs of signs."""
    text = TEXTS[name]

    assert COUNTER.at_least(text) >= least * _tokens("o200k_base", text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello world", 2),
        ("it's", 1),
        ("<em>so</em>", 3),
        ("1234567", 3),
        ("yes, but", 3),
        ("yes\n\n    but", 3),
        ("-" * 80, 1),
        ("你好，世界", 2),
        ("", 0),
    ],
)
def test_the_pieces_that_may_be_one_token(text: str, pieces: int) -> None:
    """A word keeps the sign before it, digits go by three."""
    assert COUNTER.at_least(text) == pieces


@effort(12, 3000)
@given(any_text(), any_text())
def test_a_longer_text_is_never_estimated_lower(one: str, other: str) -> None:
    """At most one token more than its parts: estimates of messages can be added up."""
    whole = COUNTER.count(one + other)

    assert max(COUNTER.count(one), COUNTER.count(other)) <= whole
    assert whole <= COUNTER.count(one) + COUNTER.count(other) + 1


@effort(12, 3000)
@given(any_text(80))
def test_the_lower_estimate_is_not_above_the_upper(text: str) -> None:
    """Whatever the characters."""
    assert 0 <= COUNTER.at_least(text) <= COUNTER.count(text)


@effort(12, 2000)
@given(any_text())
def test_only_nothing_costs_nothing(text: str) -> None:
    """Every character counts, also those that no encoding allows."""
    assert (COUNTER.count(text) == 0) == (COUNTER.at_least(text) == 0) == (text == "")


@pytest.mark.parametrize("part", ["a", "-", " ", "\0\ud800", "字", ENGLISH])
def test_a_megabyte_takes_no_time(part: str) -> None:
    """Both are linear: a text of a million characters in well under a second each."""
    text = part * (1_000_000 // len(part))
    began = time.process_time()

    assert 0 < COUNTER.at_least(text) <= COUNTER.count(text)
    assert time.process_time() - began < 20


def test_a_long_text_is_counted_once() -> None:
    """A prompt of megabytes is in each prefix, which is compiled while other writers wait."""
    counter, prompt = ScriptTokenCounter(), ENGLISH * (2_000_000 // len(ENGLISH))
    began = time.process_time()
    first = counter.count(prompt)
    then = time.process_time()
    again = [counter.count(prompt[:-1] + prompt[-1]) for _ in range(5)]

    assert again == [first] * 5
    assert time.process_time() - then < then - began
    assert [counter.count(f"{prompt} {number}") > first for number in range(9)] == [True] * 9


def test_a_revised_row_is_counted_as_the_model_gets_it() -> None:
    """With its reasoning, and a system message in the engine's envelope."""
    counter, now = ScriptTokenCounter(), datetime(2026, 1, 1, tzinfo=UTC)

    def tokens(role: Role, *parts: Part) -> int:
        place: dict[str, Any] = {"agent_id": AgentId("agent-1"), "seq": 0, "conversation_seq": 0, "revision": 1}
        place |= {"created_at": now, "occurred_at": now}
        return row_tokens(Message(id=MessageId("message-1"), role=role, parts=parts, **place), {}, counter)

    thought, quotes = "well " * 50, '"' * 200
    assert tokens("assistant", Reasoning(thought), Text("Yes.")) > counter.count(thought)
    assert tokens("system", Text(quotes)) > counter.count(json.dumps({"message": quotes}))
