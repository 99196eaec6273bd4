"""Edits of a table of TOML: the document says what is expected, and all other text stays."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput
from perdure.features.connect.tomltext import set_table

NAMES = ["mcp_servers", "perdure"]
VALUE = {"command": 'C:\\x "y"\x7f', "args": ["mcp", "é"], "env": {"PERDURE_HOME": "/a b"}}
PARTS = st.lists(
    st.sampled_from(
        [
            'model = "gpt-5"\n',
            "# a comment, [mcp_servers.perdure]\n",
            "\n",
            '[mcp_servers.other]\ncommand = "x"\n',
            '[mcp_servers.other.env]\nA = """\n[mcp_servers.perdure]\n"""\n',
            '[mcp_servers."perdure"] # ours\ncommand = "old"\n\n',
            "[mcp_servers.perdure.env]\nB = 'c'\n",
            '[[profiles]]\nname = "a"\n',
            "[profiles.inner]\nlist = [\n  [1],\n]\n",
            "mcp_servers.third.command = 'z'\n",
            "[mcp_servers]\n",
        ]
    ),
    unique=True,
    max_size=6,
)


def _loads(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


@given(PARTS, st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_a_table_is_set_and_removed(parts: list[str], crlf: bool, mark: str) -> None:
    """Or the form in which it stands there can't be changed, which is said; nothing else changes."""
    text = "".join(parts).replace("\n", "\r\n" if crlf else "\n")
    before = _loads(text)
    try:
        after = set_table(mark + text, NAMES, VALUE)
        gone = set_table(after, NAMES, None)
    except InvalidInput:
        return
    assert before is not None
    found = tomllib.loads(after.removeprefix(mark))
    assert found["mcp_servers"].pop("perdure") == VALUE
    servers = before.get("mcp_servers", {})
    assert isinstance(servers, dict)
    had = servers.pop("perdure", None)
    assert {name: one for name, one in found.items() if one} == {name: one for name, one in before.items() if one}
    left = tomllib.loads(gone.removeprefix(mark))
    assert {name: one for name, one in left.items() if one} == {name: one for name, one in before.items() if one}
    if had is None:
        assert after.startswith(mark + text)


def test_tables_around_stay_with_their_comments() -> None:
    """A comment above the next table belongs to that table."""
    text = '[mcp_servers.perdure]\ncommand = "a"\n\n# of b\n[mcp_servers.b]\ncommand = "b"\n'

    assert set_table(text, NAMES, None) == '\n# of b\n[mcp_servers.b]\ncommand = "b"\n'
    assert set_table(text, NAMES, {"command": "c"}) == text.replace('"a"', '"c"')


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = 3\n",
        'mcp_servers = { perdure = { command = "x" } }\n',
        '[mcp_servers]\nperdure.command = "x"\n',
        "half = \n",
        '[mcp_servers.perdure]\n[a]\n[mcp_servers.perdure.env]\nB = "c"\n',
    ],
)
def test_what_can_not_be_changed_as_text_is_refused(text: str) -> None:
    """Another type, an inline table, dotted keys, a half-written file, a table in two places."""
    with pytest.raises(InvalidInput):
        set_table(text, NAMES, VALUE)
