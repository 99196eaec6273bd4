"""`perdure tool`: add a tool from a file, list, show, test, attach, detach and delete tools; `perdure secret`: the
values that they need, which are never shown.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

from perdure.cli.commands.run import LastAgent, Org, Yes, agent_option, argument, command, flag, for_work, option

if for_work(__name__):
    import getpass

    from perdure.cli.session.agent_choice import chat_command
    from perdure.cli.session.work import deleting, get_agent, load_all, open_store, read_object, read_pairs, read_text
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, fold, local_time, new_table, plural, visible
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.incoming.addresses import is_postgres
    from perdure.core.secrets import SECRET_VALUE_CHARS_MAX, check_secret
    from perdure.core.specs import Tool, ToolCode
    from perdure.core.tools.portable import schema_warnings
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.tools.secrets import AsyncSecrets, rotate_store
    from perdure.settings import Settings

ToolName = Annotated[str, argument("Name or id of the tool.", "NAME")]

SOURCE_BYTES = 2_000_000
SIGNATURE_CHARS = 48
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
NO_TOOL = "There are no tools of your own yet: `perdure tool add FILE.py` makes one."
SecretName = Annotated[str, argument("Letters, digits and _, like an environment variable.", "NAME")]
SecretOwner = Annotated[str | None, agent_option("The agent that owns it; by default all agents may use it.")]
NO_SECRET = "There are no secrets yet: `perdure secret set NAME` makes one."


@command("tool add")
async def add_tool(
    view: Output,
    file: Annotated[Path, argument("Python; its last public function is the tool.", "FILE.py")],
    name: Annotated[str | None, option("Another function of the file.", "NAME")] = None,
    requirements: Annotated[
        list[str] | None, option("A package for pip; may be repeated.", "PACKAGE", name="--requirement")
    ] = None,
    environment: Annotated[
        list[str] | None, option("A variable; secret:NAME for a secret; may be repeated.", "NAME=VALUE", name="--env")
    ] = None,
    network: Annotated[
        list[str] | None, option("A host it needs; '*' means every public one; may be repeated.", "HOST")
    ] = None,
    approval: Annotated[bool, flag("--approval", "A person has to approve each call.")] = False,
    timeout_s: Annotated[float | None, option("By default 30.", "SECONDS", name="--timeout")] = None,
) -> None:
    """Create a tool from a file, or change the tool of that name. The file is read, not run."""
    async with open_store() as perdure:
        options: dict[str, Any] = {} if name is None else {"name": name}
        tool = await perdure.tools.upsert(
            _read_source(file),
            requirements=list(requirements or ()),
            environment=read_pairs("--env", environment, "NAME=VALUE, or NAME=secret:NAME for a secret"),
            network=list(network or ()),
            requires_approval=approval,
            timeout_s=timeout_s,
            **options,
        )
        view.show(_tool_shape(tool, await perdure.tools.code(tool.id)), _signature(tool))
        view.hint(
            f"Stored {tool.spec.name}. `perdure tool test {tool.spec.name} '{_example(tool)}'` tries it,"
            f" `perdure tool attach {tool.spec.name}` gives it to the agent used last."
        )


@command("tool list", none=NO_TOOL)
async def list_tools(
    view: Output,
    perdure: AsyncPerdure,
    everything: Annotated[bool, flag("--all", "Include the built-in ones.")] = False,
) -> None:
    """List the tools, and the agents that have them."""
    tools = await load_all(perdure.tools.list)
    tools = [tool for tool in tools if everything or not tool.spec.tool_type.startswith("letta_")]
    agents = await _agents_by_tool(perdure)
    table = new_table("tool", "kind", "agents", "what it does", styles={"tool": "bold", "kind": "dim"})
    for tool in tools:
        names = visible(", ".join(agents[tool.spec.name])) or "-"
        about = visible(_SENTENCE.split(tool.spec.description.strip(), maxsplit=1)[0])
        table.add_row(fold(_signature(tool), SIGNATURE_CHARS), _kind_text(tool), names, about)
    shapes = [_tool_shape(tool, None) | {"agents": agents[tool.spec.name]} for tool in tools]
    view.show(shapes, *([table] if tools else []))
    view.hint("`perdure tool show NAME` shows one; `perdure tool test NAME ARGS` tries it." if tools else NO_TOOL)


@command("tool show", finds="tool")
async def show_tool(view: Output, perdure: AsyncPerdure, name: ToolName) -> None:
    """Show the description of a tool that models see, and its source."""
    tool = await perdure.tools.get(name)
    code = await perdure.tools.code(tool.id)
    parts = [_signature(tool), visible(tool.spec.description), _how_it_runs(tool, code)]
    parts.append(json.dumps(dict(tool.spec.parameters), ensure_ascii=False, indent=2))
    if code is not None:
        parts.append(visible(code.source).strip())
    view.show(_tool_shape(tool, code), "\n\n".join(parts))
    view.hint(f"`perdure tool test {tool.spec.name} '{_example(tool)}'` tries it.")


@command("tool test")
async def test_tool(
    view: Output,
    name: Annotated[str, argument("Name or id of a tool, or a file that is not added yet.", "NAME")],
    arguments: Annotated[str, argument("A JSON object.", "ARGS")] = "{}",
    agent: Annotated[str | None, agent_option("Run it for this agent, which must have it.")] = None,
) -> int:
    """Run a tool with arguments, as an agent would: checked, limited, in the sandbox."""

    def progress(line: str) -> None:
        print(line, file=sys.stderr)

    async with open_store() as perdure:
        values = read_object("ARGS", arguments, '{"city": "Rome"}')
        if agent is not None:
            outcome = await (await get_agent(view, perdure, agent)).tools.run(name, values)
        elif name.endswith(".py"):
            outcome = await perdure.tools.test_source(_read_source(Path(name)), values, progress=progress)
        else:
            outcome = await perdure.tools.test(name, values, progress=progress)
    failed = outcome.status != "success"
    printed = {"stdout": "".join(outcome.stdout), "stderr": "".join(outcome.stderr)}
    shape = {"status": outcome.status, "result": outcome.text, **printed}
    view.show(shape, *([] if failed else [visible(outcome.text)]))
    for text in (*outcome.stdout, *outcome.stderr):
        view.note(text.rstrip("\n"))
    if failed:
        view.error(InvalidInput(outcome.text.removeprefix("error:").strip()))
    return int(failed)


@command("tool attach", finds="tool", change=True)
async def attach_tool(view: Output, name: ToolName, agent: LastAgent) -> None:
    """Give a tool to an agent."""
    tool = await agent.tools.attach(name)
    view.show({"agent_id": agent.id, "attached": tool.id})
    for warning in schema_warnings(tool.spec):
        view.note(warning)
    view.hint(f"{agent.name} has {tool.spec.name} from its next answer on: `{chat_command(agent)}`.")


@command("tool detach", finds="tool", change=True)
async def detach_tool(view: Output, perdure: AsyncPerdure, name: ToolName, agent: LastAgent) -> None:
    """Detach a tool from an agent."""
    tool = await perdure.tools.get(name)
    await agent.tools.detach(tool.id)
    view.show({"agent_id": agent.id, "detached": tool.id})
    view.hint(f"{agent.name} has {tool.spec.name} no longer; the tool itself stays.")


@command("tool delete", finds="tool")
async def delete_tool(view: Output, perdure: AsyncPerdure, name: ToolName, yes: Yes = False) -> None:
    """Detach a tool from all agents and delete it."""
    tool = await perdure.tools.get(name)
    agents = (await _agents_by_tool(perdure))[tool.spec.name]
    also = f"also for {visible(', '.join(agents))}" if agents else ""
    after = "`perdure tool add FILE.py` makes it again"
    with deleting(view, f"tool {visible(tool.spec.name)!r}", also, yes=yes, after=after, id_=tool.id):
        await perdure.tools.delete(tool.id)


def _read_source(file: Path) -> str:
    """The text of a Python file. Raises: InvalidInput: it is too large, no text, or can't be read."""
    if file.is_file() and file.stat().st_size > SOURCE_BYTES:
        raise InvalidInput(f"{file} is larger than {SOURCE_BYTES:,} bytes: that is not a tool's source")
    return read_text(str(file)).removeprefix("\ufeff")


async def _agents_by_tool(perdure: AsyncPerdure) -> defaultdict[str, list[str]]:
    """Name of a tool -> names of the agents that have it."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for agent in await load_all(perdure.agents):
        for tool in await agent.tools.list():
            names[tool.spec.name].append(agent.name)
    return names


def _tool_shape(tool: Tool, code: ToolCode | None) -> dict[str, Any]:
    """The JSON object that `--json` prints for a tool."""
    spec = fields(tool.spec, "name", "tool_type", "description", "requires_approval", "timeout_s")
    shape = spec | {"id": tool.id, "parameters": dict(tool.spec.parameters), "tags": list(tool.tags)}
    if code is not None:
        shape |= fields(code, "source", "requirements", "network") | {"environment": dict(code.environment)}
    return shape


def _signature(tool: Tool) -> str:
    """The tool as a call, such as `roll(sides, label?)`."""
    required = tool.spec.parameters.get("required", ())
    names = [name if name in required else f"{name}?" for name in tool.spec.parameters.get("properties", {})]
    return f"{visible(tool.spec.name)}({', '.join(map(visible, names))})"


def _how_it_runs(tool: Tool, code: ToolCode | None) -> str:
    """Kind, limits and permissions of a tool, on one line."""
    spec = tool.spec
    facts = [_kind_text(tool)]
    if spec.requires_approval:
        facts.append("a person approves each call")
    if code is not None:
        if spec.timeout_s is not None:
            facts.append(f"up to {spec.timeout_s:g} s")
        facts.append(f"reaches {', '.join(code.network)}, where it is allowed" if code.network else "no network")
        facts += [f"needs {requirement}" for requirement in code.requirements]
        facts += [f"sees {name}" for name in code.environment]
    return visible("; ".join(facts))


def _kind_text(tool: Tool) -> str:
    kind = tool.spec.tool_type
    return "built in" if kind.startswith("letta_") else {"external_mcp": "MCP"}.get(kind, kind)


def _example(tool: Tool) -> str:
    """Sample values of the required arguments, as JSON."""
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = tool.spec.parameters.get("properties", {})
    required = [name for name in tool.spec.parameters.get("required", ()) if name in properties]
    return json.dumps({name: samples.get(properties[name].get("type"), "...") for name in required})


@command("secret set")
async def set_secret(view: Output, name: SecretName, agent: SecretOwner = None, org: Org = None) -> None:
    """Create or change a secret. Its value is asked for, or read from stdin; it is never an argument.

    Tools are given it where their environment says `secret:NAME`; an agent's own go to all of its custom tools.
    """
    check_secret(name, "")  # a wrong name is refused before anybody types a value
    value = _read_value(name)
    async with open_store(org=org) as perdure:
        await (await _secrets_of(view, perdure, agent, change=True)).set(name, value)
        view.show({"name": name})
        use = "the custom tools of that agent have it"
        if agent is None:
            use = f"a tool has it where its environment says secret:{name}"
        view.hint(f"Stored {name}, encrypted; {use}.")


@command("secret list", none=NO_SECRET)
async def list_secrets(view: Output, perdure: AsyncPerdure, agent: SecretOwner = None, org: Org = None) -> None:
    """List the names of the secrets; values are never shown."""
    secrets = await (await _secrets_of(view, perdure, agent, change=False)).list()
    lines = (f"{visible(secret.name)}  {local_time(secret.updated_at)}" for secret in secrets)
    view.show([fields(secret, "name", "updated_at") for secret in secrets], *lines)
    view.hint("`perdure secret set NAME` changes one, `delete NAME` deletes it." if secrets else NO_SECRET)


@command("secret delete", finds="secret")
async def delete_secret(
    view: Output, perdure: AsyncPerdure, name: SecretName, agent: SecretOwner = None, org: Org = None, yes: Yes = False
) -> None:
    """Delete a secret."""
    secrets = await _secrets_of(view, perdure, agent, change=True)
    if name not in [secret.name for secret in await secrets.list()]:
        raise NotFound("secret", name, hint="`perdure secret list` lists them")
    after = f"`perdure secret set {name}` stores a value again"
    with deleting(view, f"secret {name!r}", yes=yes, after=after, id_=name):
        await secrets.delete(name)


@command("secret rotate")
async def rotate_secrets(
    view: Output,
    forget_old: Annotated[
        bool, flag("--forget-old", "Delete the older keys of the file; older backups need them.")
    ] = False,
) -> int:
    """Encrypt everything again, with a new key: secrets, variables, keys of providers, tokens of MCP servers.

    Without PERDURE_SECRET_KEY the file secret.key beside the store gets a new key; running servers pick it up
    by themselves. With it, start all servers with the new key in PERDURE_SECRET_KEY and the one before in
    PERDURE_SECRET_KEY_OLD, then call this. It covers all organisations; if it is interrupted, run it again and it
    continues.
    """
    settings = Settings.from_environment()
    if not is_postgres(settings.store_address) and not settings.store_path.exists():
        view.hint(NO_SECRET)
        return 0
    rotated = await rotate_store(settings, forget_old=forget_old)
    left = [visible(one) for one in rotated.unreadable]
    view.show({"rotated": rotated.count, "unreadable": left}, *(f"{one}: no key decrypts it" for one in left))
    if left:
        view.hint("Set those anew, or put their key back: PERDURE_SECRET_KEY_OLD, or a line of secret.key.")
        return 1
    done = f"{plural(rotated.count, 'value')} encrypted with the new key."
    view.hint(done if rotated.count else "Everything is encrypted with the newest key already.")
    if settings.secret_key_old:
        view.hint("PERDURE_SECRET_KEY_OLD is needed no more, but for backups from before.")
    return 0


async def _secrets_of(view: Output, perdure: AsyncPerdure, agent: str | None, *, change: bool) -> AsyncSecrets:
    """The secrets of an agent, by its name or id, or those that all agents may use."""
    return perdure.secrets if agent is None else (await get_agent(view, perdure, agent, change=change)).secrets


def _read_value(name: str) -> str:
    """The value of the secret `name`, typed unseen or all of stdin. Raises: InvalidInput: it is empty."""
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{name}: ")
    else:
        text = "" if sys.stdin is None else sys.stdin.read(4 * SECRET_VALUE_CHARS_MAX)
        value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput(
            f"no value came for {name}: type it, or give it on stdin (`perdure secret set {name} < FILE`)"
        )
    return value
