"""The frontmatter of definitions: what real files have, and what is refused."""

from __future__ import annotations

import pytest

from perdure.features.plugins.frontmatter import FRONTMATTER_BYTES, FrontmatterInvalid, parse_frontmatter
from tests.support.cases import for_each


def test_a_file_of_claude_code_is_read_as_its_writer_meant() -> None:
    """Colons in a description, brackets in a hint, patterns of tools, and a value that begins with `@` are texts."""
    found = parse_frontmatter(
        "---\r\n"
        'description: Use this when: the user asks. <example>user: "hi"</example>\r\n'
        "argument-hint: [pr-number] [priority]\r\n"
        "allowed-tools: Bash(git add:*, git rm:*), Read\r\n"
        "disallowedTools:\r\n  - Write\r\n  - Edit\r\n"
        "tools: *\r\n"
        "color: @red # warm\r\n"
        "maxTurns: 5\r\n"
        "disable-model-invocation: true\r\n"
        "version: 1.10\r\n"
        "released: 2026-01-02\r\n"
        "model:\r\n"
        "---\r\n\r\nYou review.\r\n---\r\nEnd.\r\n"
    )

    assert found.fields == {
        "description": 'Use this when: the user asks. <example>user: "hi"</example>',
        "argument_hint": "[pr-number] [priority]",
        "allowed_tools": ("Bash(git add:*, git rm:*)", "Read"),
        "disallowed_tools": ("Write", "Edit"),
        "tools": ("*",),
        "color": "@red # warm",
        "max_turns": 5,
        "disable_model_invocation": True,
        "version": "1.10",
        "released": "2026-01-02",
    }
    assert found.body == "You review.\n---\nEnd." and found.lines["max_turns"] == 10


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("no frontmatter", {}),
        ("---\n---\nbody", {}),
        ("\ufeff---\nname: x\n---\n", {"name": "x"}),
        ("---\nargument-hint: [file]\n---\n", {"argument_hint": "[file]"}),
        ("---\nname: 007\n---\n", {"name": "007"}),
        ("---\ndescription: |\n  a: b\n  c\n---\n", {"description": "a: b\nc"}),
        ("---\ndescription: 'a: b'\nother: a: b\n---\n", {"description": "a: b", "other": "a: b"}),
        ("---\ndescription: **bold** text\n---\n", {"description": "**bold** text"}),
    ],
)
def test_texts_stay_texts(text: str, fields: dict[str, object]) -> None:
    """As they are written, whatever YAML would make of them."""
    assert parse_frontmatter(text).fields == fields


@for_each(
    [
        ("---\nname: x", 1, "has no end"),
        ("---\nname: x\nmore: [\n---\n", 4, "no YAML"),
        ("---\na: &x 1\n---\n", 2, "anchors"),
        ("---\na: 1\nb: *x\n---\n", 3, "no YAML|anchors"),
        ("---\na: &x [1]\nb: [*x, *x]\n---\n", 2, "anchors"),
        ("---\na: !!python/object/apply:os.system [ls]\n---\n", 2, "tag"),
        ("---\na: {b: &c d}\n---\n", 2, "anchors"),
        (f"---\na: {'[' * 50}{']' * 50}\n---\n", 2, "nested"),
        (f"---\na: {'[' * 10_000}\n---\n", 2, "nested"),
        ("---\n- a\n---\n", 2, "list of fields"),
        ("---\n? [a]\n: b\n---\n", 2, "not text"),
        ("---\nmax_turns: 5\nmaxTurns: 6\n---\n", 3, "twice"),
        ("---\nmax_turns: many\n---\n", 2, "whole number"),
        ("---\nname: x\nmax_turns: 0\n---\n", 3, "whole number"),
        ("---\nmax_turns: 1000000\n---\n", 2, "from 1 to 999,999"),
        (f"---\nmax_turns: 0x{'f' * 20_000}\n---\n", 2, "too large"),
        ("---\nmax_cost_usd: .inf\n---\n", 2, "number above 0"),
        ("---\ntools: {a: b}\n---\n", 2, "list of names"),
        ("---\ndisable-model-invocation: perhaps\n---\n", 2, "true or false"),
        ("---\nname: \x07\n---\n", 2, "control character"),
        (f"---\nmore: {'x' * FRONTMATTER_BYTES}\n---\n", 1, "larger than"),
        ("---\n" + "".join(f"f{number}: 1\n" for number in range(101)) + "---\n", 2, "the limit is 100"),
    ]
)
def test_what_cannot_be_used_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    """Broken, huge or deep frontmatter, and the parts of YAML that make a small text large or run something."""
    with pytest.raises(FrontmatterInvalid, match=why) as error:
        parse_frontmatter(text)

    assert error.value.line == line
