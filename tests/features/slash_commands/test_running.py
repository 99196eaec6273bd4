"""Commands that are run: in the library, in the chat, on the command line, over HTTP, on the dashboard."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Perdure
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says
from tests.features.plugins.files import define, write
from tests.server.routed import new_agent, routed
from tests.support.programs import perdure, run_inside
from tests.ui.browser import dashboard

CLAUDE = Path(__file__).parents[1] / "plugins" / "claude_code" / ".claude"
RAN: list[str] = []


def burn(place: str) -> str:
    """Burn a place down."""
    RAN.append(place)
    return "ashes"


@contextmanager
def talking(home: Path, *script: Any, **settings: Any) -> Iterator[tuple[Agent, dict[str, ScriptedModel]]]:
    """An agent of a data folder, and its models."""
    RAN.clear()
    models = {name: ScriptedModel(*script) for name in ("test/scripted", "test/claude-haiku-4-5")}
    chosen = Settings(**{"home": str(home), "model": "test/scripted", **settings})
    with Perdure(models=models, tools=[burn], settings=chosen) as store:
        yield store.create_agent("ann", tools=["burn", "memory_insert"], human="Likes tea."), models


def asked(model: ScriptedModel) -> str:
    """The last message of a user that a model got."""
    return [message.text for message in model.requests[-1].messages if message.role == "user"][-1]


def test_the_commands_of_claude_code_work_as_they_are(tmp_path: Path) -> None:
    """With their arguments; what would run a program or read a file there is text here. The tools are enforced."""
    edit = calls("memory_insert", label="human", new_string="Fixed 12.")
    script = (calls("burn", place="barn"), edit, says("Done."))
    with talking(tmp_path, *script, definitions=str(CLAUDE)) as (agent, models):
        assert [command.name for command in agent.commands.list()] == ["fix-issue", "git:commit"]
        fix = agent.commands.get("fix-issue")
        assert (fix.hint, fix.tools, list(fix.missing)) == (
            "[issue-number] [priority]",
            ["memory_insert"],
            ["Read", "Grep"],
        )
        reply = agent.commands.run("fix-issue", "12 high")
        haiku = models["test/claude-haiku-4-5"]

        assert reply.text == "Done." and RAN == [] and "Fixed 12." in agent.blocks.get("human").value
        assert asked(haiku).startswith(
            "[The command /fix-issue is run. For it you may call only these tools: memory_insert.]\n\n"
            "Fix issue #12 with priority high. All of it: 12 high."
        )
        assert "!`git status` and @src/main.py" in asked(haiku) and not models["test/scripted"].requests
        agent.commands.run("git:commit", "the barn")
        assert asked(models["test/scripted"]).endswith("Write a message for a commit about the barn")


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("small", PerdureError, "haiku"),
        ("other", PerdureError, "none-such"),
        ("secret", NotFound, "the policy forbids it"),
        ("smal", NotFound, "did you mean small"),
    ],
)
def test_what_can_not_be_run_is_an_error_before_anything_is_sent(
    tmp_path: Path, name: str, error: type[Exception], why: str
) -> None:
    """A model that the policy forbids or nobody has; a command that it forbids, or that nobody has defined."""
    write(tmp_path / "policy" / "policy.toml", 'denied_models = ["*haiku*"]\ndenied_commands = ["secret"]')
    for one, model in (("small", "test/claude-haiku-4-5"), ("other", "none-such"), ("same", "inherit"), ("secret", "")):
        define(tmp_path, "commands", one, model=model)
    with talking(tmp_path, policy=str(tmp_path / "policy")) as (agent, models):
        with pytest.raises(error, match=why):
            agent.commands.run(name)

        assert not any(model.requests for model in models.values()) and not agent.messages()
        assert agent.commands.run("same").text == "OK."


def policy(home: Path, text: str) -> str:
    """The folder of a policy with these lines."""
    write(home / "policy" / "policy.toml", text)
    return str(home / "policy")


def test_a_policy_binds_commands_that_name_no_model(tmp_path: Path) -> None:
    """On the agent's model, and on one that the caller names; a plain message is nobody's command."""
    define(tmp_path, "commands", "plain")
    define(tmp_path, "commands", "same", model="inherit")
    with talking(tmp_path, policy=policy(tmp_path, 'allowed_models = ["*haiku*"]')) as (agent, models):
        for name in ("plain", "same"):
            with pytest.raises(PerdureError, match="policy does not allow the model test/scripted"):
                agent.commands.run(name)
        assert not any(model.requests for model in models.values()) and not agent.messages()
        with pytest.raises(PerdureError, match="test/scripted"):
            agent.commands.run("plain", model="test/scripted")
        assert agent.commands.run("plain", model="haiku").text == "OK."
        assert agent.send("Hello").text == "OK."

        assert [len(models[name].requests) for name in ("test/claude-haiku-4-5", "test/scripted")] == [1, 1]


def test_fields_of_helpers_have_no_effect_on_a_command_and_a_note_says_so(tmp_path: Path) -> None:
    define(tmp_path, "commands", "push", **{"memory": "own", "tools": "Read", "argument-hint": "[x]", "effort": "high"})
    with talking(tmp_path) as (agent, _):
        notes = agent.commands.get("push").definition.notes

    assert [note.partition("'")[2].partition("'")[0] for note in notes] == ["memory", "tools", "effort"]


def test_a_name_of_the_policy_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Where its file is broken, and where it is denied; what a project has under that name is not run."""
    for name in ("deploy", "Review", "fine"):
        define(tmp_path, "commands", name)
    where = policy(tmp_path, "denied_commands = ['review']")
    broken = write(Path(where) / "commands" / "deploy.md", "---\nmax_turns: many\n---\n")
    with talking(tmp_path, says("Sent."), policy=where) as (agent, models):
        for name, why in (("deploy", f"{broken}:2: max_turns"), ("/Review", "the policy forbids it")):
            with pytest.raises(NotFound, match=why):
                agent.commands.run(name)
        names = [one.name for one in agent.commands.list()]

    assert names == ["fine"] and not models["test/scripted"].requests


def test_a_name_may_be_typed_with_its_marks_apart(tmp_path: Path) -> None:
    """As some keyboards write it, and macOS the file; the arguments stay as they are."""
    apart = unicodedata.normalize("NFD", "prüfung")
    define(tmp_path, "commands", apart, "Go: $ARGUMENTS")
    with talking(tmp_path, says("Done.")) as (agent, models):
        agent.commands.run(f"/{apart}", apart)

    assert asked(models["test/scripted"]).endswith(f"Go: {apart}")


@pytest.mark.parametrize("bad", [5, None, [5], ["a", None], ("a", b"b")])
def test_arguments_are_texts(tmp_path: Path, bad: Any) -> None:
    """Others are an error of the library; words may be a list or a tuple."""
    define(tmp_path, "commands", "push", "Push $1|$2.")
    with talking(tmp_path) as (agent, models):
        with pytest.raises(InvalidInput, match="arguments is"):
            agent.commands.run("push", bad)
        agent.commands.run("push", ("a b", "c"))
        assert asked(models["test/scripted"]).endswith("Push a b|c.")
        with pytest.raises(NotFound) as caught:
            agent.commands.run("x" * 100_000)

        assert len(str(caught.value)) < 500


def test_a_command_with_a_model_runs_where_that_of_the_agent_is_gone(tmp_path: Path) -> None:
    """On the command line, too."""
    define(tmp_path, "commands", "small", model="perdure/extractive")
    with Perdure(models={"test/gone": ScriptedModel()}, settings=Settings(home=str(tmp_path))) as store:
        store.create_agent("ann", model="test/gone")
    done = run_inside(tmp_path, "command", "run", "small", "--agent", "ann")

    assert done.returncode == 0, done.stderr


def test_a_command_steps_down_as_a_helper_does_and_says_why(tmp_path: Path) -> None:
    """Choice and reason are stored with the run, shown by `why` and in the spans of its time line."""
    define(tmp_path, "commands", "plain")
    define(tmp_path, "commands", "small", model="claude-haiku-4-5-20251001")
    denied = policy(tmp_path, 'denied_models = ["*haiku-9"]')
    models = {"test/claude-haiku-9": ScriptedModel(), "test/claude-haiku-4-5": ScriptedModel()}
    with Perdure(models=models, settings=Settings(home=str(tmp_path), policy=denied)) as store:
        agent = store.create_agent("ann", model="test/claude-haiku-9")
        agent.commands.run("plain")
        agent.commands.run("small")
        runs = list(agent.runs())[::-1]
        found = [(run.options.model, run.options.model_reason) for run in runs]
        origin = agent.why(runs[0].id)
        _, spans = store._portal.run(store._inner.runs.spans_of_run(runs[1].id))

    assert found == [
        (
            "test/claude-haiku-4-5",
            "nothing names another one: the model of the agent; the policy does not allow test/claude-haiku-9, so"
            " test/claude-haiku-4-5",
        ),
        ("test/claude-haiku-4-5", "the definition says claude-haiku-4-5-20251001: at test"),
    ]
    assert origin.model_reason == found[0][1]  # type: ignore[union-attr]
    assert [one.attributes["model_reason"] for one in spans if one.name == "agent_step"] == [found[1][1]]


def test_a_command_has_its_model_also_behind_an_approval(tmp_path: Path) -> None:
    """What goes on there is the same command."""
    define(tmp_path, "commands", "small", model="haiku")
    with talking(tmp_path, calls("burn", place="barn"), says("Done.")) as (agent, models):
        agent.require_approval("burn")
        assert agent.commands.run("small").stop_reason == "requires_approval"
        agent.approve()
        reasons = {(run.options.model, run.options.model_reason) for run in agent.runs()}

    assert (len(models["test/claude-haiku-4-5"].requests), models["test/scripted"].requests) == (2, [])
    assert reasons == {("test/claude-haiku-4-5", "the definition says haiku: the newest of the family haiku at test")}


def test_the_model_of_the_conversation_is_the_one_that_an_alias_means(tmp_path: Path) -> None:
    """And the one that a policy looks at."""
    define(tmp_path, "commands", "small", model="haiku")
    models = {
        "test/scripted": ScriptedModel(),
        "a/claude-haiku-9": ScriptedModel(),
        "b/claude-haiku-4": ScriptedModel(),
    }
    with Perdure(models=models, settings=Settings(home=str(tmp_path), model="test/scripted")) as store:
        agent = store.create_agent("ann")
        line = agent.new_conversation()
        agent.update_conversation(line.id, model="b/claude-haiku-4")
        agent.commands.run("small", conversation=line.id)
        agent.commands.run("small")

    assert [len(one.requests) for one in models.values()] == [0, 1, 1]


async def test_over_http_a_model_that_the_policy_forbids_is_refused(tmp_path: Path) -> None:
    define(tmp_path, "commands", "push")
    async with routed(home=str(tmp_path), policy=policy(tmp_path, 'allowed_models = ["none/*"]')) as server:
        agent = await new_agent(server)
        status, answer = await server.refused("POST", f"/v1/agents/{agent['id']}/commands/push/run", {})

    assert status == 400 and "the policy does not allow the model" in str(answer)


async def test_over_http_a_command_is_listed_and_run(tmp_path: Path) -> None:
    """And answered as a message is, or with its run."""
    write(tmp_path / "commands" / "broken.md", "---\nx: [\n---\n")
    define(tmp_path, "commands", "git/push", "Push $ARGUMENTS.", **{"allowed-tools": "Read"})
    async with routed(says("Pushed."), home=str(tmp_path)) as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/commands"
        (command,) = await server.get(path)
        assert (command["name"], command["layer"], command["tools"], command["missing"]) == (
            "git:push",
            "user",
            [],
            ["Read"],
        )
        assert await server.get(f"{path}/git:push") == command
        reply = await server.post(f"{path}/git:push/run", {"arguments": "it"})
        assert reply["messages"][-1]["content"] == "Pushed." and reply["stop_reason"]["stop_reason"] == "end_turn"
        run = await server.post(f"{path}/git:push/run/async", {"conversation_id": "default", "max_steps": 1})
        assert run["status"] == "created" and run["background"] is True
        assert (await server.refused("POST", f"{path}/none/run", {}))[0] == 404
        shown = await server.get(f"/v1/agents/{agent['id']}/messages", order="asc")
        assert next(one["content"] for one in shown if one["message_type"] == "user_message").endswith("Push it.")


async def test_the_composer_of_the_dashboard_runs_them(tmp_path: Path) -> None:
    """It lists them; a text that is no command is sent as it is."""
    define(tmp_path, "commands", "push", "Push $ARGUMENTS.", **{"argument-hint": "[what]"})
    async with dashboard(home=str(tmp_path)) as (client, library):
        agent = await library.create_agent("ann")
        page = (await client.get(f"/agents/{agent.id}")).text
        assert 'data-command="/push"' in page and "/push [what]" in page and "For push" in page
        for text in ("/push it\nnow", "/pull it", "//push it"):
            await client.post(f"/agents/{agent.id}/messages", data={"text": text})
        sent = [message.text for message in await agent.messages() if message.role == "user"]

    assert sent == ["[The command /push is run.]\n\nPush it\nnow.", "/pull it", "/push it"]


def test_in_the_chat_they_are_run_by_their_names(tmp_path: Path) -> None:
    """The chat's own commands come first; an unknown one is sent to nobody."""
    define(tmp_path, "commands", "push", "Push $1.")
    define(tmp_path, "commands", "memory", "Mine.")
    run_inside(tmp_path, "agent", "create", "ann", "--model", "perdure/extractive")
    done = perdure(tmp_path, "chat", "ann", stdin="/push it\n/memory\n/pusch\n/help\n")

    assert "persona" in done.stdout and "Mine." not in done.stdout
    assert "there is no command /pusch" in done.stderr and "/push" in done.stdout
    assert "Push it." in run_inside(tmp_path, "history", "ann").stdout


def test_on_the_command_line_they_are_listed_shown_and_run(tmp_path: Path) -> None:
    """And in the chat, where the chat's own commands come first."""
    define(tmp_path, "commands", "push", "Push $1.", model="perdure/extractive")
    define(tmp_path, "commands", "help", "Mine.")
    write(tmp_path / "commands" / "broken.md", "---\nx: [\n---\n")
    run_inside(tmp_path, "agent", "create", "ann")
    listed = run_inside(tmp_path, "command", "list")
    assert "/push" in listed.stdout and "broken.md" in listed.stdout.replace("\n", "")
    assert "Push $1." in run_inside(tmp_path, "command", "show", "push").stdout
    assert json.loads(run_inside(tmp_path, "command", "show", "push", "--json").stdout)["text"] == "Push $1."
    assert "did you mean push" in run_inside(tmp_path, "command", "show", "pusch").stderr
    done = run_inside(tmp_path, "command", "run", "push", "it's all", "now")
    assert done.returncode == 0, done.stderr
    shown = run_inside(tmp_path, "search", "Push it", "--agent", "ann").stdout
    assert "Push it's all." in shown
    listed = json.loads(run_inside(tmp_path, "run", "list", "--json").stdout)
    assert "the definition says perdure/extractive" in str(listed)
    assert "model: the definition says" in run_inside(tmp_path, "run", "show", listed[0]["id"]).stdout
