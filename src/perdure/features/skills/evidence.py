"""What confirms an entry that an agent writes: a tool result that shows it, or a person who said it or agreed to it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.core.errors import NotFound, ToolError
from perdure.core.ids import MessageId, is_id
from perdure.core.messages import Message, ToolResult
from perdure.core.nodes import message_handle, parse_handle
from perdure.core.text.words import STOP_WORDS, stems
from perdure.core.tools.engine_specs import AGENT_TOOL_SPECS, BUILTIN_TOOL_SPECS, REPEATING_TOOLS
from perdure.domain.conversations import handles
from perdure.domain.provenance.context import sources_of_messages
from perdure.domain.tools.calls import MemoryCall
from perdure.features.skills.values import Evidence
from perdure.storage.tx import Tx

LOOKED_AT = 200
"""Among so many messages of the conversation, the newest, is looked for what an agent names by a tool or as `user`."""
SAID_SHARE, SHOWN_SHARE = 0.5, 0.8
"""How much of the new words of an entry the user's message has to hold; and what the agent showed before a yes."""
YES_CHARS = 200
_YES = re.compile(
    r"\W*(?:(?:yes|yep|yeah|ok|okay|sure|right|correct|exactly|agreed|good|great|perfect|fine|do it|go ahead|keep it"
    r"|please do|that'?s (?:right|it|correct)|it works|ja|genau|oui|sí|si|да)\b"
    r"|是|对|對|好|可以|没错|沒錯|行|嗯|同意|正确|正確|记住|保存|はい|네|👍)",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\b(?:no|not|never|but|except|wrong|instead|nein|nicht)\b|n't\b|不(?!错|錯)|别|別|但是|没(?!错|问题)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"""\b(?:exit(?:ed)?|return(?:ed)?)(?:[\W_]{0,3}(?:with|a|non-?zero|exit|code|status|was|is|of)){1,5}[\W_]{0,4}[1-9]\d*
    | ^Traceback\ \(most\ recent | ^\W{0,3}(?:error|fatal|panic|exception|错误|失败)\s?[:：]
    | :\ (?:command\ not\ found|No\ such\ file\ or\ directory|Permission\ denied)$
    | "(?:is_?)?error"\s*:\s*(?:true|"[^"]|\{) | "(?:ok|success|succeeded)"\s*:\s*false
    | "(?:status|state|result)"\s*:\s*"(?:error|fail)\w* | "(?:status_?)?code"\s*:\s*[45]\d\d\b
    | \bHTTP/?[\d.]*\s[45]\d\d\b | \b[1-9]\d*\s(?:tests?\s)?(?:failed|failures?|errors?)\b""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""How programs say in what they print that they failed."""
_READING_TOOLS = frozenset({"web_search", "fetch_webpage"})
"""What they bring may tell of failures of others."""


def find_evidence(tx: Tx, call: MemoryCall, evidence: str, text: str) -> tuple[Evidence | None, str]:
    """Return (what confirms an entry, ""), or (None, why that confirms nothing).

    Args:
        evidence: the name of a tool, `user`, or the id or handle of a message; or the id of a tool's call.
        text: what the entry says that is new.
    """
    if call.person is not None:
        return Evidence(kind="person"), ""
    name = evidence.strip()
    if not name:
        return None, "there is no evidence"
    newest = tx.messages.list(
        call.agent.id, conversation_seq=call.run.conversation_seq, limit=LOOKED_AT, newest_first=True
    )
    if is_id("message", name) or parse_handle(name) is not None:
        try:
            named: Sequence[Message] = [_find_message(tx, call, name)]
        except (NotFound, ToolError) as error:
            return None, str(error)
    elif name.casefold() == "user":
        named = [one for one in newest if one.role == "user" and one.kind == "message"]
    else:  # an older result of this tool says nothing where its newest one failed
        named = [one for one in newest if (result := result_of(one)) and name in (result.name, result.call_id)][:1]
    doubts = list[str]()
    for message in named:
        doubt = _doubt_of_result(message) if message.role != "user" else _doubt_of_word(tx, message, newest, text)
        if not doubt:
            return Evidence(kind="user" if message.role == "user" else "tool", message_id=message.id), ""
        doubts.append(doubt)
    return None, doubts[0] if doubts else f"{name!r:.80} names no message of this conversation"


def result_of(message: Message) -> ToolResult | None:
    """The tool's result that a message is; None: it is none."""
    return next((part for part in message.parts if isinstance(part, ToolResult)), None)


def _doubt_of_result(message: Message) -> str:
    """Why a tool's result shows nothing about the world; empty: it does."""
    handle, result = message_handle(message.seq), result_of(message)
    if result is None:
        return f"{handle} is neither a tool's result nor a message of the user"
    if result.status != "success" or result.refused:
        return f"{handle} is a result of {result.name} that failed"
    repeats = result.name in REPEATING_TOOLS and result.name not in BUILTIN_TOOL_SPECS
    if repeats or result.question is not None:
        return f"{handle} is a result of {result.name}, which does and checks nothing outside of your memory"
    if result.name in AGENT_TOOL_SPECS:
        return f"{handle} is a result of {result.name}: what another agent says was not seen by you"
    if result.name not in _READING_TOOLS and (found := _FAILED.search(result.text)) is not None:
        return f"{handle} is a result of {result.name} that tells of a failure: {found[0].strip()!r:.60}"
    return ""


def _doubt_of_word(tx: Tx, message: Message, newest: Sequence[Message], text: str) -> str:
    """Return why a message of the user does not confirm `text`; empty: the user says it there, or agrees to it.

    Args:
        newest: the newest messages of the conversation, the newest first.
    """
    handle = message_handle(message.seq)
    if message.kind != "message" or message.id not in [one.id for one in newest]:
        return f"{handle} is not one of the newest {LOOKED_AT} messages of this conversation"
    if labels := {source.label for source in sources_of_messages(tx, [message])} - {"user"}:
        return f"{handle} is not the user's own word: it brings {', '.join(sorted(labels))}"
    words = _words(text)
    if _word_share(words, message.text) >= SAID_SHARE:
        return ""
    if len(message.text) > YES_CHARS or not _YES.match(message.text) or _NO.search(message.text):
        return f"{handle} says something else: the user neither says this there, nor yes to what you showed"
    older = [one for one in newest if one.seq < message.seq]
    last = next((place for place, one in enumerate(older) if one.role == "user"), len(older))
    if _word_share(words, "\n".join(map(_visible_text, older[:last]))) >= SHOWN_SHARE:
        return ""
    return f"{handle} is a yes, but you had not shown the user this text right before it"


def _visible_text(message: Message) -> str:
    """What a message of the agent, or its question, shows the user."""
    asked = [result.question.text for result in message.results if result.question is not None]
    said = [message.text, *(call.speech for call in message.calls)] if message.role == "assistant" else []
    return "\n".join([*said, *asked])


def _word_share(words: frozenset[str], text: str) -> float:
    """How many of these words a text has, from 0 to 1."""
    return len(words & _words(text)) / len(words) if words else 0.0


def _words(text: str) -> frozenset[str]:
    """Return the meaningful words of a text, in the form that searches compare."""
    return frozenset(stem for stem in stems(text) if stem not in STOP_WORDS and not (stem.isdigit() and len(stem) == 1))


def _find_message(tx: Tx, call: MemoryCall, name: str) -> Message:
    """The message of the agent with this id or handle. Raises: NotFound, ToolError."""
    if is_id("message", name):
        agent_id, seq = tx.messages.place(MessageId(name))
        if agent_id != call.agent.id:
            raise NotFound("message", name)
        return handles.find_message(tx, agent_id, seq)
    found = handles.resolve_handle(tx, call.run, name)
    if not isinstance(found, Message):
        raise ToolError(f"{name!r:.80} is not one message")
    return found
