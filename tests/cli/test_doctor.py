"""`perdure doctor`: what it finds in a good house and in broken ones, and that it touches nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import platform
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Perdure
from perdure.cli.commands.doctor import _misspelled_checks, examine
from perdure.cli.commands.store_checks import SEALED, Check, secrets_check, store_checks
from perdure.settings import Settings
from perdure.storage.cipher import AesCipher
from perdure.storage.tx import Tx
from perdure.testing import HttpModel, LocalServer, ScriptedEmbedder, Status, calls, says
from perdure.testing.clock import START
from tests.providers.fake_provider import fake_provider, tool_call
from tests.support.programs import perdure, run_inside

SECRET = "sk-very-secret-0123456789"


def checks_of(result: subprocess.CompletedProcess[str]) -> dict[str, Mapping[str, Any]]:
    """Name -> check, of `--json`."""
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_a_new_machine_is_well(tmp_path: Path) -> None:
    """No store, no key: nothing is broken, nothing is made, and what helps is said."""
    result = run_inside(tmp_path / "home", "doctor")

    assert result.returncode == 0
    assert result.stdout.endswith("All is well.\n")
    assert "no store yet" in result.stdout
    assert "→ set one of OPENAI_API_KEY" in result.stdout
    assert "perdure/extractive (built in" in result.stdout
    assert "files and web pages are read in" in result.stdout
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "100", "300"])
def test_no_line_is_longer_than_100(tmp_path: Path, columns: str) -> None:
    """Whatever the terminal or a file takes, and however long a path or a value is."""
    home = tmp_path.joinpath(*["a-folder-with-a-long-name-" * 4] * 3)
    home.mkdir(parents=True)
    run_inside(home, "-p", "I live in Turin.")
    wrong = {"PERDURE_HOOKS": f"{home}/hooks.toml", "PERDURE_MODEL": "nobody/" + "x" * 150, "OPENAI_BASE_URL": "h" * 90}
    done = [run_inside(home, "doctor", COLUMNS=columns), run_inside(home, "doctor", COLUMNS=columns, **wrong)]
    lines = [line for one in done for line in one.stdout.splitlines()]

    assert "a-folder-with-a-long-name-" in done[0].stdout and done[1].returncode == 1
    assert [line for line in lines if len(line) > 100] == []


def test_a_store_is_looked_at_and_left_alone(tmp_path: Path) -> None:
    """Path, schema, agents, whole and writable."""
    run_inside(tmp_path, "-p", "I live in Turin.")
    before = (tmp_path / "perdure.db").read_bytes()
    result = run_inside(tmp_path, "doctor", "--json")
    checks = checks_of(result)

    assert result.returncode == 0
    assert json.loads(result.stdout)["ok"] is True
    assert f"{tmp_path / 'perdure.db'}, schema " in checks["data"]["text"]
    assert "1 agent, whole" in checks["data"]["text"]
    assert checks["writing"]["status"] == "ok"
    assert f"Python {platform.python_version()} ({sys.executable})" in checks["versions"]["text"]
    assert "lexical-only" in checks["embeddings"]["text"]
    assert (checks["files"]["status"], checks["files"]["fix"]) == ("ok", "")
    assert (tmp_path / "perdure.db").read_bytes() == before


async def doctor(home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """In a thread, so that the providers of this loop can answer."""
    return await asyncio.to_thread(lambda: perdure(home, "doctor", "--json", **more))


async def test_providers_and_the_model_are_told_without_keys(tmp_path: Path) -> None:
    """Each with where it was found; one that refuses the key is broken, and so is the exit code."""
    models = {"data": [{"id": "mistral-small-latest"}, {"id": "mistral-embed"}]}
    async with fake_provider({"/v1/models": (401, {})}) as refuses, fake_provider({"/v1/models": models}) as answers:
        good = await doctor(tmp_path, MISTRAL_API_KEY=SECRET, MISTRAL_BASE_URL=answers.url)
        bad = await doctor(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_BASE_URL=refuses.url)

    provider = checks_of(good)["provider"]["text"]
    assert good.returncode == 0
    assert provider == (
        f"mistral (from MISTRAL_BASE_URL, MISTRAL_API_KEY) at {answers.url}/v1, key set, not shown:"
        " 2 models, such as mistral-small-latest, mistral-embed"
    )
    assert checks_of(good)["model"]["text"].startswith("mistral/mistral-small-latest (from MISTRAL_BASE_URL")
    assert "$0.15 in and $0.6 out" in checks_of(good)["model"]["text"]
    assert bad.returncode == 1
    assert checks_of(bad)["provider"]["status"] == "broken"
    assert "refused the key" in checks_of(bad)["provider"]["text"]
    assert checks_of(bad)["model"]["text"].startswith("openai/")
    assert SECRET not in good.stdout + good.stderr + bad.stdout + bad.stderr


async def test_a_local_model_is_tried(tmp_path: Path) -> None:
    """One that was set is tried too; a small window is told, with what helps."""
    answers: dict[str, Any] = {
        "/v1/models": {"data": [{"id": "qwen3:8b"}]},
        "/v1/chat/completions": tool_call(),
        "/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 4_096}]},
    }
    async with fake_provider(answers) as provider:
        good = checks_of(await doctor(tmp_path, OLLAMA_HOST=provider.url))
        provider.answers["/v1/chat/completions"] = {"choices": []}
        result = await doctor(tmp_path, OLLAMA_HOST=provider.url, PERDURE_MODEL="ollama/qwen3:8b")

    assert good["model"]["text"].startswith("ollama/qwen3:8b (found by OLLAMA_HOST, and it calls tools): window 4,096 ")
    assert good["tools"]["status"] == "ok"
    assert "window of 4,096 tokens" in good["window"]["text"]
    assert "OLLAMA_CONTEXT_LENGTH" in good["window"]["fix"]
    assert result.returncode == 1
    assert checks_of(result)["tools"]["status"] == "broken"


async def test_what_trying_it_shows_is_stored_for_agents(tmp_path: Path) -> None:
    """It is tried once, anew each time, and what the store knows is kept."""
    async with LocalServer(says("Hello!"), otherwise=calls("note", text="hi"), has_listing=False) as server:
        async with await AsyncPerdure.open(tmp_path / "perdure.db", settings=Settings(embedding="none")) as before:
            known = {"window_tokens": 8_192, "address": f"{server.url}/v1"}
            await before.app.store.write(lambda tx: tx.providers.put_traits("openai/local", known))
        told = [checks_of(await doctor(tmp_path, OPENAI_BASE_URL=server.url)) for _ in range(2)]
        async with await AsyncPerdure.open(tmp_path / "perdure.db", settings=Settings(embedding="none")) as after:
            stored = await after.app.store.read(lambda tx: tx.providers.list_traits())

    assert "calls no tools" in told[0]["tools"]["text"] and told[1]["tools"]["text"] == "openai/local calls tools"
    assert len(server.requests) == 2
    assert (stored["openai/local"]["calling"], stored["openai/local"]["window_tokens"]) == ("native", 8_192)


async def test_what_to_expect_of_a_local_model_is_told(tmp_path: Path) -> None:
    """What it does about tools, how fast it is, and how long the first answer takes."""
    line = calls("note", text="hi, this is a note of more than a few tokens")
    async with LocalServer(otherwise=line, read_tokens_s=2_000) as server:
        native = checks_of(await doctor(tmp_path, OPENAI_BASE_URL=server.url))
    async with LocalServer(otherwise=says("Hello!"), tools="refused") as server:
        without = await doctor(tmp_path, OPENAI_BASE_URL=server.url)

    assert native["tools"]["text"] == "openai/local calls tools"
    assert "window of 4,096 tokens" in native["window"]["text"] and "--ctx-size" in native["window"]["fix"]
    assert re.fullmatch(
        r"openai/local reads about [\d,]+ tokens a second and writes [\d,]+: expect a first answer in about [\d,]+ s",
        native["speed"]["text"],
    )
    assert without.returncode == 0
    assert checks_of(without)["tools"]["text"].startswith("openai/local is offered no tools")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "name", "expected"),
    [
        ({"PERDURE_MODEL": "nobody/x"}, "model", "nobody/x (from PERDURE_MODEL) is not available here"),
        ({"PERDURE_MODEL": "ollama/qwen3"}, "model", "ollama is not running on port 11434"),
        ({"PERDURE_LEASE_S": "soon"}, "settings", "PERDURE_LEASE_S is 'soon'"),
        ({"PERDURE_CATALOG": "/no/such.toml"}, "catalog", "PERDURE_CATALOG is '/no/such.toml'"),
        ({"OPENAI_BASE_URL": "http://"}, "provider", "it is not an address"),
    ],
)
def test_what_is_set_wrongly_is_broken_and_has_a_fix(
    tmp_path: Path, variables: dict[str, str], name: str, expected: str
) -> None:
    """One line for each, and the exit code says so."""
    result = run_inside(tmp_path, "doctor", "--json", **variables)

    check = checks_of(result)[name]
    assert result.returncode == 1
    assert json.loads(result.stdout)["ok"] is False
    assert check["status"] == "broken"
    assert expected in check["text"]
    assert check["fix"]


def test_a_misspelled_variable_is_told() -> None:
    """Names that are nearly those of settings; not those of settings, and not what is another program's."""
    checks = [*_misspelled_checks(["PERDURE_PROT", "PERDURE_APIKEY", "PERDURE_PORT", "PERDURE_PIPELINE", "PORT"])]

    assert [(check.text, check.fix) for check in checks] == [
        ("PERDURE_APIKEY is no setting", "did you mean PERDURE_API_KEY?"),
        ("PERDURE_PROT is no setting", "did you mean PERDURE_PORT?"),
    ]


def broken(tmp_path: Path) -> str:
    """What the first check of the data says."""
    check = next(store_checks(Settings(home=str(tmp_path))))
    assert check.status == "broken"
    assert check.fix
    return check.text


def test_a_store_that_can_not_be_used_is_broken(tmp_path: Path) -> None:
    """Another program's, a newer one's, no database at all, a folder that is a file."""
    file = tmp_path / "perdure.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE t (x)")
    assert "is the database of another program" in broken(tmp_path)
    file.unlink()

    run_inside(tmp_path, "-p", "hi")
    with closing(sqlite3.connect(file)) as newer:
        newer.execute("INSERT INTO schema_migrations (number, name) VALUES (999, 'later')")
        newer.commit()
    assert "was written by a newer Perdure" in broken(tmp_path)
    file.write_bytes(b"no database, certainly none " * 200)
    for rest in tmp_path.glob("perdure.db-*"):
        rest.unlink()
    assert "can't be read" in broken(tmp_path)
    assert "is not a folder" in broken(file)


KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.mark.slow
def test_a_key_that_does_not_fit_the_secrets_is_broken(tmp_path: Path) -> None:
    """The fix works: the old key beside the new one."""
    with Perdure(tmp_path / "perdure.db", settings=Settings(secret_key=KEY)) as perdure:
        perdure.secrets.set("TOKEN", "a value")
    found = {
        name: checks_of(run_inside(tmp_path, "doctor", "--json", **keys))["secrets"]
        for name, keys in {
            "right": {"PERDURE_SECRET_KEY": KEY},
            "wrong": {"PERDURE_SECRET_KEY": OTHER},
            "both": {"PERDURE_SECRET_KEY": OTHER, "PERDURE_SECRET_KEY_OLD": KEY},
            "short": {"PERDURE_SECRET_KEY": "short"},
            "none": {},
        }.items()
    }

    assert {name: check["status"] for name, check in found.items()} == {
        **{"right": "ok", "both": "ok"},
        **{"wrong": "broken", "short": "broken", "none": "broken"},
    }
    assert "1 of 1 value can't be decrypted: it was encrypted with another key" in found["wrong"]["text"]
    assert "PERDURE_SECRET_KEY_OLD" in found["wrong"]["fix"] and "is gone" in found["none"]["text"]


@pytest.mark.parametrize("table", sorted(SEALED))
def test_the_key_is_tried_on_everything_encrypted(tmp_path: Path, table: str) -> None:
    """Also on what tools, MCP servers and providers need; a damaged value counts too."""
    sealed = base64.b64encode(AesCipher(OTHER, file=None).encrypt(b"value", bound_to="x")).decode()

    def rows(sql: str, *values: Any) -> list[tuple[str]]:
        return [(sealed,), ("A",)] if f" {table} " in sql else []

    check = secrets_check(rows, set(SEALED), Settings(home=str(tmp_path), secret_key=KEY))

    assert check is not None and check.status == "broken" and check.text.startswith("2 of 2 values")


def test_a_full_disk_can_not_be_written(tmp_path: Path) -> None:
    """The check of the store says so, as does that of the disk."""
    run_inside(tmp_path, "-p", "hi")

    def statuses(free: int) -> dict[str, str]:
        return {check.name: check.status for check in store_checks(Settings(home=str(tmp_path)), lambda folder: free)}

    assert statuses(10**9) == {"data": "ok", "writing": "ok"}
    assert statuses(10**6) == {"data": "ok", "writing": "ok", "disk": "broken"}
    assert statuses(0) == {"data": "ok", "writing": "broken", "disk": "broken"}


async def test_who_answers_on_the_port_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of ours, or another program."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))

    async def on(answers: dict[str, Any]) -> str:
        async with fake_provider(answers) as server:
            port = int(server.url.rpartition(":")[2])
            checks = [check async for check in examine(progress=lambda what: None, port=port)]
        return next(check.text for check in checks if check.name == "port")

    assert "a server answers on" in await on({"/v1/health/": {"version": "0.1.0", "status": "ok"}})
    assert "is taken by another program" in await on({})


async def test_the_embedder_is_tried_on_a_word(tmp_path: Path) -> None:
    """An endpoint that answers, one that refuses, a setting that can't be."""
    async with HttpModel(embedder=ScriptedEmbedder(dimensions=8)) as server:
        more = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": SECRET, "PERDURE_EMBEDDING": "openai/small"}
        good = await doctor(tmp_path, **more)
        server.then_embeds(Status(401, {"error": {"message": f"wrong key {SECRET}"}}))
        refused = await doctor(tmp_path, **more)
    wrong = await doctor(tmp_path, PERDURE_EMBEDDING="nobody/x")

    assert checks_of(good)["embeddings"] == {
        "name": "embeddings",
        "status": "ok",
        "text": "openai/small (from PERDURE_EMBEDDING): vectors of 8 numbers",
        "fix": "",
    }
    assert checks_of(refused)["embeddings"]["status"] == "broken"
    assert "Check the API key" in checks_of(refused)["embeddings"]["text"]
    assert SECRET not in refused.stdout
    assert "PERDURE_EMBEDDING is 'nobody/x'" in checks_of(wrong)["embeddings"]["text"]
    assert wrong.returncode == 1


def test_vectors_are_told_where_there_are_any(tmp_path: Path) -> None:
    """How many texts have one; and what helps those that were given up, or are from before there was an embedder."""

    async def fill(embedder: ScriptedEmbedder | None, text: str) -> None:
        async with await AsyncPerdure.open(tmp_path / "perdure.db", embedder=embedder) as perdure:
            agent = await perdure.create_agent("ada" if embedder is None else "bob")
            await agent.archive(text)
            while embedder is not None and not await perdure.app.store.read(embedded):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def embedded(tx: Tx) -> bool:
        return sum(one.scope.row_count for one in tx.vectors.counts()) == 1

    def check_vectors() -> Check:
        by_name = {check.name: check for check in store_checks(Settings(home=str(tmp_path)))}
        return by_name["vectors"]

    asyncio.run(fill(ScriptedEmbedder(), "a walrus"))
    assert (check_vectors().status, check_vectors().text) == ("ok", "1 text with a vector of test/words")
    asyncio.run(fill(None, "a penguin"))
    assert check_vectors().text.endswith("; 1 texts are from before and have none")
    connection = sqlite3.connect(tmp_path / "perdure.db")
    connection.execute("INSERT INTO embedding_queue VALUES (1, 0, 3, '9', 'too odd')")
    connection.commit()
    connection.close()

    assert check_vectors().text.endswith("1 given up: too odd")
    assert check_vectors().fix == "`perdure store reindex` tries them again"


def test_what_is_deleted_and_not_removed_yet_is_not_counted(tmp_path: Path) -> None:
    """Neither the agent nor its texts, with and without vectors, waiting or given up."""

    async def fill() -> None:
        async with await AsyncPerdure.open(tmp_path / "perdure.db") as perdure:
            for name in ("ada", "bob"):
                agent = await perdure.create_agent(name)
                await agent.import_messages([("user", None, "a walrus", START)])
            await perdure.app.store.write(lambda tx: tx.agents.delete(agent.id))
            await perdure.app.store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=1))

    asyncio.run(fill())
    connection = sqlite3.connect(tmp_path / "perdure.db")
    ((ada, org), (bob, deleted)) = connection.execute("SELECT number, org_id FROM agents ORDER BY number").fetchall()
    for number, org_id, name in ((ada, org, "ada"), (bob, deleted, "bob")):
        connection.execute(
            "INSERT INTO vector_scopes (number, org_id, owner_kind, owner_id, model, row_count)"
            " VALUES (?, ?, 'agent', ?, 'test/words', 1)",
            [number, org_id, name],
        )
    connection.execute("INSERT INTO embedding_queue VALUES (?, 0, 3, '9', 'too odd')", [bob])
    connection.execute("UPDATE agents SET embedded = (number = ?), message_count = 1", [ada])
    connection.commit()
    connection.close()
    by_name = {check.name: check for check in store_checks(Settings(home=str(tmp_path)))}

    assert "1 agent, whole" in by_name["data"].text
    assert (by_name["vectors"].status, by_name["vectors"].text) == ("ok", "1 text with a vector of test/words")
