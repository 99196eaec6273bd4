"""Names are short: in messages, in properties of identities, and wherever a request has one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure.server
from perdure import AsyncPerdure, TooMany
from perdure.core.errors import InvalidInput
from perdure.core.messages import Text
from perdure.engine.records.run_request import NewMessage, RunRequest
from perdure.library.agents.identities import IdentityFields
from perdure.server.wire.base import WireRequest
from perdure.testing import InlineStore, ScriptedModel
from tests.support.servers import MODEL, in_process

LONG = "x" * 100_000
PROPERTY = {"key": LONG, "value": "v", "type": "string"}
IDENTITY = {"identifier_key": "i", "name": "n", "identity_type": "user"}

CHECKED_LATER = frozenset(
    [
        "ReturnChange.tool_call_id",
        "ManagerConfigIn.termination_token",
        "GroupChangesIn.project_id",
        "GroupIn.project_id",
        "LlmConfig.provider_name",
        "McpServerChangesIn.server_name",
        "SecretIn.key",
        "ToolChangesIn.name",
        "ToolIn.name",
        "ToolRunIn.name",
        "LocalConfig.venv_name",
        "CompletionMessage.name",
    ]
)
"""Names that are looked up, checked where they are stored, stored within a JSON limit, or not stored at all."""


@pytest.mark.parametrize("field", ["name", "otid", "sender_id"])
async def test_a_long_name_of_a_message_is_refused(tmp_path: Path, field: str) -> None:
    """422 that names the field and the limit, and a typed error of the library; nothing is stored."""
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent("a", model=MODEL)
        body = {"messages": [{"role": "user", "content": "a", field: LONG}]}
        answered = await client.post(f"/v1/agents/{agent.id}/messages", json=body)
        with pytest.raises(TooMany, match="1,000"):
            await agent.send_request(
                RunRequest(agent_id=agent.id, messages=(NewMessage((Text("a"),), **{field: LONG}),))  # type: ignore[arg-type]
            )

        assert answered.status_code == 422
        assert f"100,000 characters in a tag or name (`{field}`) are too many" in answered.json()["detail"]
        assert await agent.messages() == []


async def test_a_long_name_of_an_answer_is_refused(tmp_path: Path) -> None:
    async with in_process(tmp_path) as (client, perdure):
        agent = await perdure.create_agent("a", model=MODEL)
        for field in ("otid", "approval_request_id"):
            body = {"messages": [{"type": "approval", "approve": True, field: LONG}]}
            answered = await client.post(f"/v1/agents/{agent.id}/messages", json=body)

            assert (answered.status_code, f"`{field}`" in answered.json()["detail"]) == (422, True)


@pytest.mark.parametrize("more", [{"properties": [PROPERTY]}, {"project_id": LONG}, {"name": LONG}])
async def test_a_long_name_of_an_identity_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    """Also the key of a property, by the library too."""
    async with in_process(tmp_path) as (client, perdure):
        answered = await client.post("/v1/identities/", json=IDENTITY | more)
        values = {name: value for name, value in (IDENTITY | more).items() if name != "project_id"}
        with pytest.raises(TooMany, match="1,000"):
            await perdure.identities.create(IdentityFields(**values), more.get("project_id"))

        assert answered.status_code == 422
        assert await perdure.identities.count() == 0


@pytest.mark.uses("facts")
@pytest.mark.parametrize("name", ["entity_types", "fact_types", "slots"])
async def test_a_long_name_of_a_type_or_slot_is_refused(name: str) -> None:
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with pytest.raises(InvalidInput, match="at most 200"):
            await agent.facts.update_settings(**{name: {LONG: {}}})


@pytest.mark.uses("facts")
async def test_a_rule_is_as_short_as_a_query() -> None:
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: ScriptedModel()}) as perdure:
        agent = await perdure.create_agent("a", model=MODEL)
        with pytest.raises(TooMany, match="10,000"):
            await agent.facts.add_rule(text=LONG)


def _requests(kind: type[WireRequest] = WireRequest) -> Iterator[type[WireRequest]]:
    for one in kind.__subclasses__():
        yield one
        yield from _requests(one)


def _has_limit(schema: dict[str, Any]) -> bool:
    options = [one for one in (schema, *schema.get("anyOf", ())) if one.get("type") == "string"]
    return all(one.keys() & {"maxLength", "pattern", "enum", "const", "format"} for one in options)


def test_each_name_in_a_request_has_a_limit() -> None:
    """A new field that is a name by its name is limited too, or is said to be checked later."""
    for module in pkgutil.walk_packages(perdure.server.__path__, "perdure.server."):
        importlib.import_module(module.name)
    without = {
        f"{kind.__name__}.{name}"
        for kind in _requests()
        if kind.__module__.startswith("perdure.")
        for name, schema in kind.model_json_schema().get("properties", {}).items()
        if name in ("name", "otid", "key", "termination_token") or name.endswith(("_id", "_name", "_key"))
        if not _has_limit(schema)
    }

    assert without <= CHECKED_LATER
