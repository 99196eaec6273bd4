"""Tools: what an agent can call, with schema, source and rules; trying a tool in the sandbox; their forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.specs import ToolFilter
from perdure.core.text.reprs import attributes, plural
from perdure.core.text.tables import read_table
from perdure.core.tools.portable import schema_warnings
from perdure.core.tools.rules import RULE_TYPES, RequiresApproval, ToolRule
from perdure.domain.tools.units import NewTool, ToolChanges
from perdure.library.agent import AsyncAgentById
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.library.tools.tools import ToolState
from perdure.ui.pages.home import agent_frame, page_author
from perdure.ui.pages.tool_forms import arguments_of, fields_of, parse_json
from perdure.ui.render import Data, Notice, Pages, agent_id_of, agent_of, field_of, form_of, in_order, in_words

TOOLS_MAX = 500
RULES: Mapping[str, Mapping[str, str]] = read_table(__file__, "rules.toml")
"""Type of rule -> `kind`, what it says of its tool, in the form that adds one; and `words`, a sentence about one."""

pages = Pages()


@pages.get("/agents/{agent_id}/tools", "tools.html", sections="tools")
async def tools(request: Request, library: AsyncPerdure) -> Data:
    """The agent's tools, those that it could have, and its rules."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    attached = await own.tools.states()
    every = await library.tools.page(ToolFilter(), Page(TOOLS_MAX, ascending=True))
    names = {state.tool.name for state in attached}
    rules, waived = await own.rules.list(), agent.settings.get("approval_waived", ())
    shapes = [tool_shape(state, needs_approval=_needs_approval(state, rules, waived)) for state in attached]
    return agent_frame(agent, "Tools", "tools") | {
        "tools": in_order(shapes, request, {"name": "name", "approval": "needs_approval", "place": "source"}),
        "others": sorted(state.tool.name for state in every if state.tool.name not in names),
        "rules": [{"type": rule.type, "words": rule_words(rule), **asdict(rule)} for rule in rules],
        "rules_text": json.dumps([{"type": rule.type, **asdict(rule)} for rule in rules], indent=2),
        "rule_types": list(RULE_TYPES),
        "rule_kinds": {name: rule["kind"] for name, rule in RULES.items()},
        "sleeping": list(await own.rules.missing()),
    }


def tool_shape(state: ToolState, *, needs_approval: bool) -> Data:
    """A tool as the page shows it."""
    spec, code = state.tool.spec, state.code
    own: Data = {"source": None, "memory_mb": None, "network": [], "requirements": []}
    return {
        **attributes(spec, "name", "description", "timeout_s"),
        **(own if code is None else attributes(code, *own)),
        **attributes(state.tool, "id", "tags"),
        "parameters": json.loads(json.dumps(spec.parameters, default=dict)),
        "needs_approval": needs_approval,
        "permissions": _permissions(state, needs_approval=needs_approval),
        "fields": fields_of(spec.parameters),
    }


def _needs_approval(state: ToolState, rules: Sequence[ToolRule], waived: Sequence[str]) -> bool:
    """Whether a person approves each call of the agent, by a rule or by the tool itself."""
    spec = state.tool.spec
    by_rule = any(isinstance(rule, RequiresApproval) and rule.tool_name == spec.name for rule in rules)
    return by_rule or (spec.requires_approval and state.tool.id not in waived and spec.name not in waived)


def _permissions(state: ToolState, *, needs_approval: bool) -> list[str]:
    """What a tool may do, in plain words."""
    spec, code = state.tool.spec, state.code
    approval = "A person approves each call." if needs_approval else "It runs without a person's approval."
    words = [*schema_warnings(spec), approval]
    if code is None:
        return [*words, "It is part of Perdure or of your program, and runs there, not in the sandbox."]
    words.append(f"It may reach {', '.join(code.network)}." if code.network else "It has no network.")
    words.append("It reads none of your files, and writes only in its own folder, which disappears with the call.")
    memory = f"{code.memory_mb:,} MB" if code.memory_mb else "the sandbox's usual memory"
    time = f"{spec.timeout_s:g} seconds" if spec.timeout_s else "the usual time"
    words.append(f"It gets {memory} and {time}.")
    if code.requirements:
        words.append(f"It needs the packages {', '.join(code.requirements)}.")
    if code.environment or code.sealed:
        words.append(f"It gets the variables {', '.join(sorted({*code.environment, *code.sealed}))}.")
    if code.takes_agent:
        words.append("It reads and changes the agent's blocks.")
    return words


def rule_words(rule: ToolRule) -> str:
    """What a rule says, in plain words."""
    others = " or ".join(getattr(rule, "children", ())) or "no tool"
    times = plural(getattr(rule, "max_count_limit", 0), "time")
    return RULES[rule.type]["words"].format(name=rule.tool_name, others=others, times=times)


@pages.post("/agents/{agent_id}/tools/source", shows=tools)
async def create(request: Request, library: AsyncPerdure) -> Notice:
    """Create a tool of Python source, and give it to the agent."""
    agent, source = agent_of(request, library), field_of(await form_of(request), "source")
    tool = (await library.tools.add(NewTool(source=source, documented=True))).tool
    await agent.tools.attach(tool.id)
    undo = f"/agents/{agent.id}/tools/{tool.name}/detach"
    return Notice(f"{tool.name} was created, and the agent has it.", undo=undo)


@pages.post("/agents/{agent_id}/tools/rules", shows=tools)
async def set_rules(request: Request, library: AsyncPerdure) -> Notice:
    """Replace all rules by these."""
    rules = parse_json("rules", (await form_of(request)).get("rules", "").strip() or "[]")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise InvalidInput('rules: write a JSON list of objects such as [{"type": "exit_loop", "tool_name": "NAME"}]')
    return await _store_rules(agent_of(request, library), lambda _: rules, "The rules were changed.")


@pages.post("/agents/{agent_id}/tools/rules/add", shows=tools)
async def add_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Add a rule after the existing ones."""
    form = await request.form()
    others = [value for value in form.getlist("children") if isinstance(value, str)]
    rule = rule_of(await form_of(request), others)
    return await _store_rules(agent_of(request, library), lambda rules: [*rules, rule], "The rule was added.")


@pages.post("/agents/{agent_id}/tools/rules/{place:int}/remove", shows=tools)
async def remove_rule(request: Request, library: AsyncPerdure) -> Notice:
    """Remove the rule in this place of the list, from 0."""
    agent, place = agent_of(request, library), request.path_params["place"]
    return await _store_rules(agent, lambda rules: [*rules[:place], *rules[place + 1 :]], "The rule was removed.")


async def _store_rules(agent: AsyncAgentById, change: Callable[[list[Data]], list[Data]], text: str) -> Notice:
    """Set the rules that `change` makes of the present ones; `text` says what was done."""
    before = [{"type": rule.type, **asdict(rule)} for rule in await agent.rules.list()]
    await agent.rules.set(change(before), author=page_author())
    return Notice(text, undo=f"/agents/{agent.id}/tools/rules", fields={"rules": json.dumps(before)})


@pages.post("/agents/{agent_id}/tools/{tool}/permissions", shows=tools)
async def set_permissions(request: Request, library: AsyncPerdure) -> Notice:
    """Change what a tool may reach and use, for all its agents."""
    agent_id, name = agent_id_of(request), request.path_params["tool"]
    changes, before = permissions_of(await form_of(request)), await library.tools.state(name)
    try:
        await library.tools.edit(name, changes)
    except InvalidInput as error:
        raise in_words(error, {"timeout_s": "Seconds", "memory_mb": "Memory in MB", "network": "Hosts"}) from error
    code = before.code
    old = {
        "network": "" if code is None else ", ".join(code.network),
        "requirements": "" if code is None else ", ".join(code.requirements),
        "timeout_s": "" if before.tool.spec.timeout_s is None else f"{before.tool.spec.timeout_s:g}",
        "memory_mb": "" if code is None or code.memory_mb is None else str(code.memory_mb),
    }
    where = f"/agents/{agent_id}/tools/{name}/permissions"
    return Notice(f"The permissions of {name} were changed, for all its agents.", undo=where, fields=old)


@pages.post("/agents/{agent_id}/tools/{tool}/source", shows=tools)
async def edit_source(request: Request, library: AsyncPerdure) -> Notice:
    """Change the source of a tool, for all its agents. A source that makes no tool changes nothing."""
    agent_id, name = agent_id_of(request), request.path_params["tool"]
    source = field_of(await form_of(request), "source")
    before = await library.tools.state(name)
    after = await library.tools.edit(name, {"source": source})
    undo = None if before.code is None else {"source": before.code.source}
    where = f"/agents/{agent_id}/tools/{after.tool.name}/source"
    return Notice(f"{after.tool.name} was changed, for all its agents.", undo=where if undo else None, fields=undo)


@pages.post("/agents/{agent_id}/tools", shows=tools)
async def attach(request: Request, library: AsyncPerdure) -> Notice:
    """Give the agent a tool."""
    agent, name = agent_of(request, library), field_of(await form_of(request), "tool")
    await agent.tools.attach(name)
    return Notice(f"{name} was attached.", undo=f"/agents/{agent.id}/tools/{name}/detach")


@pages.post("/agents/{agent_id}/tools/{tool}/detach", shows=tools)
async def detach(request: Request, library: AsyncPerdure) -> Notice:
    """Take a tool away from the agent."""
    agent, name = agent_of(request, library), request.path_params["tool"]
    await agent.tools.detach(name)
    return Notice(f"{name} was detached.", undo=f"/agents/{agent.id}/tools", fields={"tool": name})


@pages.post("/agents/{agent_id}/tools/{tool}/approval", shows=tools)
async def require_approval(request: Request, library: AsyncPerdure) -> Notice:
    """Require a person's approval of each call, or no longer."""
    agent, name = agent_of(request, library), request.path_params["tool"]
    required = (await form_of(request)).get("required") == "yes"
    await agent.require_approval(name, required, author=page_author())
    text = f"{name} {'needs approval' if required else 'runs without approval'} from now on."
    undo = f"/agents/{agent.id}/tools/{name}/approval"
    return Notice(text, undo=undo, fields={"required": "" if required else "yes"})


@pages.post("/agents/{agent_id}/tools/{tool}/try", shows=tools)
async def try_tool(request: Request, library: AsyncPerdure) -> Notice:
    """Run a tool for the agent as its own call would: in the sandbox, and with its effects on memory."""
    name = request.path_params["tool"]
    state = await library.tools.state(name)
    arguments = arguments_of(state.tool.spec.parameters, await form_of(request))
    outcome = await agent_of(request, library).tools.run(name, arguments, author=page_author())
    return Notice(f"{name}: {outcome.text}", is_error=outcome.status != "success")


def permissions_of(form: Mapping[str, str]) -> ToolChanges:
    """The permissions of a tool as its form has them. Raises: InvalidInput."""
    timeout, memory = form.get("timeout_s", "").strip(), form.get("memory_mb", "").strip()
    return {
        "network": _names(form.get("network", "")),
        "requirements": _names(form.get("requirements", "")),
        "timeout_s": parse_json("Seconds", timeout, "number") if timeout else None,
        "memory_mb": parse_json("Memory in MB", memory, "number") if memory else None,
    }


def rule_of(form: Mapping[str, str], tools: Sequence[str]) -> dict[str, Any]:
    """Return the rule in a form: `type`, `tool_name`, further `tools`, and a number. Raises: InvalidInput."""
    rule: dict[str, Any] = {"type": form.get("type", ""), "tool_name": form.get("tool_name", "")}
    match rule["type"]:
        case "constrain_child_tools" | "parent_last_tool":
            if not tools:
                raise InvalidInput("tick at least one tool for this rule")
            rule["children"] = list(tools)
        case "max_count_per_step":
            rule["max_count_limit"] = parse_json("How often", form.get("count", "") or "1", "number")
        case "conditional":
            lines = [line.partition("=") for line in form.get("outputs", "").splitlines() if line.strip()]
            if not lines:
                raise InvalidInput("write a line for each result, such as found = send_message")
            rule["child_output_mapping"] = {text.strip(): tool.strip() for text, _, tool in lines}
    return rule


def _names(text: str) -> list[str]:
    """Return the names in a text, separated by commas or line ends."""
    return [name.strip() for name in text.replace("\n", ",").split(",") if name.strip()]
