"""mem0's published interface: `Memory` and `AsyncMemory` have its methods, arguments and results."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

from perdure.adapters.mem0 import AsyncMemory, Memory
from perdure.adapters.mem0.fields import _COMPARES
from perdure.testing import InlineStore
from tests.adapters.packages import class_of, fields, methods, need, parameters, returned_keys, source

MAIN = "mem0/memory/main.py"
LEFT_OUT = {"from_config", "project", "entity_store", "chat"}
"""What sets mem0 itself up: a store is opened by an address here; `chat` is not implemented there either."""


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(store=InlineStore()) as memory:
        yield memory


@pytest.mark.parametrize("ours", [Memory, AsyncMemory])
def test_every_method_takes_what_mem0s_takes(ours: type) -> None:
    """With the same names and defaults, so that a program for mem0 needs another import only."""
    need("mem0")
    theirs = {method.name: method for method in methods(class_of(source(MAIN), ours.__name__))}

    assert {name for name in theirs if not hasattr(ours, name)} == LEFT_OUT
    for name in theirs.keys() - LEFT_OUT:
        own = inspect.signature(getattr(ours, name)).parameters
        is_async = isinstance(theirs[name], ast.AsyncFunctionDef)
        assert inspect.iscoroutinefunction(getattr(ours, name)) == is_async, name
        for parameter, default in parameters(theirs[name]).items():
            if parameter.startswith("**"):
                assert any(one.kind is one.VAR_KEYWORD for one in own.values()), (name, parameter)
                continue
            assert parameter in own, (name, parameter)
            if default is None:
                assert own[parameter].default is inspect.Parameter.empty, (name, parameter)
            elif default != "_UNSET":
                assert own[parameter].default == ast.literal_eval(default), (name, parameter)


def test_a_memory_has_the_fields_of_mem0s_item(memory: Memory) -> None:
    """Those of `MemoryItem`, and beside them whose it is and until when it holds."""
    need("mem0")
    item = fields(class_of(source("mem0/configs/base.py"), "MemoryItem"))
    search = next(one for one in methods(class_of(source(MAIN), "Memory")) if one.name == "get")
    promoted = next(
        {ast.literal_eval(one) for one in node.value.elts}
        for node in ast.walk(search)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and any(isinstance(target, ast.Name) and target.id == "promoted_payload_keys" for target in node.targets)
    )
    message = {"role": "user", "name": "Ada", "content": "The key is under the mat."}

    (added,) = memory.add(
        [message],
        user_id="ada",
        agent_id="helper",
        run_id="r1",
        metadata={"room": "hall"},
        expiration_date="2999-01-01",
        infer=False,
    )["results"]
    (found,) = memory.search("where is the key", filters={"user_id": "ada"})["results"]
    (listed,) = memory.get_all(filters={"user_id": "ada"})["results"]

    assert set(found) == item | (promoted - {"attributed_to"})
    assert listed == {name: value for name, value in found.items() if name != "score"}
    assert memory.get(added["id"]) == listed
    assert set(added) == {"id", "memory", "event", "actor_id", "role"}


def test_a_change_has_the_keys_of_mem0s_history(memory: Memory) -> None:
    """Added, updated and deleted, with what was there before."""
    need("mem0")
    storage = class_of(source("mem0/memory/storage.py"), "SQLiteManager")
    keys = returned_keys(next(one for one in methods(storage) if one.name == "get_history"))
    memory_id = memory.add("The key is under the mat.", user_id="ada", infer=False)["results"][0]["id"]
    memory.update(memory_id, "The key is in the shed.")
    memory.delete(memory_id)

    history = memory.history(memory_id)

    assert all(set(change) == keys for change in history)
    assert [(change["event"], change["old_memory"], change["new_memory"]) for change in history] == [
        ("ADD", None, "The key is under the mat."),
        ("UPDATE", "The key is under the mat.", "The key is in the shed."),
        ("DELETE", "The key is in the shed.", None),
    ]


def test_filters_know_mem0s_operators() -> None:
    """Each that its search translates."""
    need("mem0")
    tree = class_of(source(MAIN), "Memory")
    process = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "_process_metadata_filters"
    )
    table = next(
        node.value
        for node in ast.walk(process)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "operator_map"
    )

    assert set(_COMPARES) == set(ast.literal_eval(table))
