"""Values in the signatures of tools that JSON does not have."""

from __future__ import annotations

import json
import math
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from perdure import InvalidInput
from perdure.core.ids import McpServerId
from perdure.core.tools.schema import check_schema, schema_of
from perdure.features.mcp.values import McpTool, parse_definition


class Range(BaseModel):
    most: float = math.inf
    least: float = -math.inf


def limit(
    most: float = math.inf,
    least: float | None = -math.inf,
    default: Annotated[float, Field(ge=-math.inf)] = math.nan,
    steps: list[float] = [1.0, math.inf],  # noqa: B006 - the default of somebody's tool
    within: Range = Range(),
    tenth: float = 0.1,
) -> str:
    """Set the limit."""
    return f"{most} {least} {default} {steps} {within.most} {tenth}"


def test_a_default_that_json_lacks_is_left_out() -> None:
    """The parameter stays, and may be left out; other defaults stay too."""
    _, schema = schema_of(limit)

    assert {*schema["properties"]} == {"most", "least", "default", "steps", "within", "tenth"}
    assert schema.get("required", []) == []
    assert schema["properties"]["tenth"]["default"] == 0.1
    assert schema["properties"]["most"] == {"type": "number"}
    json.dumps(schema, allow_nan=False)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [math.inf], {"a": math.nan}])
@pytest.mark.parametrize("keyword", ["default", "minimum", "const", "examples"])
def test_no_other_schema_holds_one(value: object, keyword: str) -> None:
    """Of a client it is refused, of an MCP server the tool is unusable, and the reason says so."""
    schema = {"type": "object", "properties": {"most": {"type": "number", keyword: value}}}
    with pytest.raises(InvalidInput, match=r"NaN or Infinity|properties\.most"):
        check_schema(schema)
    seen = parse_definition({"name": "limit", "inputSchema": schema})
    tool = McpTool(server_id=McpServerId("mcp_server-1"), name="limit", local_name="limit", seen=seen)

    assert tool.status == "unusable"
