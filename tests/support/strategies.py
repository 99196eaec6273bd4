"""Hypothesis strategies for the values of the core, and the number of examples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from perdure.core.blocks import Block
from perdure.core.events import (
    Delta,
    DeltaStreamed,
    EngineQuarantined,
    Event,
    HookAnswered,
    MemoryEdited,
    MessageAdded,
    ModelChanged,
    PrefixRewritten,
    RowsCut,
    RunCancelRequested,
    RunEnded,
    RunQueued,
    RunStarted,
    StepAbandoned,
    StepStarted,
    ToolStarted,
    ViewCompacted,
    ViewFull,
)
from perdure.core.ids import DEFAULT_ORG, AgentId, BlockId, MessageId
from perdure.core.messages import IMAGE_TYPES, Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from perdure.core.runs import Failure, Usage
from perdure.testing.clock import START


def effort(few: int, many: int) -> settings:
    """Settings with `few` examples by default, and `many` under PERDURE_FAULTS=full (`make faults`)."""
    full = os.environ.get("PERDURE_FAULTS") == "full"
    return settings(
        max_examples=many if full else few,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def any_text(max_size: int = 30) -> st.SearchStrategy[str]:
    """Text of any characters, with lone surrogates, NUL and escapes more often than by chance."""
    anything = st.text(st.characters(exclude_categories=()), max_size=max_size)
    awkward = st.text("\x00\x1b\ud800\udfffd80 \"'*\\\n字é🧭", max_size=max_size)
    return st.one_of(anything, awkward, st.tuples(awkward, anything).map("".join))


def words() -> st.SearchStrategy[str]:
    """Words of several scripts that search must find; each is one unit of search."""
    return st.sampled_from(
        [
            "walrus",
            "penguin",
            "café",
            "E4711",
            "книга",
            "ключ",
            "東京",
            "北京大学",
            "학교",
            "ข้าวผัด",
            "🚀",
            "🧭",
            "naïve",
            "2026",
        ]
    )


def sentences(max_words: int = 6) -> st.SearchStrategy[str]:
    """Several words with spaces between them; may be empty."""
    return st.lists(words(), max_size=max_words).map(" ".join)


def parts() -> st.SearchStrategy[Part]:
    """Any message part."""
    text = any_text(20)
    printed = st.lists(text, max_size=2).map(tuple)
    return st.one_of(
        st.builds(Text, text),
        st.builds(Image, st.sampled_from(IMAGE_TYPES), st.just("iVBORw0KGgo=")),
        st.builds(Reasoning, text, st.none() | text),
        st.builds(ToolCall, text, text, text),
        st.builds(ToolResult, text, text, text, st.sampled_from(["success", "error"]), printed, printed),
    )


def blocks() -> st.SearchStrategy[Block]:
    """A block with any value within its limit."""

    def block(number: int, **fields: Any) -> Block:
        return Block(
            id=BlockId(f"block-{number}"),
            org_id=DEFAULT_ORG,
            limit_chars=1_000,
            created_at=START,
            updated_at=START,
            **fields,
        )

    return st.builds(
        block,
        st.integers(0, 9),
        label=st.sampled_from(["human", "persona", "notes", "a/b", "日記"]),
        value=any_text(),
        description=st.none() | any_text(10),
        read_only=st.booleans(),
        version=st.integers(0, 5),
    )


def events() -> st.SearchStrategy[Event]:
    """Any event; one of an added message holds only its number, as stored."""
    text, number = any_text(10), st.integers(0, 2**53)
    usage = st.builds(
        Usage,
        input_tokens=number,
        output_tokens=number,
        cached_input_tokens=number,
        cache_write_tokens=number,
        reasoning_tokens=number,
    )
    kinds = st.sampled_from(["text", "reasoning", "tool_name", "tool_arguments"])
    delta = st.builds(Delta, text, text, kinds, text, number, st.none() | text)
    return st.one_of(
        st.builds(RunQueued, text),
        st.builds(RunStarted, text, number),
        st.builds(RunCancelRequested, text),
        st.builds(ModelChanged, text, text),
        st.builds(StepStarted, text, number),
        st.builds(StepAbandoned, text),
        st.builds(PrefixRewritten, number, text),
        st.builds(ViewFull, number, number, st.sampled_from(["evict", "merge", "stub", "engine"])),
        st.builds(EngineQuarantined, text, text, text),
        st.builds(RowsCut, st.dictionaries(number, number, max_size=3)),
        st.builds(
            ViewCompacted,
            number,
            number,
            number,
            st.booleans(),
            st.sampled_from(["model", "extract"]),
            number,
            number,
            st.none() | text,
            st.sampled_from(["normal", "aggressive", "fallback", "capped"]),
        ),
        st.builds(MessageAdded, number),
        st.builds(ToolStarted, text, text),
        st.builds(
            HookAnswered,
            st.sampled_from(["run_start", "after_tool"]),
            text,
            st.sampled_from(["blocked", "context", "failed"]),
            text,
        ),
        st.builds(MemoryEdited, text, text, number, text),
        st.builds(
            RunEnded,
            text,
            st.sampled_from(["end_turn", "error", "cancelled"]),
            usage,
            number,
            st.none() | st.builds(Failure, kind=text, message=text),
        ),
        st.builds(DeltaStreamed, delta),
    )


def build_log(turns: Sequence[Part | Sequence[Part]]) -> list[Message]:
    """A log with one message per turn: the role of results is tool, of texts user, of all else assistant."""
    messages = []
    for seq, turn in enumerate(turns):
        parts_of_turn = tuple(turn) if isinstance(turn, Sequence) else (turn,)
        role: Role = "user" if all(isinstance(part, Text) for part in parts_of_turn) else "assistant"
        if any(isinstance(part, ToolResult) for part in parts_of_turn):
            role = "tool"
        messages.append(
            Message(
                id=MessageId(f"message-{seq}"),
                agent_id=AgentId("agent-1"),
                seq=seq,
                conversation_seq=0,
                role=role,
                parts=parts_of_turn,
                created_at=START + timedelta(seconds=seq),
                occurred_at=START + timedelta(seconds=seq),
            )
        )
    return messages
