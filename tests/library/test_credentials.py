"""No memory that an agent writes holds a credential, by whichever tool; what a person wrote stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import AsyncPerdure
from perdure.core.text.credentials import HIDDEN, without_credentials, without_new_credentials
from perdure.domain.archives import passages
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.support.library import MODEL

KEY = "sk-proj-abcdefghij0123456789"
SAID = f"Deploy with {KEY} on Monday"
WRITES: dict[str, dict[str, Any]] = {
    "core_memory_append": {"label": "human", "content": SAID},
    "core_memory_replace": {"label": "human", "old_content": "likes tea", "new_content": SAID},
    "memory": {"command": "create", "path": "/memories/deploy", "description": SAID, "file_text": SAID},
    "memory_apply_patch": {"label": "human", "patch": f"@@\n-likes tea\n+{SAID}"},
    "memory_insert": {"label": "human", "new_string": SAID},
    "memory_replace": {"label": "human", "old_string": "likes tea", "new_string": SAID},
    "memory_rethink": {"label": "human", "new_memory": SAID},
    "archival_memory_insert": {"content": SAID, "tags": [KEY]},
    "schedule_create": {"message": SAID, "every": "1h"},
    "update_working_checkpoint": {"key_info": SAID, "related_skill": KEY},
    "memory_apply_patch with a password of an address": {
        "label": "human",
        "patch": "@@\n-likes tea\n+Deploy with https://bob:sk-pr0j@git.example.com on Monday",
    },
}


@pytest.mark.uses("schedules")
@pytest.mark.parametrize("tool", WRITES)
async def test_no_tool_writes_a_credential(tool: str) -> None:
    """Blocks, their descriptions, passages, tags, notes and schedules; the rest of the text is kept."""
    tool, arguments = tool.split()[0], WRITES[tool]
    script = ScriptedModel(calls(tool, **arguments), says("Noted."))
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: script}, settings=settings) as perdure:
        agent = await perdure.create_agent("x", human="likes tea", tools=[tool])
        await agent.send("Keep this.")
        blocks = await perdure.app.store.read(lambda tx: tx.blocks.list_by_agent(agent.id, 0))
        isolated = await perdure.app.store.read(lambda tx: tx.blocks.list_by_agent(agent.id, 1))
        kept = [one.value + (one.description or "") for one in (*blocks, *isolated)]
        kept += [f"{one.text} {one.tags}" for one in await agent.passages()]
        kept += [f"{one.name} {one.messages}" for one in await agent.schedules.list()]

        assert not any(KEY in text or "sk-pr0j" in text for text in kept)
        assert any("Deploy with" in text and HIDDEN in text and "on Monday" in text for text in kept)


async def test_a_passage_is_masked_before_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 1 MB takes a second, in which nobody else could write."""
    in_transaction = list[str]()
    monkeypatch.setattr(passages, "without_credentials", lambda text: in_transaction.append(text) or text)  # type: ignore[func-returns-value]
    script = ScriptedModel(calls("archival_memory_insert", content=SAID, tags=[KEY]), says("Noted."))
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: script}, settings=settings) as perdure:
        agent = await perdure.create_agent("x", tools=["archival_memory_insert"])
        await agent.send("Keep this.")
        (kept,) = await agent.passages()

    assert in_transaction == []
    assert kept.text == SAID.replace(KEY, HIDDEN) and kept.tags == (HIDDEN,)


async def test_what_is_too_large_is_refused_before_it_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masking takes time, in which nobody else writes."""
    masked = list[str]()
    monkeypatch.setattr(passages, "without_credentials", masked.append)
    script = ScriptedModel(calls("archival_memory_insert", content="x", tags=["my key " * 10_000]), says("Noted."))
    settings = Settings(model=MODEL, embedding="none")
    async with await AsyncPerdure.open(store=InlineStore(), models={MODEL: script}, settings=settings) as perdure:
        agent = await perdure.create_agent("x", tools=["archival_memory_insert"])
        await agent.send("Keep this.")

        assert not masked and not await agent.passages()


async def test_what_a_person_wrote_stays() -> None:
    """Also when the agent adds a line, and takes it away."""
    append = calls("core_memory_append", label="human", content=f"password: hunter2-{KEY}")
    remove = calls("memory_replace", label="human", old_string=f"token {KEY}", new_string="no token")
    settings = Settings(model=MODEL, embedding="none")
    models = {MODEL: ScriptedModel(append, says("Noted."), remove, says("Gone."))}
    async with await AsyncPerdure.open(store=InlineStore(), models=models, settings=settings) as perdure:
        tools = ["core_memory_append", "memory_replace"]
        agent = await perdure.create_agent("x", human=f"token {KEY}", tools=tools)
        await agent.archive(f"token {KEY}")
        await agent.send("Keep this.")
        first = (await agent.blocks.get("human")).value
        await agent.send("Remove it.")

        assert first == f"token {KEY}\npassword: {HIDDEN}"
        assert (await agent.blocks.get("human")).value == f"no token\npassword: {HIDDEN}"
        assert [one.text for one in await agent.passages()] == [f"token {KEY}"]


@given(
    st.lists(st.sampled_from(["tea", f"key {KEY}", "password: hunter2", "the end"])),
    st.lists(st.sampled_from(["tea", "token: abc123", f"key {KEY}", "-----BEGIN PRIVATE KEY-----", "jam"])),
)
def test_only_new_credentials_are_hidden(before: list[str], after: list[str]) -> None:
    """No credential is there that was not there before, and no other line changes."""
    written = without_new_credentials("\n".join(before), "\n".join(after)).split("\n")

    assert all(line in before or without_credentials(line) == line for line in written)
    if "-----BEGIN PRIVATE KEY-----" not in after:  # without an end it goes on
        plain = ("tea", "jam")
        assert [line for line in written if line in plain] == [line for line in after if line in plain]
