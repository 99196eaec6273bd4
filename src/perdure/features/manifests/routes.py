"""Agents as files over HTTP: planned, applied, written, and the schema of the files. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from perdure.features.manifests.values import Change, FieldChange, Plan
from perdure.features.mcp.routes import McpGuard
from perdure.server.wire.base import WireRequest
from perdure.server.wire.http import Library, Router, ThisAgent
from perdure.server.wire.shapes import WireShape, computed

FILES_MAX, FILE_CHARS, PATH_CHARS = 100, 1_000_000, 300


class ManifestIn(WireRequest):
    """Manifest files, and Python files that they name, by path. `prune`: remove what an earlier version of the files
    had; `digest`: of the plan that was reviewed, so that no other one is applied."""

    files: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=PATH_CHARS)], Annotated[str, Field(max_length=FILE_CHARS)]],
        Field(min_length=1, max_length=FILES_MAX),
    ]
    prune: bool = False
    dry_run: bool = False
    digest: Annotated[str, Field(max_length=64)] | None = None


class FieldChangeShape(WireShape, of=FieldChange, fields="path before after drifted"):
    """A field before and after. `drifted`: somebody has changed it since the file was applied."""


class ChangeShape(WireShape, of=Change, fields="action kind name note"):
    """What becomes of one thing."""

    fields: list[FieldChangeShape]


class PlanShape(WireShape, of=Plan, fields="noted total digest"):
    """What applying files changes, or has changed. `left`: what the files had once; `waiting`: MCP servers that have to
    be read before agents get their tools."""

    changes: list[ChangeShape]
    left: list[list[str]] = computed(lambda plan: [[*one] for one in plan.left])
    waiting: list[str]


router = Router(tags=["manifests"])


@router.post("/v1/manifests")
async def apply_manifest(library: Library, body: ManifestIn, guard: Annotated[McpGuard, Depends()]) -> PlanShape:
    """Make agents and what they use as files describe them; with `dry_run` only say what that would change."""
    manifest = await library.manifests.read(body.files)
    for thing in manifest.things:
        if thing.kind == "mcp_servers":
            guard.check_transport("stdio" if "command" in thing.fields else None)
            await guard.private(thing.fields.get("url", ""))
    if body.dry_run:
        return PlanShape.make(await library.manifests.plan(manifest, prune=body.prune))
    return PlanShape.make(await library.manifests.apply(manifest, prune=body.prune, plan=body.digest))


@router.get("/v1/manifests/schema")
async def get_manifest_schema(library: Library) -> dict[str, Any]:
    """Get the JSON schema of files of agents."""
    return dict(library.manifests.schema())


_EXAMPLE = {"text/plain": {"example": "agents:\n  ada:\n    blocks:\n      notes:\n        seed: Likes tea.\n"}}


@router.get("/v1/agents/{agent_id}/manifest", response_class=PlainTextResponse, responses={200: {"content": _EXAMPLE}})
async def get_agent_manifest(library: Library, agent: ThisAgent, as_json: bool = False) -> Response:
    """Get an agent and what it uses as a file in YAML, or in JSON, that can be applied."""
    return PlainTextResponse(await library.manifests.show(agent.id, as_json=as_json))
