"""`perdure.adapters.mem0`: memories of users as facts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import AsyncPerdure
from perdure.adapters.mem0 import AsyncMemory, Memory
from perdure.adapters.mem0.fields import matches
from perdure.testing import InlineStore


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(store=InlineStore()) as memory:
        yield memory


def texts(results: dict[str, Any]) -> list[str]:
    """The texts of results, in order."""
    return [result["memory"] for result in results["results"]]


def test_facts_are_extracted_from_messages(memory: Memory) -> None:
    """In one batch, and about the user; what the assistant says about itself is not about the user."""
    dialogue = [
        {"role": "system", "content": "You live in Rome."},
        {"role": "user", "content": "I live in Turin."},
        {"role": "assistant", "content": "Good. I like chess."},
    ]

    added = memory.add(dialogue, user_id="ada", agent_id="helper")

    assert ("ada lives in Turin.", "ADD") in [(one["memory"], one["event"]) for one in added["results"]]
    assert not [text for text in texts(added) if "ada likes chess" in text or "Rome" in text]
    assert texts(memory.search("where does ada live", filters={"user_id": "ada"}))[0] == "ada lives in Turin."


def test_a_name_alone_is_a_memory(memory: Memory) -> None:
    """A message that says nothing else is kept, once; another name takes its place."""
    (added,) = memory.add("My name is Ada.", user_id="u1")["results"]
    again = memory.add("My name is Ada.", user_id="u1")["results"]
    found = texts(memory.search("name of the user", filters={"user_id": "u1"}))
    (changed,) = memory.add("My name is Bea.", user_id="u1")["results"]

    assert (added["event"], again, found) == ("ADD", [], ["The name of the user is Ada."])
    assert (changed["event"], changed["id"]) == ("UPDATE", added["id"])
    assert texts(memory.get_all(filters={"user_id": "u1"})) == ["The name of the user is Bea."]


@pytest.mark.parametrize("rest", [".", " and I live in Rome."])
def test_users_of_one_name_stay_apart(memory: Memory, rest: str) -> None:
    """One of them takes another name, and the other one keeps it."""
    for user in ("u1", "u2"):
        memory.add(f"My name is Zed{rest}", user_id=user)
    memory.add("My name is Bea.", user_id="u1")
    for user in ("u1", "u2"):
        memory.add("I like tea.", user_id=user)

    assert texts(memory.get_all(filters={"user_id": "u1"}))[0] == "Bea likes tea."
    assert texts(memory.get_all(filters={"user_id": "u2"}))[0] == "Zed likes tea."


def test_a_user_sees_and_changes_own_memories_only(memory: Memory) -> None:
    """What one says neither is found for another nor counts as known there."""
    memory.add("I live in Turin.", user_id="ada")
    said = memory.add("I live in Turin.", user_id="bob")

    assert texts(said) == ["bob lives in Turin."]
    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["ada lives in Turin."]
    assert texts(memory.search("Turin", filters={"user_id": "bob"})) == ["bob lives in Turin."]
    assert texts(memory.search("Turin", filters={"user_id": "eve"})) == []


def test_equal_statements_of_users_without_a_name_stay_apart(memory: Memory) -> None:
    """Two agents' users have one name, `User`; each agent has its own fact."""
    assert texts(memory.add("I live in Turin.", agent_id="one")) == ["User lives in Turin."]
    assert texts(memory.add("I live in Turin.", agent_id="two")) == ["User lives in Turin."]
    assert texts(memory.add("I live in Turin.", agent_id="two")) == []


def test_what_is_no_longer_true_is_hidden(memory: Memory) -> None:
    """A move ends the fact before; with `show_expired` both are found."""
    memory.add("I live in Turin.", user_id="ada")
    memory.add("I moved to Milan.", user_id="ada")

    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["ada lives in Milan."]
    assert set(texts(memory.get_all(filters={"user_id": "ada"}, show_expired=True))) == {
        "ada lives in Milan.",
        "ada lives in Turin.",
    }


def test_a_memory_holds_until_its_last_day(memory: Memory) -> None:
    """That day included; None takes the end away."""
    memory.add("The key is in the shed.", user_id="ada", infer=False, expiration_date="2001-02-03")
    (expired,) = memory.get_all(filters={"user_id": "ada"}, show_expired=True)["results"]
    hidden = memory.get_all(filters={"user_id": "ada"})
    memory.update(expired["id"], expiration_date=None)

    assert expired["expiration_date"] == "2001-02-03"
    assert texts(hidden) == []
    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["The key is in the shed."]


def test_metadata_are_found_and_changed(memory: Memory) -> None:
    """They keep their types, are added to by an update, and can't say whose a memory is."""
    memory.add("The key is in the shed.", user_id="ada", infer=False, metadata={"n": 3, "user_id": "bob"})
    memory.add("The cat is in the shed.", user_id="ada", infer=False, metadata={"n": 9})
    (found,) = memory.search("shed", filters={"user_id": "ada", "n": {"lt": 5}})["results"]
    memory.update(found["id"], metadata={"seen": True, "run_id": "r9"})
    changed = memory.get(found["id"])

    assert changed is not None
    assert (changed["memory"], changed["metadata"]) == ("The key is in the shed.", {"n": 3, "seen": True})
    assert (changed["user_id"], "run_id" in changed) == ("ada", False)
    assert changed["created_at"] < changed["updated_at"]


def test_the_time_that_is_shown_is_the_one_that_filters_compare(memory: Memory) -> None:
    """That of the first version, however often the memory was changed since."""
    (added,) = memory.add("I live in Oslo.", user_id="ada", infer=False)["results"]
    memory.update(added["id"], text="I live in Bergen.")
    shown = memory.get(added["id"])

    def found(**bounds: str) -> list[str]:
        return texts(memory.get_all(filters={"user_id": "ada", "created_at": bounds}))

    assert shown is not None and shown["created_at"] < shown["updated_at"]
    assert found(lte=shown["created_at"]) == found(gte=shown["created_at"]) == ["I live in Bergen."]
    assert found(gt=shown["created_at"]) == []


async def test_the_history_of_another_graph_is_not_shown() -> None:
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        one, other = (AsyncMemory(perdure, graph=name) for name in ("one", "other"))
        (added,) = (await one.add("I live in Oslo.", user_id="ada", infer=False))["results"]
        assert len(await one.history(added["id"])) == 1
        assert await other.history(added["id"]) == []


def test_memories_are_deleted_by_scope(memory: Memory) -> None:
    """One, all of a user, or all."""
    for user in ("ada", "bob"):
        for text in ("The key is in the shed.", "The cat is in the shed."):
            memory.add(text, user_id=user, infer=False)
    first = memory.get_all(filters={"user_id": "ada"})["results"][-1]

    assert memory.delete(first["id"]) == {"message": "Memory deleted successfully!"}
    assert memory.get(first["id"]) is None
    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["The cat is in the shed."]
    memory.delete_all(user_id="ada")
    assert (texts(memory.get_all(user_id="ada")), len(texts(memory.get_all(user_id="bob")))) == ([], 2)
    memory.reset()
    assert texts(memory.get_all(user_id="bob")) == []


def test_many_memories_are_listed_and_deleted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page."""
    monkeypatch.setattr("perdure.adapters.mem0.async_memory.PAGE", 2)
    for number in range(5):
        memory.add(f"Number {number}.", user_id="ada", infer=False, metadata={"n": number})

    assert texts(memory.get_all(filters={"user_id": "ada"}, top_k=4)) == [f"Number {n}." for n in (4, 3, 2, 1)]
    assert texts(memory.get_all(filters={"user_id": "ada", "n": {"lte": 1}})) == ["Number 1.", "Number 0."]
    memory.delete_all(user_id="ada")
    assert texts(memory.get_all(filters={"user_id": "ada"})) == []


def test_a_memory_with_half_a_character_is_listed_beside_the_others(memory: Memory) -> None:
    """JSON of models and clients may hold one; the hash of its text is made all the same."""
    memory.add("half \ud83d", user_id="ada", infer=False)
    memory.add("whole", user_id="ada", infer=False)

    assert texts(memory.get_all(filters={"user_id": "ada"})) == ["whole", "half \ud83d"]


def test_a_credential_is_not_stored(memory: Memory) -> None:
    """A reference stands in its place, with `infer=False` too."""
    memory.add("My API key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD", user_id="ada", infer=False)

    assert "abcdefghijklmnop" not in str(memory.get_all(filters={"user_id": "ada"}))


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.add("x"),
        lambda memory: memory.add("x", user_id=" "),
        lambda memory: memory.add("x", user_id="a b"),
        lambda memory: memory.add(7, user_id="ada"),
        lambda memory: memory.add("x", user_id="ada", expiration_date="soon"),
        lambda memory: memory.add("x", user_id="ada", expiration_date="9999-12-31"),
        lambda memory: memory.search("x"),
        lambda memory: memory.search(" ", filters={"user_id": "ada"}),
        lambda memory: memory.search("x", filters={"user_id": "ada"}, threshold=2),
        lambda memory: memory.search("x", filters={"user_id": "ada"}, top_k=-1),
        lambda memory: memory.search("x", filters={"user_id": "ada"}, reference_date="2024-01-01"),
        lambda memory: memory.get_all(filters={"colour": "red"}),
        lambda memory: memory.update("fact-1"),
        lambda memory: memory.update("fact-1", "x"),
        lambda memory: memory.delete("fact-1"),
        lambda memory: memory.delete_all(),
    ],
)
def test_what_mem0_refuses_is_refused(memory: Memory, call: Any) -> None:
    """With the error that programs for it catch."""
    with pytest.raises(ValueError, match=r"give|nothing|no memory|searches what"):
        call(memory)


def test_other_kinds_of_memory_are_not_stored_as_facts(memory: Memory) -> None:
    """Rather an error than something else than what was meant."""
    with pytest.raises(NotImplementedError, match="memory_type"):
        memory.add("x", agent_id="helper", memory_type="procedural_memory")
    with pytest.raises(NotImplementedError, match="prompt"):
        memory.add("x", agent_id="helper", prompt="only names")


async def test_programs_with_a_loop_use_their_own_store() -> None:
    """`AsyncMemory` takes an open store; two with one graph see the same. A time of saying is kept."""
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        memory, other = AsyncMemory(perdure), AsyncMemory(perdure)
        await memory.add("I moved to Turin last year.", user_id="ada", timestamp=1_700_000_000)
        (found,) = (await other.search("Turin", filters={"user_id": "ada"}))["results"]
        fact = (await perdure.facts.get(found["id"])).fact

    assert fact.valid_at is None or fact.valid_at < datetime(2023, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"n": 3}, True),
        ({"n": "*", "colour": "red"}, True),
        ({"none": "*"}, False),
        ({"none": {"ne": 1}}, True),
        ({"none": {"gt": 1}}, False),
        ({"n": {"gte": 3, "lt": 4}}, True),
        ({"n": {"gt": "three"}}, False),
        ({"colour": {"contains": "re"}}, True),
        ({"colour": {"icontains": "RE"}}, True),
        ({"colour": {"in": ["blue", "red"]}}, True),
        ({"colour": {"nin": ["blue", "red"]}}, False),
        ({"AND": [{"n": 3}, {"colour": "blue"}]}, False),
        ({"OR": [{"n": 4}, {"colour": "red"}]}, True),
        ({"NOT": [{"n": 4}, {"colour": "red"}]}, False),
        ({"NOT": [{"n": 4}]}, True),
    ],
)
def test_filters(filters: dict[str, Any], expected: bool) -> None:
    """Values, operators, and filters of filters."""
    assert matches({"n": 3, "colour": "red"}, filters) is expected


@pytest.mark.parametrize("filters", [{"n": {"about": 3}}, {"OR": []}, {"AND": {"n": 3}}])
def test_filters_that_mean_nothing_are_refused(filters: dict[str, Any]) -> None:
    """With what they should be."""
    with pytest.raises(ValueError, match="give"):
        matches({"n": 3}, filters)
