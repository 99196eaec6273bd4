"""What the extractive model takes for a question, what it looks for, and how it answers."""

from __future__ import annotations

import pytest

from perdure.features.extractive.answers import FoundText, answer_from_blocks, answer_from_past, best_quotes
from perdure.providers.extractive.language import is_question, keywords_of, language_of, sentences_in
from tests.support.cases import for_each

HUMAN = """Name: Ada
Lives in: Turin
From: England
Works at: Fiat
Age: 36
Likes: tea
Likes: 围棋
Dislikes: rain
My dog's name: Rex
My favourite color: blue
My birthday: 10 December
Remember: the door code is 4711
我的狗的名字: 旺财
我最喜欢的颜色: 蓝色"""


@for_each(
    [
        ("What is my name?", "Your name is Ada."),
        ("what's my name", "Your name is Ada."),
        ("Where do I live?", "You live in Turin."),
        ("Do you remember which city I live in?", "You live in Turin."),
        ("Where am I from?", "You are from England."),
        ("Where do I work?", "You work at Fiat."),
        ("How old am I?", "You are 36 years old."),
        ("What do I like?", "You like tea and 围棋."),
        ("Do I like rain?", "You don't like rain."),
        ("What do I hate?", "You don't like rain."),
        ("What is my dog called?", "Your dog's name is Rex."),
        ("What is the name of my dog?", "Your dog's name is Rex."),
        ("What is my favorite colour?", "Your favourite color is blue."),
        ("When is my birthday?", "Your birthday is 10 December."),
        ("What is the door code?", "You asked me to remember: the door code is 4711."),
        ("whats my name", "Your name is Ada."),
        ("Where do I currently live?", "You live in Turin."),
        ("Where do I live these days?", "You live in Turin."),
        ("Who is my employer?", "You work at Fiat."),
        ("我叫什么？", "你叫Ada。"),
        ("我现在住在哪里？", "你住在Turin。"),
        ("我目前住在哪个城市？", "你住在Turin。"),
        ("我家在哪里？", "你住在Turin。"),
        ("我在哪家公司工作？", "你在Fiat工作。"),
        ("你知道我住在哪里吗？", "你住在Turin。"),
        ("我几岁？", "你36岁。"),
        ("我喜欢什么？", "你喜欢tea、围棋。"),
        ("我的狗叫什么名字？", "你的狗的名字是旺财。"),
        ("我最喜欢什么颜色？", "你最喜欢的颜色是蓝色。"),
    ]
)
def test_a_line_of_the_block_answers(question: str, answer: str) -> None:
    """The line is quoted in a sentence, in the language of the question."""
    assert answer_from_blocks(question, {"human": HUMAN}, language_of(question)) == answer


@pytest.mark.parametrize(
    "question",
    [
        "What is my cat called?",
        "How old is my dog?",
        "What sport do I like?",
        "Do I live in Rome?",
        "What does my name mean?",
        "What is Rex?",
        "我的猫叫什么？",
        "我喜欢什么运动？",
        "Why?",
    ],
)
def test_a_line_about_something_else_does_not(question: str) -> None:
    """A question about one thing more, or another, is left to the search."""
    assert answer_from_blocks(question, {"human": HUMAN}, language_of(question)) is None


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("where do I live", True),
        ("Tell me about Turin", True),
        ("do you remember Ann", True),
        ("你记得小明吗", True),
        ("为什么下雨", True),
        ("When I was young I lived in Rome.", False),
        ("What a nice day!", False),
        ("Do the dishes.", False),
        ("我没什么想说的", False),
        ("I know what I like.", False),
        ("Could you note that I live in Rome?", False),
    ],
)
def test_questions_are_told_from_statements(text: str, asks: bool) -> None:
    """By mark, by opening, or by a Chinese question word; a when-clause asks nothing."""
    assert [is_question(sentence) for sentence in sentences_in(text)] == [asks]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("What is my dog called?", "dog"),
        ("What did I say about the Helsinki budget?", "Helsinki budget"),
        ("What is my name?", "name"),
        ("我喜欢什么运动？", "运动"),
        ("我的会议在几点？", "会议"),
        ("我的吉他在哪里？", "吉他"),
        ("我叫什么？", "叫"),
        ("Why?", ""),
    ],
)
def test_a_query_holds_the_content_words(question: str, query: str) -> None:
    """What only makes it a question is left out; the kind of fact is asked for when nothing else is left."""
    assert keywords_of(question).query == query


MOVES = ("I live in Rome.", "I moved to Milan.", "I moved to Turin.", "I work at Norvik.", "No, at Olivetti.")
ZH = ("我住在罗马。", "我搬到了都灵。", "我在好事达工作。", "我现在在菲亚特工作。")


@for_each(
    [
        ("Where did I live before?", MOVES, "You used to live in Rome and Milan."),
        ("Where did I live before Milan?", MOVES, "You used to live in Rome."),
        ("Where did I live before I moved to Turin?", MOVES, "You used to live in Rome and Milan."),
        ("Where did I use to live?", ("I used to live in Oslo.",), "You used to live in Oslo."),
        ("Where did I work before?", (*MOVES, "I now work at Fiat."), "You used to work at Olivetti."),
        ("Where did I work before?", ("I work at Fiat.",), None),
        ("Where did she live before?", MOVES, None),
        ("What did I say before?", MOVES, None),
        ("Where do I live?", MOVES, None),
        ("我以前住在哪里？", ZH, "你以前住在罗马。"),
        ("我搬到都灵之前住在哪里？", ZH, "你以前住在罗马。"),
        ("我之前在哪里工作？", ZH, "你以前在好事达工作。"),
    ]
)
def test_a_question_about_an_earlier_time_is_answered_from_what_was_said(
    question: str, said: tuple[str, ...], answer: str | None
) -> None:
    """By what came before what is so now; what was said by mistake never was so."""
    blocks = {"human": "Lives in: 都灵\nWorks at: 菲亚特" if said is ZH else "Lives in: Turin\nWorks at: Fiat"}

    assert answer_from_past(question, said, blocks, language_of(question)) == answer


def test_a_long_passage_is_quoted_around_the_words_asked_for() -> None:
    """The best sentence is quoted with its neighbours, about 300 characters, cut when it is longer."""
    passage = "Nothing here. " * 100 + "The budget of Helsinki is 4,000 euros. " + "Nothing there. " * 100
    endless = "blah " * 500 + "Helsinki budget " + "blah " * 500
    wanted = keywords_of("What is the Helsinki budget?")

    (short,) = best_quotes([FoundText("archive", "2026-11-20", passage)], wanted, "en")
    (cut,) = best_quotes([FoundText("archive", "", endless)], wanted, "en")

    assert short.startswith('From my archive (2026-11-20): "The budget of Helsinki is 4,000 euros. Nothing there.')
    assert "Helsinki budget" in cut
    assert max(len(short), len(cut)) < 350


def test_only_statements_that_share_a_word_are_quoted() -> None:
    """The text itself, questions and unrelated hits are no answers; the assistant's own words are marked."""
    hits = [
        FoundText("user", "2026-11-20", "Where is the bicycle?"),
        FoundText("user", "2026-11-20", "I bought a car."),
        FoundText("user", "2026-11-20", "Asked: bicycle."),
        FoundText("assistant", "2026-11-19", "The bicycles are in the cellar. Do you need one?"),
    ]

    quotes = best_quotes(hits, keywords_of("Where is my bicycle?"), "en", exclude=["Asked: bicycle."])

    assert quotes == ['On 2026-11-19 I said: "The bicycles are in the cellar."']
