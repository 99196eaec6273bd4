"""`perdure.adapters.zep`: sessions, and their shapes as Zep's own client declares them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields as own_fields

import pytest

from perdure import AlreadyExists, NotFound
from perdure.adapters import zep
from perdure.adapters.zep import AsyncSessions, Message, Sessions, Zep
from perdure.testing import InlineStore
from tests.adapters.packages import class_of, fields, methods, need, parameters, source


@pytest.fixture
def client() -> Iterator[Zep]:
    with Zep(store=InlineStore()) as client:
        yield client


def said(text: str, role_type: str = "user", role: str | None = "Ada", at: str | None = None) -> Message:
    """A message."""
    return Message(content=text, role_type=role_type, role=role, created_at=at)


@pytest.mark.parametrize(
    ("module", "name"),
    [("memory", "Memory"), ("fact", "Fact"), ("message", "Message"), ("add_memory_response", "AddMemoryResponse")],
)
def test_a_shape_has_the_fields_of_zeps(module: str, name: str) -> None:
    """By name, so that a program reads the same attributes."""
    need("zep_cloud")

    theirs = fields(class_of(source(f"zep_cloud/types/{module}.py"), name))

    assert {field.name for field in own_fields(getattr(zep, name))} == theirs


@pytest.mark.parametrize(("ours", "theirs"), [(Sessions, "MemoryClient"), (AsyncSessions, "AsyncMemoryClient")])
def test_a_method_takes_only_what_zeps_takes(ours: type, theirs: str) -> None:
    """What it requires is required there too; what is left out there has no default that matters."""
    need("zep_cloud")
    known = {one.name: one for one in methods(class_of(source("zep_cloud/memory/client.py"), theirs))}

    for name in ("add_session", "add", "get", "delete"):
        arguments, own = parameters(known[name]), inspect.signature(getattr(ours, name)).parameters
        assert own.keys() - {"self"} <= arguments.keys(), name
        required = {one for one, default in arguments.items() if default is None}
        assert required == {one.name for one in own.values() if one.default is one.empty} - {"self"}, name
        assert inspect.iscoroutinefunction(getattr(ours, name)) == isinstance(known[name], ast.AsyncFunctionDef)


def test_a_session_returns_context_facts_and_messages(client: Zep) -> None:
    """With when each fact was true; the facts are those of the user in all sessions."""
    client.memory.add_session(session_id="s1", user_id="ada", metadata={"app": "desk"})
    client.memory.add("s1", messages=[said("I live in Turin.", at="2024-05-01T10:00:00Z")])
    client.memory.add_session(session_id="s2", user_id="ada")
    answer = client.memory.add(
        "s2",
        messages=[
            {"content": "I moved to Milan.", "role_type": "user", "role": "Ada", "created_at": "2025-02-03T10:00:00Z"},
            said("Good to know. I live in Rome.", "assistant", "Helper"),
        ],
        return_context=True,
    )

    memory = client.memory.get("s2", lastn=2)
    facts = {fact.content: fact for fact in memory.relevant_facts}

    assert [(one.role, one.role_type, one.content) for one in memory.messages] == [
        ("Ada", "user", "I moved to Milan."),
        ("Helper", "assistant", "Good to know. I live in Rome."),
    ]
    assert facts["Ada lives in Milan."].invalid_at is None
    assert (facts["Ada lives in Turin."].invalid_at or "").startswith("2025-02-03")
    assert (facts["Ada lives in Milan."].source_node_name, facts["Ada lives in Milan."].name) == ("Ada", "LIVES_IN")
    assert not any("Rome" in text for text in facts)
    assert "- Ada lives in Turin. (2024-05-01 - 2025-02-03)" in memory.context
    assert answer.context == memory.context
    assert client.memory.get("s1").metadata == {"app": "desk"}
    assert [one.content for one in client.memory.get("s2", lastn=1).messages] == ["Good to know. I live in Rome."]


def test_sessions_of_other_users_stay_apart(client: Zep) -> None:
    """A session that nobody began is of a user of its own."""
    client.memory.add("s1", messages=[said("I live in Turin.")])
    client.memory.add("s2", messages=[said("Where do I live?", role="Bob")])

    assert [fact.content for fact in client.memory.get("s1").relevant_facts] == ["Ada lives in Turin."]
    assert client.memory.get("s2").relevant_facts == []
    assert client.memory.get("s2").context == ""


def test_roles_can_be_left_out_of_extraction(client: Zep) -> None:
    """Their messages are there, without facts; those of the system never have any."""
    messages = [said("I live in Turin."), said("I live in Oslo.", "system", None)]
    client.memory.add("s1", messages=messages, ignore_roles=["user"])

    memory = client.memory.get("s1")

    assert (len(memory.messages), memory.relevant_facts) == (2, [])


def test_a_deleted_session_takes_its_facts_with_it(client: Zep) -> None:
    """Those that nothing else supports."""
    client.memory.add_session(session_id="s1", user_id="ada")
    client.memory.add_session(session_id="s2", user_id="ada")
    client.memory.add("s1", messages=[said("I live in Turin. I like chess.")])
    client.memory.add("s2", messages=[said("I live in Turin.")])

    client.memory.delete("s1")

    assert [fact.content for fact in client.memory.get("s2").relevant_facts] == ["Ada lives in Turin."]
    with pytest.raises(NotFound, match="add_session"):
        client.memory.get("s1")


def test_what_is_no_message_is_refused(client: Zep) -> None:
    """With what it should be."""
    with pytest.raises(TypeError, match="role_type"):
        client.memory.add("s1", messages=["I live in Turin."])


def test_a_session_is_begun_once(client: Zep) -> None:
    """Again by the same user it is the same session, and pushes no message out of `get`; by another it is refused."""
    client.memory.add_session(session_id="s", user_id="ada", metadata={"a": 1})
    for number in range(12):
        assert client.memory.add_session(session_id="s", user_id="ada").metadata == {"a": 1}
        client.memory.add("s", messages=[said(f"m{number}")])

    assert len(client.memory.get("s", lastn=10).messages or ()) == 10
    with pytest.raises(AlreadyExists, match="user_id"):
        client.memory.add_session(session_id="s", user_id="bob")
    with pytest.raises(AlreadyExists, match="metadata"):
        client.memory.add_session(session_id="s", user_id="ada", metadata={"a": 2})


def test_long_messages_are_no_longer_a_query_than_one_may_be(client: Zep) -> None:
    """What the end of the last messages is about is looked for."""
    client.memory.add_session(session_id="s", user_id="ada")
    for _ in range(4):
        client.memory.add("s", messages=[said(f"{'So it goes. ' * 300}I like tea.")])
    assert client.memory.add("s", messages=[said("Well.")], return_context=True).context is not None
    assert client.memory.get("s").facts
