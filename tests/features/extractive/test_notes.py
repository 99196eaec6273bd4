"""What the extractive model takes for a fact, and what not."""

from __future__ import annotations

from perdure.features.extractive.answers import parse_note, plan_edits
from perdure.providers.extractive.facts import facts_in
from tests.support.cases import for_each


@for_each(
    [
        ("My name is Ada Lovelace.", ["Name: Ada Lovelace"]),
        ("MY NAME IS ada", ["Name: ada"]),
        ("I’m called Ada", ["Name: Ada"]),
        ("Please call me Ada!", ["Name: Ada"]),
        ("Hi there! I'm Ada, and I'm 36.", ["Name: Ada", "Age: 36"]),
        ("I am thirty-six years old.", ["Age: thirty-six"]),
        (
            "I live in St. Louis. I work at Acme Inc. I like Dr. Who",
            ["Lives in: St. Louis", "Works at: Acme Inc", "Likes: Dr. Who"],
        ),
        ("No, I live in Turin, Italy now.", ["Lives in: Turin, Italy"]),
        ("I'm from England and work as a nurse", ["From: England", "Works as: a nurse"]),
        ("I don’t like spinach, but I really love tea", ["Dislikes: spinach", "Likes: tea"]),
        ("I like tea, chess and go", ["Likes: tea", "Likes: chess", "Likes: go"]),
        ("I like fish and chips", ["Likes: fish and chips"]),
        ("My favourite color is blue.", ["My favourite color: blue"]),
        ("my dog's name is Rex", ["My dog's name: Rex"]),
        ("my dog is now called Rex", ["My dog's name: Rex"]),
        ("My phone number is now 0170 999.", ["My phone number: 0170 999"]),
        ("我的电话现在是456。", ["我的电话: 456"]),
        ("I have a cat called Tom", ["My cat's name: Tom"]),
        ("My wife is Ann and my birthday is 10 December", ["My wife: Ann", "My birthday: 10 December"]),
        ('My favourite book is "Dune".', ["My favourite book: Dune"]),
        ("Remember that the door code is 4711.", ["Remember: the door code is 4711"]),
        ("Could you remember that I live in Rome?", ["Lives in: Rome"]),
        ("我叫小明。", ["Name: 小明"]),
        (
            "我的名字是小明，今年20岁，住在北京，在谷歌工作！",
            ["Name: 小明", "Age: 20", "Lives in: 北京", "Works at: 谷歌"],
        ),
        ("我来自中国", ["From: 中国"]),
        ("我喜欢围棋、茶和足球，但是不喜欢咖啡。", ["Likes: 围棋", "Likes: 茶", "Likes: 足球", "Dislikes: 咖啡"]),
        ("我讨厌香菜", ["Dislikes: 香菜"]),
        ("我的生日是5月1日，我的狗叫旺财", ["我的生日: 5月1日", "我的狗的名字: 旺财"]),
        ("请记住：钥匙在垫子下面，别丢了。", ["Remember: 钥匙在垫子下面，别丢"]),
        ("记住我喜欢茶", ["Likes: 茶"]),
    ]
)
def test_a_statement_about_oneself_is_a_fact(text: str, lines: list[str]) -> None:
    """Each statement becomes one short line with a key."""
    assert [fact.line for fact in facts_in(text)] == lines


@for_each(
    [
        "what is my name?",
        "Do I like tea?",
        "do you remember where I live",
        "I like tea?",
        "我叫什么？",
        "我喜欢什么",
        "我住在上海吗",
        "If I live in Rome, I like tea.",
        "Maybe I like tea.",
        "如果我住在上海，我喜欢茶",
        "I'd like to ask something",
        "I like that idea",
        "I like it when it rains",
        "I love you",
        "我爱你",
        "I hate to say it",
        "call me tomorrow",
        'He said "I live in Rome."',
        '"I live in Rome. I like tea."',
        "He wrote: “I am tired. I live in Rome.”",
        "> I live in Rome",
        "他说：“我叫小明。”",
        "I don't live in Turin",
        "I used to live in Rome",
        "My name is not Bob",
        "我不住在上海",
        "我以前住在北京",
        "my question is simple",
        "I'm not 36 years old",
        "I like ...",
        "remember me",
        "我叫他来",
        "Bob thinks I like tea",
        "",
    ]
)
def test_what_only_looks_like_one_is_not(text: str) -> None:
    """Questions, suppositions, negations, quotations and manners of speaking tell nothing."""
    assert facts_in(text) == ()


def test_free_text_in_the_block_is_left_alone() -> None:
    """A line with several sentences is somebody's own wording: a fact is added beside it, not written over it."""
    line = "Name: Bob. He lives in Rome and likes trains."

    edits, value = plan_edits(line, facts_in("My name is Rob"))

    assert parse_note(line) is None
    assert [edit.old for edit in edits] == [None]
    assert value == f"{line}\nName: Rob"


def test_spellings_of_a_key_meet() -> None:
    """A favourite color is corrected as a favorite colour, and the line keeps its place."""
    _, value = plan_edits("My favourite color: blue\nLikes: tea", facts_in("my favorite colour is green"))

    assert value == "My favorite colour: green\nLikes: tea"


def test_an_edit_names_text_that_stands_there_once() -> None:
    """The replace tools refuse ambiguous text, so neighbouring lines are taken along."""
    value = "Likes: tea\nLikes: tea\nLikes: tea with milk"

    edits, after = plan_edits(value, facts_in("I hate tea"))

    assert [value.count(edit.old or "") for edit in edits] == [1]
    assert after == "Dislikes: tea\nLikes: tea\nLikes: tea with milk"


def test_nothing_is_noted_twice() -> None:
    """Not even a value that reads like free text."""
    for text in ('Remember: "Be there. Be square."', 'My motto is "Be there. Be square."', "remember " + "x" * 500):
        _, value = plan_edits("", facts_in(text))

        assert value
        assert plan_edits(value, facts_in(text)) == ([], value)
