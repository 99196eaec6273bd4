"""Check an agent's tool rules: each value by itself, and each pair of rules for contradictions.

Only pairs are compared. Rules that form a circle pass, and such a run ends at its limit of model calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from perdure.core.errors import ToolRulesInvalid
from perdure.core.tools import rules as kinds

NAME_CHARS_MAX, LISTED_MAX, COUNT_MAX = 200, 1_000, 1_000_000
NAMES_SHOWN = 5


def rules_to_settings(
    rules: Iterable[Mapping[str, Any] | kinds.ToolRule],
    *,
    before: Sequence[Any] = (),
    names: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Check rules and return them in stored form, with every field.

    Args:
        names: name of a tool at its MCP server -> its name for the agent, which is stored.
        before: the stored rules that `rules` replace. If only approvals differ, the others are not checked again, as
            an older version may have accepted them.
    Raises: ToolRulesInvalid: they can't be read, or contradict each other.
    """
    if isinstance(rules, (str, Mapping)) or not isinstance(rules, Iterable):
        raise ToolRulesInvalid(f"tool_rules is {rules!r:.80}: give a list of rules")
    parsed = kinds.parse_rules(
        [kinds.rule_to_dict(rule) if isinstance(rule, kinds.ToolRule) else rule for rule in rules]
    )
    if names:
        parsed = kinds.parse_rules([_rename_tools(kinds.rule_to_dict(rule), names) for rule in parsed.rules])
    check_rules(parsed, before=kinds.parse_rules(before))
    return [kinds.rule_to_dict(rule) for rule in parsed.rules]


def _rename_tools(value: Any, names: Mapping[str, str]) -> Any:
    """Return a rule's shape with tools renamed, old name -> new name; types and arguments stay."""
    if isinstance(value, dict):
        return {key: one if key in ("args", "type") else _rename_tools(one, names) for key, one in value.items()}
    return [_rename_tools(one, names) for one in value] if isinstance(value, list) else names.get(value, value)


def check_rules(rules: kinds.ToolRules, *, before: kinds.ToolRules = kinds.NO_RULES) -> None:
    """Check that no value is out of range and no two rules contradict each other. `before`: the agent's rules until
    now; if only approvals differ from them, the rest is not checked. Raises: ToolRulesInvalid."""
    same = bool(before) and rules.order_rules == before.order_rules
    for place, rule in enumerate(rules.rules):
        if not same or isinstance(rule, kinds.RequiresApproval):
            _check_values(rule, f"tool_rules.{place}")
    if not same:
        # Two values where only one can hold: an argument, the child for an output.
        values: dict[tuple[str, ...], tuple[Any, str]] = {}
        for rule in rules.rules:
            for key, value, text in _single_values(rule):
                first, first_text = values.setdefault((rule.type, *key), (value, text))
                if first != value:
                    _contradiction(f"{first_text} and {text} ({rule.type})")
        pairs = _RuleIndex(rules.rules)
        pairs.check_parents()
        for rule in rules.rules:
            pairs.check(rule)


def _check_values(rule: kinds.ToolRule, where: str) -> None:
    """Check sizes, names and arguments of one rule; `where` is its place in error texts. Raises: ToolRulesInvalid."""
    names: list[str] = [rule.tool_name]
    args: list[Mapping[str, Any] | None] = []
    match rule:
        case kinds.RunFirst() | kinds.RequiredBeforeExit():
            args = [rule.args]
        case kinds.ChildTools():
            names, args = [*names, *rule.children], [*rule.child_args.values()]
        case kinds.ParentTool() | kinds.Conditional():
            names += rule.children
        case kinds.MaxCount(max_count_limit=limit) if limit > COUNT_MAX:
            number = str(limit) if limit < 10**20 else "a number of more than 20 digits"
            raise ToolRulesInvalid(f"{where}.max_count_limit is {number}: give at most {COUNT_MAX:,}")
        case _:
            pass
    if len(names) > LISTED_MAX + 1:
        raise ToolRulesInvalid(f"{where} names {len(names) - 1:,} tools: give at most {LISTED_MAX:,}")
    if isinstance(rule, kinds.Conditional) and len(rule.child_output_mapping) > LISTED_MAX:
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


def _single_values(rule: kinds.ToolRule) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield (key, value, both in words) of every value that a second rule must not contradict."""
    name = rule.tool_name
    match rule:
        case kinds.RunFirst(args=args):
            for key, value in (args or {}).items():
                yield (name, key), value, f"{name} is called with {key}={value!r:.40}"
        case kinds.ChildTools(child_args=child_args):
            for child, args in child_args.items():
                for key, value in args.items():
                    yield (name, child, key), value, f"{child} is called with {key}={value!r:.40}"
        case kinds.Conditional(child_output_mapping=mapping, default_child=default):
            words = {kinds.output_word(text): (text, child) for text, child in reversed(list(mapping.items()))}
            for word, (text, child) in words.items():
                yield (name, word), child, f"when {name} returns {text!r:.40} comes {child}"
            if default is not None:
                yield (name,), default, f"when {name} returns something else comes {default}"
        case _:
            pass


class _RuleIndex:
    """The rules by tool, so that one rule is compared with all others at once."""

    def __init__(self, rules: Iterable[kinds.ToolRule]) -> None:
        self._exits: set[str] = set()
        self._forbidden: set[str] = set()
        self._parents: dict[str, set[str]] = {}  # child -> the tools right after which it may be called
        self._heirs: dict[str, set[str]] = {}  # tool -> what may be called right after it, by its parent_last_tool
        self._children: dict[str, frozenset[str]] = {}  # tool -> the children that its rules have in common
        for rule in rules:
            name = rule.tool_name
            match rule:
                case kinds.ExitLoop():
                    self._exits.add(name)
                case kinds.MaxCount(max_count_limit=0):
                    self._forbidden.add(name)
                case kinds.ChildTools(children=children):
                    listed = frozenset(children)
                    self._children[name] = self._children.get(name, listed) & listed
                case kinds.ParentTool(children=children):
                    self._heirs.setdefault(name, set()).update(children)
                    for child in children:
                        self._parents.setdefault(child, set()).add(name)
                case _:
                    pass

    def check_parents(self) -> None:
        """Check that each child has a parent that can be called before it. Raises: ToolRulesInvalid: each parent is
        forbidden, or waits for that child itself."""
        for child, parents in self._parents.items():
            if child not in self._forbidden and all(
                parent in self._forbidden or self._parents.get(parent) == {child} for parent in parents
            ):
                after = _join_names(parents, " or ")
                _contradiction(f"{child} may come right after {after} only (parent_last_tool), and that never happens")

    def check(self, rule: kinds.ToolRule) -> None:
        """Check one rule against all others. Raises: ToolRulesInvalid: another rule contradicts it."""
        name, why = rule.tool_name, None
        match rule:
            case kinds.ContinueLoop() if name in self._exits:
                why = f"{name} ends the run (exit_loop) and must go on (continue_loop)"
            case kinds.ChildTools() | kinds.ParentTool() | kinds.Conditional() if name in self._exits:
                why = f"{name} ends the run (exit_loop), but another tool has to come after it ({rule.type})"
            case kinds.RunFirst() | kinds.RequiredBeforeExit() if name in self._forbidden:
                why = f"{name} has to be called ({rule.type}), but max_count_per_step is 0"
            case kinds.RunFirst() if name in self._parents:
                after = _join_names(self._parents[name], " or ")
                why = f"{name} has to come first (run_first), but only right after {after} (parent_last_tool)"
            case kinds.ParentTool(children=heirs):
                children = self._children.get(name)
                if children is not None and children.isdisjoint(heirs):
                    both = f"{_join_names(children)} (constrain_child_tools) and {_join_names(heirs)} ({rule.type})"
                    why = f"right after {name} may come {both}, which have no tool in common"
            case kinds.ChildTools(children=children) | kinds.Conditional(children=children):
                missing = [child for child in children if self._why_not(name, child)]
                if missing and (isinstance(rule, kinds.Conditional) or len(missing) == len(children)):
                    reason = self._why_not(name, min(missing))
                    why = f"after {name} comes {_join_names(missing)} ({rule.type}), but {reason}"
                elif children == (name,) and isinstance(rule, kinds.ChildTools):
                    why = f"after {name} comes only {name} again ({rule.type}), so the run can't end"
            case _:
                pass
        if why is not None:
            _contradiction(why)

    def _why_not(self, name: str, child: str) -> str | None:
        """Return why the tool `child` can't be called right after the tool `name`, in words; None: it can."""
        if child in self._forbidden:
            return f"max_count_per_step of {child} is 0"
        if (parents := self._parents.get(child)) and name not in parents:
            return f"{child} may come right after {_join_names(parents, ' or ')} only (parent_last_tool)"
        for followers in (self._children.get(name), self._heirs.get(name)):
            if followers is not None and child not in followers:
                return f"another rule for {name} does not have {child}"
        return None


def _join_names(names: Iterable[str], between: str = ", ") -> str:
    """Return the first names in order, joined by `between`, with the number of the others: rules may name hundreds."""
    ordered = sorted(names)
    more = len(ordered) - NAMES_SHOWN
    return between.join((*ordered[:NAMES_SHOWN], f"{more} more") if more > 1 else ordered)


def _contradiction(text: str) -> NoReturn:
    """Raise the error for rules that contradict each other; `text` names them. Raises: ToolRulesInvalid, always."""
    raise ToolRulesInvalid(f"tool_rules contradict each other: {text}. Take one of them away")
