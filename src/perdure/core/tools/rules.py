"""An agent's tool rules: which tool comes first, which may follow which, how often, what ends a run or keeps it going.

They stand in the agent's settings under `tool_rules`, in the wire's shapes. Here they are read; whether they can be
kept is `core.tools.rule_check`, and what follows from them for a run `engine.run.tool_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from perdure.core.errors import ToolRulesInvalid
from perdure.core.text.json_strings import json_start

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFirst:
    """Only tools with this rule may be called first. `args` take the place of the model's own arguments."""

    tool_name: str
    args: Arguments | None = None
    type: ClassVar[str] = "run_first"


@dataclass(frozen=True, slots=True)
class ExitLoop:
    """The run ends after a call of the tool."""

    tool_name: str
    type: ClassVar[str] = "exit_loop"


@dataclass(frozen=True, slots=True)
class ContinueLoop:
    """The run goes on after a call of the tool."""

    tool_name: str
    type: ClassVar[str] = "continue_loop"


@dataclass(frozen=True, slots=True)
class Conditional:
    """What the tool returned decides which tool comes next: the one under its text in `child_output_mapping`, else
    `default_child`; without one any, or with `require_output_mapping` none, and the run fails."""

    tool_name: str
    child_output_mapping: Mapping[str, str]
    default_child: str | None = None
    require_output_mapping: bool = False
    type: ClassVar[str] = "conditional"

    @property
    def children(self) -> tuple[str, ...]:
        """The names of the tools that may come next by this rule."""
        default = () if self.default_child is None else (self.default_child,)
        return tuple(dict.fromkeys((*self.child_output_mapping.values(), *default)))


@dataclass(frozen=True, slots=True)
class ChildTools:
    """After the tool, one of `children` has to be called; `child_args`: child -> arguments that replace the model's."""

    tool_name: str
    children: tuple[str, ...]
    child_args: Mapping[str, Arguments] = field(default_factory=dict)
    type: ClassVar[str] = "constrain_child_tools"


@dataclass(frozen=True, slots=True)
class ParentTool:
    """The `children` may be called right after the tool only, or after another that has them in such a rule."""

    tool_name: str
    children: tuple[str, ...]
    type: ClassVar[str] = "parent_last_tool"


@dataclass(frozen=True, slots=True)
class MaxCount:
    """The tool may be called `max_count_limit` times while one request is served."""

    tool_name: str
    max_count_limit: int
    type: ClassVar[str] = "max_count_per_step"


@dataclass(frozen=True, slots=True)
class RequiredBeforeExit:
    """The run may not end before the tool was called; with `args` only a call that has these and succeeded counts."""

    tool_name: str
    args: Arguments | None = None
    type: ClassVar[str] = "required_before_exit"


@dataclass(frozen=True, slots=True)
class RequiresApproval:
    """A person has to approve each call."""

    tool_name: str
    type: ClassVar[str] = "requires_approval"


ToolRule = (
    RunFirst
    | ExitLoop
    | ContinueLoop
    | Conditional
    | ChildTools
    | ParentTool
    | MaxCount
    | RequiredBeforeExit
    | RequiresApproval
)

RULE_TYPES: Mapping[str, Callable[..., ToolRule]] = {rule.type: rule for rule in get_args(ToolRule)}

RULES_MAX = 1_000
"""The most rules of an agent."""


@dataclass(frozen=True, slots=True)
class ToolRules:
    """All rules of an agent, in order. A rule for a tool that the agent does not have takes no effect."""

    rules: tuple[ToolRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def order_rules(self) -> tuple[ToolRule, ...]:
        """The rules that depend on earlier calls: all but `requires_approval`."""
        return tuple(rule for rule in self.rules if not isinstance(rule, RequiresApproval))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools in the rules, in order, each once."""
        found: dict[str, None] = {}
        for rule in self.rules:
            found[rule.tool_name] = None
            if isinstance(rule, (ChildTools, ParentTool, Conditional)):
                found |= dict.fromkeys(rule.children)
        return tuple(found)

    @property
    def approved(self) -> frozenset[str]:
        """The names of the tools whose calls need a person's approval."""
        return frozenset(rule.tool_name for rule in self.rules if isinstance(rule, RequiresApproval))


NO_RULES = ToolRules()


def rules_in(settings: Mapping[str, Any]) -> ToolRules:
    """Return the rules in an agent's settings. Raises: ToolRulesInvalid: they can't be read."""
    stored = settings.get("tool_rules")
    return parse_rules(stored) if stored else NO_RULES


def rule_to_dict(rule: ToolRule) -> dict[str, Any]:
    """Return the rule in the wire's shape and order of fields."""
    shape: dict[str, Any] = {"tool_name": rule.tool_name, "type": rule.type, "prompt_template": None}
    match rule:
        case RunFirst(args=args):
            return shape | {"args": None if args is None else dict(args)}
        case RequiredBeforeExit(args=args) if args:  # which Letta's lacks
            return shape | {"args": dict(args)}
        case Conditional():
            return shape | {
                "default_child": rule.default_child,
                "child_output_mapping": dict(rule.child_output_mapping),
                "require_output_mapping": rule.require_output_mapping,
            }
        case ChildTools(children=children, child_args=given):
            nodes = [{"name": name, "args": dict(args)} for name, args in given.items()]
            return shape | {"children": list(children), "child_arg_nodes": nodes or None}
        case ParentTool(children=children):
            return shape | {"children": list(children)}
        case MaxCount(max_count_limit=limit):
            return shape | {"max_count_limit": limit}
        case _:
            return shape


def parse_rules(stored: Sequence[Any]) -> ToolRules:
    """Parse rules in the wire's shape; of equal rules one stays. Raises: ToolRulesInvalid: unreadable, or too many."""
    if len(stored) > RULES_MAX:
        raise ToolRulesInvalid(f"tool_rules has {len(stored):,} rules: give at most {RULES_MAX:,}")
    unique: dict[str, ToolRule] = {}
    for index, shape in enumerate(stored):
        rule = _rule(f"tool_rules.{index}", shape)
        unique.setdefault(repr(rule_to_dict(rule)), rule)
    return ToolRules(tuple(unique.values()))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_object(value: Any) -> bool:
    """Return whether the value is a mapping with texts as keys."""
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_list(value: Any) -> bool:
    """Return whether the value is a collection, and no text or mapping."""
    return isinstance(value, Collection) and not isinstance(value, (str, Mapping))


# Field of a rule -> what its value must be, and what to give instead.
_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "tool_name": (_is_name, "give the name of a tool"),
    "args": (lambda value: value is None or _is_object(value), "give an object of arguments"),
    "children": (
        lambda value: _is_list(value) and bool(value) and all(map(_is_name, value)),
        "give a list of tool names, at least one",
    ),
    "child_arg_nodes": (lambda value: not value or _is_list(value), "give a list of objects with name and args"),
    "max_count_limit": (lambda value: type(value) is int and value >= 0, "give a whole number, 0 or more"),
    "child_output_mapping": (
        lambda value: _is_object(value) and all(map(_is_name, value.values())),
        "give an object from what the tool returns to tool names",
    ),
    "default_child": (lambda value: value is None or _is_name(value), "give the name of a tool, or null"),
    "require_output_mapping": (lambda value: value is None or isinstance(value, bool), "give true or false"),
}


def _field(shape: Mapping[str, Any], name: str, where: str) -> Any:
    """Return the checked field `name` of a stored rule; `where` names the rule in errors. Raises: ToolRulesInvalid."""
    value, (holds, help_text) = shape.get(name), _FIELDS[name]
    if not holds(value):
        raise ToolRulesInvalid(f"{where}.{name} is {json_start(value)}: {help_text}")
    return value


def _rule(where: str, shape: Any) -> ToolRule:
    """Return the rule of a stored shape; `where` is its place in error texts. Raises: ToolRulesInvalid."""
    if not isinstance(shape, Mapping):
        raise ToolRulesInvalid(f"{where} is {json_start(shape)}: give an object with tool_name and type")
    kind = shape.get("type")
    if not isinstance(kind, str) or kind not in RULE_TYPES:
        raise ToolRulesInvalid(f"{where}.type is {json_start(kind)}: there are {', '.join(RULE_TYPES)}")
    name = _field(shape, "tool_name", where)
    match kind:
        case "run_first" | "required_before_exit":
            args = _field(shape, "args", where)
            return (RunFirst if kind == "run_first" else RequiredBeforeExit)(name, None if args is None else dict(args))
        case "conditional":
            mapping, default = (_field(shape, field, where) for field in ("child_output_mapping", "default_child"))
            required = _field(shape, "require_output_mapping", where)
            if not mapping and default is None:
                raise ToolRulesInvalid(f"{where} maps nothing: give child_output_mapping or default_child")
            return Conditional(name, dict(mapping), default, bool(required))
        case "constrain_child_tools":
            children = tuple(dict.fromkeys(_field(shape, "children", where)))
            return ChildTools(name, children, _child_args(shape, children, where))
        case "parent_last_tool":
            return ParentTool(name, tuple(dict.fromkeys(_field(shape, "children", where))))
        case "max_count_per_step":
            return MaxCount(name, _field(shape, "max_count_limit", where))
        case _:
            return RULE_TYPES[kind](name)


def _child_args(shape: Mapping[str, Any], children: Sequence[str], where: str) -> dict[str, Arguments]:
    """Return child -> arguments of a stored rule; `where` names the rule in error texts. Raises: ToolRulesInvalid."""
    child_args: dict[str, Arguments] = {}
    for index, node in enumerate(_field(shape, "child_arg_nodes", where) or ()):
        place = f"{where}.child_arg_nodes.{index}"
        name: Any = node.get("name") if isinstance(node, Mapping) else None
        if name not in children:
            choices = ", ".join(children[:20]) + (", ..." if len(children) > 20 else "")
            raise ToolRulesInvalid(f"{place}.name is {json_start(name)}: it must be one of the children {choices}")
        if args := _field(node, "args", place):
            child_args[name] = {**child_args.get(name, {}), **args}
    return child_args


_CONSTANTS = {"true": "true", "false": "false", "none": "null", "null": "null"}


def output_word(text: str) -> str:
    """Return a tool's result in the form for comparison: without white space around it and quotes, `True` as `true`."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return _CONSTANTS.get(text.lower(), text)
