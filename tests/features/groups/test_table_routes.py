"""The table of turns.md, through every face: the library, plain HTTP, and the official client."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from letta_client import APIStatusError, AsyncStream
from letta_client._base_client import make_request_options
from letta_client.types import StopReasonType
from letta_client.types.agents import AssistantMessage, LettaResponse, LettaStreamingResponse, SystemMessage
from letta_client.types.agents.letta_streaming_response import LettaStopReason

from perdure.features.groups.values import SLEEPTIME_KINDS
from perdure.features.groups.wire import STOP_REASONS
from tests.features.groups.test_table import NAMES, Row, group_of, row_of, rows
from tests.server.routed import Routed, connected
from tests.support.groups import Team, open_team

PAGE = Path(__file__).resolve().parents[3] / "docs" / "groups.md"
SPEECH = "assistant_message"
FAILED = "✗"


@functools.cache
def wire_reasons() -> Mapping[str, str]:
    """Why a turn ends -> the word of the wire, as the page says it."""
    return dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def speeches(entries: Sequence[str]) -> list[tuple[str, str]]:
    """(speaker, text) of the entries of a transcript that agents made, empty for the text of a choice, `✗` of one that
    failed."""
    said = [entry.split(": ", 1) for entry in entries[1:]]
    return [(name, "" if text.startswith("→") else text[:1] if text.startswith("✗") else text) for name, text in said]


def without_choices(messages: Sequence[tuple[str, str]], row: Row) -> list[tuple[str, str]]:
    """The same without the texts of a manager that chooses, which the table has as what was chosen."""
    hidden = {("dynamic", "Max", False)}
    return [(name, "" if (row.kind, name, text == FAILED) in hidden else text) for name, text in messages]


def transcript_of(messages: Sequence[Any]) -> list[tuple[str | None, str]]:
    """(speaker, type) of a list over HTTP; a message of the system says who failed."""
    return [(one["name"], one["message_type"]) for one in messages]


def expected_transcript(row: Row) -> list[tuple[str | None, str]]:
    """The same of the table."""
    kinds = [(entry.split(": ", 1)[0], "✗" in entry) for entry in row.transcript[1:]]
    return [(None, "user_message"), *((name, "system_message" if failed else SPEECH) for name, failed in kinds)]


def test_the_page_says_how_stop_reasons_go_over_the_wire() -> None:
    """Each of them, and each word is one that clients know."""
    assert wire_reasons() == STOP_REASONS
    assert set(STOP_REASONS.values()) <= set(get_args(StopReasonType))


async def library_turn(team: Team, _: Routed, row: Row, group_id: str) -> None:
    """Through `AsyncGroup.send` and its transcript."""
    group = await team.perdure.groups.get(group_id)
    reply = await group.send("Hello")
    entries = [one for one in await group.messages() if one.kind != "user"]
    said = [(one.sender_name, one.text if one.kind in ("speech", "choice") else FAILED) for one in entries]

    assert reply.stop_reason == row.reason
    assert without_choices(said, row) == speeches(row.transcript)
    texts = [
        (one.speaker.name, FAILED if one.problem else one.reply.text if one.reply else "") for one in reply.replies
    ]
    assert without_choices(texts, row) == speeches(row.transcript)


async def http_turn(_: Team, server: Routed, row: Row, group_id: str) -> None:
    """Through the stream of the server and its transcript."""
    path = f"/v1/groups/{group_id}/messages"
    answer = await server.http.post(f"{path}/stream", json={"input": "Hello", "include_pings": False})
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    end = next(one for one in chunks if one["message_type"] == "stop_reason")
    said = [
        (one["name"], one["content"] if one["message_type"] == SPEECH else FAILED)
        for one in chunks
        if one["message_type"] in (SPEECH, "system_message")
    ]
    shown = await server.get(path, order="asc")

    assert without_choices(said, row) == speeches(row.transcript)
    assert end["group_stop_reason"] == row.reason
    assert transcript_of(shown) == expected_transcript(row)
    failures = [[one for one in told if one["message_type"] == "system_message"] for told in (chunks, shown)]
    assert failures[0] == failures[1]


def parsed(message: object) -> list[tuple[str, str]]:
    """(speaker, text) of a message or chunk as the official client reads it, if an agent says it or it says who
    failed."""
    if isinstance(message, SystemMessage):
        return [(message.name or "", FAILED)]
    return [(message.name or "", str(message.content))] if isinstance(message, AssistantMessage) else []


async def client_turn(_: Team, server: Routed, row: Row, group_id: str) -> None:
    """Through the official client, whose types are the words of its own server; first whole, then the same turn again
    as a stream."""
    letta = server.letta
    body, options = {"input": "Hello"}, make_request_options(extra_headers={"idempotency-key": "one"})
    path = f"/v1/groups/{group_id}/messages"
    try:
        reply = await letta.post(path, body=body, options=options, cast_to=LettaResponse)
    except APIStatusError as error:
        assert (row.reason, error.status_code) == ("error", 500)
    else:
        said = [one for message in reply.messages for one in parsed(message)]
        assert without_choices(said, row) == speeches(row.transcript)
        assert reply.stop_reason.stop_reason == wire_reasons()[row.reason]
    stream = await letta.post(
        f"{path}/stream",
        body=body,
        options=options,
        cast_to=object,
        stream=True,
        stream_cls=AsyncStream[LettaStreamingResponse],
    )
    said, reasons = [], []
    with contextlib.suppress(APIStatusError) if row.reason == "error" else contextlib.nullcontext():
        async for chunk in stream:
            said += parsed(chunk)
            if isinstance(chunk, LettaStopReason):
                reasons.append(chunk.stop_reason)
    assert without_choices(said, row) == speeches(row.transcript)
    assert reasons == [wire_reasons()[row.reason]]


Face = Callable[[Team, Routed, Row, str], Awaitable[None]]


@pytest.mark.slow
@pytest.mark.parametrize("line", rows())
async def test_a_turn_does_what_the_table_says_by_every_face(line: str) -> None:
    """Transcript, order, stop reason and stream. Each face has a group of its own, of the same agents; where there is a
    companion, of other agents, since an agent has one at most."""
    row, faces = row_of(line), (library_turn, http_turn, client_turn)
    for together in [[face] for face in faces] if row.kind in SLEEPTIME_KINDS else [faces]:
        await answer_by_faces(row, together)


async def answer_by_faces(row: Row, faces: Sequence[Face]) -> None:
    """Try the row by these faces, on a server of their own."""

    def order() -> str:
        """Order something."""
        return "ordered"

    scripts = {name: row.scripts[name] * len(faces) for name in (*NAMES, "Max")}
    async with open_team(scripts, tools=[order]) as team, connected(team.perdure) as server:
        for face, group in [(face, await group_of(team, row)) for face in faces]:
            await face(team, server, row, group.id)
        assert all(len(model.requests) == len(scripts[name]) for name, model in team.models.items())
