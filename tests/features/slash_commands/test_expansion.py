"""The text of a command with its arguments."""

from __future__ import annotations

import pytest

from perdure.core.errors import MessageTooLarge
from perdure.features.plugins.definitions import Definition
from perdure.features.plugins.policy import Policy
from perdure.features.slash_commands.values import expand, make_command


def expanded(body: str, arguments: str, *, limit_chars: int = 10_000) -> str:
    """The text of a command behind its head."""
    command = make_command(Definition(kind="commands", name="x", layer="user", path=None, body=body), (), Policy())
    head, _, text = expand(command, arguments, limit_chars=limit_chars).partition("\n\n")
    assert head == "[The command /x is run.]"
    return text


@pytest.mark.parametrize(
    ("body", "arguments", "text"),
    [
        ("Fix $1 now, all: $ARGUMENTS.", "12 high", "Fix 12 now, all: 12 high."),
        ("$2-$1-$3", "a b", "b-a-"),
        ("$1", "'two words' more", "two words"),
        ("$1|$2", "it's here", "it's|here"),
        ("$11 $10", "a b c d e f g h i j k", "k j"),
        ("$0 $ $x $ARGUMENTSX $123", "a", "$0 $ $x $ARGUMENTSX $123\n\nARGUMENTS: a"),
        ("No place.", "", "No place."),
        ("No place.", "a", "No place.\n\nARGUMENTS: a"),
        ("$1 $ARGUMENTS", "$2 $ARGUMENTS", "$2 $2 $ARGUMENTS"),
        ("!`rm -rf /` @/etc/passwd $1", "", "!`rm -rf /` @/etc/passwd "),
    ],
)
def test_arguments_take_their_places(body: str, arguments: str, text: str) -> None:
    """Once: what they hold is not looked at again. Nothing is run, no file is read."""
    assert expanded(body, arguments) == text


def test_a_text_that_would_be_huge_is_not_made() -> None:
    """Each place takes all of the arguments."""
    with pytest.raises(MessageTooLarge):
        expanded("$ARGUMENTS" * 90_000, "x" * 400_000, limit_chars=500_000)


@pytest.mark.parametrize(
    ("allowed", "policy", "tools", "missing"),
    [
        (None, Policy(), None, ()),
        (("Read", "memory_*"), Policy(), ["memory_insert", "open_files"], []),
        (("Bash(git add:*)", "Write"), Policy(), [], ["Bash(git add:*)", "Write"]),
        ((), Policy(), [], []),
        (None, Policy(denied_tools=("run_*",)), ["open_files", "memory_insert"], ()),
        (None, Policy(denied_tools=("Bash",)), ["open_files", "memory_insert"], ()),
        (("*",), Policy(denied_tools=("run_*",)), ["memory_insert", "open_files"], []),
        (None, Policy(denied_tools=("other",)), None, ()),
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
