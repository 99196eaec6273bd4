"""The documentation as a site: every page has a place, and what readers ask first is one click from the front page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from scripts.build_site import GENERATOR, SITE, page_text
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
    assert {*named} == {page.name for page in DOCS.glob("*.md")} | {"contributing.md"}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_front_page_answers_what_readers_ask_first(question: str) -> None:
    page, _, anchor = QUESTIONS[question].partition("#")

    assert f"]({QUESTIONS[question]})" in (DOCS / "index.md").read_text(encoding="utf-8")
    assert not anchor or anchor in anchors(DOCS / page)


def test_a_fence_keeps_only_its_language() -> None:
    assert page_text("```console no-run\n$ ls\n```\n```python\n```\n") == "```console\n$ ls\n```\n```python\n```\n"


@pytest.mark.skipif(not GENERATOR.is_dir(), reason="`make setup` installs the generator")
def test_the_site_is_built_without_a_broken_link_or_anything_from_elsewhere() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "build_site.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    pages = list(SITE.glob("*.html"))
    assert len(pages) > len(list(DOCS.glob("*.md")))
    for page in pages:
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(LOADED, html)
        assert [one for one in map("".join, loaded) if ":" in one.partition("/")[0]] == []
