"""Whether an agent's tool rules can be kept: what two of them say against each other, and a search through the courses
that a run can take under all of them.

The search is sound: what it refuses no run could keep. It takes every named tool as there, and what tools return as
it suits best; it does not look at more than `NAMES_MAX` tools, and where there would be too many states it leaves out
how often tools were called and which required ones are missing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from perdure.core.errors import ToolRulesInvalid
from perdure.core.tool_rules import (
    NO_RULES,
    ChildTools,
    Conditional,
    ContinueLoop,
    ExitLoop,
    MaxCount,
    ParentTool,
    RequiredBeforeExit,
    RequiresApproval,
    RunFirst,
    ToolRule,
    ToolRules,
    output_word,
)

__all__ = ["check_rules"]

NAME_CHARS_MAX, LISTED_MAX, COUNT_MAX = 200, 1_000, 1_000_000
NAMES_SHOWN = 5

NAMES_MAX = 300
EDGES_MAX = 300_000
"""So much is searched in a fraction of a second."""

START = -1


def check_rules(found: ToolRules, *, before: ToolRules = NO_RULES) -> None:
    """Nothing, when an agent with all the tools that are named could keep these rules.

    Args:
        before: those it has. If only approvals are other ones, the rest stays as it was taken once.
    Raises: ToolRulesInvalid: a value can't be used, two contradict each other, or together they leave no way.
    """
    rules = found.rules
    same = bool(before) and found.ordered == before.ordered
    for place, rule in enumerate(rules):
        if not same or isinstance(rule, RequiresApproval):
            _check_values(rule, f"tool_rules.{place}")
    if same:
        return
    limits = _check_pairs(rules)
    _check_first(rules)
    _check_next(rules)
    if len(found.names) <= NAMES_MAX:
        _check_courses(rules, limits)


def _check_values(rule: ToolRule, where: str) -> None:
    names: list[str] = [rule.tool_name]
    args: list[Mapping[str, Any] | None] = []
    match rule:
        case RunFirst():
            args = [rule.args]
        case ChildTools():
            names, args = [*names, *rule.children], [*rule.child_args.values()]
        case ParentTool() | Conditional():
            names += rule.children
        case MaxCount(max_count_limit=limit) if limit > COUNT_MAX:
            shown = str(limit) if limit < 10**20 else "a number of more than 20 digits"
            raise ToolRulesInvalid(f"{where}.max_count_limit is {shown}: give at most {COUNT_MAX:,}")
        case _:
            pass
    if len(names) > LISTED_MAX + 1:
        raise ToolRulesInvalid(f"{where} names {len(names) - 1:,} tools: give at most {LISTED_MAX:,}")
    if isinstance(rule, Conditional) and len(rule.child_output_mapping) > LISTED_MAX:
        raise ToolRulesInvalid(
            f"{where} maps {len(rule.child_output_mapping):,} outputs: give at most {LISTED_MAX:,}, and default_child"
            " for the others"
        )
    for name in names:
        if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
            raise ToolRulesInvalid(
                f"{where} names the tool {name!r:.80}: give 1 to {NAME_CHARS_MAX} characters that can be printed"
            )
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolRulesInvalid(f"{where}: its arguments can't be written as JSON: {error}") from error


def _check_pairs(rules: Sequence[ToolRule]) -> dict[str, int]:
    """What two rules for one tool say against each other; tool -> how often it may be called."""
    exits = {rule.tool_name for rule in rules if isinstance(rule, ExitLoop)}
    limits: dict[str, int] = {}
    filled: dict[tuple[str, str, str], Any] = {}
    for rule in rules:
        match rule:
            case MaxCount(tool_name=name, max_count_limit=limit):
                if limits.setdefault(name, limit) != limit:
                    _contradiction(f"{name} may be called {limits[name]} times (max_count_per_step) and {limit} times")
            case ContinueLoop(tool_name=name) if name in exits:
                _contradiction(f"{name} ends the run (exit_loop) and must go on (continue_loop)")
            case ChildTools(tool_name=name) | ParentTool(tool_name=name) | Conditional(tool_name=name) if name in exits:
                _contradiction(f"{name} ends the run (exit_loop), but another tool has to come after it ({rule.type})")
            case _:
                pass
        for after, name, args in _filled(rule):
            for key, value in args.items():
                if filled.setdefault((after, name, key), value) != value:
                    _contradiction(
                        f"{name} is called with {key}={filled[after, name, key]!r:.40} and with {key}={value!r:.40}"
                        f" ({rule.type})"
                    )
    return limits


def _filled(rule: ToolRule) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(the tool before, or nothing; the tool; arguments that are put in place of the model's)."""
    if isinstance(rule, RunFirst) and rule.args:
        yield "", rule.tool_name, rule.args
    elif isinstance(rule, ChildTools):
        for name, args in rule.child_args.items():
            yield rule.tool_name, name, args


def _check_first(rules: Sequence[ToolRule]) -> None:
    parents = _parents_of(rules)
    closed = {rule.tool_name for rule in rules if isinstance(rule, MaxCount) and not rule.max_count_limit}
    for rule in rules:
        if not isinstance(rule, RunFirst):
            continue
        name = rule.tool_name
        if name in closed:
            _contradiction(f"{name} has to come first (run_first), but max_count_per_step is 0")
        if name in parents:
            after = _named(parents[name], " or ")
            _contradiction(f"{name} has to come first (run_first), but only right after {after} (parent_last_tool)")


def _check_next(rules: Sequence[ToolRule]) -> None:
    parents = _parents_of(rules)
    follow: dict[str, frozenset[str]] = {}
    for rule in rules:
        if isinstance(rule, ChildTools):
            children = frozenset(rule.children)
            follow[rule.tool_name] = follow.get(rule.tool_name, children) & children
    for rule in rules:
        if not isinstance(rule, (ChildTools, ParentTool, Conditional)):
            continue
        name, outside = rule.tool_name, follow.get(rule.tool_name)
        left = {child for child in rule.children if outside is None or child in outside}
        if isinstance(rule, Conditional) and left != {*rule.children}:
            lost = _named({*rule.children} - left)
            _contradiction(f"after {name} comes {lost} (conditional), but its children don't have it")
        if not left:
            _contradiction(f"no tool may come after {name}: its rules have no child in common")
        if isinstance(rule, ParentTool):
            continue
        there = {child for child in left if not parents.get(child) or name in parents[child]}
        if not there or (isinstance(rule, Conditional) and there != left):
            lost = _named(left - there)
            _contradiction(
                f"after {name} comes {lost} ({rule.type}), which is allowed right after other tools only"
                " (parent_last_tool)"
            )


def _check_courses(rules: Sequence[ToolRule], limits: Mapping[str, int]) -> None:
    courses = _Courses(rules, limits)
    courses.search()
    for rule in rules:
        if isinstance(rule, RequiredBeforeExit) and rule.tool_name not in courses.reached:
            why = "max_count_per_step is 0" if limits.get(rule.tool_name) == 0 else "no other rule ever allows it"
            _contradiction(f"{rule.tool_name} has to be called (required_before_exit), but {why}")
    for child, before in _parents_of(rules).items():
        if child not in courses.reached and limits.get(child) != 0:
            _contradiction(
                f"{child} may come right after {_named(before, ' or ')} only (parent_last_tool), and by these"
                " rules that never happens"
            )
    for rule in rules:
        name = rule.tool_name
        if name in courses.reached and name not in courses.ended:
            wanted = _named(_wanted(rules, name)) or "what is required"
            _contradiction(f"after {name} no tool is left: {wanted} may not be called then, or leads to no end")
    for name, outputs in courses.lost.items():
        shown = _named((f"{output!r:.40}" for output in outputs), " or ")
        _contradiction(f"when {name} returns {shown} (conditional) no tool is left that leads to an end")
    if START not in courses.ended:
        _contradiction("no run can end by them")


@dataclass(frozen=True, slots=True)
class _Way:
    """What may come after a tool: `tools`, as bits; `demanded`: one of them has to."""

    tools: int
    demanded: bool


_State = tuple[int, int, tuple[int, ...]]
"""(the last tool, the required ones that are missing as bits, how often each counted tool was called)"""


class _Courses:
    """The states that a run can be in, and those of them from which it can come to an end with every rule kept.

    After `search`: `reached` are the tools that can be called at all, `ended` those after which it can still end (and
    `START`), `lost` the outputs of a tool after which it can't.
    """

    def __init__(self, rules: Sequence[ToolRule], limits: Mapping[str, int]) -> None:
        self._names = ToolRules(tuple(rules)).names
        bit = {name: 1 << place for place, name in enumerate(self._names)}
        may = sum(bit[name] for name in self._names if limits.get(name) != 0)
        self._exits = sum({bit[rule.tool_name] for rule in rules if isinstance(rule, ExitLoop)})
        required = sum({bit[rule.tool_name] for rule in rules if isinstance(rule, RequiredBeforeExit)})
        parents = _parents_of(rules)
        own: dict[str, list[ToolRule]] = {name: [] for name in self._names}
        for rule in rules:
            own[rule.tool_name].append(rule)
        self._ways = {place: _ways(own[name], name, bit, may, parents) for place, name in enumerate(self._names)}
        first = sum({bit[rule.tool_name] for rule in rules if isinstance(rule, RunFirst)})
        closed = sum(bit[child] for child in parents)
        self._ways[START] = {_Way((first or ~0) & may & ~closed, bool(first)): ()}
        # A course that gets somewhere need not call a tool more often than required ones are found on its way, and
        # three times besides.
        most = required.bit_count() + 3
        self._counted = {bit[name]: limit for name, limit in limits.items() if name in bit and 0 < limit < most}
        sizes = [len(self._names) + 1, 2 ** required.bit_count(), *(limit + 1 for limit in self._counted.values())]
        self._exact = math.prod(sizes) * len(self._names) <= EDGES_MAX
        if not self._exact:
            self._counted = {}
        self._missing = required if self._exact else 0
        self._any_required = bool(required)
        self.reached: set[str] = set()
        self.ended: set[str | int] = set()
        self.lost: dict[str, set[str]] = {}

    def search(self) -> None:
        start: _State = (START, self._missing, (0,) * len(self._counted))
        before: dict[_State, list[_State]] = {start: []}
        good: list[_State] = []
        left = [start]
        while left:
            state = left.pop()
            if self._is_end(state):
                good.append(state)
            for following in {one for way in self._ways[state[0]] for one in self._after(state, way)}:
                if following not in before:
                    before[following] = []
                    left.append(following)
                before[following].append(state)
        ends = set(good)
        while good:
            for state in before[good.pop()]:
                if state not in ends:
                    ends.add(state)
                    good.append(state)
        self.reached = {self._names[state[0]] for state in before if state[0] != START}
        self.ended = {START if state[0] == START else self._names[state[0]] for state in ends}
        kept: set[tuple[int, _Way]] = set()
        for state in before:
            for way, outputs in self._ways[state[0]].items():
                if outputs and any(one in ends for one in self._after(state, way)):
                    kept.add((state[0], way))
        for place, name in sorted(enumerate(self._names), key=lambda one: one[1]):
            if name in self.reached:
                ways = self._ways[place].items()
                if lost := {output for way, outputs in ways if (place, way) not in kept for output in outputs}:
                    self.lost[name] = lost

    def _is_end(self, state: _State) -> bool:
        last, missing, _ = state
        if missing:
            return False
        return self._is_exit(last) or any(not way.demanded for way in self._ways[last])

    def _is_exit(self, last: int) -> bool:
        return last != START and bool(self._exits >> last & 1)

    def _after(self, state: _State, way: _Way) -> Iterator[_State]:
        last, missing, counts = state
        if self._is_exit(last) and not missing and (self._exact or not self._any_required):
            return
        tools = way.tools
        for (one, limit), count in zip(self._counted.items(), counts, strict=True):
            if count >= limit:
                tools &= ~one
        while tools:
            one = tools & -tools
            tools ^= one
            counted = tuple(count + (one == bit) for bit, count in zip(self._counted, counts, strict=True))
            yield one.bit_length() - 1, missing & ~one, counted


def _ways(
    rules: Sequence[ToolRule], name: str, bit: Mapping[str, int], may: int, parents: Mapping[str, set[str]]
) -> Mapping[_Way, Sequence[str]]:
    """What may come after a tool, for everything that it can return and its `rules` tell apart; each with the outputs
    for which they name what comes."""
    tools, demanded = may, False
    tools &= ~sum(bit[child] for child, before in parents.items() if name not in before)
    heirs = {child for child, before in parents.items() if name in before}
    if heirs:
        tools &= sum(bit[child] for child in heirs)
    for rule in rules:
        if isinstance(rule, ChildTools):
            tools &= sum(bit[child] for child in rule.children)
            demanded = True
    conditions = [rule for rule in rules if isinstance(rule, Conditional)]
    if not conditions:
        return {_Way(tools, demanded): ()}
    shown: dict[str, str] = {}
    named: dict[str, dict[int, str]] = {}  # output -> place of a rule that names it -> the child
    for place, rule in enumerate(conditions):
        for text, child in rule.child_output_mapping.items():
            word = output_word(text)
            shown[word] = text
            named.setdefault(word, {}).setdefault(place, child)
    # A rule that does not name the output has its default; how many have which is counted once for all outputs.
    defaults = Counter((rule.default_child, rule.require_output_mapping) for rule in conditions)
    found: dict[_Way, list[str]] = {}
    for known in (*named, None):
        by_rule = {} if known is None else named[known]
        others = defaults.copy() if by_rule else defaults
        for place in by_rule:
            others[conditions[place].default_child, conditions[place].require_output_mapping] -= 1
        rest = [default for default, count in others.items() if count]
        if any(child is None and required for child, required in rest):
            continue  # the run fails, as it was asked to
        children = {*by_rule.values(), *(child for child, _ in rest if child is not None)}
        left = tools
        for child in children:
            left &= bit[child]
        outputs = found.setdefault(_Way(left, demanded or bool(children)), [])
        if children:
            outputs.append("something else" if known is None else shown[known])
    return found


def _wanted(rules: Iterable[ToolRule], name: str) -> list[str]:
    """The tools one of which has to come after this one by its own rules."""
    found: dict[str, None] = {}
    for rule in rules:
        if isinstance(rule, (ChildTools, Conditional)) and rule.tool_name == name:
            found |= dict.fromkeys(rule.children)
    return list(found)


def _parents_of(rules: Iterable[ToolRule]) -> dict[str, set[str]]:
    """Child -> the tools right after which it may be called (`parent_last_tool`)."""
    parents: dict[str, set[str]] = {}
    for rule in rules:
        if isinstance(rule, ParentTool):
            for child in rule.children:
                parents.setdefault(child, set()).add(rule.tool_name)
    return parents


def _named(names: Iterable[str], between: str = ", ") -> str:
    """The first names in their order, and how many there are besides: rules may name hundreds."""
    found = sorted(names)
    more = len(found) - NAMES_SHOWN
    return between.join((*found[:NAMES_SHOWN], f"{more} more") if more > 1 else found)


def _contradiction(text: str) -> NoReturn:
    raise ToolRulesInvalid(f"tool_rules contradict each other: {text}. Take one of them away")
