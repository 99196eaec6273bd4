"""What an agent's tool rules allow at one moment of a run: a pure function of the rules and of the calls so far.

The same function serves before the model is asked (what it is offered), when its answer is stored (what a person is
asked to approve), and right before each call is run. A call that it does not allow is never run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.context.sections.tool_rules import rule_sentence
from perdure.core.incoming.json_limits import parse_json
from perdure.core.loops import FREE, AgentLoop
from perdure.core.messages import SEND_MESSAGE, Message, ToolCall, ToolDecision
from perdure.core.models import ToolChoice
from perdure.core.tools import rules as kinds
from perdure.core.tools.arguments import ARGUMENTS
from perdure.core.tools.engine_specs import CONTEXT_TOOL_SPECS

EDITED = "\n\n[NOTE: run with arguments that a person changed: "
"""What follows this in a result is ours, not the tool's."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """An earlier call of the request that a run serves, as tool rules count it.

    Args:
        output: what it returned; None: not known yet.
        denied: a person said no. It was asked for, so nothing asks for it again, but nothing follows from it.
        answer: the number of the message it stands in.
        arguments: those of the model, as JSON; empty: it failed, or has no result yet.
    """

    name: str
    output: str | None = None
    denied: bool = False
    answer: int = -1
    arguments: str = ""

    def meets(self, rule: kinds.RequiredBeforeExit) -> bool:
        """Whether this call is one that a rule demands."""
        if self.name != rule.tool_name or not rule.args or self.denied:
            return self.name == rule.tool_name
        try:
            own = parse_json(self.arguments, ARGUMENTS) if self.arguments else None
        except (ValueError, RecursionError):
            return False
        return isinstance(own, dict) and all(name in own and own[name] == value for name, value in rule.args.items())


@dataclass(frozen=True, slots=True)
class RuleScope:
    """The rules of a run, the names of its tools, the calls of the runs that it resumes, and its agent's loop."""

    rules: kinds.ToolRules
    tools: frozenset[str]
    earlier: tuple[PastCall, ...] = ()
    loop: AgentLoop = FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """What tool rules allow and demand after some calls.

    Args:
        allowed: the tools that may be called next.
        requires_call: the request asks the model to call one of them.
        refuses_answer: an answer without a call does not end the run; implies `requires_call`.
        goes_on: a rule demands another call after the last one.
        missing: what still has to be called before the run may end, as the model is told.
        exit_tool: the tool whose call ends the run, once nothing is missing.
        problem: why the run can't go on: no rule maps the result of its last tool.
        arguments: tool -> arguments that replace the model's.
    """

    allowed: frozenset[str]
    tools: frozenset[str]
    requires_call: bool = False
    refuses_answer: bool = False
    goes_on: bool = False
    missing: tuple[str, ...] = ()
    exit_tool: str | None = None
    problem: str | None = None
    arguments: Mapping[str, Mapping[str, Any]]
    active: tuple[tuple[kinds.ToolRule, frozenset[str]], ...] = ()
    """Rule -> the tools that it leaves."""

    @property
    def choice(self) -> ToolChoice | None:
        """The tool choice of the next request; None: the model is free."""
        if not self.allowed:
            return "none"
        if not self.requires_call:
            return None
        return "required" if self.allowed == self.tools else tuple(sorted(self.allowed))

    def violation(self, name: str) -> str | None:
        """Return why this tool may not be called now, in words for the model; None: it may be called."""
        if name in self.allowed or name not in self.tools:
            return None  # an unknown tool has an error of its own
        broken = [rule_sentence(rule) for rule, allowed in self.active if name not in allowed]
        hint = "".join(f"\n\t- <tool_rule>{sentence}</tool_rule>" for sentence in broken)
        return (
            f"[ToolConstraintError] Cannot call {name}, valid tools include: {sorted(self.allowed)}."
            f"\n** Hint: Possible rules that were violated:{hint}"
        )


def why_not_for_run(tools: Sequence[str], name: str) -> str | None:
    """Return why a run that may call only `tools` may not call this tool of the agent, in words for the model; None: it
    may. Tools that only speak, or open what is out of view, are always allowed."""
    if name in tools or name == SEND_MESSAGE or name in CONTEXT_TOOL_SPECS:
        return None
    names = ", ".join(sorted(tools)) or "none"
    return f"[ToolNotAllowed] {name} may not be called for this request. Tools that may: {names}."


@dataclass(slots=True)
class _Constraints:
    """The fields of a `RuleState`, collected from one kind of rule after the other."""

    active: list[tuple[kinds.ToolRule, frozenset[str]]] = field(default_factory=list)
    arguments: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    requires_call: bool = False
    refuses_answer: bool = False
    problem: str | None = None

    def demand(self, rule: kinds.ToolRule, tools: frozenset[str]) -> None:
        """Demand that one of these tools is called next."""
        self.refuses_answer = True
        self.active.append((rule, tools))

    def fill(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Set arguments of a tool that replace the model's."""
        self.arguments[tool] = {**self.arguments.get(tool, {}), **arguments}


def rule_state(rule_scope: RuleScope, past_calls: Sequence[PastCall], *, answer: int = -1) -> RuleState:
    """Return what the rules allow and demand after these calls. `answer`: only its calls may end the run."""
    tools, rules = rule_scope.tools, rule_scope.rules.order_rules
    executed = [call for call in past_calls if not call.denied]
    last = executed[-1] if executed else None
    constraints = _Constraints()
    if not past_calls:
        _constrain_first(constraints, rules, tools)
    if last is not None:
        _constrain_followers(constraints, rules, tools, last)
    _constrain_children(constraints, rules, tools, last)
    counts = Counter(call.name for call in executed)
    constraints.active += [
        (rule, tools - {rule.tool_name})
        for rule in rules
        if isinstance(rule, kinds.MaxCount) and counts[rule.tool_name] >= rule.max_count_limit
    ]
    required = [rule for rule in rules if isinstance(rule, kinds.RequiredBeforeExit) and rule.tool_name in tools]
    open_rules = (rule for rule in required if not any(call.meets(rule) for call in past_calls))
    missing = tuple(dict.fromkeys(map(_describe_demand, open_rules)))
    exits = {rule.tool_name: rule for rule in rules if isinstance(rule, kinds.ExitLoop)}
    exit_tool = last.name if last is not None and last.name in exits and last.answer == answer else None
    if exit_tool is not None and not missing:
        constraints.active.append((exits[exit_tool], frozenset()))
    allowed = frozenset.intersection(tools, *(remaining for _, remaining in constraints.active))
    # Nothing can be demanded where nothing is allowed, nor right after a person has refused a call.
    free = not allowed or (bool(past_calls) and past_calls[-1].denied)
    demands = constraints.refuses_answer and not free
    refuses_answer = demands or (rule_scope.loop.heartbeats and bool(allowed))
    continued = {rule.tool_name for rule in rules if isinstance(rule, kinds.ContinueLoop)}
    return RuleState(
        allowed=allowed,
        tools=tools,
        requires_call=refuses_answer or (constraints.requires_call and not free),
        refuses_answer=refuses_answer,
        goes_on=demands or (last is not None and last.name in continued),
        missing=missing,
        exit_tool=exit_tool,
        problem=constraints.problem,
        arguments={name: values for name, values in constraints.arguments.items() if name in allowed},
        active=tuple(constraints.active),
    )


def _describe_demand(rule: kinds.RequiredBeforeExit) -> str:
    """What a rule demands to be called, for the model."""
    return f"{rule.tool_name} with {json.dumps(rule.args, ensure_ascii=False)}" if rule.args else rule.tool_name


def _constrain_first(constraints: _Constraints, rules: Sequence[kinds.ToolRule], tools: frozenset[str]) -> None:
    """Before the first call: demand one of the tools that may come first, and set their arguments."""
    first_rules = [rule for rule in rules if isinstance(rule, kinds.RunFirst)]
    if first := tools & {rule.tool_name for rule in first_rules}:
        for rule in first_rules:
            constraints.demand(rule, first)
            if rule.args:
                constraints.fill(rule.tool_name, rule.args)


def _constrain_followers(
    constraints: _Constraints, rules: Sequence[kinds.ToolRule], tools: frozenset[str], last: PastCall
) -> None:
    """After a call: demand one of the tools that must follow it, and set their arguments."""
    for rule in rules:
        if rule.tool_name != last.name:
            continue
        if isinstance(rule, kinds.ChildTools) and (children := tools & {*rule.children}):
            constraints.demand(rule, children)
            for name, arguments in rule.child_args.items():
                constraints.fill(name, arguments)
        elif isinstance(rule, kinds.Conditional):
            followers, is_unmapped = _followers(rule, last.output)
            if is_unmapped:
                constraints.active.append((rule, frozenset()))
                constraints.problem = (
                    f"{last.name} returned {last.output!r:.200}, for which no tool comes next by its rule"
                )
            elif followers is not None and (present := followers & tools):
                constraints.demand(rule, present)


def _constrain_children(
    constraints: _Constraints, rules: Sequence[kinds.ToolRule], tools: frozenset[str], last: PastCall | None
) -> None:
    """Allow tools with parents only right after a parent, and after a parent only its children."""
    parent_rules = [rule for rule in rules if isinstance(rule, kinds.ParentTool)]
    own_rules = [rule for rule in parent_rules if last is not None and rule.tool_name == last.name]
    open_children = {child for rule in own_rules for child in rule.children}
    children = tools & open_children
    for rule in parent_rules:
        if closed := {*rule.children} - open_children:
            constraints.active.append((rule, tools - closed))
        if children and rule in own_rules:
            constraints.requires_call = True
            constraints.active.append((rule, children))


def expected_states(rule_scope: RuleScope, past_calls: Sequence[PastCall], names: Iterable[str]) -> list[RuleState]:
    """Return the state before each of these calls of one answer, as far as it is known before any has run."""
    calls, states = list(past_calls), list[RuleState]()
    answer = -2  # of an answer that has no number yet
    for name in names:
        state = rule_state(rule_scope, calls, answer=answer)
        states.append(state)
        if name in state.allowed:
            calls.append(PastCall(name, answer=answer))
    return states


def past_calls_in(messages: Iterable[Message]) -> list[PastCall]:
    """Return the calls in these messages that tool rules count, in their order: those that were run or denied, not
    those that were refused or have no result yet."""
    calls: list[PastCall] = []
    open_calls: dict[str, tuple[ToolCall, int]] = {}
    denied: set[str] = set()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                open_calls[part.call_id] = (part, message.seq)
            elif isinstance(part, ToolDecision) and not part.approve:
                denied.add(part.call_id)
        for result in message.results:
            call, answer = open_calls.pop(result.call_id, (None, -1))
            if call is None or result.refused:
                continue
            output, is_denied = result.text.partition(EDITED)[0], result.call_id in denied
            arguments = call.own_arguments if result.status == "success" else ""
            calls.append(PastCall(call.name, output, is_denied, answer, arguments))
            denied.discard(result.call_id)
    return calls


def prefill(arguments: str, filled: Mapping[str, Any] | None) -> str:
    """The model's arguments (a JSON object as text) with the values of `filled` put in; other text is unchanged."""
    if not filled:
        return arguments
    try:
        own = parse_json(arguments, ARGUMENTS) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(own, dict) or all(name in own and own[name] == value for name, value in filled.items()):
        return arguments
    return json.dumps(own | dict(filled), ensure_ascii=False)


def _followers(rule: kinds.Conditional, output: str | None) -> tuple[frozenset[str] | None, bool]:
    """(the tools that may come next by the rule, None: any; whether the output lacks a mapping that it must have)."""
    if output is None:  # it is not known before the call has run
        free = rule.default_child is None and not rule.require_output_mapping
        return (None if free else frozenset(rule.children)), False
    word = kinds.output_word(output)
    for text, child in rule.child_output_mapping.items():
        if kinds.output_word(text) == word:
            return frozenset({child}), False
    if rule.default_child is not None:
        return frozenset({rule.default_child}), False
    return None, rule.require_output_mapping
