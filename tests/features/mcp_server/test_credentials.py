"""Credentials in what a client has kept are masked, and the answer says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.features.mcp_server.clients import connected, said

KEY = "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("memory_remember", {"text": f"The key of the shop is {KEY}."}),
        ("memory_remember", {"text": "The shop has a key.", "tags": [KEY]}),
        ("note", {"kind": "doc", "title": "Keys", "fields": {"text": f"Use {KEY}."}}),
        ("note", {"kind": "doc", "title": f"Use {KEY}", "fields": {"text": "Keys"}}),
        ("memory_edit_block", {"label": "project", "append": f"API key: {KEY}"}),
        ("memory_edit_block", {"label": "new", "value": "The password is hunter2x."}),
        ("index_output", {"text": f"one\ntokens=1500 Authorization: Bearer {KEY}\ntwo"}),
    ],
)
async def test_a_credential_is_masked_in_what_is_kept(tmp_path: Path, tool: str, arguments: dict[str, Any]) -> None:
    async with connected(tmp_path) as client:
        answer = await said(client, tool, **arguments)
        kept = [await said(client, "memory_list", kind=kind) for kind in ("blocks", "passages", "notes", "changes")]
        if tool == "index_output":
            kept.append(await said(client, "search_output", output="output:1", lines="1..3"))
            assert "tokens=1500" in kept[-1]

    assert "A credential was masked" in answer
    assert not any(secret in text for text in (answer, *kept) for secret in (KEY, "hunter2x"))


async def test_an_output_is_masked_however_long_it_is(tmp_path: Path) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQ\n" * 20 + "-----END PRIVATE KEY-----\n"
    lines = "a plain line\n" * 9_000
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "log").write_text(lines + KEY + "\n" + lines)
    async with connected(tmp_path) as client:
        answers = [await said(client, "index_output", path="log"), await said(client, "index_output", text=lines + pem)]
        found = await said(client, "search_output", output="output:1", lines="9000..9002")
        plain = await said(client, "index_output", text=lines)
        whole = await said(client, "search_output", output="output:2", grep="MIIEvQ|credential")

    assert all("A credential was masked" in answer for answer in answers) and "masked" not in plain
    assert KEY not in found and "[credential" in found and "MIIEvQ" not in whole


async def test_nothing_is_said_where_nothing_was_masked(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answer = await said(client, "memory_remember", text="The password policy asks for twelve characters.")

    assert "masked" not in answer
