"""Imports by the command line, over HTTP, and on the page of data: looked at first, confirmed, and refused plainly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.features.imports import golden
from tests.features.imports.letta_server import full_world, serving, tool
from tests.server.routed import routed
from tests.support.programs import perdure
from tests.ui.browser import dashboard, tags_of, text_of

HEADERS = {"x-requested-with": "tests"}


def test_the_command_shows_what_is_new_asks_and_says_what_it_did(tmp_path: Path) -> None:
    place = str(golden.write_claude(tmp_path))
    asked = perdure(tmp_path, "import", "claude", place)
    done = perdure(tmp_path, "import", "claude", place, "--yes", "--agent", "mine", "--facts")
    again = perdure(tmp_path, "import", "claude", place, "--agent", "mine", "--json")

    assert asked.returncode == 1 and "4 messages: 4 new" in asked.stdout and "--yes" in asked.stderr
    assert done.returncode == 0, done.stderr
    assert "4 messages: 4 imported" in done.stdout and "perdure chat mine" in done.stderr
    assert json.loads(again.stdout)["messages"] == {"new": 0, "already": 4}
    assert perdure(tmp_path, "agent", "list", "--json").stdout.count('"mine"') == 1


def test_the_command_copies_a_server_and_shows_tools_to_review(tmp_path: Path) -> None:
    """It asks first; the key comes from the environment; a name with escapes does not reach the terminal."""
    world = full_world(rounds=1)
    world.key = "k-1"
    world.add("/v1/tools/", tool("gone \x1b[31m", None))
    with serving(world) as url:
        asked = perdure(tmp_path, "import", "letta", url, LETTA_API_KEY="k-1")
        done = perdure(tmp_path, "import", "letta", url, "--yes", "--key", "k-1")
        again = perdure(tmp_path, "import", "letta", url, "--key", "k-1", "--json")
        keyless = perdure(tmp_path, "import", "letta", url)
    listed = perdure(tmp_path, "tool", "review")
    read = perdure(tmp_path, "tool", "review", "roll", "--yes")

    assert asked.returncode == 1 and "3 agents: 3 new" in asked.stdout and "--yes" in asked.stderr
    assert "1 identity: 1 imported" in done.stdout and "CITY_KEY" in done.stdout and "\x1b" not in done.stdout
    assert json.loads(again.stdout)["counts"]["agents"] == {"new": 0, "already": 3}
    assert keyless.returncode == 1 and "wants a key" in keyless.stderr
    assert "roll: Ann, Bob" in listed.stdout and "Roll a die." in read.stdout


@pytest.mark.uses("exports")
def test_the_command_exports_and_says_how_it_comes_back(tmp_path: Path) -> None:
    perdure(tmp_path, "import", "mem0", str(golden.WRITERS["mem0"](tmp_path)), "--yes")
    out = perdure(tmp_path, "export", "mem0", str(tmp_path / "out"))
    every = json.loads(perdure(tmp_path, "export", "--all", str(tmp_path / "all"), "--json").stdout)
    wrong = perdure(tmp_path, "export", "mem0")

    assert "2 passages" in out.stdout and "perdure import jsonl" in out.stderr
    assert [one["passages"] for one in every["exported"]] == [2]
    assert wrong.returncode == 1 and "Traceback" not in wrong.stderr


async def test_a_file_is_imported_over_http(tmp_path: Path) -> None:
    data = golden.write_chatgpt(tmp_path).read_bytes()

    async with routed() as server:

        async def post(**fields: str) -> httpx.Response:
            files = {"file": ("export.zip", data)}
            return await server.http.post("/v1/imports", files=files, data=fields, headers=HEADERS)

        dry = (await post(source="chatgpt", dry_run="true")).json()
        nothing = await server.library.agents()
        made = (await post(source="chatgpt", agent="ada", facts="true")).json()
        again = (await post(source="chatgpt", agent="ada")).json()
        wrong, unknown = await post(source="claude"), await post(source="word")

    assert dry["messages"] == made["messages"] == {"new": 8, "already": 0}
    assert (dry["agents"], nothing, list(made["agents"])) == ({"chatgpt": ""}, [], ["ada"])
    assert again["messages"] == {"new": 0, "already": 8}
    assert wrong.status_code == unknown.status_code == 422
    assert "use `perdure import chatgpt`" in wrong.text


async def test_facts_are_extracted_in_the_background_from_what_was_imported() -> None:
    lines = [{"role": "user", "text": "I live in Turin.", "occurred_at": 1_700_000_000, "conversation": "a"}]
    lines.append({"text": "I play the cello.", "created_at": 1_700_000_000})
    data = "\n".join(map(json.dumps, lines)).encode()

    async with routed() as server:
        fields = {"source": "jsonl", "facts": "true"}
        await server.http.post("/v1/imports", files={"file": ("x.jsonl", data)}, data=fields, headers=HEADERS)
        facts = (await server.library.agent("jsonl")).facts
        async with asyncio.timeout(20):
            while not (found := await facts.list()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert "Turin" in found[0].fact.text


async def test_the_page_of_data_looks_first_and_imports_when_that_is_confirmed(tmp_path: Path) -> None:
    file = {"file": ("mem0.json", golden.WRITERS["mem0"](tmp_path).read_bytes())}
    fields = {"source": "mem0", "agent": ""}

    async with dashboard() as (client, library):
        empty = await client.get("/data")
        looked = await client.post("/data/imports", files=file, data={**fields, "choice": "check"})
        before = [one.name for one in await library.agents()]
        done = await client.post("/data/imports", files=file, data={**fields, "choice": "import"})
        again = await client.post("/data/imports", files=file, data={**fields, "choice": "check"})
        wrong = await client.post("/data/imports", files={"file": ("x", b"[1]")}, data=fields)
        nothing = await client.post("/data/imports", files={"file": ("x", b"[]")}, data={**fields, "choice": "check"})
        hollow = {"file": ("x", b'[{"memory": ""}]')}
        hollow_said = await client.post("/data/imports", files=hollow, data={**fields, "choice": "check"})
        none = await client.post("/data/imports", data=fields, files={"other": b""})
        names = [one.name for one in await library.agents()]

    assert "more than 50 MB" in text_of(empty.text) and "perdure import SOURCE FILE" in text_of(empty.text)
    buttons = [[values.get("id") for _, values in tags_of(page.text)] for page in (empty, looked, done)]
    assert ["import-run" in found for found in buttons] == [False, True, False]
    assert "2 memories: 2 new, 0 here already" in text_of(looked.text) and "mem0" not in before
    assert "2 memories: 2 imported" in text_of(done.text) and "mem0" in names
    assert "Everything is here already." in text_of(again.text)
    assert "nothing to import" in text_of(nothing.text)
    assert "There is nothing in it that can be imported." in text_of(hollow_said.text)
    assert wrong.status_code == none.status_code == 422
    assert "is not a memory" in text_of(wrong.text)


@pytest.mark.parametrize("source", golden.WRITERS)
async def test_an_upload_is_read_as_a_file_is(tmp_path: Path, source: str) -> None:
    place = golden.WRITERS[source](tmp_path)
    if place.is_dir():
        names = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        place = golden.write_zip(tmp_path / "folder.zip", names)

    async with routed() as server:
        files = {"file": (place.name, place.read_bytes())}
        answer = await server.http.post("/v1/imports", files=files, data={"source": source}, headers=HEADERS)

    assert answer.status_code == 200, answer.text
    assert answer.json()["messages"]["new"] + answer.json()["memories"]["new"] > 0


async def test_a_zip_bomb_of_small_files_is_refused_as_an_upload(tmp_path: Path) -> None:
    place = golden.write_zip(tmp_path / "x.zip", {f"{number}.md": b"a" * 1_000_000 for number in range(9)})

    async with routed() as server:
        file = {"file": (place.name, place.read_bytes())}
        answer = await server.http.post("/v1/imports", files=file, data={"source": "markdown"}, headers=HEADERS)

    assert answer.status_code == 422 and "9,000,000 bytes" in answer.text


async def test_a_file_that_is_too_large_for_an_upload_says_what_takes_it() -> None:
    file = {"file": ("conversations.json", b"[" + b" " * 3_000_000 + b"]")}

    async with routed(file_limit_bytes=1_000) as server:
        answer = await server.http.post("/v1/imports", files=file, data={"source": "chatgpt"}, headers=HEADERS)
    async with dashboard(file_limit_bytes=1_000) as (client, _):
        page = await client.post("/data/imports", files=file, data={"source": "chatgpt"})

    assert (answer.status_code, page.status_code) == (413, 413)
    for said in (answer.text, text_of(page.text)):
        assert "perdure import SOURCE FILE" in said and "PERDURE_FILE_LIMIT_BYTES" in said
