"""Credentials in what a client has kept are masked, and the answer says so."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from perdure.features.mcp_server import memory, outputs
from perdure.features.mcp_server.outputs import mask_output
from tests.features.mcp_server.clients import connected, refused, said

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


async def test_a_line_that_names_a_private_key_hides_nothing_else(tmp_path: Path) -> None:
    """The source of a program that looks for keys, found by grep."""
    log = "keys.py:1: if '-----BEGIN PRIVATE KEY-----' in text:\n" + "a test FAILED\n" * 1_000
    async with connected(tmp_path) as client:
        answer = await said(client, "index_output", text=log)

    assert "masked" not in answer and "1,002 lines" in answer


KEY_LINES = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 25
LINE = "a line of a log: PRIVATE KEY, 12\n"


@pytest.mark.parametrize(
    "text",
    [LINE * 20_000, LINE.rstrip() * 20_000, "a" * 500_000, "x y " * 100_000, KEY_LINES + LINE * 20_000],
    ids=["lines", "one line", "one word", "words", "key"],
)
def test_however_long_an_output_is_it_is_masked_in_short_slices(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are answered between two of them."""
    slices = list[str]()

    def keep(text: str, *, named: bool) -> str:
        slices.append(text)
        return text

    monkeypatch.setattr(outputs, "without_credentials", keep)

    assert mask_output(text) == text == "".join(slices)
    assert max(map(len, slices)) <= 2 * outputs.SLICE_CHARS


@pytest.mark.parametrize("lines", range(0, 40, 3))
def test_a_key_between_two_slices_is_hidden_whole(lines: int) -> None:
    before = LINE * (outputs.SLICE_CHARS // len(LINE) - lines)
    masked = mask_output(before + KEY_LINES + "-----END PRIVATE KEY-----\n" + LINE * 2_000)

    assert "MIIEvQ" not in masked and masked.count("[credential") == 1
    assert masked.startswith(before) and masked.endswith(LINE * 2_000)


async def test_arguments_are_masked_while_others_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread; and an argument is short, however many texts it has."""
    threads = set[threading.Thread]()

    def mask(kept: dict[str, Any]) -> dict[str, Any]:
        threads.add(threading.current_thread())
        return {**kept, "text": "masked"}

    monkeypatch.setattr(memory, "value_without_credentials", mask)
    async with connected(tmp_path) as client:
        answer = await said(client, "memory_remember", text="x", tags=["a", "b"])
        tags = await refused(client, "memory_remember", text="x", tags=["x" * 1_000] * 101)
        fields = await refused(client, "note", kind="doc", title="x", fields={"text": "x" * 60_000, "b": "x" * 60_000})
        wrong = await refused(client, "memory_list", kind=["x"] * 100_000)

    assert "A credential was masked" in answer and threads and threading.main_thread() not in threads
    assert "tags has 101,000 characters, the limit is 100,000" in tags and "fields has 120,000" in fields
    assert "100,000 items" in wrong
