"""Plug-ins: looked at, installed, enabled, disabled and removed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.app import App
from perdure.core.errors import Conflict, InvalidInput, NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId
from perdure.core.incoming.addresses import without_password
from perdure.core.tasks import to_the_end, undone_by
from perdure.core.text.forms import match_form
from perdure.features.plugins.definitions import KINDS, Definition, DefinitionKind, DefinitionProblem
from perdure.features.plugins.installed import (
    RECORDS_FILE,
    ActivePlugin,
    PluginRecord,
    change_records,
    folder_of,
    load_records,
    plugins_folder,
    unused_plugins,
    why_unused,
)
from perdure.features.plugins.layers import find_definitions, no_definitions, project_of
from perdure.features.plugins.manifest import ROOT_VARIABLE, PluginServer, read_manifest, secret_in
from perdure.features.plugins.policy import load_policy
from perdure.features.plugins.reading import DefinitionSource, read_source
from perdure.features.plugins.staging import StagedPlugin, stage_plugin
from perdure.library.parts.part import AsyncPart

ADD_SERVER: Point[[App, str, str, Mapping[str, Any]], Awaitable[str]] = Point("add_server")
"""Registers an MCP server of a plug-in, of this name and these options, without connecting to it; returns its id."""
REMOVE_SERVERS: Point[[App, str], Awaitable[int]] = Point("remove_servers")
"""Removes the MCP servers that the plug-in of this name has registered in the store; returns how many there were."""
PLUGIN_REMOVED: Point[[App, str], Awaitable[int]] = Point("plugin_removed")
"""Removes what else a plug-in has left in the store; returns how many things that were."""

NOTHING = "it brings nothing that is used here; of a marketplace, give the folder of one of its plug-ins"
_NO_SERVER_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContents:
    """All that a plug-in brings.

    Args:
        record: its record, as it would be or is stored.
        definitions: its helpers, commands and skills, by kind.
        problems: the files that define nothing.
        notes: what of it has no effect here.
        files, programs: how many files it has, and how many of them may be run.
        digest: of all its files: `install` takes only what was looked at.
        unused: why it is not in use, or would not be; empty: it is.
        installed: the version that is installed already; None: none is.
    """

    record: PluginRecord
    definitions: Mapping[DefinitionKind, Sequence[Definition]]
    problems: Sequence[DefinitionProblem]
    notes: Sequence[str] = ()
    files: int = 0
    programs: int = 0
    digest: str = ""
    unused: str = ""
    installed: str | None = None

    @property
    def name(self) -> str:
        """The name of the plug-in."""
        return self.record.name


class AsyncPlugins(AsyncPart):
    """The plug-ins in the data folder, which all stores of this machine's user have in common."""

    async def list(self) -> Sequence[PluginContents]:
        """The installed plug-ins by name, in use or not. Raises: InvalidInput: the records or the policy are broken."""
        return [await self.get(name) for name in load_records(self._app.settings)]

    async def get(self, name: str) -> PluginContents:
        """An installed plug-in. Raises: NotFound."""
        record, settings = self._find(name), self._app.settings
        folder = folder_of(record, settings)
        contents = await asyncio.to_thread(_read_contents, record, folder)
        unused = why_unused(record, load_records(settings), load_policy(settings))
        return replace(contents, unused=unused, installed=record.version)

    async def problems(self, agent_id: AgentId) -> Mapping[DefinitionKind, Sequence[DefinitionProblem]]:
        """The files that define no helper, command or skill of an agent, and why, by kind. Raises: NotFound."""
        agent, settings = await self._store.read(lambda tx: tx.agents.get(agent_id)), self._app.settings
        found: dict[DefinitionKind, Sequence[DefinitionProblem]] = {}
        for kind in KINDS:
            try:
                found[kind] = (await asyncio.to_thread(find_definitions, kind, settings, project_of(agent))).problems
            except InvalidInput as error:
                found[kind] = no_definitions(error, settings).problems
        return found

    async def look(self, source: str) -> PluginContents:
        """What a plug-in would bring, without installing or running anything of it.

        Args:
            source: the path of a folder, or the URL of a git repository; `#BRANCH` or `#TAG` may stand at its end.
        Raises: InvalidInput: it can't be used, with the file and the reason.
        """
        async with stage_plugin(source, plugins_folder(self._app.settings)) as copy:
            return await self._look(copy)

    async def install(self, source: str, *, expected: str) -> PluginContents:
        """Install a plug-in and use it, or another version of one, which stays disabled if it was. Nothing of it runs.

        Args:
            source: as `look` takes it.
            expected: the digest of what was looked at.
        Raises: InvalidInput: it can't be used, or it lacks another plug-in; Conflict: it is no longer what was looked
            at; AlreadyExists: there is an MCP server of the name of one of its servers.
        """
        settings = self._app.settings
        async with stage_plugin(source, plugins_folder(settings)) as copy:
            contents = await self._look(copy)
            if contents.digest != expected:
                raise Conflict(f"the plug-in {contents.name!r} has changed since it was looked at: look at it again")
            if contents.unused:
                raise InvalidInput(f"the plug-in {contents.name!r} can't be used: {contents.unused}")
            old = load_records(settings).get(contents.name)
            record = replace(contents.record, is_enabled=old is None or old.is_enabled)
            target = folder_of(record, settings)
            if target.exists() or record.name == RECORDS_FILE:
                record = replace(record, folder=f"{record.name[:48]}-{os.urandom(6).hex()}")
                target = folder_of(record, settings)
            copy.folder.rename(target)
            async with undone_by(lambda: asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)):
                await self._begin(record, old)
        if old is not None:
            await asyncio.to_thread(shutil.rmtree, folder_of(old, settings), ignore_errors=True)
        return await self.get(record.name)

    async def enable(self, name: str) -> PluginContents:
        """Enable a plug-in again. Raises: NotFound; InvalidInput: it lacks another one, or the policy forbids it."""
        record = self._find(name)
        if not record.is_enabled:
            records, settings = load_records(self._app.settings), self._app.settings
            record = replace(record, is_enabled=True)
            if why := why_unused(record, records, load_policy(settings)):
                raise InvalidInput(f"the plug-in {name!r} can't be used: {why}")
            await self._begin(record, None)
        return await self.get(name)

    async def disable(self, name: str) -> PluginContents:
        """Use a plug-in no longer, until it is enabled. Raises: NotFound; InvalidInput: another one needs it."""
        record = self._find(name)
        self._check_not_needed(name)
        off = replace(record, is_enabled=False, server_ids=())
        change_records(self._app.settings, lambda records: {**records, name: off})
        await self._remove_servers(name)
        return await self.get(name)

    async def remove(self, name: str) -> None:
        """Remove a plug-in with all that it brought; if it is not installed, what it left in this store. Raises:
        NotFound: there is nothing of it; InvalidInput: another one needs it."""
        settings, app = self._app.settings, self._app
        record, folder = load_records(settings).get(name), plugins_folder(settings)
        if record is not None:
            self._check_not_needed(name)
            change_records(settings, lambda all: {key: one for key, one in all.items() if key != name})
            await asyncio.to_thread(shutil.rmtree, folder_of(record, settings), ignore_errors=True)
        left = await self._remove_servers(name)
        left += sum([await remove(app, name) for remove in PLUGIN_REMOVED.functions])
        if record is None and not left:
            self._find(name)
        with suppress(OSError):  # there are others
            folder.rmdir()

    def _find(self, name: str) -> PluginRecord:
        """The record of a plug-in. Raises: NotFound."""
        records = load_records(self._app.settings)
        if name not in records:
            there = f"there are {', '.join(records)}" if records else "none is installed"
            raise NotFound("plug-in", name, hint=there)
        return records[name]

    def _check_not_needed(self, name: str) -> None:
        """Raise if a plug-in in use needs another one. Raises: InvalidInput."""
        settings = self._app.settings
        records, policy = load_records(settings), load_policy(settings)
        unused = unused_plugins(records, policy)
        needing = [one.name for one in records.values() if name in one.dependencies and one.name not in unused]
        if needing:
            raise InvalidInput(f"the plug-in {name!r} is needed by {', '.join(needing)}: disable these first")

    async def _look(self, copy: StagedPlugin) -> PluginContents:
        """What a copy of a plug-in would bring. Raises: InvalidInput."""
        settings = self._app.settings
        records, policy = load_records(settings), load_policy(settings)
        manifest = await asyncio.to_thread(read_manifest, copy.folder, name=copy.name)
        for name in records:
            if name != manifest.name and match_form(name) == match_form(manifest.name):
                raise InvalidInput(f"the plug-in {manifest.name!r} has the name of {name!r}, which is installed")
        record = PluginRecord(
            source=without_password(copy.source),
            installed_at=self._ports.clock.now().isoformat(),
            **{name: getattr(manifest, name) for name in ("name", "version", "description", "dependencies", "roots")},
            hooks=manifest.hooks,
            servers=manifest.servers,
        )
        contents = await asyncio.to_thread(_read_contents, record, copy.folder)
        old, before = records.get(record.name), unused_plugins(records, policy)
        after = unused_plugins({**records, record.name: record}, policy)
        is_used = any((contents.definitions, contents.problems, record.hooks, record.servers, record.dependencies))
        lost = [f"{name} is no longer in use then: {after[name]}" for name in records if name in {*after} - {*before}]
        return replace(
            contents,
            notes=[*lost, *manifest.notes, *contents.notes, *([] if is_used else [NOTHING])],
            files=copy.files,
            programs=copy.programs,
            digest=await asyncio.to_thread(_digest, copy.folder),
            unused=after.get(record.name, ""),
            installed=None if old is None else old.version,
        )

    async def _begin(self, record: PluginRecord, old: PluginRecord | None) -> None:
        """Register a plug-in's MCP servers, store its record, remove its former servers; all or nothing."""
        await self._remove_servers(record.name)
        try:
            await self._put(record)
        except BaseException:
            if old is not None:
                await to_the_end(self._put(old))
            raise

    async def _put(self, record: PluginRecord) -> None:
        """Register the servers of a plug-in and store its record, or neither."""
        settings, added = self._app.settings, list[str]()
        async with undone_by(lambda: self._remove_servers(record.name)):
            for server in record.servers if record.is_enabled else ():
                options = _server_options(server, folder_of(record, settings))
                name = _NO_SERVER_NAME.sub("-", f"{record.name}-{server.name}")[:64]
                added += [await add(self._app, record.name, name, options) for add in ADD_SERVER.functions]
            stored = replace(record, server_ids=added)
            change_records(settings, lambda records: {**records, record.name: stored})

    async def _remove_servers(self, name: str) -> int:
        """Remove the MCP servers that a plug-in has registered in this store; return how many there were."""
        return sum([await remove(self._app, name) for remove in REMOVE_SERVERS.functions])


def _read_contents(record: PluginRecord, folder: Path) -> PluginContents:
    """The definitions of a plug-in in its folder."""
    definitions: dict[DefinitionKind, list[Definition]] = {}
    problems: list[DefinitionProblem] = []
    notes: list[str] = []
    for kind in KINDS:
        for root in ActivePlugin(record=record, folder=folder).roots(kind):
            for found in read_source(DefinitionSource(kind, "plug-in", root, record.name)):
                if isinstance(found, DefinitionProblem):
                    problems.append(replace(found, path=found.path.relative_to(folder)))
                else:
                    definitions.setdefault(kind, []).append(found)
                    path = found.path.relative_to(folder) if found.path else ""
                    notes += [f"{path}: {note}" for note in found.notes]
    if not folder.is_dir():
        problems.append(DefinitionProblem(path=folder, line=0, why="its folder is gone: install it again"))
    return PluginContents(record=record, definitions=definitions, problems=problems, notes=notes)


def _digest(folder: Path) -> str:
    """A digest of the names, modes and contents of all files in a folder."""
    total = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        data = path.read_bytes()
        name = os.fsencode(path.relative_to(folder))
        total.update(b"%d:%s:%d:%d:" % (len(name), name, path.stat().st_mode & 0o100, len(data)) + data)
    return total.hexdigest()


def _server_options(server: PluginServer, folder: Path) -> Mapping[str, Any]:
    """The options for registering a plug-in's MCP server. A value `${NAME}` is the secret of that name; so is the token
    in a header `Authorization: Bearer ${NAME}`."""

    def expand(values: Mapping[str, str]) -> dict[str, str]:
        """Return variables or headers of the plug-in with its folder and references to secrets filled in."""
        secrets = {name: f"secret:{secret}" for name, value in values.items() if (secret := secret_in(name, value))}
        return {name: value.replace(ROOT_VARIABLE, str(folder)) for name, value in values.items()} | secrets

    if server.url:
        options, headers = {"transport": "sse"} if server.is_sse else {}, expand(server.headers)
        for name in [one for one, value in server.headers.items() if secret_in(one, value) and value[0] != "$"]:
            options["token"] = headers.pop(name)  # sent as `Bearer ...`
        return {"url": server.url, "headers": headers, **options}
    environment = expand(server.environment)
    root = {"CLAUDE_PLUGIN_ROOT": str(folder)}
    args = tuple(arg.replace(ROOT_VARIABLE, str(folder)) for arg in server.args)
    return {
        "command": server.command.replace(ROOT_VARIABLE, str(folder)),
        "args": args,
        "environment": {**environment, **root},
    }
