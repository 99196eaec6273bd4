"""The answers about where memories and answers come from, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from perdure.server.wire.answers.messages import Object


class MemoryOriginShape(TypedDict):
    type: Literal["memory"]
    kind: Literal["block", "line", "passage", "summary"]
    id: str
    label: str | None
    line: int | None
    conversation_id: str | None
    text: str
    writes: list[Object]
    earlier_writes: int
    stands_for: list[Object]
    message_count: int
    source: Object


class AnswerOriginShape(TypedDict):
    type: Literal["answer"]
    agent_id: str
    conversation_id: str
    run_id: str
    step_id: str
    message_id: str | None
    model: str
    at: str
    text: str
    blocks: list[Object]
    summaries: list[Object]
    recalled: list[Object]
    searches: list[Object]
    messages: list[Object]
    tail: str
    problem: str | None


class FactOriginShape(TypedDict):
    type: Literal["fact"]
    id: str
    text: str
    subject: str
    relation: str
    object: str
    versions: list[Object]
    sources: list[Object]
