"""What is sent to a chat server: legal, repeatable, cheap for a long history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput, ModelRequestRefused
from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Image, Message, MessageKind, Part, Reasoning, Role, Text, ToolCall, ToolResult
from perdure.core.models import ModelOptions, ModelRequest
from perdure.providers.openai_chat.request import build_body
from perdure.providers.openai_endpoint import Dialect, api_url, dialect_of
from perdure.testing.clock import START
from tests.support.strategies import any_text, effort

OPEN = Dialect()
OWN = Dialect(engine_role="system", output_limit="max_completion_tokens", allowed_tools=True)
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
TAIL = '{"type": "context_status"}'


def message(seq: int, role: Role, *parts: Part, kind: MessageKind = "message") -> Message:
    return Message(
        id=MessageId(f"message-{seq}"),
        agent_id=AgentId("agent-1"),
        seq=seq,
        conversation_seq=1,
        role=role,
        parts=parts,
        kind=kind,
        created_at=START,
        occurred_at=START,
    )


def request(*messages: Message, tools: Sequence[Any] = (), tail: str = "", **options: Any) -> ModelRequest:
    return ModelRequest(
        model="openai/test",
        system="You are.",
        messages=messages,
        tools=tuple(tools),
        tail=tail,
        options=ModelOptions(**options),
    )


def encoded(model_request: ModelRequest, dialect: Dialect = OPEN, *, stream: bool = True) -> bytes:
    return build_body(model_request, model="test", dialect=dialect, stream=stream).data


def request_body(model_request: ModelRequest, dialect: Dialect = OPEN, *, stream: bool = True) -> dict[str, Any]:
    body = json.loads(encoded(model_request, dialect, stream=stream))
    assert isinstance(body, dict)
    return body


def test_a_conversation_is_sent_in_the_order_of_the_log() -> None:
    """System prompt, then what was said; every result right behind its call; the tail last."""
    body = request_body(
        request(
            message(1, "user", Text("hi")),
            message(2, "assistant", Reasoning("hm"), Text("I look."), ToolCall("c1", "look", '{"at": 1}')),
            message(3, "tool", ToolResult("c1", "look", "seen")),
            tools=[TOOL],
            tail=TAIL,
        ),
        OWN,
    )

    assert body["messages"] == [
        {"role": "system", "content": "You are."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "system", "content": TAIL},
    ]
    assert body["tools"] == [{"type": "function", "function": TOOL}]
    assert body["stream_options"] == {"include_usage": True}


def test_where_roles_must_alternate_the_engine_speaks_within_the_users_message() -> None:
    """Templates of open models refuse a later system message, and two messages of one role."""
    body = request_body(
        request(
            message(1, "system", Text('{"type": "memory_delta"}'), kind="memory_delta"),
            message(2, "user", Text('hi "you"')),
            tail=TAIL,
        )
    )

    delta, said, tail = '{"type": "memory_delta"}', '\n\nhi "you"', f"\n\n{TAIL}"
    assert body["messages"][1:] == [
        {"role": "user", "content": [{"type": "text", "text": text} for text in (delta, said, tail)]}
    ]


def test_what_is_no_persons_has_the_engines_role() -> None:
    """Also a system message: the view has made an engine's message of one that somebody sent."""
    model_request = request(message(1, "system", Text("be brief")), message(2, "user", Text("hi")))

    parts = request_body(model_request)["messages"][1]["content"]
    assert [part["text"] for part in parts] == ["be brief", "\n\nhi"]
    assert request_body(model_request, OWN)["messages"][1] == {"role": "system", "content": "be brief"}


PICTURE = Image("image/png", "iVBORw0KGgo=", detail="low")
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}


def test_pictures_are_sent_as_data() -> None:
    """Those of results come behind all results, because a result holds only text."""
    model_request = request(
        message(1, "user", Text("Look:"), PICTURE),
        message(2, "assistant", ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}")),
        message(3, "tool", ToolResult("c1", "look", "seen", images=(PICTURE,))),
        message(4, "tool", ToolResult("c2", "look", "nothing")),
        message(5, "user", Text("And?")),
    )
    _, user, _, first, second, *rest = request_body(model_request, OWN)["messages"]

    assert user["content"] == [{"type": "text", "text": "Look:"}, SHOWN]
    assert [first["content"], second["content"]] == ["seen", "nothing"]
    assert rest[0]["role"] == "user" and rest[0]["content"][1:] == [SHOWN]
    assert rest[1] == {"role": "user", "content": "And?"}
    joined = request_body(model_request)["messages"][-1]["content"]
    assert joined[1:] == [SHOWN, {"type": "text", "text": "And?"}]


@pytest.mark.parametrize("name", ["deepseek-chat", "gpt-oss:20b", "llama3.1", "qwen3:8b", "llama-3.3-70b-versatile"])
def test_a_model_without_eyes_is_told_that_there_was_a_picture(name: str) -> None:
    """Servers refuse a request with a picture for it, so it gets a line in its place."""
    dialect = dialect_of("vllm", "http://localhost:8000", name)
    body = request_body(request(message(1, "user", Text("Look:"), PICTURE)), dialect)

    assert body["messages"][1]["content"] == "Look:\n[image, image/png, 9 bytes: you can't be shown it]"


@pytest.mark.parametrize("name", ["gpt-4o", "llama3.2-vision", "qwen2.5-vl", "llava", "llama4", "gemma3", "o3"])
def test_other_models_are_shown_pictures(name: str) -> None:
    assert dialect_of("vllm", "http://localhost:8000", name).images


@pytest.mark.parametrize(
    "arguments", ["{broken", "[1]", "null", '"text"', '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000, "1" * 5000]
)
def test_broken_arguments_in_the_log_are_sent_as_legal_ones(arguments: str) -> None:
    """Servers parse the arguments of earlier calls and refuse the whole request if they can't."""
    model_request = request(
        message(1, "assistant", ToolCall("c1", "look", arguments)), message(2, "tool", ToolResult("c1", "look", "no"))
    )

    wired = request_body(model_request)["messages"][1]["tool_calls"][0]["function"]["arguments"]

    assert json.loads(wired) == {"_unparsed": arguments}


def test_names_and_ids_that_servers_refuse_are_made_legal() -> None:
    """A call and its result keep one id."""
    long = "x" * 60
    model_request = request(
        message(1, "assistant", ToolCall(long, "no such/tool!", "")), message(2, "tool", ToolResult(long, "x", "no"))
    )

    _, log_message, answered = request_body(model_request)["messages"]

    call = log_message["tool_calls"][0]
    assert call["function"] == {"name": "no_such_tool_", "arguments": "{}"}
    assert call["id"] == answered["tool_call_id"]
    assert len(call["id"]) <= 40


def test_an_answer_that_said_nothing_is_left_out() -> None:
    """Servers refuse an assistant message with neither text nor calls."""
    assert len(request_body(request(message(1, "assistant", Reasoning("hm"))))["messages"]) == 1


def test_reasoning_is_sent_back_only_where_it_is_wanted() -> None:
    """Under the field's name there."""
    model_request = request(message(1, "assistant", Reasoning("hm"), Text("yes")))

    assert request_body(model_request)["messages"][1] == {"role": "assistant", "content": "yes"}
    assert request_body(model_request, Dialect(reasoning_back="reasoning"))["messages"][1]["reasoning"] == "hm"


@pytest.mark.parametrize(
    ("choice", "open_server", "own"),
    [
        ("auto", None, None),
        ("none", "none", "none"),
        ("required", "required", "required"),
        (
            ("look",),
            {"type": "function", "function": {"name": "look"}},
            {"type": "function", "function": {"name": "look"}},
        ),
        (
            ("look", "see"),
            "required",
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": name}} for name in ("look", "see")],
                },
            },
        ),
    ],
)
def test_a_tool_choice_never_changes_the_tools(choice: Any, open_server: Any, own: Any) -> None:
    """They stand at the beginning of the prompt; another list would make the server read all of it anew."""
    model_request = request(tools=[TOOL, TOOL | {"name": "see"}, TOOL | {"name": "smell"}], tool_choice=choice)

    for dialect, expected in ((OPEN, open_server), (OWN, own)):
        body = request_body(model_request, dialect)
        assert body.get("tool_choice") == expected
        assert len(body["tools"]) == 3


def test_options_are_sent_under_the_servers_names() -> None:
    """What nobody asked for is left out; what stands in `extra` wins."""
    options: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "reasoning_effort": "low"}
    body = request_body(
        request(**options, parallel_tool_calls=False, extra={"temperature": 1, "seed": 3}), stream=False
    )

    assert {name: value for name, value in body.items() if name not in ("messages", "model")} == {
        "temperature": 1,
        "top_p": 0.9,
        "max_tokens": 7,
        "reasoning_effort": "low",
        "stream": False,
        "seed": 3,
    }
    assert request_body(request(max_output_tokens=7), OWN)["max_completion_tokens"] == 7
    router = request_body(request(reasoning_effort="low"), Dialect(reasoning="object"))
    assert router["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize("extra", [{"seed": float("nan")}, {"seed": object()}])
def test_options_that_are_no_json_are_refused(extra: dict[str, Any]) -> None:
    """With the name of the option."""
    with pytest.raises(ModelRequestRefused, match="seed"):
        encoded(request(extra=extra))


@given(texts=st.lists(any_text(), min_size=3, max_size=3))
@effort(12, 1000)
def test_any_text_can_be_sent(texts: list[str]) -> None:
    """Lone surrogates and NULs included: the bytes are UTF-8 and JSON, and the same every time."""
    log_message, arguments, result = texts
    model_request = request(
        message(1, "user", Text(log_message)),
        message(2, "assistant", ToolCall("c", "look", arguments)),
        message(3, "tool", ToolResult("c", "look", result)),
        tail=log_message,
    )

    for dialect in (OPEN, OWN):
        data = encoded(model_request, dialect)
        assert json.loads(data.decode())
        assert encoded(replace(model_request), dialect) == data


def test_half_a_character_is_replaced_and_two_halves_are_joined() -> None:
    """JSON text can hold a lone surrogate, UTF-8 can't."""
    assert (
        request_body(request(message(1, "user", Text("a\ud83db \ud83d\ude00"))))["messages"][1]["content"] == "a�b 😀"
    )


def texts(body: dict[str, Any]) -> str:
    """What a template makes of the messages: roles and texts, with parts side by side."""
    contents = ((one["role"], one["content"]) for one in body["messages"])
    return "".join(
        f"<{role}>{content if isinstance(content, str) else ''.join(part['text'] for part in content)}"
        for role, content in contents
    )


@pytest.mark.parametrize("dialect", [OWN, Dialect(), Dialect(user_after_tool=False), Dialect(parts=False)])
def test_a_history_is_only_ever_appended_to(dialect: Dialect) -> None:
    """The texts before the tail are the same from request to request, so the server's cache has them."""
    log = [
        message(1, "user", Text("one")),
        message(2, "assistant", Text("I look."), ToolCall("c", "look", "{}")),
        message(3, "tool", ToolResult("c", "look", "seen")),
        message(4, "system", Text("{}"), kind="heartbeat"),
        message(5, "assistant", Text("two")),
        message(6, "user", Text("three")),
    ]
    whole = texts(request_body(request(*log, tail=""), dialect))
    for length in range(1, len(log) + 1):
        body = texts(request_body(request(*log[:length], tail=TAIL), dialect))
        before, tail, after = body.partition(TAIL)

        assert tail and not after and whole.startswith(before.removesuffix("<system>").removesuffix("<user>").rstrip())


PARTS = [{"type": "text", "text": "hi"}, {"type": "text", "text": f"\n\n{TAIL}"}]


@pytest.mark.parametrize("provider", ["openrouter", "mistral", "vllm", "ollama", "lmstudio"])
def test_what_the_user_wrote_is_a_part_of_its_own(provider: str) -> None:
    """Where a later system message is refused, or moved to the front without a word."""
    dialect = dialect_of(provider, "http://somewhere:8000/v1", "qwen3")
    body = request_body(request(message(1, "user", Text("hi")), tail=TAIL), dialect)

    assert body["messages"][1:] == [{"role": "user", "content": PARTS}]


@pytest.mark.parametrize("provider", ["openai", "deepseek", "groq", "together", "xai"])
def test_what_the_user_wrote_is_a_message_of_its_own(provider: str) -> None:
    """Where a system message may stand anywhere."""
    dialect = dialect_of(provider, "http://somewhere:8000/v1", "qwen3")
    body = request_body(request(message(1, "user", Text("hi")), tail=TAIL), dialect)

    assert body["messages"][1:] == [{"role": "user", "content": "hi"}, {"role": "system", "content": TAIL}]


@pytest.mark.parametrize(("provider", "model"), [("mistral", "m"), ("vllm", "Ministral-3"), ("ollama", "devstral:24b")])
def test_no_user_follows_a_tool_of_mistrals_models(provider: str, model: str) -> None:
    """They refuse it: the engine speaks within the last result, a person after a short answer."""
    call, result = ToolCall("c", "look", "{}"), ToolResult("c", "look", "seen")
    log = [message(1, "user", Text("hi")), message(2, "assistant", call), message(3, "tool", result)]
    beat = message(4, "user", Text("{}"), kind="heartbeat")
    dialect = dialect_of(provider, "http://somewhere:8000/v1", model)
    told = request_body(request(*log, beat, tail=TAIL), dialect)["messages"][-1]
    *_, answer, person = request_body(request(*log, message(4, "user", Text("and?"))), dialect)["messages"]

    assert (told["role"], told["content"]) == ("tool", f"seen\n\n{{}}\n\n{TAIL}")
    assert (answer["role"], person) == ("assistant", {"role": "user", "content": "and?"})


def marks(*messages: Message, tail: str = TAIL, model: str = "anthropic/claude-haiku-4.5") -> list[tuple[str, str]]:
    """(role, text) of the messages with a mark, as they are sent to OpenRouter."""
    dialect = dialect_of("openrouter", "https://openrouter.ai/api/v1", model)
    bodies = [request_body(request(*messages, tail=tail), dialect), request_body(request(*messages, tail=tail))]
    marked, plain = (body["messages"] for body in bodies)
    found = []
    for one, same in zip(marked, plain, strict=True):
        if one != same:
            assert one["content"] == [{"type": "text", "text": same["content"], "cache_control": {"type": "ephemeral"}}]
            found.append((one["role"], same["content"]))
    return found


def test_claude_behind_openrouter_is_told_up_to_where_to_cache() -> None:
    """The system text, and the last text before the newest turn, however long that turn becomes."""
    one, two = message(1, "user", Text("one")), message(2, "assistant", Text("two"))
    delta = message(3, "system", Text("{}"), kind="memory_delta")
    three = message(4, "user", Text("three"))
    call = message(5, "assistant", ToolCall("c", "look", "{}"))
    seen = message(6, "tool", ToolResult("c", "look", "seen"))
    beat = message(7, "user", Text("{}"), kind="heartbeat")
    system = ("system", "You are.")

    assert marks() == [system]
    assert marks(one) == [system]
    assert marks(one, two, delta, three) == [system, ("assistant", "two")]
    assert marks(one, two, delta, three, call, seen, beat) == [system, ("assistant", "two")]
    assert marks(one, call, seen, delta, three, tail="") == [system, ("user", "one")]
    assert marks(one, message(2, "assistant", Reasoning("hm")), three) == [system]  # one message, tail and all
    assert marks(one, two, three, model="openai/gpt-5") == []


def test_without_a_system_text_only_the_conversation_is_marked() -> None:
    log = [message(1, "user", Text("one")), message(2, "assistant", Text("two")), message(3, "user", Text("three"))]
    dialect = dialect_of("openrouter", "https://openrouter.ai/api/v1", "anthropic/claude-haiku-4.5")

    body = request_body(replace(request(*log), system=""), dialect)

    assert [type(one["content"]) for one in body["messages"]] == [str, list, str]


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1"),
        ("http://localhost:11434/", "http://localhost:11434/v1"),
        ("localhost:11434", "http://localhost:11434/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1"),
        ("http://[::1]:8000/v1/chat/completions", "http://[::1]:8000/v1"),
        ("https://x.openai.azure.com/openai/v1?api-version=1", "https://x.openai.azure.com/openai/v1?api-version=1"),
    ],
)
def test_an_address_works_with_and_without_its_path(base_url: str, expected: str) -> None:
    """`/v1` is added only where there is no path."""
    assert api_url(base_url) == expected
    assert api_url(base_url, "/chat/completions").partition("?")[0] == expected.partition("?")[0] + "/chat/completions"


@pytest.mark.parametrize("base_url", ["", "ftp://host", "http://", "http://host:port", "http://a b", "http://[::1"])
def test_what_is_no_address_is_refused(base_url: str) -> None:
    """At once, not at the first request."""
    with pytest.raises(InvalidInput, match="address"):
        api_url(base_url)


def test_the_dialect_depends_on_provider_and_address() -> None:
    """Any server can stand at the address of a provider that was named `openai`."""
    own = dialect_of("openai", "https://api.openai.com/v1", "gpt-4o")
    other = dialect_of("openai", "http://localhost:8000", "qwen3")
    local = dialect_of("vllm", "http://localhost:8000", "qwen3")
    router = dialect_of("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-5")

    assert (own.engine_role, own.output_limit, own.allowed_tools) == ("system", "max_completion_tokens", True)
    assert (other.engine_role, other.output_limit) == ("system", "max_tokens")
    assert local.engine_role == router.engine_role == "user"
    assert (router.allowed_tools, router.reasoning) == (False, "object")
    assert dialect_of("openai", "http://proxy", "o3-mini").output_limit == "max_completion_tokens"
    assert not other.allowed_tools
    assert not dialect_of("openai", "https://openai.com.proxy.example/v1", "gpt-4o").allowed_tools


@pytest.mark.parametrize(
    ("budget", "effort"), [(1, "low"), (1024, "low"), (1025, "medium"), (8192, "medium"), (8193, "high")]
)
def test_a_budget_is_an_effort_where_there_is_no_field_for_it(budget: int, effort: str) -> None:
    """An effort that was set wins."""
    own = dialect_of("openai", "https://api.openai.com/v1", "gpt-5-mini")

    assert request_body(request(max_reasoning_tokens=budget), own)["reasoning_effort"] == effort
    assert (
        request_body(request(max_reasoning_tokens=budget, reasoning_effort="minimal"), own)["reasoning_effort"]
        == "minimal"
    )


@pytest.mark.parametrize(
    ("provider", "base_url", "model"),
    [
        ("openai", "https://api.openai.com/v1", "gpt-4.1"),
        ("openai", "https://api.openai.com/v1", "gpt-5-chat-latest"),
        ("openai", "http://localhost:8000", "gpt-5"),
        ("deepseek", "https://api.deepseek.com/v1", "deepseek-reasoner"),
    ],
)
def test_a_budget_that_nobody_takes_is_left_out(provider: str, base_url: str, model: str) -> None:
    """A server would refuse the whole request; OpenRouter has a field for it."""
    model_request = request(max_reasoning_tokens=5)

    assert (
        not {"reasoning", "reasoning_effort"}
        & request_body(model_request, dialect_of(provider, base_url, model)).keys()
    )
    router = dialect_of("openrouter", "https://openrouter.ai/api/v1", "x")
    assert request_body(model_request, router)["reasoning"] == {"max_tokens": 5}
