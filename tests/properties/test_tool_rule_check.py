"""The check of tool rules against the engine itself: what is refused, no run could keep."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from perdure.core.errors import ToolRulesInvalid
from perdure.core.tools.rule_check import rules_to_settings
from perdure.core.tools.rules import ChildTools, Conditional, RunFirst, ToolRules, rules_in
from perdure.engine.log.tool_rules import PastCall, RuleScope, RuleState, rule_state
from tests.properties.test_tool_rules import random_rules

SETS, CHUNK = (10_000, 1_000) if os.environ.get("PERDURE_FAULTS") == "full" else (600, 300)
LONGEST = 6


def courses(rules: ToolRules, longest: int = LONGEST) -> Iterator[tuple[str, ...]]:
    """The tools of every run that keeps all rules to its end, up to a length, as the engine judges them."""
    named = {name for rule in rules.rules for name in (rule.tool_name, *getattr(rule, "children", ()))}
    rule_scope = RuleScope(rules, frozenset(named))
    outputs = {
        rule.tool_name: (*rule.child_output_mapping, "?") for rule in rules.rules if isinstance(rule, Conditional)
    }
    left: list[tuple[PastCall, ...]] = [()]
    while left:
        called = left.pop()
        now = rule_state(rule_scope, called, answer=len(called) - 1)
        if now.problem is not None:
            continue
        if _ends(now):
            yield tuple(call.name for call in called)
        if (now.exit_tool is None or now.missing) and len(called) < longest:
            left += [
                (*called, PastCall(name, output, answer=len(called)))
                for name in now.allowed
                for output in outputs.get(name, ("",))
            ]


def _ends(now: RuleState) -> bool:
    """Whether the run may end here with every rule kept, and none of them given up for want of a tool."""
    if now.missing:
        return False
    asked = any(isinstance(rule, (ChildTools, Conditional, RunFirst)) for rule, _ in now.active)
    return now.exit_tool is not None or not asked


def impossible(why: str) -> str | None:
    """The tool that no run can call and keep the rules, by this refusal; empty: no run can keep them at all; None: the
    refusal is about something else."""
    if "(required_before_exit), but" in why:
        return ""
    if "(constrain_child_tools), but" in why or "(constrain_child_tools), so" in why:
        return why.split()[1]
    return why.split()[0] if "may come right after" in why.partition(",")[0] and "never" in why else None


@pytest.mark.parametrize("first", range(0, SETS, CHUNK))
def test_what_is_refused_no_run_could_keep(first: int) -> None:
    """Nobody finds a course with the refused tool, up to a length."""
    refused = 0
    for seed in range(first, first + CHUNK):
        rules = [rule for rule in random_rules(random.Random(seed)) if rule.get("child_output_mapping") != {}][:5]
        try:
            rules_to_settings(rules)
        except ToolRulesInvalid as error:
            why = str(error).partition("other: ")[2]
            if (name := impossible(why)) is not None:
                kept = (course for course in courses(rules_in({"tool_rules": rules})) if not name or name in course)
                assert next(kept, None) is None, (seed, rules, why)
                refused += 1
    assert refused > CHUNK // 50
