"""What bad requests are answered: a status, which field, and nothing kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import RunFailed
from perdure.core.errors import (
    BlockLimitExceeded,
    BlockNotFound,
    ConversationBusy,
    IllegalLog,
    ModelNotFound,
    ModelRateLimited,
    NotFound,
    PerdureError,
    StoreBusy,
    StoreDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    VersionConflict,
)
from perdure.core.runs import Failure, Usage
from perdure.library.messages.reply import Reply
from perdure.server.wire.errors import NotSupported, error_answer
from tests.server.routed import JSON
from tests.support.servers import in_process

UUID = "123e4567-e89b-42d3-a456-426614174000"
AGENT = f"/v1/agents/agent-{UUID}/messages"

BAD_BODIES: list[tuple[Any, int, str]] = [
    (b"{", 422, "body: it is not JSON"),
    (b"", 422, "body: it is not JSON"),
    (b"\xff\xfe", 422, "body: JSON must be encoded as UTF-8"),
    ([1], 422, "body"),
    ({}, 422, "exactly one of `input` and `messages`"),
    ({"input": "a", "messages": []}, 422, "exactly one of"),
    (b'{"input": "half \\ud83d", "max_steps": }', 422, "body: it is not JSON"),
    ({"input": ""}, 422, "empty"),
    ({"input": 7}, 422, "body.input"),
    ({"messages": []}, 422, "empty"),
    ({"messages": [{"role": "user"}]}, 422, "body.messages.0.content: Field required"),
    ({"messages": [{"role": "robot", "content": "a"}]}, 422, "body.messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "song"}]}]}, 422, "body.messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, 422, "messages.0.content.0.text"),
    ({"messages": [{"type": "letter", "role": "user", "content": "a"}]}, 422, "body.messages.0.type"),
    ({"input": "a", "max_steps": "x"}, 422, "body.max_steps"),
    ({"input": "a", "max_steps": 0}, 422, "max_steps"),
    ({"input": "a", "if_busy": "shout"}, 422, "body.if_busy"),
    ({"input": "a", "include_return_message_types": ["song"]}, 422, "body.include_return_message_types.0"),
    ({"input": "a", "stream_tokens": True}, 422, "Streaming options set without streaming enabled"),
    ({"input": "a", "background": True}, 422, "Streaming options set without streaming enabled"),
    ({"messages": [{"type": "approval", "approvals": []}]}, 422, "approvals"),
    ({"messages": [{"approve": True}]}, 400, "No tool call is currently awaiting approval"),
    ({"messages": [{"type": "tool_return", "tool_returns": []}]}, 422, "tool_returns"),
    ({"input": "a", "client_tools": [{"name": 7}]}, 422, "client tool"),
]


async def test_bad_messages_are_refused(tmp_path: Path) -> None:
    """Every line of bad input: its status, the field by name, and nothing in the history."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        path = f"/v1/agents/{agent.id}/messages"
        for body, status, part in BAD_BODIES:
            given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
            answered = await client.post(path, **given, headers=JSON)
            assert (answered.status_code, part in answered.json()["detail"]) == (status, True), (body, answered.text)
            if status == 422:
                assert list(answered.json()) == ["trace_id", "detail", "examples"]
            else:
                assert answered.headers["x-should-retry"] == "false"
        assert [message["message_type"] for message in (await client.get(path)).json()] == ["system_message"]


async def test_half_a_character_is_a_message_as_others(tmp_path: Path) -> None:
    """A program in JavaScript that cuts a text within an emoji sends one."""
    async with in_process(tmp_path) as (client, perdure):
        path = f"/v1/agents/{(await perdure.create_agent()).id}/messages"
        answered = await client.post(path, content=b'{"input": "half \\ud83d"}', headers=JSON)
        said = [one["content"] for one in (await client.get(path)).json() if one["message_type"] == "user_message"]

    assert (answered.status_code, said) == (200, ["half \ud83d"])


@pytest.mark.parametrize(
    ("method", "path", "part"),
    [
        ("POST", AGENT, f"Agent with ID agent-{UUID} not found"),
        ("POST", f"{AGENT}/async", f"Agent with ID agent-{UUID} not found"),
        ("POST", f"{AGENT}/cancel", f"Agent with ID agent-{UUID} not found"),
        ("GET", AGENT, f"Agent with ID agent-{UUID} not found"),
        ("GET", f"/v1/messages/message-{UUID}", f"Message with ID message-{UUID} not found"),
        ("GET", f"/v1/runs/run-{UUID}", f"Run with ID run-{UUID} not found"),
        ("GET", f"/v1/runs/run-{UUID}/steps", f"Run with ID run-{UUID} not found"),
        ("POST", f"/v1/runs/run-{UUID}/stream", f"Run with ID run-{UUID} not found"),
        ("POST", f"/v1/runs/run-{UUID}/cancel", f"Run with ID run-{UUID} not found"),
        ("GET", f"/v1/runs/?after=run-{UUID}", f"Run with ID run-{UUID} not found"),
    ],
)
async def test_what_is_not_there_is_not_found(tmp_path: Path, method: str, path: str, part: str) -> None:
    """404, naming it."""
    async with in_process(tmp_path) as (client, _):
        given = {"json": {"input": "hi"}} if path in (AGENT, f"{AGENT}/async") else {}
        answered = await client.request(method, path, **given)  # type: ignore[arg-type]
        assert (answered.status_code, answered.json()) == (404, {"detail": part})


async def test_what_is_no_id_is_refused(tmp_path: Path) -> None:
    """In a path and in a query: 422 with the pattern and an example."""
    uuid1 = "123e4567-e89b-12d3-a456-426614174000"
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for method, path, pattern in (
            ("POST", "/v1/agents/ada/messages", "agent-{uuid4}"),
            ("POST", f"/v1/agents/agent-{uuid1}/messages/stream", "agent-{uuid4}"),
            ("GET", "/v1/agents/ada/messages", "agent-{uuid4}"),
            ("GET", f"/v1/agents/{agent.id}/messages?after=x", "message-{uuid4}"),
            ("GET", f"/v1/agents/{agent.id}/messages?conversation_id=x", "conv-{uuid4}"),
            ("GET", "/v1/messages/x", "message-{uuid4}"),
            ("GET", "/v1/runs/x", "run-{uuid4}"),
            ("GET", "/v1/runs/?agent_id=x", "agent-{uuid4}"),
            ("GET", f"/v1/runs/run-{UUID}/messages?before=x", "message-{uuid4}"),
        ):
            answered = await client.request(method, path, json={"input": "hi"} if method == "POST" else None)
            detail = answered.json()["detail"]
            assert (answered.status_code, f"String should match pattern '{pattern}'" in detail) == (422, True), path
            assert answered.json()["examples"] == [pattern.replace("{uuid4}", UUID)]


async def test_bad_queries_name_their_field(tmp_path: Path) -> None:
    """A limit, an order or a type that there is not."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        for query in ("limit=0", "limit=x", "order=up", "include_return_message_types=song"):
            answered = await client.get(f"/v1/agents/{agent.id}/messages?{query}")
            assert (answered.status_code, query.partition("=")[0] in answered.json()["detail"]) == (422, True), query
        for query in ("statuses=odd", "stop_reason=odd", "conversation_id=default", "limit=99999999"):
            answered = await client.get(f"/v1/runs/?{query}")
            assert (answered.status_code, query.partition("=")[0] in answered.json()["detail"]) == (422, True), query


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"input": 5}', "body.input: Input should be a text or a list, not 5"),
        ('{"input": "a", "max_steps": 1.5}', "body.max_steps: Input should be a whole number, not 1.5"),
        ('{"input": "a", "max_steps": "x"}', "body.max_steps: Input should be a whole number, not 'x'"),
        ('{"input": "a", "max_steps": NaN}', "body.max_steps: Input should be a finite number, not NaN"),
        ('{"input": "a", "max_steps": -1e999}', "body.max_steps: Input should be a finite number, not -Infinity"),
        ('{"input": "a", "streaming": "maybe"}', "body.streaming: Input should be true or false, not 'maybe'"),
        ('{"messages": {}}', "body.messages: Input should be a list, not {}"),
        ('{"messages": [null]}', "body.messages.0: Input should be an object, not null"),
        (
            json.dumps({"messages": [{}] * 501}),
            "501 messages in a request (`messages`) are too many, the limit is 500: use fewer, or raise"
            " PERDURE_MESSAGES_PER_REQUEST",
        ),
        (
            json.dumps({"input": "a", "client_skills": [{"name": "n" * 201, "description": "", "location": "l"}]}),
            "body.client_skills.0.name: String should have at most 200 characters, not 201",
        ),
    ],
)
async def test_a_refusal_reads_as_one_sentence_for_each_field(tmp_path: Path, body: str, told: str) -> None:
    """No types of Python, no steps of a validator, and a value as JSON writes it."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        json_body = {"content-type": "application/json"}
        answered = await client.post(f"/v1/agents/{agent.id}/messages", content=body, headers=json_body)
        assert (answered.status_code, answered.json()["detail"]) == (422, told)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"metadata": {"a": 1e999}}, 'body.metadata: it holds a number that is not finite: {"a": Infinity}'),
        ({"secrets": {"A": 1}}, "body.secrets.A: Input should be a text"),
        ({"secrets": 5}, "body.secrets: Input should be an object or a list"),
        ({"secrets": "hunter2"}, "body.secrets: Input should be an object or a list"),
        ([{"secrets": {"A": "hunter2"}}], "body: Input should be an object"),
    ],
)
async def test_a_field_of_several_types_is_told_once(tmp_path: Path, body: Any, told: str) -> None:
    """What is nearest to fitting; of a secret never the value."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        answered = await client.patch(
            f"/v1/agents/{agent.id}", content=json.dumps(body), headers={"content-type": "application/json"}
        )
        assert (answered.status_code, answered.json()["detail"]) == (422, told)


@pytest.mark.uses("mcp")
async def test_what_may_be_secret_is_not_told_whatever_is_wrong_with_it_or_around_it(tmp_path: Path) -> None:
    async with in_process(tmp_path) as (client, _):
        answers = [
            await client.post("/v1/tools/run", json={"source_code": "x", "args": {}, "env_vars": "hunter2"}),
            await client.put("/v1/tools/mcp/servers", json=[{"auth_token": "hunter2"}]),
            await client.put("/v1/tools/mcp/servers", json={"server_name": "a", "custom_headers": ["hunter2"]}),
        ]
    assert [answered.status_code for answered in answers] == [422, 422, 422]
    assert not any("hunter2" in answered.text for answered in answers)


def reply_that_failed(kind: str) -> Reply:
    failure = Failure(kind=kind, message="no")
    return Reply(
        text="",
        run_id=f"run-{UUID}",  # type: ignore[arg-type]
        stop_reason="llm_api_error",
        messages=(),
        edits=(),
        usage=Usage(),
        step_count=1,
        failure=failure,
    )


@pytest.mark.parametrize(
    ("error", "status", "part", "retry"),
    [
        (NotFound("block", f"block-{UUID}"), 404, f"Block with ID block-{UUID} not found", True),
        (BlockNotFound("human", known=["persona"]), 404, "there are persona", True),
        (ModelNotFound("x/y", known=["a/b"]), 404, "NOT_FOUND: Handle x/y not found, must be one of ['a/b']", True),
        (BlockLimitExceeded("human", size=2, limit=1), 400, "its limit is 1", True),
        (VersionConflict("block", expected=1, found=2), 409, "somebody else wrote first", False),
        (ConversationBusy("run-1"), 409, "run-1", True),
        (NotSupported("not yet"), 501, "not yet", False),
        (ModelRateLimited("slow down"), 429, "slow down", False),
        (
            RunFailed("no", run_id="run-1", stop_reason="llm_api_error", reply=reply_that_failed("llm_timeout")),
            504,
            "llm_timeout",
            False,
        ),
        (StoreBusy("try later"), 503, "try later", True),
        (StoreFull("the disk is full"), 507, "the disk is full", False),
        (StoreReadOnly("it can't be written"), 503, "it can't be written", False),
        (StoreUnavailable("the disk failed"), 503, "the disk failed", False),
        (StoreDamaged("it is damaged"), 503, "it is damaged", False),
        (IllegalLog("a secret"), 500, "An unknown error occurred", True),
    ],
)
def test_every_error_has_its_status(error: PerdureError, status: int, part: str, retry: bool) -> None:
    """And says whether the same request may succeed later."""
    answered = error_answer(error)

    assert (answered.status_code, part in bytes(answered.body).decode()) == (status, True)
    assert ("x-should-retry" not in answered.headers) == retry
    assert b"secret" not in bytes(answered.body)
    named = json.loads(bytes(answered.body)).get("trace_id")
    assert named == answered.headers.get("x-trace-id")
    assert (named is not None) == (status >= 500 and status != 501)


HUGE = "9" * 5_000
RULE = '{"tool_name": "a", "type": %s}'

UNREADABLE: list[tuple[str, str, bytes, str]] = [
    ("PATCH", "", b'{"metadata": {"n": %s}}' % HUGE.encode(), "body: a whole number in it has more than 4,300 digits"),
    ("PATCH", "", b'{"metadata": {"n": "\xff"}}', "body: it is not UTF-8 (invalid start byte at byte 20)"),
    ("PATCH", "", b'{"metadata": {"n": 1}', "body: it is not JSON: Expecting ',' delimiter, at character 21"),
    (
        "POST",
        "/messages",
        b'{"input": "x", "max_steps": %s}' % HUGE.encode(),
        "body: it is not JSON: number out of range",
    ),
    ("PATCH", "", b'{"tool_rules": [%s]}' % (RULE % '"run_first", "args": {"n": NaN}').encode(), "tool_rules.0: its"),
    (
        "PATCH",
        "",
        b'{"tool_rules": [%s]}' % (RULE % '"exit_loop", "tool_name": "\\u0000"').encode(),
        "tool_rules.0 names",
    ),
]


@pytest.mark.parametrize("case", range(len(UNREADABLE)))
async def test_a_body_that_can_not_be_read_is_told_why(tmp_path: Path, case: int) -> None:
    method, path, body, told = UNREADABLE[case]
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent()
        headers = {"content-type": "application/json"}
        refused = await client.request(method, f"/v1/agents/{agent.id}{path}", content=body, headers=headers)

        assert (refused.status_code, told in refused.json()["detail"]) == (422, True), refused.text
        assert list(refused.json()) == ["trace_id", "detail", "examples"]
