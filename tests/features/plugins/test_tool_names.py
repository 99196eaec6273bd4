"""Names of tools in definitions, and the tools that they mean."""

from __future__ import annotations

import pytest

from perdure.features.plugins.tool_names import names_elsewhere, resolve_tools

TOOLS = ["open_files", "grep_files", "run_code", "memory_insert", "memory_replace", "shop__buy", "shop__sell", "Deploy"]


@pytest.mark.parametrize(
    ("names", "found", "missing"),
    [
        (["Read", "Grep", "Write"], ["grep_files", "open_files"], ["Write"]),
        (["Deploy", "run_code", "Bash"], ["Deploy", "run_code"], []),
        (["memory_*"], ["memory_insert", "memory_replace"], []),
        (["mcp__shop__buy"], ["shop__buy"], []),
        (["mcp__shop"], ["shop__buy", "shop__sell"], []),
        (["mcp__shop__*", "mcp__other"], ["shop__buy", "shop__sell"], ["mcp__other"]),
        (["Bash(git add:*)", "Read(//etc/**)"], [], ["Bash(git add:*)", "Read(//etc/**)"]),
        (["*"], sorted(TOOLS), []),
        ([], [], []),
    ],
)
def test_a_name_means_the_tools_that_do_the_same(names: list[str], found: list[str], missing: list[str]) -> None:
    """A limit of arguments can't be enforced, so that a name with one means no tool."""
    resolved = resolve_tools(names, TOOLS)

    assert ([*resolved.found], [*resolved.missing]) == (found, missing)


def test_a_tool_is_known_by_the_names_that_others_have() -> None:
    """For matchers of hooks."""
    assert names_elsewhere("run_code") == ["run_code", "Bash"]
    assert names_elsewhere("shop__buy") == ["shop__buy", "mcp__shop__buy"]
    own = ["x-mem__add", "mcp__x-mem__add", "mcp__mem__add", "mcp__plugin_x_mem__add"]
    assert names_elsewhere("x-mem__add", "x") == own
    assert names_elsewhere("x-mem__add", "y") == own[:2] and names_elsewhere("x-mem", "x") == ["x-mem"]
    assert names_elsewhere("memory_insert") == ["memory_insert"]
