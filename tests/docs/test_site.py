"""The documentation as a site: every page has a place, and what readers ask first is one click from the front page."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from perdure import __all__ as public_names
from perdure.server.serving.app import build_document
from scripts.build_site import FROM_CODE, GENERATOR, SITE, page_text
from scripts.reference_pages import http_page, library_page
from tests.docs.markdown import ROOT, anchors

DOCS = ROOT / "docs"
LOADED = r"<(?:script|img|iframe)[^>]* src=\"?([^\" >]+)|<link[^>]*stylesheet[^>]* href=\"?([^\" >]+)"
QUESTIONS = {
    "how do I correct a memory": "memory.md#blocks",
    "how do I connect Claude Code": "connect.md#claude-code-in-two-commands",
    "how do I move from Letta": "coming-from-letta.md",
    "how do I back up": "operations.md#backups",
    "how do I limit costs": "access.md#limits",
}


def test_each_page_has_one_place_in_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].partition("\ntheme:")[0]
    named = re.findall(r"- ([\w.-]+\.md)$", text, re.MULTILINE)

    assert len(named) == len(set(named))
    assert {*named} == {page.name for page in DOCS.glob("*.md")} | {"contributing.md", *FROM_CODE}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_front_page_answers_what_readers_ask_first(question: str) -> None:
    page, _, anchor = QUESTIONS[question].partition("#")

    assert f"]({QUESTIONS[question]})" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert not anchor or anchor in anchors(DOCS / page)


def test_a_fence_keeps_only_its_language() -> None:
    assert page_text("```console no-run\n$ ls\n```\n```python\n```\n") == "```console\n$ ls\n```\n```python\n```\n"


def test_the_librarys_page_has_each_public_name_with_how_it_is_called() -> None:
    """Of classes that have an asynchronous twin, the plain one; of classes of attributes the methods too."""
    page = library_page()

    entries = {"Perdure", "Agent", "Archive", "Folder", "Group"}
    named = {name for name in public_names if name.removeprefix("Async") not in entries} | entries
    assert [name for name in sorted(named) if f"### {name}\n" not in page and f"| {name} |" not in page] == []
    assert "#### Agent.send\n\n```python\nsend(text: str, *,\n    conversation: ConversationId | None = None" in page
    assert "#### Facts.extract\n" in page and "`facts`: [Facts](#facts). The facts of one agent." in page
    assert "\n- `idempotency_key`" not in page and "\n- options: `idempotency_key`: the same key again" in page
    assert " at 0x" not in page and page == library_page()


def test_the_page_of_http_has_each_route_with_its_parameters_and_errors() -> None:
    page = http_page()

    routes = [
        f"### {verb.upper()} {path}\n" for path, verbs in build_document(False)["paths"].items() for verb in verbs
    ]
    assert len(routes) > 300 and [route for route in routes if route not in page] == []
    send = page.partition("### POST /v1/agents/{agent_id}/messages\n")[2].partition("###")[0]
    assert "| `agent_id` (required) | path | string |" in send and "| `messages` | body | array of MessageIn" in send
    assert "Answer: Reply, array of StreamEvent. Errors: 400, " in send
    assert "| 409 | The state has moved on" in page


@pytest.mark.slow
@pytest.mark.skipif(not GENERATOR.is_dir(), reason="`make setup` installs the generator")
def test_the_site_is_built_without_a_broken_link_or_anything_from_elsewhere() -> None:
    command = [sys.executable, "-m", "scripts.build_site"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    pages = list(SITE.glob("*.html"))
    assert len(pages) > len(list(DOCS.glob("*.md"))) + len(FROM_CODE)
    html = (SITE / "library-reference.html").read_text(encoding="utf-8")
    assert 'id="agentsend"' in html and 'href="#facts"' in html and 'id="facts"' in html
    assert "/v1/agents/{agent_id}/messages" in (SITE / "http-reference.html").read_text(encoding="utf-8")
    for page in pages:
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(LOADED, html)
        assert [one for one in map("".join, loaded) if ":" in one.partition("/")[0]] == []
