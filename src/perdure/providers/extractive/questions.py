"""What is a question, and which of its words say what it is about."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.providers.extractive.sentences import CJK, Sentence

__all__ = ["Keywords", "is_question", "keywords_of"]

_ASKS_EN = re.compile(
    r"""\s*(?:(?:hi|hello|hey|so|and|but|ok|okay|well|now|please|then|perdure)\b[\s,!]*)*(?:
        (?:what|who|whose|whom|which)(?:'s|'re|\s+(?!(?:i|you|we|an?|nice)\b)\w+)
      | (?:where|when|why|how)(?:'s|\s+(?:is|are|am|was|were|do|does|did|can|could|will|would|should|have|has|had
            |old|much|many|long|far|often|big|tall)\b)
      | (?:do|have|can|could|would|will|should|must|shall)(?:n't)?\s+(?:i|you|we|they|my)\b
      | (?:does|did|has|had|is|are|am|was|were)(?:n't)?\s+(?:i|you|he|she|it|we|they|my|the|there|this|that|any\w*)\b
      | (?:tell|remind|show)\s+me\b | say\s+my\s+name\b
      | (?:search|look)\s+(?:for|up)\b | find\s+(?:my|the|out|what|where)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_TELLS_ZH = re.compile(r"没有?什么|沒有?什麼|什么都|什么的|不管|无论|不怎么|怎么也|哪怕|没几|好几|谁都")
_ASKS_ZH = re.compile(
    r"什[么麼]|啥|[谁誰]|哪[里裡儿兒个個些位种種天家年国國]|哪$|[几幾](?:[岁歲点點号號月个個]|时)|多少|多大|多久|多远"
    r"|怎[么麼]|怎样|为何|何时|是不是|有没有|能不能|会不会|喜不喜欢|[吗嗎呢]\s*[。.!！]*\s*$"
    r"|^\s*(?:请)?(?:告[诉訴]我|说说|找一下|搜索|查一下|查找|回忆)"
)
# "Could you remember that I live in Turin?" tells.
_ASKS_TO_NOTE = re.compile(
    r"\s*(?:can|could|would|will)\s+you\s+(?:please\s+)?(?:remember|note)\s+that\b", re.IGNORECASE
)
_ENDS_ASKING = re.compile(r"[?？][\s.!?。！？\"'”’)）]*$")


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STOP_EN = _words_of(
    """
    a about again all also am an and any anything are as at be been but by can could date day did do does don't
    else ever find for forget give had has have he hello her hey hi him his how i i'd i'll i'm i've if in into
    is it its just know let long look many me mention mentioned message mine much must my myself now of off
    often old on once or our out over please remember remind said say search she should show so some something
    tell than that the their them then there they thing things think this those time to told up us was we were
    what when where which who whom whose why will with would you your yours yes no not
    """
)
# Words that name a kind of fact. They are looked for only when a question has no other word.
_WEAK_EN = _words_of(
    """
    age aged birthplace born call called city come company country dislike employer enjoy from hate home job
    like live love name named occupation old place prefer profession town work
    """
)
_STOP_ZH = re.compile(
    r"什[么麼](?:[时時]候|地方)?|为什[么麼]|怎[么麼][样樣]?|哪[里裡儿兒个個些位种種天家年国國]"
    r"|多少|多大|多久|多远|有没有|是不是|能不能|会不会"
    r"|[几幾](?:[点點号號月岁歲个個])|告[诉訴]|还记得|记得|知道|说过|提到过?|提过|说说|关于|请问|一下|一些|最近|之前|以前|现在|我们|你们|他们"
    r"|[我你您她它啊呀吗嗎呢谁誰啥哪是请吧最过]|(?<!目)的|(?<![吉其])他|了(?!解)"
)
_WEAK_ZH = re.compile(
    r"喜[欢歡爱]|讨厌|討厭|热爱|居住|名字|姓名|来自|來自|工作|上班|[岁歲]|年[龄齡]|职业|(?<!呼)叫|住(?!院|宿)|[爱愛](?!人|情)"
)
_EDGE_ZH = re.compile(r"^[在去有要想把被给跟和对说不也还都]+|[在去有要想来和说不]+$")

_WORD = re.compile(rf"(?:(?![{CJK}])[^\W_])+(?:[-'.@/_](?:(?![{CJK}])[^\W_])+)*")
_CJK_RUN = re.compile(f"[{CJK}]+")
_SAME = {"favourite": "favorite", "colour": "color", "favourites": "favorite", "named": "name", "called": "name"}
_SAME |= {"children": "child", "aged": "age", "mum": "mother", "mom": "mother", "dad": "father"}
_SAME |= {"叫": "name", "名字": "name", "姓名": "name", "call": "name"}


@dataclass(frozen=True, slots=True)
class Keywords:
    """The words to look for, as written.

    Args:
        strong: what the question is about.
        weak: the kind of fact it wants ("name", "live"), which half of all statements share.
    """

    strong: tuple[str, ...]
    weak: tuple[str, ...]

    @property
    def query(self) -> str:
        return " ".join(dict.fromkeys(self.strong or self.weak))

    @property
    def topics(self) -> frozenset[str]:
        """The strong words, comparable."""
        return frozenset(map(stem, self.strong))

    @property
    def kinds(self) -> frozenset[str]:
        """The weak words, comparable."""
        return frozenset(map(stem, self.weak))

    def shared_with(self, text: str) -> int:
        """How many of the words of `query` are in `text`; a Chinese run counts when half of its pairs are."""
        folded = text.casefold()
        words = {stem(word) for word in _words(folded)}
        return sum(_is_in(word, folded, words) for word in dict.fromkeys(self.strong or self.weak))


def is_question(sentence: Sentence) -> bool:
    """Whether somebody asks, or asks to be told, rather than tells."""
    masked = sentence.masked.strip()
    if _ASKS_TO_NOTE.match(masked):
        return False
    if _ENDS_ASKING.search(masked):
        return True
    if _ASKS_ZH.search(masked) and not _TELLS_ZH.search(masked):
        return True
    return not masked.endswith("!") and _ASKS_EN.match(masked) is not None


def keywords_of(text: str) -> Keywords:
    """The content words of a text in either language, without what only makes it a question."""
    strong: list[str] = []
    weak: list[str] = []
    for word in _words(text):
        folded = word.casefold()
        if stem(folded) in _WEAK_EN or folded in _WEAK_EN or stem(folded) == "name":
            weak.append(word)
        elif folded not in _STOP_EN and (len(word) > 1 or word.isdigit()):
            strong.append(word)
    for run in _CJK_RUN.findall(text):
        for piece in _STOP_ZH.sub(" ", run).split():
            weak.extend(_WEAK_ZH.findall(piece))
            strong.extend(filter(None, (_EDGE_ZH.sub("", rest) for rest in _WEAK_ZH.sub(" ", piece).split())))
    return Keywords(tuple(strong), tuple(weak))


def stem(word: str) -> str:
    """A comparable form: folded, spelled one way, without the commonest endings."""
    word = word.casefold()
    word = _SAME.get(word, word)
    if not word.isascii():
        return word
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)] + rest
            break
    # "like", "liked" and "liking" meet without their e.
    return word if word in _WEAK_EN else (word + "e" if word + "e" in _WEAK_EN else word.removesuffix("e"))


def _words(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in _WORD.findall(text)]


def _is_in(word: str, folded: str, words: set[str]) -> bool:
    if not _CJK_RUN.fullmatch(word):
        return stem(word) in words
    if word in folded:
        return True
    pairs = [word[at : at + 2] for at in range(len(word) - 1)]
    return sum(pair in folded for pair in pairs) * 2 >= len(pairs) > 0
