"""What the user said: statements that may hold later, before orders, questions and thanks. No model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perdure.core.messages import Message, text_of
from perdure.features.mcp_server.lines import line_of
from perdure.providers.extractive.language import CJK, Sentence, is_question, sentences_in

READ, READ_CHARS = 300, 1_000
"""So many of the user's newest messages are looked at, and so much of each."""
LEAST, WORDS, HAN = 2, 6, 10
"""The score of a statement; from so many words or Chinese characters on a sentence scores one more."""
_LEAD = re.compile(r"(?i)\W*(?:(?:ok(?:ay)?|yes|no|now|and|then|also|thanks|great|please|hi|hey)\b\W*|好的?\W+|请)*")
_ORDER = re.compile(
    r"(?i)(?:add|apply|build|bump|change|check|clean|commit|continue|create|delete|deploy|do|explain|extract|find|fix"
    r"|format|give|go|implement|install|let|list|look|make|merge|move|open|push|put|read|refactor|remove|rename|replace"
    r"|revert|review|rewrite|run|set|show|start|stop|test|try|undo|update|write)\b"
    r"|(?:帮我|把|给我|改|加|删|修|运行|跑|提交|继续|看看|写|检查|重构|更新|创建)"
)
_RULE = re.compile(
    r"(?i)\b(?:must|always|never(?! mind)|only|should|prefer\w*|decided|agreed|remember|called|named|don't|do not"
    r"|from now on|instead of|rather than)\b|, not\b"
    r"|必[须須]|[总總]是|[从從]不|不要|不能|只[能有用]|喜[欢歡]|偏好|[决決]定|[记記]住|以[后後]|叫"
)
_STATES = re.compile(
    r"(?i)\b(?:is|are|was|were|has|have|had|am|needs?|uses?|runs?|lives?|works?|means?|because|my|our|we|I'm)\b"
    r"|是|在|用|需要|我[们們]|我的|[属屬]于"
)
_NAME = re.compile(r"(?<=[\w,;:] )(?!I\b)[A-Z]\w+|\d|`|\w[_/]\w")
_UNNAMED = re.compile(r"(?i)(?:it|this|that|they|these|those)\b|[这那它]")
_HAN = re.compile(f"[{CJK}]")


def told_lines(messages: Iterable[Message], limit: int) -> Sequence[str]:
    """Return the best of what these messages state, oldest first, each with its day."""
    best: dict[str, tuple[int, Message]] = {}
    for message in messages:
        sentences = sentences_in(text_of(message.parts), limit_chars=READ_CHARS)
        scores = [(_score(sentence), sentence.text.strip()) for sentence in sentences]
        if stated := " ".join(text for score, text in scores if score >= LEAST):
            best[stated] = max(score for score, _ in scores), message  # what is said again counts as new
    newest = sorted(best, key=lambda text: (best[text][0], best[text][1].occurred_at), reverse=True)[:limit]
    shown = sorted(newest, key=lambda text: best[text][1].occurred_at)
    return [f"- {best[text][1].occurred_at:%Y-%m-%d} {line_of(text)}" for text in shown]


def _score(sentence: Sentence) -> int:
    """Return how much a sentence tells; 0: it asks, or gives an order that is no rule."""
    text = sentence.masked.strip()
    text = text[lead.end() :] if (lead := _LEAD.match(text)) else text
    rules = _RULE.search(text) is not None
    if is_question(sentence) or not (rules or (_STATES.search(text) and not _ORDER.match(text))):
        return 0
    is_long = len(text.split()) >= WORDS or len(_HAN.findall(text)) >= HAN
    is_vague = _UNNAMED.match(text) is not None or _ORDER.match(text) is not None
    return 1 + rules + bool(_NAME.search(text)) + is_long - is_vague
