"""Tools' schemas that a provider would refuse with the whole request."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from perdure.core.errors import InvalidInput
from perdure.core.ids import ToolId
from perdure.core.messages import ToolCall, unlogged_message
from perdure.core.models import ModelDelta, ModelReply, ModelRequest
from perdure.core.specs import ToolSpec
from perdure.core.tools.arguments import fit_arguments
from perdure.core.tools.portable import portable, rename_members, schema_warnings
from perdure.core.tools.schema import LISTS, MAPS, PARTS, plain_schema, target_of
from perdure.domain.tools.units import NewTool, build_tool
from perdure.providers.build import PortableTools
from perdure.testing import ScriptedModel, calls
from perdure.ui.pages.tools import tool_shape
from tests.server.routed import new_agent, routed
from tests.support.cases import for_each

TEXT = {"type": "string"}
BASE = {"type": "object", "properties": {"q": {"type": "array"}}, "required": ["q"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "a bare list": {"type": "object", "properties": {"rows": {"type": "array"}}},
    "a bare list within": {"type": "object", "properties": {"o": {"anyOf": [{"type": "array"}, {"type": "null"}]}}},
    "a list or null": {"type": "object", "properties": {"o": {"type": ["array", "null"]}}},
    "a list of lists": {"type": "object", "properties": {"o": {"type": "array", "items": {"type": "array"}}}},
    "a tuple": {
        "type": "object",
        "properties": {"p": {"type": "array", "prefixItems": [{"type": "integer"}, TEXT], "items": False}},
    },
    "an older tuple": {"type": "object", "properties": {"p": {"type": "array", "items": [TEXT, {"type": "null"}]}}},
    "one of two": {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["$b"]}],
        "properties": {"a": TEXT, "$b": TEXT},
    },
    "exactly one of two objects": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "x"}, "a": TEXT}, "required": ["kind", "a"]},
            {"type": "object", "properties": {"kind": {"const": "y"}}, "required": ["kind"]},
        ]
    },
    "all of": {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"z": TEXT}}], "$defs": {"Base": BASE}},
    "not": {"type": "object", "properties": {"a": TEXT}, "not": {"required": ["a"]}},
    "if": {"type": "object", "properties": {"a": TEXT}, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
    "a reference": {"$ref": "#/$defs/Base", "$defs": {"Base": BASE}},
    "a dollar": {"type": "object", "properties": {"$filter": TEXT, "_filter": TEXT}, "required": ["$filter"]},
    "spaces and Han": {"type": "object", "properties": {"first name": TEXT, "名前": TEXT, "名字": TEXT}},
    "a dollar within": {"type": "object", "properties": {"o": {"type": "object", "properties": {"a b": TEXT}}}},
    "a long name": {"type": "object", "properties": {"x" * 80: TEXT, "x" * 81: TEXT}},
    "nothing": {},
    "an object or null": {"type": ["object", "null"], "properties": {"q": {"type": ["array", "null"]}}},
    "all of any of": {"type": "object", "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["$b"]}]}]},
    "all of anything": {"type": "object", "allOf": [True, {"$ref": "#"}], "properties": {"a": True}},
    "any of anything": {"type": "object", "anyOf": [True, False, {"$ref": "#"}]},
    "references with escapes": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a~1b"}, "b": {"$ref": "#/%24defs/%24x"}},
        "$defs": {"a/b": {"type": "array"}, "$x": {"type": "object", "properties": {"$y": {"$ref": "#/$defs/$x"}}}},
    },
    "references into what moves": {
        "type": "object",
        "properties": {
            "$a": {"type": "array", "items": [TEXT, {"type": "array"}]},
            "b": {"$ref": "#/properties/$a/items/1"},
            "c": {"$ref": "#/anyOf/0/properties/d"},
        },
        "anyOf": [{"properties": {"d": {"type": "integer"}}}, {}],
    },
    "a reference and more": {"$ref": "#/$defs/Base", "properties": {"z": TEXT}, "$defs": {"Base": BASE}},
    "a reference elsewhere": {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}},
    "a reference to an anchor": {"type": "object", "properties": {"a": {"$ref": "#there"}}},
    "an alias that is taken": {"type": "object", "properties": {"$a": TEXT, "x24_a": TEXT}, "required": ["$a"]},
    "what depends": {
        "type": "object",
        "properties": {"$a": TEXT, "b": TEXT},
        "dependentRequired": {"$a": ["b"], "b": ["$a"]},
        "dependentSchemas": {"$a": {"properties": {"$c": TEXT}, "required": ["$c"]}},
        "dependencies": {"b": ["$a"], "$a": {"required": ["b"]}},
    },
    "a list of nothing": {"type": "object", "properties": {"a": {"type": "array", "items": False}}},
    "a tuple of anything": {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [True, False]}}},
    "a name without letters": {"type": "object", "properties": {"": TEXT, "_1": TEXT}, "required": [""]},
    "bounds of an older draft": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "exclusiveMinimum": True, "minimum": 0},
            "b": {"type": "integer", "maximum": 9, "exclusiveMaximum": False},
        },
    },
    "a discriminator": {
        "type": "object",
        "properties": {
            "o": {
                "oneOf": [{"$ref": "#/$defs/a b"}],
                "discriminator": {"propertyName": "$k", "mapping": {"x": "#/$defs/a b"}},
            }
        },
        "$defs": {"a b": {"type": "object", "properties": {"$k": {"const": "x"}}, "required": ["$k"]}},
    },
}


def refusals(schema: Any, path: str = "") -> Iterator[str]:
    """What a strict provider refuses."""
    if not path:
        yield from (key for key in ("anyOf", "oneOf", "allOf", "not", "enum", "if", "$ref") if key in schema)
        if schema.get("type") != "object" or "properties" not in schema:
            yield "no object"
    if not isinstance(schema, Mapping):
        return
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "prefixItems" in schema or ("array" in kinds and not isinstance(schema.get("items"), Mapping)):
        yield f"{path}: a list without items"
    if any(isinstance(schema.get(key), bool) for key in ("exclusiveMinimum", "exclusiveMaximum")):
        yield f"{path}: a bound that is not a number"
    for name, part in schema.get("properties", {}).items():
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            yield f"{path}.{name}: name"
        yield from refusals(part, f"{path}.{name}")
    for part in (
        *schema.get("anyOf", ()),
        *[one for one in [schema.get("items")] if one],
        *schema.get("$defs", {}).values(),
    ):
        yield from refusals(part, f"{path}|")


@for_each(SCHEMAS)
def test_each_schema_is_sent_as_every_provider_takes_it(name: str) -> None:
    """Lists say what they hold, nothing stands over all arguments, and names are plain."""
    schema = SCHEMAS[name]
    sent = portable({"name": "probe", "description": "Do.", "parameters": schema})

    assert list(refusals(sent.shape["parameters"])) == []
    assert sent.shape["description"].startswith("Do.")
    assert all(isinstance(one, Mapping) for one in references(sent.shape["parameters"]))
    if name in ("a reference", "all of", "a reference and more"):  # what stood elsewhere is there
        assert sent.shape["parameters"]["properties"].keys() >= {"q"}
        assert sent.shape["parameters"]["required"] == ["q"]


def references(schema: Any, root: Any = None) -> Iterator[Any]:
    """What each reference of a schema leads to."""
    root = schema if root is None else root
    if "$ref" in schema:
        yield target_of(schema["$ref"], root) if schema["$ref"].startswith("#") else "anywhere"
    for key, value in schema.items():
        parts = value.values() if key in MAPS else value if key in LISTS else [value] if key in PARTS else ()
        for part in parts:
            if isinstance(part, Mapping):
                yield from references(part, root)


KINDS = st.sampled_from(["string", "integer", "boolean", "array", "object", "null"])
NAMES = st.sampled_from(["a", "$a", "x24_a", "b c", "b", "n" * 70])
REFERENCES = st.sampled_from(["#", "#/$defs/a~1b", "#/%24defs/%24a", "#/$defs/b", "#/properties/$a", "#/allOf/0", "x"])


def _schemas_within(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some, named = st.lists(parts, min_size=1, max_size=3), st.dictionaries(NAMES, parts, max_size=3)
    names = st.lists(NAMES, unique=True, max_size=3)
    maps = dict.fromkeys(("properties", "$defs", "dependentSchemas", "patternProperties"), named)
    lists = dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), some)
    others = dict.fromkeys(("not", "if", "then", "else", "additionalProperties", "contains"), parts)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "type": KINDS | st.lists(KINDS, min_size=1, unique=True),
        "required": names | st.none(),
        "enum": some,
    }
    plain |= {"dependentRequired": st.dictionaries(NAMES, names, max_size=2), "items": parts | some, "$ref": REFERENCES}
    return st.fixed_dictionaries({}, optional=maps | lists | others | plain)


SCHEMA: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), _schemas_within, max_leaves=12)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(
            st.sampled_from([*MAPS, *LISTS, *PARTS, "type", "required", "$ref", "enum", "discriminator"])
            | st.text(max_size=3),
            part,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(SCHEMA | JSONS, st.sampled_from(["object", ["object", "null"], None]))
def test_any_schema_is_refused_or_portable(schema: Any, kind: Any) -> None:
    """Whatever it holds; and what is sent is what providers take, with references that lead somewhere."""
    if isinstance(schema, Mapping) and kind is not None:
        schema = {**schema, "type": kind}
    new = NewTool(source="export const f = 1", source_type="typescript", name="f", description="Do.", schema=schema)
    try:
        spec = build_tool(new, ToolId("tool-1"))[0].spec
    except InvalidInput:
        spec = ToolSpec(name="f", description="", parameters=schema, kind="custom", tool_type="custom")
        if isinstance(schema, Mapping):  # as it may have been stored before it was looked at
            portable({"name": "f", "description": "", "parameters": schema})
            schema_warnings(spec)
        return
    sent = portable({"name": "f", "description": "", "parameters": spec.parameters})

    assert list(refusals(sent.shape["parameters"])) == []
    assert all(isinstance(one, Mapping) for one in references(sent.shape["parameters"]))


BEYOND_THE_DRAFT = {
    *("all of anything", "any of anything", "references into what moves", "an older tuple"),
    *("a reference elsewhere", "a reference to an anchor", "a discriminator", "bounds of an older draft"),
}


@for_each(sorted(SCHEMAS.keys() - BEYOND_THE_DRAFT))
def test_what_a_schema_takes_is_taken_of_what_is_sent(name: str) -> None:
    """Under the names that it has there."""
    values: tuple[Any, ...] = ("t", 1, [], ["t", 1], {}, {"$k": "x"})
    tool = portable({"name": "f", "description": "", "parameters": SCHEMAS[name]})
    before, after = Draft202012Validator(SCHEMAS[name]), Draft202012Validator(tool.shape["parameters"])
    for names in itertools.combinations(("a", "$a", "b", "$b", "q", "o", "kind"), 2):
        for both in itertools.product(values, repeat=2):
            arguments = dict(zip(names, both, strict=True))
            assert not before.is_valid(arguments) or after.is_valid(rename_members(arguments, tool.aliases)), arguments


def test_what_a_schema_cannot_say_is_said_in_the_description() -> None:
    """The alternatives, and what stands at which place of a tuple."""
    one_of = portable({"name": "f", "description": "Do.", "parameters": SCHEMAS["one of two"]})
    pair = portable({"name": "f", "description": "Do.", "parameters": SCHEMAS["a tuple"]})

    assert one_of.shape["description"] == "Do.\nGive at least one of these: a; or x24_b."
    assert pair.shape["parameters"]["properties"]["p"] == {
        "type": "array",
        "items": {"anyOf": [{"type": "integer"}, TEXT]},
        "maxItems": 2,
        "description": 'Its items in order: {"type":"integer"}, {"type":"string"}.',
    }


def test_a_portable_tool_stays_the_same_object() -> None:
    """So that its bytes, and what is cached of them, do too."""
    tool = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {"x": TEXT}}}

    assert portable(tool).shape is tool


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=90), st.text(), max_size=6))
def test_arguments_come_back_with_their_own_names(arguments: dict[str, str]) -> None:
    """Whatever the names are: each has one of its own on the way, and the tool's schema takes what comes back."""
    schema = {"type": "object", "properties": dict.fromkeys(arguments, TEXT), "required": [*arguments]}
    tool = portable({"name": "f", "description": "", "parameters": schema})

    sent = rename_members(arguments, tool.aliases)
    back = rename_members(sent, {alias: name for name, alias in tool.aliases.items()})

    assert len(sent) == len(arguments)
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name) for name in sent)
    assert back == arguments == fit_arguments("f", schema, back)


async def test_a_call_has_the_tools_own_names_and_the_model_sees_its_own() -> None:
    """In the answer, in the deltas, and in the calls of earlier answers."""
    tool = {"name": "find", "description": "", "parameters": SCHEMAS["a dollar"]}
    inner = ScriptedModel(calls("find", x24_filter="x"))
    earlier = unlogged_message("assistant", "")
    call = ToolCall("c1", "find", json.dumps({"$filter": "old"}))
    request = ModelRequest(
        model="m", system="", messages=(type(earlier)(**_fields(earlier) | {"parts": (call,)}),), tools=(tool,)
    )

    pieces = [piece async for piece in PortableTools(inner).respond(request)]

    (reply,) = [piece for piece in pieces if isinstance(piece, ModelReply)]
    deltas = [one.text for one in pieces if isinstance(one, ModelDelta) and one.kind == "tool_arguments"]
    assert [json.loads(part.arguments) for part in reply.parts if isinstance(part, ToolCall)] == [{"$filter": "x"}]
    assert [json.loads(text) for text in deltas] == [{"$filter": "x"}]
    (asked,) = inner.requests
    assert [json.loads(call.arguments) for call in asked.messages[0].calls] == [{"x24_filter": "old"}]
    assert "$filter" not in asked.tools[0]["parameters"]["properties"]


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__slots__}


@pytest.mark.slow
async def test_attaching_such_a_tool_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Where the person sees it: in the answer, on the tool's page and in the log, with what is changed."""
    async with routed() as server:
        agent = await new_agent(server)
        source = "def find(x):\n    return x\n"
        schema = {
            "name": "find",
            "description": "d",
            "parameters": {"type": "object", "properties": {"x": {"type": "array"}}, "required": ["x"]},
        }
        tool = await server.post("/v1/tools/", {"source_code": source, "json_schema": schema})
        with caplog.at_level(logging.WARNING):
            attached = await server.patch(f"/v1/agents/{agent['id']}/tools/attach/{tool['id']}")
        plain = await server.post("/v1/tools/", {"source_code": 'def plain() -> str:\n    """Do."""\n    return "r"\n'})
        (state,) = await server.library.agent_of(agent["id"]).tools.states()

    said = "Models are told another schema of this tool: 'x' is a list that does not say what"
    (warning,) = attached["tools"][0]["schema_warnings"]
    assert warning.startswith(said)
    assert warning in tool_shape(state, needs_approval=False)["permissions"]  # as the page lists them
    assert f"find: {said}" in caplog.text
    assert "schema_warnings" not in plain


@pytest.mark.slow
async def test_a_tool_with_any_schema_is_attached_or_refused() -> None:
    """Never a failure of the server; null stands for nothing, as programs in Go write it."""
    nulls = {"type": ["object", "null"], "required": None, "properties": {"x": {"type": "string", "enum": None}}}
    odd = {f"case_{number}": schema for number, schema in enumerate((*SCHEMAS.values(), nulls))}
    async with routed() as server:
        agent = await new_agent(server)
        for name, schema in odd.items():
            schema = {"name": name, "description": "Do.", "parameters": schema}
            tool = {"source_code": "export const f = 1", "source_type": "typescript", "json_schema": schema}
            made = await server.http.post("/v1/tools/", json=tool)
            assert made.status_code == 200, made.text
            attached = await server.http.patch(f"/v1/agents/{agent['id']}/tools/attach/{made.json()['id']}")
            assert attached.status_code == 200, (schema, attached.text)
    assert plain_schema(nulls) == {"type": "object", "properties": {"x": {"type": "string"}}}
