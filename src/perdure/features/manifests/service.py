"""Agents described in files: planned, applied, and written as such a file."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perdure.core.errors import Conflict, PerdureError
from perdure.core.ids import AgentId
from perdure.core.tools.threads import run_in_own_thread
from perdure.domain.agents.options import CONTEXT_ENGINE
from perdure.features.manifests.files import Files, open_files
from perdure.features.manifests.reading import read_manifest
from perdure.features.manifests.schema import manifest_schema
from perdure.features.manifests.units import PlanRolledBack, apply_manifest
from perdure.features.manifests.values import FileSet, Plan
from perdure.features.manifests.work import ApplyWork
from perdure.features.manifests.writing import agent_document, write_yaml
from perdure.features.mcp.service import AsyncMcp
from perdure.features.schedules.worker import ScheduleWorker
from perdure.library.agents.agents import AllAgents
from perdure.library.parts.checks import outside
from perdure.library.parts.part import AsyncPart
from perdure.storage.tx import Tx


class AsyncManifests(AsyncPart):
    """Makes agents and what they use as files describe them."""

    async def read(self, files: Files) -> FileSet:
        """The agents and objects that manifest files describe; nothing runs or is stored. Raises: InvalidInput."""
        return await asyncio.to_thread(lambda: read_manifest(*open_files(files)))

    async def plan(self, files: Files | FileSet, *, prune: bool = False) -> Plan:
        """What `apply` would change: it is tried and taken back; no tool or server is run. Raises: as `apply`."""
        manifest = files if isinstance(files, FileSet) else await self.read(files)
        return await self._apply(manifest, prune=prune, dry=True)

    async def apply(self, files: Files | FileSet, *, prune: bool = False, plan: Plan | str | None = None) -> Plan:
        """Bring agents and what they use into the state that files describe, in one transaction, and return the
        changes. Then list new MCP servers' tools, if agents are to have some.

        Args:
            files: a file, a folder of them, or texts by their paths.
            prune: whether what the files had once, and have no more, is taken out of use.
            plan: what was looked at, or its digest; if something else would change now, nothing is written.
        Raises: InvalidInput, with file and line; Conflict: something has changed since `plan`; StoreError.
        """
        manifest = files if isinstance(files, FileSet) else await self.read(files)
        done = await self._apply(manifest, prune=prune, dry=False, expected=plan)
        if done.waiting and (waiting := await self._read_servers(done.waiting)) != list(done.waiting):
            more = await self._apply(manifest, prune=prune, dry=False)
            done = replace(done, changes=[*done.changes, *more.changes], waiting=waiting)
        self._app.service(ScheduleWorker).wake()
        return done

    async def show(self, agent_id: AgentId, *, as_json: bool = False) -> str:
        """A file that describes an agent as it is, with what it uses, as YAML or JSON: applied here it changes nothing.
        Secrets are named, never written. Raises: NotFound."""
        inputs, by = self._ports.inputs(), outside()

        def read(tx: Tx) -> str:
            """Write the file."""
            work = ApplyWork(tx=tx, ports=self._ports, inputs=inputs, author=by, default_model="")
            document, hidden = agent_document(work, agent_id)
            return json.dumps(document) if as_json else write_yaml(document, hidden)

        return await self._store.read(read)

    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of such files, by which editors complete them."""
        return manifest_schema()

    async def _apply(self, manifest: FileSet, *, prune: bool, dry: bool, expected: Plan | str | None = None) -> Plan:
        """Apply a manifest; with `dry` take that back. Raises: as `apply`."""
        default = await self._check(manifest, dry=dry)
        private = {} if dry else await self._leads_inside(manifest)
        inputs, by, context = self._ports.inputs(), outside(), contextvars.copy_context()

        def unit(tx: Tx) -> Plan:
            """Do it in one transaction."""
            work = ApplyWork(tx=tx, ports=self._ports, inputs=inputs, author=by, default_model=default, private=private)
            plan = apply_manifest(work, manifest, prune=prune)
            if dry:
                raise PlanRolledBack(plan)
            if expected is not None and plan.digest != (expected if isinstance(expected, str) else expected.digest):
                raise Conflict("something has changed since the plan was made: nothing was applied; look at it again")
            work.finish()
            return plan

        try:
            return await self._store.write(lambda tx: context.copy().run(unit, tx))
        except PlanRolledBack as end:
            return end.plan

    async def _check(self, manifest: FileSet, *, dry: bool) -> str:
        """Check agents' models and context engines; return the default model. Raises: InvalidInput, ModelNotFound."""
        agents, default = AllAgents(self._app), ""
        for thing in (one for one in manifest.things if one.kind == "agents"):
            try:
                if (model := thing.fields.get("model")) is not None:
                    await agents.check_model(model)
                else:
                    default = default or (await self._app.decide()).handle
                settings = thing.fields.get("settings", {})
                if not dry and settings.get(CONTEXT_ENGINE) is not None:  # this may import a package
                    await run_in_own_thread(self._ports.engine_calls.engines.check, settings)
            except PerdureError as error:
                error.args = (f"{thing.place('model')}: {error}",)
                raise
        return default

    async def _leads_inside(self, manifest: FileSet) -> Mapping[str, bool]:
        """Name of an MCP server of a manifest -> whether its url leads to this machine or a private network now."""
        mcp, servers = AsyncMcp(self._app), [one for one in manifest.things if one.kind == "mcp_servers"]
        return {one.name: await mcp.leads_inside(one.fields["url"]) for one in servers if "url" in one.fields}

    async def _read_servers(self, names: Any) -> list[str]:
        """Read the tools of new MCP servers; return those that can't be reached."""
        failed: list[str] = []
        for name in names:
            try:
                async with asyncio.timeout(30):
                    await AsyncMcp(self._app).refresh(name)
            except (PerdureError, TimeoutError):  # the server's own failure says why
                failed.append(name)
        return failed
