"""Tool rules: how they are read, kept and refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core.errors import ToolRulesInvalid
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ChildTools, MaxCount, RunFirst, rules_in
from tests.support.cases import for_each

RULES: list[dict[str, Any]] = [
    {"tool_name": "plan", "type": "run_first", "prompt_template": None, "args": {"depth": 2}},
    {"tool_name": "send", "type": "exit_loop", "prompt_template": None},
    {"tool_name": "look", "type": "continue_loop", "prompt_template": None},
    {
        "tool_name": "check",
        "type": "conditional",
        "prompt_template": None,
        "default_child": None,
        "child_output_mapping": {"ok": "send"},
        "require_output_mapping": False,
    },
    {
        "tool_name": "plan",
        "type": "constrain_child_tools",
        "prompt_template": None,
        "children": ["look", "check"],
        "child_arg_nodes": [{"name": "look", "args": {"at": "sky"}}],
    },
    {"tool_name": "check", "type": "parent_last_tool", "prompt_template": None, "children": ["send"]},
    {"tool_name": "look", "type": "max_count_per_step", "prompt_template": None, "max_count_limit": 2},
    {"tool_name": "send", "type": "required_before_exit", "prompt_template": None},
    {"tool_name": "look", "type": "required_before_exit", "prompt_template": None, "args": {"at": "sea"}},
    {"tool_name": "send", "type": "requires_approval", "prompt_template": None},
]


def test_every_kind_of_rule_is_kept_as_it_was_given() -> None:
    """What is stored is what is read, in the wire's shape and order of fields."""
    assert rules_to_settings(RULES) == RULES
    assert [list(rule) for rule in rules_to_settings(RULES)] == [list(rule) for rule in RULES]


def test_rules_may_be_given_as_values_and_twice() -> None:
    rules: list[Any] = [RunFirst("plan"), MaxCount("look", 2), {"type": "run_first", "tool_name": "plan", "args": None}]

    assert rules_in({"tool_rules": rules_to_settings(rules)}).rules == (RunFirst("plan"), MaxCount("look", 2))


def test_the_arguments_of_a_child_are_joined() -> None:
    """A node for the same child twice; one without arguments says nothing."""
    nodes = [{"name": "b", "args": {"x": 1}}, {"name": "b", "args": {"y": 2}}, {"name": "c"}]
    shape = {"type": "constrain_child_tools", "tool_name": "a", "children": ["b", "c"], "child_arg_nodes": nodes}

    assert rules_in({"tool_rules": [shape]}).rules == (ChildTools("a", ("b", "c"), {"b": {"x": 1, "y": 2}}),)


def rule(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "tool_name": name, **fields}


def child(name: str, *children: str) -> dict[str, Any]:
    return rule("constrain_child_tools", name, children=list(children))


def parent(name: str, *children: str) -> dict[str, Any]:
    return rule("parent_last_tool", name, children=list(children))


def most(name: str, limit: int) -> dict[str, Any]:
    return rule("max_count_per_step", name, max_count_limit=limit)


CONTRADICTIONS: dict[str, list[dict[str, Any]]] = {
    "a ends the run .* must go on": [rule("exit_loop", "a"), rule("continue_loop", "a")],
    "a ends the run .* another tool has to come": [rule("exit_loop", "a"), child("a", "b")],
    "a has to be called .run_first., but max_count_per_step is 0": [rule("run_first", "a"), most("a", 0)],
    "a has to come first .* right after b": [rule("run_first", "a"), parent("b", "a")],
    "a has to be called .required_before_exit., but max_count_per_step is 0": [
        rule("required_before_exit", "a"),
        most("a", 0),
    ],
    "a may come right after b only .* never": [rule("required_before_exit", "a"), parent("b", "a"), most("b", 0)],
    "another rule for a does not have b": [child("a", "b"), child("a", "c")],
    "after a comes c .conditional.": [
        child("a", "b"),
        rule("conditional", "a", child_output_mapping={"x": "b", "y": "c"}),
    ],
    "after a comes b .* right after c only": [child("a", "b"), parent("c", "b")],
    "after a comes b .* max_count_per_step of b is 0": [child("a", "b"), most("b", 0)],
    "b may come right after a only .* never": [parent("a", "b"), parent("b", "a")],
    "a may come right after a only .* never": [parent("a", "a")],
    "when a returns 'x' comes b and when a returns .*'x'.* comes c .conditional.": [
        rule("conditional", "a", child_output_mapping={"x": "b", "y": "b"}),
        rule("conditional", "a", child_output_mapping={"'x'": "c", "y": "b"}),
    ],
    "after a comes c .conditional., but another rule for a": [
        rule("conditional", "a", child_output_mapping={"x": "c", "y": "b"}),
        parent("a", "b"),
    ],
    "after a comes only a again": [child("a", "a"), most("a", 1)],
    "right after a may come b .* and c": [child("a", "b"), parent("a", "b"), parent("a", "c")],
    "when a returns something else comes b": [
        rule("conditional", "a", child_output_mapping={}, default_child="b"),
        rule("conditional", "a", child_output_mapping={}, default_child="c"),
    ],
    "a is called with n=1 and a is called with n=2 .run_first.": [
        rule("run_first", "a", args={"n": 1, "m": 1}),
        rule("run_first", "a", args={"n": 2}),
    ],
    "b is called with n=1 and b is called with n=2 .constrain": [
        child("a", "b") | {"child_arg_nodes": [{"name": "b", "args": {"n": 1}}]},
        child("a", "b", "c") | {"child_arg_nodes": [{"name": "b", "args": {"n": 2}}]},
    ],
}


@for_each(CONTRADICTIONS)
def test_two_rules_that_contradict_each_other_are_refused(why: str) -> None:
    with pytest.raises(ToolRulesInvalid, match=why):
        rules_to_settings(CONTRADICTIONS[why])


MANY = [f"tool{place:03}" for place in range(100)]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([rule("run_first", "a"), *(parent(one, "a") for one in MANY)], "tool003 or tool004 or 95 more "),
        ([child("a", *MANY), *(most(one, 0) for one in MANY)], "after a comes tool000, tool001, .* tool004, 95 more "),
        ([*(parent(one, "b") for one in MANY), *(most(one, 0) for one in MANY)], "b may come .* or tool004 or 95 more"),
        ([child("a", *MANY), parent("c", *MANY)], "after a comes tool000, .* 95 more .constrain.* right after c only"),
        ([child("a", "b"), rule("conditional", "a", child_output_mapping={x: x for x in MANY})], "004, 95 more .cond"),
    ],
)
def test_a_contradiction_among_many_tools_names_a_few_and_says_how_many(rules: list[Any], told: str) -> None:
    with pytest.raises(ToolRulesInvalid, match=told) as refused:
        rules_to_settings(rules)

    assert len(str(refused.value)) < 300


FINE: list[list[dict[str, Any]]] = [
    [rule("run_first", "a"), child("a", "b"), rule("exit_loop", "b"), rule("required_before_exit", "b")],
    [parent("a", "b"), parent("c", "b"), most("a", 1)],
    [child("a", "b", "c"), child("a", "c", "d"), most("b", 0)],
    [rule("conditional", "a", child_output_mapping={"x": "a"}, default_child="b"), rule("exit_loop", "b")],
    [most("a", 0)],
    [rule("run_first", "a"), rule("exit_loop", "a"), rule("required_before_exit", "b")],
    [rule("run_first", "a"), rule("run_first", "b"), rule("exit_loop", "a")],
    [rule("run_first", "a", args={"n": 1}), rule("run_first", "a", args={"m": 2})],
    [child("a", "b"), child("b", "a", "c"), most("a", 1)],
    [child("a", "b"), most("b", 3)],
    [
        rule("conditional", "a", child_output_mapping={"x": "b"}),
        rule("conditional", "a", child_output_mapping={"y": "c"}),
    ],
    [rule("conditional", "a", child_output_mapping={"x": "b"}, require_output_mapping=True), parent("a", "b")],
    [parent("hub", "b"), parent("hub", "c"), most("hub", 2), *(rule("required_before_exit", one) for one in "bc")],
    [rule("required_before_exit", "a"), parent("b", "a"), rule("run_first", "b")],
    # No run of these ends but by its limit of model calls: only pairs are compared.
    [child("a", "b"), child("b", "a")],
    [rule("run_first", "a"), child("a", "b"), child("b", "a"), rule("required_before_exit", "c")],
]


@for_each(FINE)
def test_rules_that_do_not_contradict_each_other_are_taken(rules: list[dict[str, Any]]) -> None:
    assert len(rules_to_settings(rules)) == len(rules)


MALFORMED: dict[str, Any] = {
    "tool_rules is 'exit_loop'": "exit_loop",
    'tool_rules.0 is "exit_loop"': ["exit_loop"],
    'tool_rules.0.type is "until": there are run_first': [rule("until", "a")],
    'tool_rules.0.type is ."exit_loop"': [{"type": ["exit_loop"], "tool_name": "a"}],
    "tool_rules.0.tool_name is null": [{"type": "exit_loop"}],
    "tool_rules.1.max_count_limit is true": [rule("exit_loop", "b"), most("a", True)],
    "tool_rules.0.max_count_limit is -1": [most("a", -1)],
    "tool_rules.0.children is ..": [child("a")],
    'tool_rules.0.children is .."b"': [rule("parent_last_tool", "a", children=[["b"]])],
    'tool_rules.0.children is "b"': [rule("parent_last_tool", "a", children="b")],
    'child_arg_nodes.0.name is "c": it must be one of the children b': [
        child("a", "b") | {"child_arg_nodes": [{"name": "c", "args": {}}]}
    ],
    "tool_rules.0.args is 5": [rule("run_first", "a", args=5)],
    "child_output_mapping is null": [rule("conditional", "a")],
    "maps nothing": [rule("conditional", "a", child_output_mapping={})],
    'tool_rules.0.tool_name is ""': [rule("exit_loop", "")],
    "tool_rules.0 names the tool 'xxx": [rule("exit_loop", "x" * 300)],
    "tool_rules.1 names the tool 'a.x00'": [rule("exit_loop", "b"), child("a", "a\0")],
    "tool_rules.0 names the tool ' '": [parent("a", " ")],
    "max_count_limit is a number of more than 20 digits: give at most": [most("a", 10**30)],
    "max_count_limit is 5000000": [most("a", 5_000_000)],
    "tool_rules.0: its arguments can't be written as JSON": [rule("run_first", "a", args={"n": float("nan")})],
    "tool_rules.0 names 1,001 tools": [child("a", *(f"t{place}" for place in range(1_001)))],
    "tool_rules.0 maps 1,001 outputs": [
        rule("conditional", "a", child_output_mapping={f"out{place}": "b" for place in range(1_001)})
    ],
    "must be one of the children t0, .*, t19, [.][.][.]$": [
        child("a", *(f"t{place}" for place in range(900))) | {"child_arg_nodes": [{"name": "c", "args": {}}]}
    ],
}


@for_each(MALFORMED)
def test_a_rule_that_is_none_is_named_with_its_place(why: str) -> None:
    with pytest.raises(ToolRulesInvalid, match=why):
        rules_to_settings(MALFORMED[why])


def test_rules_that_were_taken_once_can_be_read_for_ever() -> None:
    """What is refused when rules are set may have been stored before it was."""
    assert len(rules_in({"tool_rules": [child("a", "a"), most("a", 10**30)]}).rules) == 2


def test_an_approval_can_be_asked_for_beside_rules_that_would_not_be_taken_now() -> None:
    """Or a person could not be put between an older agent and its tools. Any other change is looked at."""
    older = [child("a", "a")]
    approval = rule("requires_approval", "a")
    assert len(rules_to_settings([*older, approval], before=older)) == 2
    assert len(rules_to_settings(older, before=[*older, approval])) == 1
    with pytest.raises(ToolRulesInvalid, match="contradict"):
        rules_to_settings([*older, rule("continue_loop", "a")], before=older)
    with pytest.raises(ToolRulesInvalid, match="names the tool ' '"):
        rules_to_settings([*older, rule("requires_approval", " ")], before=older)


def test_every_output_is_compared_with_all_conditions_of_its_tool() -> None:
    """However many there are, and whatever quotes stand around the text."""
    outputs = [{f"out{place}.{number}": "b" for number in range(500)} for place in range(100)]
    rules = [rule("conditional", "a", child_output_mapping=mapping, default_child="b") for mapping in outputs]

    assert len(rules_to_settings(rules)) == len(rules)
    with pytest.raises(ToolRulesInvalid, match=r"when a returns 'out7\.9' comes b and when a returns .* comes c"):
        rules_to_settings([*rules, rule("conditional", "a", child_output_mapping={"'out7.9'": "c"})])
