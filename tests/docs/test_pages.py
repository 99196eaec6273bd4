"""The pages hold together: links lead somewhere, nothing public is missing, both READMEs say the same."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest

import perdure
from perdure import features
from perdure.context.request.explain import REASONS
from perdure.core import errors, events
from perdure.core.errors import PerdureError
from perdure.core.tools.engine_specs import MEMORY_TOOL_SPECS
from perdure.library import sync
from perdure.providers.discovery import OTHER_ADDRESSES
from perdure.providers.provider import ALIASES, PROVIDERS
from perdure.server.config import ServerConfig
from perdure.settings import Settings
from tests.docs.cli_help import PAGE as CLI_PAGE
from tests.docs.cli_help import rewrite_sections
from tests.docs.letta_table import PAGE as LETTA_PAGE
from tests.docs.letta_table import rewrite
from tests.docs.markdown import CHINESE_PAGES, PAGES, ROOT, anchors, fences, headings, links, page_name
from tests.support.cases import for_each

DOCS = ROOT / "docs"
README, README_ZH = ROOT / "README.md", ROOT / "README.zh.md"
README_WORDS_MAX = 900
"""Before the part for looking things up."""
README_IMAGE_BYTES_MAX = 150_000
OWN = "key_file"
"""The field of a server's configuration that no variable sets."""

ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, PerdureError)]


def test_the_security_page_names_tests_that_are_there() -> None:
    """Each row of its tables says where it is tested."""
    text = (DOCS / "security.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what is")]
    assert len(rows) > 25

    for row in rows:
        assert "`tests/" in row, row
    for name in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_between_pages_resolve(page: Path) -> None:
    """The file is there, and so is the heading after the #."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page

        assert target.exists(), link
        assert not fragment or unquote(fragment) in anchors(target), link


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md"], ids=page_name)
def test_the_files_that_the_page_names_are_there(page: Path) -> None:
    """A path is relative to the repository or to `src/perdure`."""
    for path in re.findall(r"`((?!perdure/)[a-z_]+/[\w/]*(?:\.\w+)?)`", page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists() or (ROOT / "src" / "perdure" / path).exists(), path


@pytest.mark.parametrize("readme", [README, README_ZH], ids=page_name)
def test_every_page_can_be_reached_from_the_readme(readme: Path) -> None:
    """A page that nothing leads to is read by nobody. Each README leads to the pages of its language."""
    linked = {(readme.parent / link.partition("#")[0]).resolve() for link in links(readme)}
    english = {page.with_name(page.name.replace(".zh.md", ".md")) for page in CHINESE_PAGES}

    if readme == README_ZH:
        assert set(DOCS.glob("*.md")) - english <= linked
    else:
        assert set(DOCS.glob("*.md")) - set(CHINESE_PAGES) <= linked


def test_the_help_in_the_cli_page_is_what_the_command_prints() -> None:
    """`python -m tests.docs.cli_help` writes it anew."""
    page = CLI_PAGE.read_text(encoding="utf-8")

    assert page == rewrite_sections(page)


def test_the_dashboard_names_commands_that_are_there() -> None:
    """Each is in the help."""
    page, found = CLI_PAGE.read_text(encoding="utf-8"), []
    for template in (ROOT / "src/perdure").rglob("templates/**/*.html"):
        found += re.findall(r"<code>(perdure [a-z]+(?: [a-z]+)?)(?=[ <])", template.read_text(encoding="utf-8"))

    assert len(found) > 10
    assert [words for words in found if f"$ {words} --help\n" not in page] == []


def test_the_table_of_letta_s_operations_is_what_the_routes_say() -> None:
    """`python -m tests.docs.letta_table` writes it anew."""
    page = LETTA_PAGE.read_text(encoding="utf-8")

    assert page == rewrite(page), "docs/letta-compat.md is out of date: run `python -m tests.docs.letta_table`"


@pytest.mark.parametrize("chinese", CHINESE_PAGES, ids=page_name)
def test_a_page_in_two_languages_has_the_same_parts_and_the_same_code(chinese: Path) -> None:
    """Headings of the same levels in the same order, the same pictures, and the same blocks to the letter."""
    english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))

    assert [level for level, _ in headings(english)] == [level for level, _ in headings(chinese)]
    assert _pictures(english) == _pictures(chinese)
    assert [(block.info, block.text) for block in fences(english)] == [
        (block.info, block.text) for block in fences(chinese)
    ]


def test_the_readme_is_short_before_its_reference() -> None:
    """Code and tables count too."""
    opening, found, _ = README.read_text(encoding="utf-8").partition("\n## Reference\n")

    assert found
    assert len(re.findall(r"[^\s|]+", opening)) <= README_WORDS_MAX


def test_the_readme_opens_with_pictures_that_load_fast_and_from_here() -> None:
    """A screenshot for each theme, and a recording that plays without anything from elsewhere."""
    opening, _, _ = README.read_text(encoding="utf-8").partition("\n## ")
    pictures = [README.parent / name for name in re.findall(r"docs/images/readme-[\w.-]+", opening)]
    (recording,) = (picture for picture in pictures if picture.suffix == ".svg")

    assert [picture.name for picture in pictures if picture.suffix == ".png"] == [
        "readme-chat-dark.png",
        "readme-chat-light.png",
    ]
    assert all(picture.stat().st_size < README_IMAGE_BYTES_MAX for picture in pictures)
    text = recording.read_text(encoding="utf-8")
    assert "@keyframes" in text
    assert not re.search(r"@import|<script|(?:href=\"|url\()(?!#)", text)


@for_each(perdure.__all__)
def test_the_library_page_names_every_public_name(name: str) -> None:
    """Also those that are only read, such as events. The errors have a page of their own."""
    assert re.search(rf"`{name}\b", _text("library.md") + _text("errors.md"))


FACES = [
    getattr(module, name)
    for package in (sync, features)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not found.ispkg and (package is sync or found.name.rpartition(".")[2].startswith("sync_"))
    for module in [importlib.import_module(found.name)]
    for name in module.__all__
]


@for_each(FACES)
def test_the_library_page_names_every_method(face: type) -> None:
    """A method that nobody can find is not there."""
    page = _text("library.md")
    public = [name for name in vars(face) if not name.startswith("_")]

    assert [name for name in public if not re.search(rf"[`.]{name}\b", page)] == []


def test_the_error_page_has_each_error_in_the_table_of_its_root() -> None:
    """A root catches all errors of its table, so programs see what to catch."""
    tables = re.findall(r"^### (\w+)\n(.*?)(?=^###|\Z)", _text("errors.md"), re.MULTILINE | re.DOTALL)
    roots = {root: re.findall(r"^\| `(\w+)`", rows, re.MULTILINE) for root, rows in tables}
    others = set(roots.pop("Others"))

    for root, names in roots.items():
        assert names[0] == root
        assert all(issubclass(getattr(errors, name), getattr(errors, root)) for name in names)
    assert others == {
        error.__name__ for error in ERRORS if not any(error.__name__ in names for names in roots.values())
    }
    assert not [name for name in others for root in roots if issubclass(getattr(errors, name), getattr(errors, root))]


@for_each(ERRORS)
def test_the_error_page_says_what_helps_against_each_error(error: type[perdure.PerdureError]) -> None:
    """One row for each, with its code."""
    assert f"| `{error.__name__}` | `{error.code}` |" in _text("errors.md")


@for_each(MEMORY_TOOL_SPECS)
def test_the_memory_page_names_every_tool(name: str) -> None:
    """All that an agent can be given without a program's own functions."""
    assert f"`{name}`" in _text("memory.md"), f"add {name} to the tool table in docs/memory.md"


@for_each(get_args(events.Event))
def test_the_architecture_page_names_every_event(event: type) -> None:
    """By the name that is stored."""
    kind = inspect.signature(event).parameters["type"].default

    assert f"`{kind}`" in _text("architecture.md")


def test_the_table_of_reasons_for_a_new_prefix_names_all_of_them() -> None:
    """Each has words of its own on the command line, too."""
    text = _text("context.md")
    table = text[text.index("| reason | meaning |") :].partition("\n\n")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(REASONS)


@pytest.mark.parametrize("page", [DOCS / "settings.md", DOCS / "settings.zh.md"], ids=page_name)
def test_the_page_of_settings_names_every_one_with_its_default(page: Path) -> None:
    """The table of variables is that of the settings."""
    rows = page.read_text(encoding="utf-8")

    for field in fields(Settings):
        default = field.default
        shown = "" if default == "" else f"`{default}`"
        assert re.search(rf"\| `PERDURE_{field.name.upper()}` \| {re.escape(shown)}", rows), field.name


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"PERDURE_{one.name.upper()}"
            for kind in (Settings, ServerConfig)
            for one in fields(kind)
            if one.name != OWN
        ),
        *(key for provider in PROVIDERS.values() for key in provider.keys),
        *(*PROVIDERS, *OTHER_ADDRESSES, *ALIASES),
    ],
)
def test_each_variable_and_each_provider_stands_on_a_page(name: str) -> None:
    """In code, as it is written: what nobody can find is not there."""
    pages = (page.read_text(encoding="utf-8") for page in PAGES if page not in CHINESE_PAGES)

    assert any(re.search(rf"(`|\$ (export )?|--?\w* ?){name}\b", page) for page in pages)


def _pictures(page: Path) -> list[str]:
    return [link for link in links(page) if link.endswith((".png", ".svg"))]


def _text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")
