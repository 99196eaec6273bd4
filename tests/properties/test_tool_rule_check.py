"""The check of tool rules against the engine itself: what is refused no run could keep, and what is taken some run
can."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from perdure.core.errors import ToolRulesInvalid
from perdure.core.tool_rules import ChildTools, Conditional, RunFirst, ToolRules, rules_of, rules_to_settings
from perdure.engine.tool_rules import Called, Standing, Terms, standing
from tests.properties.test_tool_rules import random_rules

SETS, CHUNK = (10_000, 1_000) if os.environ.get("PERDURE_FAULTS") == "full" else (600, 300)
LONGEST = 6


def courses(rules: ToolRules, longest: int = LONGEST) -> Iterator[tuple[str, ...]]:
    """The tools of every run that keeps all rules to its end, up to a length, as the engine judges them."""
    named = {name for rule in rules.rules for name in (rule.tool_name, *getattr(rule, "children", ()))}
    terms = Terms(rules, frozenset(named))
    outputs = {
        rule.tool_name: (*rule.child_output_mapping, "?") for rule in rules.rules if isinstance(rule, Conditional)
    }
    left: list[tuple[Called, ...]] = [()]
    while left:
        called = left.pop()
        now = standing(terms, called, answer=len(called) - 1)
        if now.stuck is not None:
            continue
        if _ends(now):
            yield tuple(call.name for call in called)
        if (now.exited is None or now.missing) and len(called) < longest:
            left += [
                (*called, Called(name, output, answer=len(called)))
                for name in now.allowed
                for output in outputs.get(name, ("",))
            ]


def _ends(now: Standing) -> bool:
    """Whether the run may end here with every rule kept, and none of them given up for want of a tool."""
    if now.missing:
        return False
    asked = any(isinstance(rule, (ChildTools, Conditional, RunFirst)) for rule, _ in now.active)
    return now.exited is not None or not asked


def never(what: str) -> str | None:
    """The tool that no run can call and keep the rules, by this refusal; empty: no run can keep them at all; None: it
    is about something else."""
    if what.startswith("no run can end") or "(required_before_exit), but no other rule ever allows it" in what:
        return ""
    if what.startswith("after ") and "no tool is left: " in what:
        return what.split()[1]
    return what.split()[0] if "by these rules that never happens" in what else None


@pytest.mark.parametrize("first", range(0, SETS, CHUNK))
def test_the_check_of_rules_is_what_the_engine_does(first: int) -> None:
    """Whoever looks at all courses up to a length finds what the check says."""
    taken = refused = 0
    for seed in range(first, first + CHUNK):
        rules = [rule for rule in random_rules(random.Random(seed)) if rule.get("child_output_mapping") != {}][:5]
        found = rules_of({"tool_rules": rules})
        try:
            rules_to_settings(rules)
        except ToolRulesInvalid as error:
            what = str(error).partition("other: ")[2]
            if (name := never(what)) is not None:
                kept = (course for course in courses(found) if not name or name in course)
                assert next(kept, None) is None, (seed, rules, what)
                refused += 1
        else:
            assert next(courses(found), None) is not None, (seed, rules)
            taken += 1
    assert taken > CHUNK // 5 and refused > CHUNK // 50
