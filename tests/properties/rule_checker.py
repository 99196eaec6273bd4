"""What tool rules promise, checked on what tools really did. It knows nothing of how the engine decides.

The rules are the wire's plain dicts, as they were given; the effects are what the tools themselves wrote down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """A tool ran: with which arguments, and what it returned."""

    name: str
    arguments: Mapping[str, Any]
    output: str


def broken(rules: Sequence[Rule], tools: Sequence[str], effects: Sequence[Effect], stop_reason: str) -> list[str]:
    """Every promise that was broken while one request was served."""
    return [*_order(rules, tools, effects), *_counts(rules, effects), *_ends(rules, tools, effects, stop_reason)]


def _of(rules: Sequence[Rule], kind: str, name: str | None = None) -> list[Rule]:
    return [rule for rule in rules if rule["type"] == kind and name in (None, rule["tool_name"])]


def _order(rules: Sequence[Rule], tools: Sequence[str], effects: Sequence[Effect]) -> list[str]:
    wrong: list[str] = []
    starters = [rule for rule in _of(rules, "run_first") if rule["tool_name"] in tools]
    if starters and effects and effects[0].name not in {rule["tool_name"] for rule in starters}:
        wrong.append(f"{effects[0].name} ran first")
    for rule in starters:
        if effects and effects[0].name == rule["tool_name"]:
            wrong += _unfilled(effects[0], [one.get("args") for one in _of(starters, "run_first", rule["tool_name"])])
    for place, effect in enumerate(effects):
        before = effects[place - 1] if place else None
        guards = [rule for rule in _of(rules, "parent_last_tool") if effect.name in rule["children"]]
        if guards and (before is None or before.name not in {rule["tool_name"] for rule in guards}):
            wrong.append(f"{effect.name} ran, but not right after a parent")
        if before is None:
            continue
        for rule in _of(rules, "constrain_child_tools", before.name):
            if {*rule["children"]} & {*tools} and effect.name not in rule["children"]:
                wrong.append(f"{effect.name} ran right after {before.name}")
        nodes = [
            node["args"]
            for rule in _of(rules, "constrain_child_tools", before.name)
            if {*rule["children"]} & {*tools}
            for node in rule.get("child_arg_nodes") or ()
            if node["name"] == effect.name
        ]
        wrong += _unfilled(effect, nodes)
        for rule in _of(rules, "conditional", before.name):
            child = rule["child_output_mapping"].get(before.output, rule.get("default_child"))
            if child in tools and effect.name != child:
                wrong.append(f"{effect.name} ran after {before.name} had returned {before.output}")
            if child is None and rule.get("require_output_mapping"):
                wrong.append(f"{effect.name} ran after {before.name} had returned what nobody foresaw")
        heirs = {child for rule in _of(rules, "parent_last_tool", before.name) for child in rule["children"]}
        if heirs & {*tools} and effect.name not in heirs:
            wrong.append(f"{effect.name} ran right after the parent {before.name}")
    return wrong


def _unfilled(effect: Effect, given: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Of several values for one argument the last counts."""
    wanted: dict[str, Any] = {}
    for args in given:
        wanted |= args or {}
    return [
        f"{effect.name} ran with {name}={effect.arguments.get(name)!r}, not {value!r}"
        for name, value in wanted.items()
        if effect.arguments.get(name) != value
    ]


def _counts(rules: Sequence[Rule], effects: Sequence[Effect]) -> list[str]:
    return [
        f"{rule['tool_name']} ran more than {rule['max_count_limit']} times"
        for rule in _of(rules, "max_count_per_step")
        if sum(effect.name == rule["tool_name"] for effect in effects) > rule["max_count_limit"]
    ]


def _ends(rules: Sequence[Rule], tools: Sequence[str], effects: Sequence[Effect], stop_reason: str) -> list[str]:
    wrong: list[str] = []
    exits = {rule["tool_name"] for rule in _of(rules, "exit_loop")}
    needed = {rule["tool_name"] for rule in _of(rules, "required_before_exit")} & {*tools}
    for place, effect in enumerate(effects):
        open_still = needed - {one.name for one in effects[: place + 1]}
        if effect.name in exits and not open_still and place + 1 < len(effects):
            wrong.append(f"{effects[place + 1].name} ran after {effect.name} had ended the run")
    ran = {effect.name for effect in effects}
    if stop_reason in ("end_turn", "tool_rule") and needed - ran:
        wrong.append(f"the run ended ({stop_reason}) without {sorted(needed - ran)}")
    last = effects[-1] if effects else None
    if stop_reason == "tool_rule" and (last is None or last.name not in exits):
        wrong.append("the run ended as if by exit_loop")
    if last is not None and last.name in exits and not needed - ran and stop_reason not in ("tool_rule", "cancelled"):
        wrong.append(f"{last.name} ran, but the run ended with {stop_reason}")
    if stop_reason == "end_turn":
        wrong += _unasked(rules, tools, effects)
    return wrong


def _unasked(rules: Sequence[Rule], tools: Sequence[str], effects: Sequence[Effect]) -> list[str]:
    """An answer in words was taken though a call had to come."""
    if not effects:
        starters = {rule["tool_name"] for rule in _of(rules, "run_first")} & {*tools}
        return [f"nothing was called before the end, not even {sorted(starters)}"] if starters else []
    last = effects[-1]
    left: set[str] | None = None
    for rule in _of(rules, "constrain_child_tools", last.name):
        if children := {*rule["children"]} & {*tools}:
            left = children if left is None else left & children
    for rule in _of(rules, "conditional", last.name):
        child = rule["child_output_mapping"].get(last.output, rule.get("default_child"))
        if child in tools:
            left = {child} if left is None else left & {child}
    for rule in _of(rules, "max_count_per_step"):
        if left and sum(effect.name == rule["tool_name"] for effect in effects) >= rule["max_count_limit"]:
            left.discard(rule["tool_name"])
    heirs = {child for rule in _of(rules, "parent_last_tool", last.name) for child in rule["children"]} & {*tools}
    guarded = {child for rule in _of(rules, "parent_last_tool") for child in rule["children"]} - heirs
    if left and (left & heirs if heirs else left - guarded):
        return [f"the run ended right after {last.name}"]
    return []
