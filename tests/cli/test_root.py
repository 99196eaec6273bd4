"""The tree of commands: what `perdure --help` shows, and what a text in place of a command is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from perdure.cli.app import app
from perdure.cli.root import Root, nouns, verbs
from tests.support.programs import run_inside


def test_the_tree_is_short(tmp_path: Path) -> None:
    """Verbs of every day, then nouns with all their verbs, on one screen; no plural."""
    lines = run_inside(tmp_path, "--help", COLUMNS="80").stdout.splitlines()

    names = [line.split()[0] for line in lines if re.match("  [a-z][a-z-]*  ", line)]
    assert names == [*verbs(), *nouns()]
    assert len(lines) <= 81


def test_a_verb_is_listed_with_the_first_sentence_of_its_help(tmp_path: Path) -> None:
    """The list is printed without the modules that hold the commands."""
    for verb, (_, help) in verbs().items():
        _, _, text = run_inside(tmp_path, verb, "--help", COLUMNS="200").stdout.partition("\n\n")

        assert f"{text.strip()}\n".partition("\n")[0].startswith(help), verb


def test_a_noun_names_its_verbs(tmp_path: Path) -> None:
    """What `perdure --help` says of a noun holds each of its verbs, and `perdure NOUN --help` lists them in whole
    sentences."""
    for noun, (_, help) in nouns().items():
        listed = run_inside(tmp_path, noun, "--help").stdout
        verbs = re.findall(r"(?m)^  ([a-z]+)  ", listed)

        assert verbs, noun
        assert [verb for verb in verbs if verb not in help.lower()] == []
        assert "..." not in listed.partition("Commands:")[2]


WITHOUT_JSON = {
    "serve": "it runs until it is stopped",
    "ui": "it runs until it is stopped",
    "telegram": "it runs until it is stopped",
    "acp": "its stdout is a protocol",
    "mcp serve": "its stdout is a protocol",
    "agent export": "with - it prints the file itself",
    "archive export": "with - it prints the file itself",
    "run export": "it prints JSON in any case",
    "key show": "it prints a key and nothing else",
    "connect": "it shows a person what it would write, and asks",
}
"""Command -> why it has no option --json."""


@pytest.mark.uses("access")
def test_what_prints_something_prints_it_as_json_too() -> None:
    root = get_command(app)
    assert isinstance(root, Root)
    tree = {name: root.get_command(None, name) for name in root.list_commands(None)}
    commands = {name: one for name, one in tree.items() if not hasattr(one, "commands")}
    for noun in tree.keys() - commands.keys():
        commands |= {f"{noun} {verb}": one for verb, one in tree[noun].commands.items()}

    lacking = {name for name, one in commands.items() if not any("--json" in param.opts for param in one.params)}
    assert lacking == WITHOUT_JSON.keys() & commands.keys()


def test_a_noun_alone_is_no_message(tmp_path: Path) -> None:
    """`-p` sends it, and so do quotes around more than a word; a word that is no command is sent to nobody."""
    noun = run_inside(tmp_path, "memory")
    word = run_inside(tmp_path, "hello", "there")
    sent = run_inside(tmp_path, "-p", "memory")
    text = run_inside(tmp_path, "memory is what I ask for", "--json")

    assert "restore" in noun.stdout + noun.stderr
    assert (word.returncode, "As a message: perdure -p 'hello there'" in word.stderr) == (2, True)
    assert (sent.returncode, text.returncode) == (0, 0)
    assert '"text": ' in text.stdout


def test_an_unknown_verb_is_answered_with_those_of_its_noun(tmp_path: Path) -> None:
    wrong = run_inside(tmp_path, "memory", "set", "human", "Ann")

    assert wrong.returncode == 2
    assert "No such command 'set': `perdure memory` has " in wrong.stderr and " edit, " in wrong.stderr


def test_a_plural_is_its_noun_and_lists_alone(tmp_path: Path) -> None:
    """Of every noun; the names that older trees had for verbs are unknown words."""
    alone, with_verb = run_inside(tmp_path, "agents"), run_inside(tmp_path, "secrets", "list", "--help")

    assert alone.stderr.startswith("There are no agents yet.")
    assert with_verb.stdout.startswith("Usage: perdure secret list ")
    assert [run_inside(tmp_path, word).returncode for word in ("approve", "import-messages", "verify")] == [2, 2, 2]


def test_memory_is_shown_and_restored(tmp_path: Path) -> None:
    """Of the agent used last; an edit is in the history, and an earlier version comes back."""
    created = run_inside(tmp_path, "agent", "create", "ann", "--model", "perdure/extractive")
    run_inside(tmp_path, "My name is Ada.")
    shown = run_inside(tmp_path, "memory", "show", "human")
    history = run_inside(tmp_path, "memory", "history", "human", "ann")
    restored = run_inside(tmp_path, "memory", "restore", "human", "0")

    assert created.stdout == "Created agent 'ann' with model perdure/extractive (as you asked).\n"
    assert "Name: Ada" in shown.stdout
    assert "+ Name: Ada" in history.stdout
    assert "human has the value of version 0 again, as version 2." in restored.stdout
    assert "persona" in run_inside(tmp_path, "memory", "list").stdout
