"""Three hundred sentences, half of which state something about the speaker; the other half gives nothing."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.features.extractive.answers import notes_of, plan_edits
from perdure.providers.extractive.statements import statements_in
from tests.support.cases import for_each

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)

NAMES = ("Ada", "Ludwig van Beethoven", "Jean-Luc Picard", "O'Brien", "María José", "王芳", "欧阳修", "Зоя")
NAME_FORMS = (
    *(
        "My name is {}.",
        "my name is {} by the way",
        "Please call me {}.",
        "I'm called {}, nice to meet you",
        "我叫{}。",
    ),
    *("My name's {}!", "请叫我{}", "我的名字是{}，你好"),
)
PLACES = ("Turin", "New York", "the Bronx", "東京", "São Paulo", "Hope", "北京")
PLACE_FORMS = (
    *("I live in {}.", "I moved to {} last Tuesday.", "I now live in {} for work.", "我住在{}。", "我上周搬到了{}。"),
    *("I moved back to {}.", "I'm living in {} these days", "Actually I live in {} there.", "我现在住在{}"),
)
FIRMS = ("Fiat", "Norvik GmbH", "the university", "家乐福", "Night School")
FIRM_FORMS = ("I work at {}.", "I work for {} now", "I started a new job at {}.", "我在{}工作。", "我在{}上班")

IDIOMS = """
Call me maybe|Call me crazy, but it works|Call me later|call me tomorrow at nine|call me a taxi
Call me back please|call me old-fashioned|Just call me when you are done|Please call me if it fails
You can call me anytime|Don't call me that|They called me names|My name is on the list|My name is Mud
my name is legion|My name is not Bob|my name is spelled wrong|My name is misspelt on the form
My name is in the file|My name is the third one|my name is hard to pronounce|My name is common
My name is already taken|My name is used by somebody else|My name is missing from the invoice
My name is unusual here|my name is fine as it is|I'm called in for duty every week|I am named in the will
Hi, I'm German|Hello, I'm Ok|Hi, I'm vegetarian|Hey, I'm Sorry|I work at night|I work at home|I work at weekends
I work at it every day|I work at a desk|I work at the moment|I work for free|I work for a living
I work for peanuts|I work for myself|I work at least ten hours|I work for two hours a day|I work at 9
I work for fun|I work at full speed|I work for money|I work at noon|I work for now|I work for food
I work at my own pace|I live in fear|I live in hope|I live in the moment|I live in the past|I live in a dream
I live in peace|I live in hell|I live in denial|I live in interesting times|I live in my own world
I live in the present|I live in luxury|I live in constant pain|I moved to the next question|I moved to the left
I moved to another topic|I moved to a new flat|I moved to the front|I moved to tears|I am from here
I'm from work|I come from nowhere|I like it|I like that|I love you|I don't like this|I hate when it rains so
translate this: I live in Rome|Translate into French: my name is Bob|Please translate: I work at Fiat
summarize: I moved to Rome|Proofread this:\\nI live in Rome.
Can you translate this mail?\\n\\nHi, my name is Bob.\\nI moved to Rome.|Fix the grammar:\\n\\nI live in Oslo.
Rewrite the following:\\n\\nMy name is Bob and I work at Norvik.
Reply to this mail:\\nHi, I'm Bob. I live in Rome.|Please check:\\n\\nI like tea. I live in Rome.
Here is the text:\\nMy name is Carl.|Bob wrote: I live in Paris|Eve said: my name is Eve
She wrote: "I live in Paris."|> I live in Paris.|```\\nMy name is Bob\\n```
If I lived in Paris, I would be happy|From: Bob\\nTo: Ann\\nSubject: Hello\\n\\nMy name is Bob. I live in Rome.
Maybe I live in a dream|Do I live in Turin?|Where do I work?|Is my name Bob?|What if I moved to Rome?
My question is simple|My point is that it works|I'm not from Rome|I never worked at Fiat|I don't live in Turin
I'd like tea|I would live in Rome|I could work at Fiat|Would you call me Ada?|我叫外卖了|我叫了外卖
我叫滴滴去机场|我叫车了|我叫他来|我叫小明来吃饭|我叫人帮忙|我叫了一辆出租车|我叫妈妈起床|我叫救护车|叫我起床
明天叫我起床|请叫我一声|你叫我去吗？|我叫什么？|叫我回家吃饭|我叫快递了|我叫朋友一起去|我叫不出名字|我叫服务员来
我在家上班|我在家工作|我在晚上工作|我在夜里上班|我在努力工作|我在认真工作|我在线上工作|我在这里上班|我在外地工作
我在周末上班|我在远程工作|我在路上工作|我在外面工作|我在家里上班|我住在回忆里|我住在心里|我住在哪里？
如果我住在巴黎|我没住在上海|帮我翻译：我住在北京|请翻译：我叫小明|翻译成英文：我在华为工作
请总结下面的话：\\n我住在北京。|润色：我喜欢喝茶|他说：“我叫小明。”|帮我改写这段：\\n我住在上海，我叫王芳。
小明写道：我住在北京|请回复这封邮件：\\n我叫李雷，我在华为工作。|我的问题是什么|我的意思是好的|也许我住在北京
要是我住在北京|你住在北京吗|我不是来自上海|我喜欢它|我喜欢这个|我讨厌你|我从来没住在天津|我不住在杭州
I live in jeans|I moved to part-time last month|I moved to kubernetes|I work at the intersection of art and code
I work for a startup|I work at getting better every day|I work for my uncle's firm|I work at a bank
Act as Bob. My name is Bob and I live in Rome.|Pretend to be my assistant.\\nI work at Fiat.
Please act as a clerk! I moved to Rome.|Role-play with me. I am called Zorg.
In the novel, I live in Rome|In my dream I work at Fiat|In a book I live in Paris
I hope to live in Kyoto one day|Bob told me that I live in a bubble|I almost moved to Rome
我叫我儿子回家|我让我妈妈住在这里|我在梦里工作|我在出差路上上班|我在车里上班|我住在三楼|我住在酒店里|我住在对面
我住在你隔壁|我住在船上|我搬到第二页了|我搬到楼下办公了|我喜欢就好|我喜欢怎么说就怎么说|我讨厌下雨的时候出门
请扮演小明：我叫小明，住在北京|假装你是我。我住在北京|小说里我住在巴黎|在我的梦里我住在巴黎|我在一家公司工作
我在某公司上班
I live in spreadsheets|I moved to vegan food|I live in Excel all day
I work at the office on Mondays|I work for commission
For example, I live in Rome|Lyrics: my name is Joe
我叫得很大声|我叫师傅停车|我在公司上班|我在地铁上工作|我在北京时间九点上班
我住在城里|我住在乡下|我住在学校|我住在朋友家|我搬到新公司了|我搬到大房子里了|我爱上了他|歌词：我住在北京
"""
SENTENCES = tomllib.loads(Path(__file__).with_name("fact_sentences.toml").read_text(encoding="utf-8"))
NOTHING = [one.replace("\\n", "\n") for line in IDIOMS.strip().splitlines() for one in line.split("|")]
NOTHING += SENTENCES["nothing"] + SENTENCES["elsewhere"]
SAID: list[tuple[list[str], list[str]]] = [(texts, lines) for texts, lines in SENTENCES["told"]]


@for_each(SAID)
def test_the_block_after_sentences(texts: list[str], lines: list[str]) -> None:
    value, before = "", ""
    for text in texts:
        notes = notes_of(text, now=NOW, before=before)
        _, value = plan_edits(value, notes.facts, notes.ended)
        before = text
    assert sorted(filter(None, value.split("\n"))) == sorted(lines)


@for_each(NOTHING)
def test_an_idiom_a_request_or_a_quotation_is_no_fact(text: str) -> None:
    """Neither for the block nor for the graph: a wrong fact takes the place of a true one."""
    assert [one for one in statements_in(text, now=NOW) if one.mode == "is"] == []
    assert notes_of(text).facts == ()


def told(forms: tuple[str, ...], values: tuple[str, ...], key: str, relation: str) -> list[tuple[str, str, str, str]]:
    return [(form.format(value), key, relation, value.removeprefix("the ")) for form in forms for value in values]


TOLD = [
    *told(NAME_FORMS, NAMES, "Name", "HAS_NAME"),
    *told(PLACE_FORMS, PLACES, "Lives in", "LIVES_IN"),
    *told(FIRM_FORMS, FIRMS, "Works at", "WORKS_AT"),
    *(
        (text, *{"Lives in": (key, "LIVES_IN"), "Works at": (key, "WORKS_AT")}[key], value)
        for text, key, value in (
            ("I'm living in Graz right now.", "Lives in", "Graz"),
            ("I moved to Basel from work reasons.", "Lives in", "Basel"),
            ("i live in turin", "Lives in", "turin"),
            ("I work for Nokia in Espoo.", "Works at", "Nokia"),
            ("I work at 华为 in Shenzhen.", "Works at", "华为"),
            ("I work for a small firm called Norvik.", "Works at", "Norvik"),
            ("我在一家叫小米的公司工作。", "Works at", "小米"),
            ("我住在新德里。", "Lives in", "新德里"),
            ("我在阿里上班。", "Works at", "阿里"),
        )
    ),
]


@for_each(TOLD)
def test_a_statement_gives_its_name_and_nothing_of_its_tail(text: str, key: str, relation: str, value: str) -> None:
    """The block and the graph say the same."""
    (statement,) = statements_in(text, now=NOW)
    (note,) = notes_of(text).facts
    assert (statement.relation, statement.object.removeprefix("the ")) == (relation, value)
    assert (note.key, note.value.removeprefix("the ")) == (key, value)


def test_there_are_three_hundred_sentences() -> None:
    assert min(len(NOTHING), len(TOLD)) >= 150


@for_each(
    [
        ("I like tea.", "I stopped liking tea.", ["Dislikes: tea"], []),
        ("I like tea.", "I'm not a fan of tea any more.", ["Dislikes: tea"], []),
        ("我喜欢喝酒。", "我再也不喝酒了。", [], ["Likes: 喝酒"]),
        ("我喜欢喝茶。", "我不喜欢喝茶了。", ["Dislikes: 喝茶"], []),
        ("I live in Oslo.", "Forget that I live in Oslo.", [], ["Lives in: Oslo"]),
        ("我住在奥斯陆。", "忘了我住在奥斯陆这件事。", [], ["Lives in: 奥斯陆"]),
        ("I live in Lisbon.", "I no longer live in Lisbon.", [], ["Lives in: Lisbon"]),
        ("I work at Norvik.", "I left Norvik.", [], ["Lives in: Norvik", "Works at: Norvik"]),
        ("I live in Oslo.", "I never lived in Oslo.", [], ["Lives in: Oslo"]),
        ("I live in Turin.", "No, in Milan.", [], []),
        ("", "I live in Turin. No, in Milan.", ["Lives in: Milan"], []),
        ("", "我住在都灵。不，在米兰。", ["Lives in: 米兰"], []),
        *(
            ("", f"I live in Turin. {more}", ["Lives in: Turin"], [])
            for more in ("Sorry, Bob.", "No, Thanks.", "No, Sam.", "Actually in summer it is hot.", "No, in March.")
        ),
        *(("", f"我住在上海。{more}", ["Lives in: 上海"], []) for more in ("不是北京。", "不在家。", "不，谢谢。")),
        *(("", text, [], []) for text in ("I went off to Paris.", "I quit smoking.", "I left early.")),
        ("", "I like 围棋.", ["Likes: 围棋"], []),
        *(
            ("", f"I live in Oslo. {more}", ["Lives in: Bergen"], [])
            for more in ("Sorry, in Bergen.", "Actually, in Bergen!", "Oops, no, in Bergen", "Correction: Bergen.")
        ),
        *(
            ("I live in Oslo.", text, [], ["Lives in: Oslo"])
            for text in ("I moved away from Oslo.", "I've moved out of Oslo.", "Forget I said I live in Oslo.")
        ),
        *(
            ("I work at Fiat.", text, [], ["Works at: Fiat"])
            for text in ("I was fired from Fiat.", "I got laid off by Fiat.", "I have retired from Fiat.")
        ),
        *(
            ("I like jazz.", text, [], ["Likes: jazz"])
            for text in (
                *("I gave up jazz.", "I've gone off jazz.", "I'm fed up with jazz.", "I have had enough of jazz."),
                *("I don't play jazz any more.", "I no longer play jazz."),
            )
        ),
        ("我喜欢喝咖啡。", "我不喝咖啡了。", [], ["Likes: 喝咖啡"]),
        ("我在腾讯工作。", "我从腾讯离职了。", [], ["Works at: 腾讯"]),
        ("我在腾讯工作。", "忘掉我在腾讯工作吧。", [], ["Works at: 腾讯"]),
        ("", "I live in Turin. I no longer live in Turin.", [], ["Lives in: Turin"]),
    ]
)
def test_what_a_sentence_ends(before: str, after: str, left: list[str], ended: list[str]) -> None:
    notes = notes_of(after)
    assert [fact.line for fact in notes.facts] == left
    assert [fact.line for fact in notes.ended] == ended
    assert not ended or not before or [fact.line for fact in notes_of(before).facts] == ended[-1:]


def test_a_relative_may_like_something_no_more() -> None:
    """Who "he" is, the text says."""
    statements = statements_in("My brother Tom likes tea. He doesn't like tea any more.", now=NOW)
    assert [(one.subject, one.relation) for one in statements[1:]] == [("Tom", "LIKES"), ("Tom", "DISLIKES")]


@pytest.mark.parametrize(
    "text",
    [
        "My sister Eva works at Fiat. She left Fiat in March.",
        "My sister Eva works at Fiat. Eva no longer works at Fiat.",
        "My brother Tom works at Fiat, but he no longer works at Fiat.",
    ],
)
def test_the_end_of_what_a_relative_did_is_found_in_the_same_text(text: str) -> None:
    statements = [one for one in statements_in(text, now=NOW) if one.relation == "WORKS_AT"]
    assert [one.mode == "is" for one in statements] == [True, False]
    assert len({one.subject for one in statements}) == 1
