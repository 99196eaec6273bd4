"""The prompt section with an agent's tool rules, one sentence each, so that the model follows them by itself."""

from __future__ import annotations

import json

from perdure.core.tools import rules as kinds


def tool_rules_section(rules: kinds.ToolRules) -> str:
    """Render the section of the system text; empty without rules."""
    if not rules:
        return ""
    lines = ["<tool_usage_rules>", "These rules hold for your tools. A call that breaks one is not run."]
    for rule in rules.rules:
        lines += ["<tool_rule>", rule_sentence(rule), "</tool_rule>"]
    return "\n".join((*lines, "</tool_usage_rules>"))


def rule_sentence(rule: kinds.ToolRule) -> str:
    """Return the rule in words for the model, on one line."""
    name = _name(rule.tool_name)
    match rule:
        case kinds.RunFirst(args=args):
            arguments = f", with the arguments {_json(args)}" if args else ""
            return f"{name} may be called first{arguments}; until then no tool without such a rule may."
        case kinds.ExitLoop():
            return f"After {name} you are done: nothing can be called or said behind it."
        case kinds.ContinueLoop():
            return f"After {name} you go on: look at its result, then call another tool or answer."
        case kinds.Conditional():
            ways = [f"if it returns {_json(text)}, {_name(child)}" for text, child in rule.child_output_mapping.items()]
            if rule.default_child is not None:
                ways.append(f"otherwise {_name(rule.default_child)}")
            elif rule.require_output_mapping:
                ways.append("it must return nothing else")
            else:
                ways.append("otherwise any tool")
            return f"What comes right after {name} depends on its result: {'; '.join(ways)}."
        case kinds.ChildTools(children=children):
            return f"Right after {name} you must call {_one_of(children)}."
        case kinds.ParentTool(children=children):
            them = _one_of(children)
            return f"Only right after {name} may you call {them}; and right after it no other tool may be called."
        case kinds.MaxCount(max_count_limit=limit):
            often = "never" if limit == 0 else "once" if limit == 1 else f"at most {limit} times"
            return f"{name} may be called {often} for one request."
        case kinds.RequiredBeforeExit(args=args):
            arguments = f" with the arguments {_json(args)}" if args else ""
            return f"You must call {name} at least once{arguments} before you are done."
        case kinds.RequiresApproval():
            return f"A person has to approve each call of {name} before it is run."


def _one_of(names: tuple[str, ...]) -> str:
    """Return "`a`, `b` or `c`"."""
    quoted = [_name(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _name(name: str) -> str:
    return f"`{_plain(name)}`"


def _json(value: object) -> str:
    return _plain(json.dumps(value, ensure_ascii=False))


def _plain(text: str) -> str:
    """Replace characters that would end the section or the line."""
    return text.replace("<", "‹").replace(">", "›").replace("\n", " ")
