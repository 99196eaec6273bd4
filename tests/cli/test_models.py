"""The model of a chat: which one is chosen and why, what is known of it, what fills its window."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from perdure import AsyncPerdure, Perdure
from perdure.cli.chat.slash import run_command
from perdure.cli.session.session import ChatSession
from perdure.cli.views.context import cells
from perdure.cli.views.text import TextView
from perdure.providers.choosing import DefaultModel
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.providers.fake_provider import fake_provider
from tests.support.library import MODEL
from tests.support.programs import ListedLines, open_chat, perdure, run_inside

SECRET = "sk-very-secret-0123456789"


async def test_the_model_is_shown_and_changed() -> None:
    """/model tells the handle, why, and what is known; with a handle the agent gets it from the next message on."""
    async with open_chat(person=False, terminal=False) as chat:
        code = await chat.type_lines("/model", "/model perdure/extractive", "I live in Turin.", "/model")

        output = chat.out.getvalue()
        assert code == 0
        assert output.startswith(f"{MODEL}  (pinned)\n  window 32,768 tokens, answer up to 4,096  (in no catalog")
        assert "  price unknown\n" in output
        assert output.count("perdure/extractive  (pinned; built in, needs no key") == 2
        assert "  no price by the token\n" in output
        assert "Noted: Lives in: Turin." in output
        assert (await chat.perdure.agent(chat.agent.id)).info.model == "perdure/extractive"


async def test_a_model_is_pinned_and_follows_the_default_again() -> None:
    """`/model default` takes the pin away."""
    async with open_chat(person=False, terminal=False) as chat:
        code = await chat.type_lines("/model default", "I live in Turin.", f"/model {MODEL}", "/model")

        assert code == 0
        assert chat.out.getvalue().startswith("perdure/extractive  (follows the default; built in, needs no key")
        assert "Noted: Lives in: Turin." in chat.out.getvalue()
        assert chat.out.getvalue().count(f"{MODEL}  (pinned)") == 2


def test_the_first_model_that_is_there_answers_and_the_chat_says_so_once(tmp_path: Path) -> None:
    """A first agent is made with the built-in program; later there is a default."""
    run_inside(tmp_path, "-p", "My name is Ada.")
    first = run_inside(tmp_path, "-p", "hello", PERDURE_MODEL="nobody/x")
    with Perdure(tmp_path / "perdure.db", models={MODEL: ScriptedModel()}, settings=Settings(model=MODEL)) as library:
        library.agent("Perdure").send("hello")
    agents = run_inside(tmp_path, "agents", "--json")

    assert "Hello, Ada!" in first.stdout  # a default that is not there changes nothing
    assert json.loads(agents.stdout)[0]["model"] == MODEL


def test_a_command_pins_a_model_and_takes_the_pin_away(tmp_path: Path) -> None:
    """`perdure agent update NAME --model HANDLE|default`."""
    run_inside(tmp_path, "-p", "hi")
    pinned = run_inside(tmp_path, "agent", "update", "Perdure", "--model", "perdure/extractive")
    freed = run_inside(tmp_path, "agent", "update", "Perdure", "--model", "default", "--json")

    assert pinned.stdout.startswith("perdure/extractive  (pinned")
    assert json.loads(freed.stdout)["model"]["reason"].startswith("follows the default")


async def test_the_chat_tells_of_another_default_once() -> None:
    """In one line, when the first run with it begins."""
    async with open_chat(person=False, terminal=False) as chat:
        chat.session.agent = await chat.agent.update(model=None)
        chat.perdure.app.models.choice = DefaultModel(MODEL, "from a key")
        await chat.type_lines("hello", "again")

        shown = chat.out.getvalue() + chat.err.getvalue()
        assert shown.count(f"{MODEL} answers from now on, no longer perdure/extractive") == 1
        assert shown.count("OK.") == 2


async def test_a_model_that_is_not_there_changes_nothing() -> None:
    """The error names what there is."""
    async with open_chat(person=False, terminal=False) as chat:
        code = await chat.type_lines("/model nobody/x")

        assert code == 1
        assert "'nobody/x' is not available here" in chat.err.getvalue()
        assert (await chat.perdure.agent(chat.agent.id)).info.model == MODEL


def test_a_first_model_without_its_key_is_an_error(tmp_path: Path) -> None:
    """It says which variable to set, and no store is made."""
    result = run_inside(tmp_path, "-p", "hi", PERDURE_MODEL="openai/gpt-4.1")

    assert result.returncode == 1
    assert result.stderr == (
        "error: model 'openai/gpt-4.1' is not available here: there are perdure/extractive. Set OPENAI_API_KEY\n"
    )
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose provider is known but not set up: the error says which variable to set; nothing is sent."""
    store = InlineStore()
    monkeypatch.setenv("MISTRAL_API_KEY", SECRET)
    first = await AsyncPerdure.open(settings=Settings(), store=store)
    agent = await first.create_agent("Ada's helper")
    assert agent.info.model == "mistral/mistral-small-latest"
    await first.app.runner.close()
    monkeypatch.delenv("MISTRAL_API_KEY")
    async with await AsyncPerdure.open(settings=Settings(), store=store) as again:
        out, err, source = io.StringIO(), io.StringIO(), ListedLines(["hello", "/model"])
        view = TextView(out, err, interactive=False, coloured=False)
        await ChatSession(again, await again.agent(agent.id), source, view, run_command=run_command).run()

        assert "Nothing was sent. Set MISTRAL_API_KEY, or give the agent another model" in err.getvalue()
        assert "it is not available here: Set MISTRAL_API_KEY" in out.getvalue()


async def test_the_window_is_shown_as_a_bar() -> None:
    """Each part with its own sign, tokens and percent; they are those of the library and sum to the window."""
    async with open_chat(person=False, terminal=False) as chat:
        await chat.type_lines("/context", "hello", "/context")

        before, after = chat.out.getvalue().split("OK.\n")
        overview = await chat.agent.context()
        assert "(nothing was sent like this yet" in before
        assert "(nothing was sent" not in after
        head, bar, *rows, remark = after.splitlines()
        assert head == f"{MODEL}: {overview.used_tokens:,} of 128,000 tokens ({overview.used_tokens / 1280:.1f} %)"
        assert len(bar) == 60
        assert [row.split()[0] for row in rows] == ["▒", "█", "▓", "■", "●", "░", "·"]
        assert set(bar) == {row[0] for row in rows}
        assert remark == "estimated: nothing of this was measured yet"
        assert sum(int(row.split()[-3].replace(",", "")) for row in rows) == 128_000


@pytest.mark.parametrize(
    ("amounts", "size", "shared"),
    [
        ([1, 1], 10, [5, 5]),
        ([1, 0, 999], 10, [1, 0, 9]),
        ([1, 1, 1, 1], 2, [1, 1, 1, 1]),
        ([2, 1], 10, [7, 3]),
        ([0, 0], 10, [0, 0]),
    ],
)
def test_what_is_there_gets_a_cell(amounts: list[int], size: int, shared: list[int]) -> None:
    """However small; the sum is the size of the bar, unless there are more parts than cells."""
    assert cells(amounts, size) == shared


def test_model_and_context_are_objects_for_programs(tmp_path: Path) -> None:
    """With --json: numbers in tokens and dollars."""
    result = perdure(tmp_path, "--json", stdin="/model\n/context\n/model nope\n")

    model, context, error = map(json.loads, result.stdout.splitlines())
    assert result.returncode == 1
    assert model["model"]["handle"] == "perdure/extractive"
    assert (model["model"]["window_tokens"], model["model"]["input_price"]) == (128_000, 0.0)
    parts = sum(part["tokens"] for part in context["context"]["parts"])
    assert context["context"]["used_tokens"] == parts
    assert parts + context["context"]["free_tokens"] + context["context"]["reserve_tokens"] == 128_000
    assert error["error"]["type"] == "model_not_found"


async def test_a_first_run_says_which_model_and_why(tmp_path: Path) -> None:
    """One line, and no key in it. A key that is refused leads to no other provider: the reason is told."""
    import asyncio

    answers = {"/v1/models": {"data": [{"id": "mistral-small-latest"}]}}
    async with fake_provider({"/v1/models": (401, {})}) as refuses, fake_provider(answers) as provider:
        mistral = {"MISTRAL_API_KEY": SECRET, "MISTRAL_BASE_URL": provider.url}
        result = await asyncio.to_thread(perdure, tmp_path / "a", stdin="/model\n", **mistral)
        openai = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": refuses.url}
        refused = await asyncio.to_thread(perdure, tmp_path / "b", stdin="", **openai, **mistral)

    assert result.returncode == 0
    assert "refused the key in OPENAI_BASE_URL, OPENAI_API_KEY (401)" in refused.stderr
    assert "mistral" not in refused.stderr
    created, model, *_ = result.stderr.splitlines()
    assert created.startswith("Made agent 'Perdure'")
    assert model.startswith("Model mistral/mistral-small-latest (from MISTRAL_BASE_URL, MISTRAL_API_KEY). ")
    assert result.stdout.startswith("mistral/mistral-small-latest  (")
    assert SECRET not in result.stdout + result.stderr + refused.stdout + refused.stderr


def test_a_wrong_catalog_is_an_error(tmp_path: Path) -> None:
    """It names the file; the chat itself goes on."""
    (tmp_path / "c.toml").write_text("x = 1")
    result = perdure(tmp_path, stdin="/model\nI live in Turin.\n", PERDURE_CATALOG=str(tmp_path / "c.toml"))

    assert result.returncode == 1
    assert f"error: {tmp_path / 'c.toml'}: the file has an unknown field 'x'" in result.stderr
    assert "Noted" in result.stdout


def test_a_model_that_was_set_is_said_to_be(tmp_path: Path) -> None:
    """The variable is named."""
    result = run_inside(tmp_path, "-p", "hi", PERDURE_MODEL="perdure/extractive")

    assert "Model perdure/extractive (from PERDURE_MODEL)." in result.stderr


def test_settings_of_an_agent_are_shown_changed_and_taken_back(tmp_path: Path) -> None:
    """Values are JSON or texts; what is not named stays as it was, and a wrong value changes nothing."""
    run_inside(tmp_path, "agent", "create", "ann")

    def shown(*changes: str) -> dict[str, object]:
        result = run_inside(tmp_path, "agent", "settings", "ann", *changes, "--json")
        assert result.returncode == 0, result.stderr
        return dict(json.loads(result.stdout))

    before = shown()
    changed = shown("context_engine=sliding_window", 'guards={"recent_steps": 20}')
    wrong = run_inside(tmp_path, "agent", "settings", "ann", "context_engine=nobody")

    assert changed == {**before, "context_engine": "sliding_window", "guards": {"recent_steps": 20}}
    assert (wrong.returncode, "there is no context engine 'nobody'" in wrong.stderr) == (1, True)
    assert shown("guards=null") == {**before, "context_engine": "sliding_window"}


def test_a_chat_gives_its_new_agent_a_profile(tmp_path: Path) -> None:
    """One that is there keeps its own; the error says what changes it."""
    chat = ("chat", "ann", "-p", "Hello.", "--profile")
    (made, again, other) = [run_inside(tmp_path, *chat, *more) for more in (("small", "--new"), ("small",), ("full",))]
    settings = json.loads(run_inside(tmp_path, "agent", "settings", "ann", "--json").stdout)

    assert (made.returncode, again.returncode, other.returncode) == (0, 0, 1), made.stderr
    assert settings["profile"] == "small"
    assert "`perdure agent settings ann profile=full` changes it" in other.stderr
    assert "give full or small" in run_inside(tmp_path, "chat", "bob", "--new", "--profile", "tiny", "-p", "Hi.").stderr


async def test_a_handle_that_a_provider_lacks_is_refused_with_what_there_is(tmp_path: Path) -> None:
    """The command asks the providers first; a name without its provider is completed in the error."""
    async with fake_provider({"/v1/models": {"data": [{"id": "gpt-4.1"}, {"id": "gpt-5"}]}}) as provider:
        env = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"{provider.url}/v1"}

        async def run(*arguments: str) -> tuple[int, str]:
            done = await asyncio.to_thread(perdure, tmp_path, *arguments, **env)
            return done.returncode, done.stderr

        for name in ("first", "second"):  # without a store, and with one
            for model, words in (("gpt-4.1", "Write openai/gpt-4.1"), ("openai/nope", "has no model 'nope'")):
                code, shown = await run("agent", "create", name, "--model", model)
                assert (code, words in shown, "openai/gpt-5" in shown) == (1, True, True), shown
            assert (await run("agent", "create", name, "--model", "openai/gpt-4.1"))[0] == 0

        code, shown = await run("agent", "update", "first", "--model", "openai/nope")
        assert (code, "has no model 'nope'" in shown) == (1, True)
        assert "Write openai/gpt-5" in (await run("chat", "new", "--new", "--model", "gpt-5"))[1]
