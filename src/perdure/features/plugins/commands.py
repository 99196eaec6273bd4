"""`perdure plugin`: look at plug-ins, install, enable, disable and remove them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, for_work
from perdure.features.plugins.definitions import DefinitionKind

if for_work(__name__):
    from perdure.cli.session.work import confirm, deleting
    from perdure.cli.views.view import Output, plural, visible
    from perdure.features.plugins.service import PluginContents
    from perdure.features.plugins.wire import PluginShape
    from perdure.library.perdure import AsyncPerdure

Name = Annotated[str, argument("Its name.", "NAME")]
AGAIN = "`perdure plugin install` brings it again"
NO_PLUGINS = "There are no plug-ins yet: `perdure plugin install PATH_OR_GIT_URL` shows one and installs it."
AT_START = "Its hooks are called by processes that start from now on."
WORDS: Mapping[DefinitionKind, str] = {"agents": "helper", "commands": "command", "skills": "skill"}


@command("plugin list", none=NO_PLUGINS)
async def list_plugins(view: Output, perdure: AsyncPerdure) -> None:
    """List the installed plug-ins."""
    shapes, lines = [], []
    for contents in await perdure.plugins.list():
        shapes.append(PluginShape.make(contents))
        state = contents.unused.removeprefix("it is ") or "in use"
        lines.append(visible(f"{contents.name}  {contents.record.version}  {state}  {contents.record.description}"))
    view.show(shapes, *lines)
    view.hint("`perdure plugin show NAME` tells all that one brings." if shapes else NO_PLUGINS)


@command("plugin show", finds="plug-in")
async def show_plugin(view: Output, perdure: AsyncPerdure, name: Name) -> None:
    """Show all that a plug-in brings."""
    contents = await perdure.plugins.get(name)
    view.show(PluginShape.make(contents), *map(visible, contents_lines(contents)))


@command("plugin install")
async def install(
    view: Output,
    perdure: AsyncPerdure,
    source: Annotated[str, argument("A folder, or the URL of a git repository.", "PATH_OR_GIT_URL")],
    yes: Yes = False,
) -> None:
    """Show all that a plug-in brings, ask, and install it.

    Its hooks and MCP servers are programs that run as you: read them as you would read code. Nothing of it runs before
    you agree.
    """
    view.show_status(f"reading {source}…")
    contents = await perdure.plugins.look(source)
    view.clear_status()
    view.print(*map(visible, contents_lines(contents)))
    before = "" if contents.installed is None else f" in place of {contents.installed or 'the one that is there'}"
    confirm(view, f"Install {visible(contents.name)}{visible(before)}?", action="install the plug-in", yes=yes)
    done = await perdure.plugins.install(source, expected=contents.digest)
    view.show(PluginShape.make(done))
    off = f"It is disabled: `perdure plugin enable {visible(done.name)}` uses it again." if done.unused else ""
    view.hint(f"Installed {visible(done.name)}. {off or (AT_START if done.record.hooks else '')}".strip())
    for server in () if off else done.record.servers:
        view.hint(
            f"`perdure mcp refresh {visible(done.name)}-{visible(server.name)}` starts its server and reads its tools."
        )


@command("plugin enable", finds="plug-in")
async def enable(view: Output, perdure: AsyncPerdure, name: Name) -> None:
    """Enable a plug-in again."""
    contents = await perdure.plugins.enable(name)
    view.show(PluginShape.make(contents))
    view.hint(f"{visible(contents.name)} is in use. {AT_START if contents.record.hooks else ''}".strip())


@command("plugin disable", finds="plug-in")
async def disable(view: Output, perdure: AsyncPerdure, name: Name) -> None:
    """Disable a plug-in; its files stay."""
    contents = await perdure.plugins.disable(name)
    view.show(PluginShape.make(contents))
    view.hint(f"{visible(contents.name)} is disabled. `perdure plugin enable {visible(name)}` uses it again.")


@command("plugin remove", finds="plug-in")
async def remove(view: Output, perdure: AsyncPerdure, name: Name, yes: Yes = False) -> None:
    """Remove a plug-in with all that it brought."""
    with deleting(view, f"plug-in {visible(name)!r} with all that it brought", yes=yes, after=AGAIN, id_=name):
        await perdure.plugins.remove(name)


def contents_lines(contents: PluginContents) -> Iterator[str]:
    """What a plug-in brings, for people: commands that it runs word by word."""
    record = contents.record
    yield " ".join(filter(None, (record.name, record.version)))
    yield from ([f"  {record.description}"] if record.description else [])
    yield f"  from {record.source}"
    if contents.files:
        yield f"  {plural(contents.files, 'file')}, {contents.programs} of them executable"
    for name, versions in record.dependencies.items():
        yield f"  needs the plug-in {name} {versions}"
    for kind, word in WORDS.items():
        for definition in contents.definitions.get(kind, ()):
            yield f"  {word} {definition.name}: {definition.description[:200]}"
    for hook in record.hooks:
        of = f" of {hook.matcher}" if hook.matcher else ""
        yield f"  RUNS at {hook.event}{of}: {hook.command}"
    for server in record.servers:
        verb = "REACHES" if server.url else "RUNS"
        yield f"  {verb} for its MCP server {server.name}: {server.place}"
        for name, value in {**server.environment, **server.headers}.items():
            yield f"    with {name}={value}"
    for problem in contents.problems:
        yield f"  can't be used: {problem}"
    for note in contents.notes:
        yield f"  note: {note}"
    if contents.unused:
        yield f"  not in use: {contents.unused}"
