"""The text of a command with its arguments."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.core.errors import MessageTooLarge
from perdure.features.plugins.definitions import Definition
from perdure.features.plugins.policy import Policy
from perdure.features.slash_commands.values import expand, make_command, split_words
from tests.support.cases import for_each


def expanded(body: str, arguments: str, words: Sequence[str] | None = None, *, limit_chars: int = 10_000) -> str:
    """The text of a command behind its head."""
    command = make_command(Definition(kind="commands", name="x", layer="user", path=None, body=body), (), Policy())
    head, _, text = expand(command, arguments, words, limit_chars=limit_chars).partition("\n\n")
    assert head == "[The command /x is run.]"
    return text


@for_each(
    [
        ("Fix $1 now, all: $ARGUMENTS.", "12 high", "Fix 12 now, all: 12 high."),
        ("$2-$1-$3", "a b", "b-a-"),
        ("$1", "'two words' more", "two words"),
        ("$1|$2", "it's here", "it's|here"),
        ("$11 $10", "a b c d e f g h i j k", "k j"),
        ("$ $x $ARGUMENTSX $123", "a", "$ $x $ARGUMENTSX $123\n\nARGUMENTS: a"),
        ("$1, $2 of: $ARGUMENTS", "'two words' \"a 'b'\"", "two words, a 'b' of: 'two words' \"a 'b'\""),
        ("$1|$2", r"a\ b c\"d", 'a b|c"d'),
        ("$1|$2", "'' b", "|b"),
        ("$0 and $1", "a b", "a and b"),
        ("$ARGUMENTS[0] $ARGUMENTS[1] $ARGUMENTS[2]", "a b", "a b "),
        ("$1 is $ARGUMENTS[0]", "a b", "a is a"),
        (r"\$1 \$ARGUMENTS \$0 \$x $1", "a", r"$1 $ARGUMENTS $0 \$x a"),
        (r"only \$1", "a", "only $1\n\nARGUMENTS: a"),
        ("${1} ${ARGUMENTS} $1", "a", "${1} ${ARGUMENTS} a"),
        ("$1 $2", "$2 \\$1", "$2 $1"),
        ("$10$1", "1 2 3 4 5 6 7 8 9 ten", "ten1"),
        ("No place.", "", "No place."),
        ("No place.", "a", "No place.\n\nARGUMENTS: a"),
        ("$1 $ARGUMENTS", "$2 $ARGUMENTS", "$2 $2 $ARGUMENTS"),
        ("!`rm -rf /` @/etc/passwd $1", "", "!`rm -rf /` @/etc/passwd "),
    ]
)
def test_arguments_take_their_places(body: str, arguments: str, text: str) -> None:
    """Once: what they hold is not looked at again. Nothing is run, no file is read."""
    assert expanded(body, arguments) == text


def test_words_that_are_given_one_by_one_are_not_parted_again() -> None:
    """As a shell gives them to a program; all together they stand as they are."""
    assert expanded("$1|$2|$ARGUMENTS", "two words it's", ["two words", "it's"]) == "two words|it's|two words it's"


@pytest.mark.slow
def test_words_are_those_of_a_shell() -> None:
    """By the rules of `shlex`, but in a time that does not grow with the square of a word's length."""
    chance = random.Random(0)
    for _ in range(20_000):
        text = "".join(chance.choice(" \t\n'\"\\ab$é") for _ in range(chance.randrange(14)))
        try:
            expected = shlex.split(text)
        except ValueError:
            expected = text.split()
        assert split_words(text) == expected, text
    started = time.process_time()
    for part in ("x", "'", '"', "\\", "a'", '\\"', '"\\"'):
        split_words(part * 100_000)

    assert time.process_time() - started < 5


def test_a_text_that_would_be_huge_is_not_made() -> None:
    """Each place takes all of the arguments."""
    with pytest.raises(MessageTooLarge):
        expanded("$ARGUMENTS" * 90_000, "x" * 400_000, limit_chars=500_000)


@pytest.mark.parametrize(
    ("fields", "tools", "missing"),
    [
        ({"disallowed_tools": ("Bash(rm:*)", "Raed")}, ["memory_insert", "open_files"], ["Raed"]),
        ({"disallowed_tools": ("Write",)}, None, ["Write"]),
        ({"disallowed_tools": ("*",)}, [], []),
        ({"allowed_tools": ("Bash", "Read"), "disallowed_tools": ("run_*",)}, ["open_files"], []),
    ],
)
def test_a_command_takes_tools_away(fields: dict[str, Any], tools: list[str] | None, missing: list[str]) -> None:
    """Whole ones: a limit of arguments can't be half honoured."""
    definition = Definition(kind="commands", name="x", layer="user", path=None, fields=fields)
    command = make_command(definition, ("open_files", "memory_insert", "run_code"), Policy())

    assert (command.tools, command.missing) == (tools, missing)


@pytest.mark.parametrize(
    ("allowed", "policy", "tools", "missing"),
    [
        (None, Policy(), None, []),
        (("Read", "memory_*"), Policy(), ["memory_insert", "open_files"], []),
        (("Bash(git add:*)", "Write"), Policy(), [], ["Bash(git add:*)", "Write"]),
        ((), Policy(), [], []),
        (None, Policy(denied_tools=("run_*",)), ["memory_insert", "open_files"], []),
        (None, Policy(denied_tools=("Bash",)), ["memory_insert", "open_files"], []),
        (("*",), Policy(denied_tools=("run_*",)), ["memory_insert", "open_files"], []),
        (None, Policy(denied_tools=("other",)), None, []),
    ],
)
def test_the_tools_of_a_command_are_those_that_it_and_the_policy_allow(
    allowed: tuple[str, ...] | None, policy: Policy, tools: list[str] | None, missing: list[str]
) -> None:
    """Of those that the agent has. What a limit of arguments allows can't be enforced, so it allows nothing."""
    fields = {} if allowed is None else {"allowed_tools": allowed}
    definition = Definition(kind="commands", name="x", layer="user", path=None, fields=fields)
    command = make_command(definition, ("open_files", "memory_insert", "run_code"), policy)

    assert (command.tools, command.missing) == (tools, missing)
    words = f"only these tools: {', '.join(tools) or 'none'}." if tools is not None else "is run.]"
    assert words in expand(command, "", limit_chars=1_000)
