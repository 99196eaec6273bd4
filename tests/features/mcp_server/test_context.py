"""What a session reads at its start, and what a search answers, in any budget."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from perdure import AsyncPerdure
from perdure.testing import InlineStore
from tests.features.mcp_server.clients import connected, opened, said

BUDGETS = (100, 101, 137, 200, 310, 500, 1_000, 2_000, 20_000)


ASKED: list[tuple[str, dict[str, str]]] = [
    ("memory_context", {}),
    ("memory_context", {"about": "why did the build break?"}),
    ("memory_search", {"query": "why did the build of part 3 break?"}),
]


async def filled(client: Client) -> None:
    """Give a memory some of everything."""
    for label, level in (("human", None), ("preferences", None), ("project", None), ("rules", "project")):
        more = {"level": level} if level else {}
        await said(client, "memory_edit_block", label=label, value=f"The {label} of this build. " * 30, **more)
    for number in range(12):
        level = "global" if number % 2 else "project"
        text = f"The build of part {number} needs the compiler {number}."
        await said(client, "memory_remember", text=text, level=level)
        fields = {"happened": f"the build of part {number} broke", "cause": "a long cause. " * 40}
        await said(client, "note", kind="error", title=f"Build {number} broke", fields=fields, level=level)
    await said(client, "memory_remember", text="My name is Ada and I live in Ghent.", level="global")
    handoff = {"state": "half of the build is done. " * 30, "next": "write tests"}
    await said(client, "note", kind="handoff", title="State of the build", fields=handoff)


@pytest.mark.slow
async def test_answers_keep_every_budget(tmp_path: Path) -> None:
    """And say something in each, with whole ids."""
    (tmp_path / "project").mkdir()
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        count = perdure.app.ports.counter.count
        async with opened(perdure, tmp_path / "project") as client:
            await filled(client)
            answers: dict[tuple[Any, ...], str] = {
                (tool, budget, *more.values()): await said(client, tool, budget_tokens=budget, **more)
                for budget in BUDGETS
                for tool, more in ASKED
            }

    assert {key: count(text) for key, text in answers.items() if count(text) > key[1]} == {}
    assert all(len(text) > 60 for text in answers.values())
    searched = answers["memory_search", 500, "why did the build of part 3 break?"]
    assert "part 3" in searched and "Sources:\n[1] passage-" in searched


@pytest.mark.slow
async def test_a_search_of_two_agents_keeps_every_budget(tmp_path: Path) -> None:
    """To the token, at each of a hundred budgets: what the second one finds is counted with what stands before it."""
    (tmp_path / "project").mkdir()
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        count = perdure.app.ports.counter.count
        async with opened(perdure, tmp_path / "project") as client:
            await filled(client)
            query = "why did the build of part 3 break?"
            sizes = {
                budget: count(await said(client, "memory_search", query=query, budget_tokens=budget))
                for budget in range(545, 645)
            }

    assert {budget: size for budget, size in sizes.items() if size > budget} == {}


async def test_a_context_says_what_a_session_needs(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        empty = await said(client, "memory_context")
        await filled(client)
        plain = await said(client, "memory_context", budget_tokens=3_000)
        task = await said(client, "memory_context", about="the compiler of part 7", budget_tokens=3_000)

    assert empty.startswith("Nothing is remembered yet.")
    for part in (
        "## human (global)",
        "## rules (project)",
        "State of the build",
        "Ada lives in Ghent",
        "Build 11 broke",
    ):
        assert part in plain and part in task, part
    assert "## About: the compiler of part 7" in task and "part 7 needs the compiler 7" in task
    about = task.partition("## About")[2]
    assert "The human of this build" not in about and "Blocks" not in about  # they stand above


async def test_a_context_shows_what_was_remembered_last(tmp_path: Path) -> None:
    """Also what gives no fact."""
    async with connected(tmp_path) as client:
        await said(client, "memory_remember", text="The boat is blue.")
        context = await said(client, "memory_context")

    assert "The boat is blue." in context


async def test_a_search_quotes_blocks_that_have_its_words_only(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await said(client, "memory_edit_block", label="human", value="Ada, an astronomer")
        found = await said(client, "memory_search", query="who is the astronomer?")
        none = await said(client, "memory_search", query="zeppelin")

    assert "Ada, an astronomer" in found and none == "Nothing was found."


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blocks", "notes", "passages"])
async def test_lists_stay_short(tmp_path: Path, kind: str) -> None:
    """With a line that says what was left out."""
    async with connected(tmp_path) as client:
        for number in range(40):
            await said(client, "memory_remember", text=f"thing {number} " * 200)
            if kind == "notes":
                await said(client, "note", kind="plan", title=f"{number} " + "t" * 190, fields={"goal": "g"})
            if kind == "blocks":
                await said(client, "memory_edit_block", label=f"block{number}", value="words " * 300)
        listed = await said(client, "memory_list", kind=kind, limit=200)

    assert 2_000 < len(listed) < 25_000 and "are shown" in listed.splitlines()[-1]


async def test_what_is_remembered_about_a_task_has_room_beside_full_blocks_and_notes(tmp_path: Path) -> None:
    """Also where each of the others alone would fill the budget; ids are whole, or a beginning that the tools take."""
    async with connected(tmp_path) as client:
        rule = "Run make check before each commit, and never push to main. " * 45
        await said(client, "memory_edit_block", label="project", value=rule)
        for number in range(12):
            title = f"Some error number {number} about a component of the shop that failed in staging"
            await said(client, "note", kind="error", title=title, fields={"happened": f"thing {number} broke. " * 10})
        state = "The lexer is done; the parser lacks precedence climbing. " * 40
        await said(client, "note", kind="handoff", title="Parser work", fields={"state": state})
        await said(client, "memory_remember", text="The checkout service rounds half-even since ticket 4411.")
        tasks = {
            budget: await said(client, "memory_context", about="how does checkout round amounts?", budget_tokens=budget)
            for budget in (700, 1_000, 1_500, 2_000)
        }
        note = re.findall(r"passage-\w+", tasks[1_500].partition("## Notes")[2])[0]
        whole = await said(client, "note", id=note)

    for budget, text in tasks.items():
        assert "4411" in text.partition("## About")[2], budget
        sections = re.findall(r"(?ms)^## (Notes|project|State|About)[^\n]*\n(.*?)(?=^## |\Z)", text)
        assert len(sections) == 4 and all(lines.strip() for _, lines in sections), budget
        assert "make check" in text and "The lexer is done" in text, budget
    assert "# Some error number 11" in whole or "# Parser work" in whole


async def test_a_context_tells_statements_of_the_user_before_orders_and_thanks(tmp_path: Path) -> None:
    """Of several sessions, each with its day; then the last words."""
    statements = [
        "The staging server is called Orion and only Maria may deploy to it.",
        "I prefer tabs, not spaces.",
        "我们的测试服务器叫猎户座，只有玛丽亚可以部署。",
    ]
    orders = [
        "Fix the typo in the footer please",
        "now run the linter",
        "commit it",
        "thanks, add a test",
        "把错字改一下",
    ]
    async with await AsyncPerdure.open(store=InlineStore()) as perdure:
        agent = await perdure.create_agent("ann")
        for number, statement in enumerate(statements):
            conversation = (await agent.new_conversation()).id
            start = datetime(2026, 11, 20 + number, tzinfo=UTC)
            said_then = enumerate([statement, *orders, f"looks good, push {number}"])
            messages = [("user", None, text, start + timedelta(minutes=minute)) for minute, text in said_then]
            await agent.import_messages(messages, conversation=conversation)
        async with opened(perdure, None, agent="ann") as client:
            told = await said(client, "memory_context")

    earlier, _, last = told.partition("## The user said last")
    lines = [line for line in earlier.splitlines() if line.startswith("- ")]
    assert lines == [f"- 2026-11-{20 + number} {text}" for number, text in enumerate(statements)]
    assert last.splitlines()[1:][-1].endswith("looks good, push 2") and len(last.splitlines()) == 4
