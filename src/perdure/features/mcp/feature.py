"""MCP servers, whose tools agents use after a person has approved them."""

from perdure.core.features import Feature, Noun, OrgTable

FEATURE = Feature(
    name="mcp",
    nouns={"mcp": Noun(modules=("commands",), help="Add, list, show, refresh, approve or delete MCP servers.")},
    routes=("routes",),
    sections={"connections": "pages:SECTION", "tools": "pages:OF_AGENT"},
    store_parts={"mcp": "service:AsyncMcp"},
    toolboxes={"mcp": "toolbox:toolbox_of"},
    org_tables=(
        OrgTable(name="mcp_tools", of=("server_id", "mcp_servers"), names_tools=True),
        OrgTable(name="mcp_servers", sealed="sealed"),
    ),
    points={
        "add_server": "of_plugins:add_server",
        "remove_servers": "of_plugins:remove_servers",
        "secrets_rotated": "units:rotate_servers",
        "store_checks": "checks:checks",
        "tool_facts": "units:approved_facts",
        "unused_tools": "of_plugins:unused_tools",
    },
)
