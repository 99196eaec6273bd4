"""Requests that Letta's last server was sent, sent to ours; and how the shapes of two answers differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.routed import MODEL, Routed

FOLDER = Path(__file__).parent / "recordings"
ID = re.compile(r"(?:agent|tool|message|run|step|call)[-_][0-9a-f][0-9a-f-]{7,}")
CLOSED = frozenset({"message_type", "type", "stop_reason", "status", "tool_type", "source_type", "agent_type"})
"""Fields whose values are a part of the shape."""

MORE = re.compile(r"\.\.\. (\d+) in all")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, as they were recorded; long texts are given by their length."""

    method: str
    path: str
    request: Any
    status: int
    response: Any


def exchanges(name: str) -> Sequence[Exchange]:
    """A recording, in its order."""
    return [Exchange(**one) for one in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))]


async def replay(
    server: Routed, recorded: Sequence[Exchange], ids: Mapping[str, str] | None = None
) -> list[tuple[Exchange, int, Any]]:
    """Each exchange with our status and answer; a stream's answer is its events. Ids of the recording become those that
    ours gave in their place; `ids` are those that are there already."""
    ours: dict[str, str] = {"openai-proxy/gpt-4o-mini": MODEL, **(ids or {})}
    answers, last_call = [], ""
    for one in recorded:
        path, body = _renamed((one.path, one.request), ours)
        if last_call:  # of a stream, whose events were not recorded
            body = _renamed(body, dict.fromkeys(ID.findall(json.dumps(body)) if body else (), last_call))
        answer = await server.http.request(one.method, path, json=body)
        streamed = answer.headers["content-type"].startswith("text/event-stream")
        told = _events(answer.text) if streamed else answer.json()
        last_call = _call_of(told) if streamed else ""
        ours.update(_ids(one.response, told))
        answers.append((one, answer.status_code, told))
    return answers


def differences(recorded: Any, told: Any, at: str = "") -> list[str]:
    """Where an answer has other fields, another order of fields, or other types; one line each.

    What is null in the recording may be anything; a list that was cut is compared as far as it goes.
    """
    match recorded, told:
        case (None, _) | ("<stream>", list()):
            return []
        case dict(), dict():
            return [*_fields(recorded, told, at)]
        case list(), list():
            return [*_members(recorded, told, at)]
        case (str(), str()) | (bool(), bool()):
            same = recorded == told or at.rpartition(".")[2] not in CLOSED
            return [] if same else [f"{at}: {recorded!r}, here {told!r}"]
        case int() | float(), int() | float() if not isinstance(recorded, bool) and not isinstance(told, bool):
            return []
        case _:
            return [f"{at}: {type(recorded).__name__}, here {type(told).__name__}"]


def _fields(recorded: Mapping[str, Any], told: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from (f"{at}.{name}: missing" for name in recorded if name not in told)
    yield from (f"{at}.{name}: not there in the recording" for name in told if name not in recorded)
    both, here = [name for name in recorded if name in told], [name for name in told if name in recorded]
    if both != here:
        yield f"{at}: in the order {here}, not {both}"
    for name in both:
        yield from differences(recorded[name], told[name], f"{at}.{name}")


def _members(recorded: Sequence[Any], told: Sequence[Any], at: str) -> Iterator[str]:
    cut = MORE.fullmatch(recorded[-1]) if recorded and isinstance(recorded[-1], str) else None
    count = int(cut[1]) if cut else len(recorded)
    if count != len(told):
        yield f"{at}: {count} members, here {len(told)}"
    for index, (one, other) in enumerate(zip(recorded[:-1] if cut else recorded, told, strict=False)):
        yield from differences(one, other, f"{at}[{index}]")


def _ids(recorded: Any, told: Any) -> Iterator[tuple[str, str]]:
    match recorded, told:
        case str(), str() if ID.fullmatch(recorded):
            yield recorded, told
        case dict(), dict():
            for name in recorded.keys() & told.keys():
                yield from _ids(recorded[name], told[name])
        case list(), list():
            for one, other in zip(recorded, told, strict=False):
                yield from _ids(one, other)


def _events(text: str) -> list[Any]:
    """The events of a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _call_of(events: Sequence[Mapping[str, Any]]) -> str:
    """The id of the call that waits at a stream's end; empty: none does."""
    calls = [event["tool_call"]["tool_call_id"] for event in events if event.get("tool_call")]
    return str(calls[0]) if calls else ""


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    text = json.dumps(value)
    for old, new in names.items():
        text = text.replace(old, new)
    return json.loads(text)
