"""The patterns by which facts are recognised, English and Chinese: data for `facts`, no logic.

Each matches one clause from its beginning. `v` is the value, `k` the noun of a generic fact ("my NOUN is …"), `i` the
subject, which a clause that continues another may leave out.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "BREAK",
    "DISLIKES",
    "FACTS",
    "GREETS",
    "IDLE_NOUN",
    "IDLE_VALUE",
    "IDLE_VALUES",
    "INTRODUCES",
    "LEAD",
    "LIKES",
    "NEGATES",
    "OPENS_WITH_I",
    "REMEMBER",
    "REMEMBERS",
    "SUBORDINATE",
    "SUPPOSES",
    "TRAILING",
]

LIKES, DISLIKES, REMEMBER = "Likes", "Dislikes", "Remember"


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


# What may stand before a statement without changing it.
LEAD: Final = _re(
    r"""\s*(?:
      (?:hi|hello|hey|good\ (?:morning|evening)|well|so|ok|okay|yes|yeah|no|nope|actually|also|and|but|oh|btw
        |by\ the\ way|fyi|now|sorry|please|currently|plus|anyway|in\ fact|for\ the\ record|just\ so\ you\ know
        |correction|there|everyone|today|nowadays|these\ days|because|since|perdure)\b[\s,:!.–—-]*
    | (?:你好|您好|嗨|嘿|大家好|对了|其实|另外|还有|不对|哦|嗯|好的|好吧|顺便说一下|而且|但是|但|不过|所以|因为|并且)
      [\s，,、！!。：:]*
    )*"""
)
GREETS: Final = _re(r"\s*(?:hi|hello|hey|good\ (?:morning|evening))\b")
INTRODUCES: Final = re.compile(
    r"(?i:I'm|I\s+am|this\s+is)\s+(?P<v>[A-Z][\w'-]*(?:\s[A-Z][\w'.-]*){0,3})(?=[\s.!,]*$|\s+(?:from|and)\b)"
)
REMEMBERS: Final = _re(
    r"""(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?)?
        (?:remember|don't\s+forget|do\s+not\s+forget|note|keep\s+in\s+mind|bear\s+in\s+mind)
        (?:\s+(?:that|this)\b(?!\s+(?:is|was)\b))?(?!\s+(?:when|how\s+we|me\b|the\s+time|down\b))(?:\s*[:,]\s*|\s+)
    | (?:请|請|麻烦|帮我|你|要|一定|务必)*(?:记住|記住|记得|記得|记下|记一下|别忘了|不要忘[了记])(?!了)[\s：:，,]*"""
)
# A sentence that opens so tells what might be.
SUPPOSES: Final = _re(
    r"""(?:even\s+)?(?:if|unless|suppos\w+|imagine|assum\w+|pretend|whether|when|whenever|until|would|could|might|maybe
          |perhaps|let's\s+say|say\s+I|as\s+if|in\s+case)\b
    | 如果|假如|假设|假使|要是|若|倘若|万一|也许|可能|除非|只要|当"""
)
OPENS_WITH_I: Final = _re(r"I\b|I'|我")

# Between two statements of one sentence.
BREAK: Final = _re(
    r"""(?: [,–—]\s*(?:(?:and|but|so|plus|while|though|because|since|then|also)\s+){0,4}
          | \s+(?:(?:and|but|so|plus|while|though|because|since|then|also)\s+){1,4})
        (?= I\s | I'm\s | I've\s | my\s | (?:please\s+|just\s+|(?:but\s+)?you\s+can\s+)*call\s+me\s
          | (?:also\s+|now\s+|currently\s+|really\s+|still\s+)*
            (?:live\s+in|work\s+(?:at|as|for)|like|love|hate|dislike|enjoy|don't\s+like|do\s+not\s+like|can't\s+stand
              |come\s+from|am\s+(?:from|called|\d))\s)
    | [，,；]\s*(?=[我叫住来喜讨不也还很在今最请但而]) | \s+(?=我)"""
)
SUBORDINATE: Final = _re(
    r",?\s+(?:but|because|although|though|since|whereas|if|unless)\s | ， | ,(?=\s*(?:if|when|which)\b)"
)

# Adverbs that leave a statement true; whatever else stands between subject and verb makes it another statement.
_ADV = r"""(?:(?:really|also|just|now|currently|still|do|absolutely|truly|quite|particularly|especially|mostly
            |actually|both)\s+)*"""
_I = rf"(?P<i>I\s+)?{_ADV}"
_IM = rf"(?P<i>(?:I\s+am|I'm)\s+|am\s+){_ADV}"
_IVE = r"(?:I|I've|I\s+have)\s+(?:just\s+|recently\s+|now\s+)?"
_NOT = r"(?:don't|do\s+not|no\s+longer)\s+(?:really\s+)?"
_NOUN = r"(?P<k>(?!name\s)[^\W\d_][\w'-]*(?:\s+[\w'-]+){0,4}?)"
_FRIENDS = r"(?:you|everyone|everybody|people|(?:my\s+)?friends|please|just|can|may|could|should|all)"
_ZH_ADV = r"(?:现在|目前|今年|平时|从小就?|一直|仍然|最近|特别|非常|真的|比较|其实|十分|也|还|很|最|超|都|就|更|挺)*"
_WO = rf"(?P<i>我)?{_ZH_ADV}"
_KIN = r"(?:妈妈|爸爸|母亲|父亲|老婆|老公|妻子|丈夫|儿子|女儿|哥哥|姐姐|弟弟|妹妹|女朋友|男朋友|狗|猫|生日)"

FACTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (key, _re(pattern))
    for key, pattern in (
        ("Name", r"my\s+(?:full\s+|real\s+)?name(?:\s+is|'s)\s+(?:now\s+)?(?P<v>.+)"),
        ("Name", rf"{_IM}(?:called|named)\s+(?P<v>.+)"),
        ("Name", rf"(?:{_FRIENDS}\s+)*calls?\s+me\s+(?P<v>.+)"),
        ("Name", r"我的(?:名字|姓名|全名)(?:叫做?|是|为|：|:)?\s*(?P<v>.+)"),
        ("Name", r"(?P<i>我)?(?:就|名)?叫做?(?!我)\s*(?P<v>.+)"),
        ("Name", r"(?:请|你|可以|大家|朋友们?|都|就)*叫我\s*(?P<v>.+)"),
        ("Age", rf"{_IM}(?P<v>[\w-]+(?:\s(?!years)[\w-]+)?)\s+(?:years?[\s-]old\b|years\s+of\s+age\b)"),
        ("Age", rf"{_IM}(?P<v>\d{{1,3}})[\s.!]*$"),
        ("Age", rf"{_IVE}turned\s+(?P<v>\d{{1,3}})\b"),
        ("Age", rf"{_WO}(?:已经|刚满|满|是|有)?\s*(?P<v>\d{{1,3}}|[零〇一二三四五六七八九十百两]{{1,4}})\s*[岁歲]"),
        ("Lives in", rf"{_I}live\s+in\s+(?P<v>.+)"),
        ("Lives in", rf"{_IM}(?:living|based)\s+in\s+(?P<v>.+)"),
        ("Lives in", rf"{_IVE}moved\s+to\s+(?P<v>.+)"),
        ("Lives in", rf"{_WO}(?:居?住在|定居在|搬到了?|搬去了?)\s*(?P<v>.+)"),
        ("From", rf"(?:{_IM}|I\s+(?:originally\s+)?come\s+|come\s+)(?:originally\s+)?from\s+(?P<v>.+)"),
        ("From", rf"{_WO}[来來]自\s*(?P<v>.+)"),
        ("Works as", rf"{_I}work\s+as\s+(?P<v>.+)"),
        ("Works at", rf"{_I}work\s+(?:at|for)\s+(?P<v>.+)"),
        ("Works as", rf"{_IM}working\s+as\s+(?P<v>.+)"),
        ("Works at", rf"{_IM}working\s+(?:at|for)\s+(?P<v>.+)"),
        ("Works at", rf"{_WO}在\s*(?P<v>.+?)\s*(?:工作|上班|任职|打工)[了的啊呢\s。.!！]*$"),
        (DISLIKES, rf"{_I}(?:{_NOT}(?:like|love|enjoy)|dislike|hate|detest|can't\s+stand)\s+(?P<v>.+)"),
        (LIKES, rf"{_I}(?:like|love|adore|enjoy)\s+(?P<v>.+)"),
        (LIKES, rf"{_IM}(?:very\s+)?fond\s+of\s+(?P<v>.+)"),
        ("我{}", rf"我(?P<k>{_ZH_ADV}喜[欢歡]的[^是]{{1,12}})是\s*(?P<v>.+)"),
        (DISLIKES, rf"{_WO}(?:(?:不太?|不怎么|并不|不再)(?:喜[欢歡]|喜爱|爱)|讨厌|討厭|厌恶|受不了)\s*(?P<v>.+)"),
        (LIKES, rf"{_WO}(?:喜[欢歡]上?了?|喜爱|热爱|爱好?|愛)\s*(?P<v>.+)"),
        (
            "My {}'s name",
            r"I(?:'ve\s+got|\s+have(?:\s+got)?)\s+(?:an?|one)\s+(?P<k>\w[\w\s-]{0,30}?)\s+(?:called|named)\s+(?P<v>.+)",
        ),
        ("My {}'s name", rf"my\s+{_NOUN}(?:\s+(?:is|are)|'s)\s+(?:called|named)\s+(?P<v>.+)"),
        ("My birthday", r"I\s+was\s+born\s+on\s+(?P<v>.+)"),
        ("My {}", rf"my\s+{_NOUN}\s+(?:is|are)\s+(?P<v>.+)"),
        ("我的{}的名字", r"我有一?[只条個个位]?(?P<k>[^，,]{1,8}?)(?:名叫|叫做?)\s*(?P<v>.+)"),
        ("我的{}的名字", r"我(?:家?的|家)(?P<k>[^，,]{1,12}?)(?:的名字)?(?:名叫|叫做?|名字是)\s*(?P<v>.+)"),
        ("我的{}的名字", rf"我(?P<k>{_KIN})(?:名叫|叫做?)\s*(?P<v>.+)"),
        ("我的{}", r"我(?:家?的|家)(?P<k>[^，,]{1,12}?)是\s*(?P<v>.+)"),
        ("我的{}", rf"我(?P<k>{_KIN})是\s*(?P<v>.+)"),
    )
)
"""Key -> pattern; `{}` in a key is the noun. The first pattern that matches a clause counts."""

TRAILING: Final = _re(
    r"""(?:[\s,]+(?:now|too|as\s+well|anymore|any\s+more|any\s+longer|very\s+much|so\s+much|a\s+lot|really|currently|though
        |please|at\s+the\s+moment|these\s+days|nowadays|at\s+all|again|from\s+now\s+on|instead|btw|by\s+the\s+way))+$
    | [了啊呀哦哟噢啦]+$"""
)
NEGATES: Final = _re(r"(?:not|never|neither|nor|no\s+longer)\b | 不(?!丹|锈|莱)")

# "My question is simple", "I like that", "call me tomorrow": the form of a fact, and nothing to keep.
IDLE_NOUN: Final = _re(
    r"""\b(?:questions?|points?|guess|bad|apolog\w+|understanding|opinions?|fault|pleasure|turn|concerns?|issues?|answers?
          |thoughts?|mistake|advice|impression|feeling|view|I|you|who|which|that|if|when|whether|what)\b
    | 问题|意思|想法|天|错|看法|意见|建议|荣幸"""
)
IDLE_VALUE: Final = _re(
    r"(?:that|whether|if|because|why|how|what|so|too|very|going\s+to|about\s+to|here|there|killing|hurting)\b"
    r"| 什[么麼] | [谁誰哪]"
)
_IDLE_TASTE = _re(
    r"""(?:it|that|this|these|those|you|yours?|him|her|them|us|what|how|when|where|who|why|if
          |the\s+(?:way|idea|look|sound)|to\s+(?:say|ask|admit|bother|interrupt|tell|think|know|see\s+you))\b
    | [你您他她它这這那]"""
)
IDLE_VALUES: Final = {
    "Name": _re(
        r"""(?:an?|the\s+same|on|in|at|to|by|being|spelled|spelt|pronounced|later|tomorrow|tonight|today|back|when|if|maybe
            |once|now|asap|anytime|again|crazy|after|before|that|it|this|whatever|\+?\d)\b
        | [他她它你您这那什去来做了]"""
    ),
    LIKES: _IDLE_TASTE,
    DISLIKES: _IDLE_TASTE,
    "From": _re(r"(?:time\s+to\s+time|now|here|there)\b"),
    "Works at": _re(r"(?:it|that|this|them|you|me)\b"),
    "Lives in": _re(r"(?:it|that|this|fear|hope)\b"),
}
