"""Agents as files on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from perdure.features.manifests.values import Change, FieldChange, Plan
from perdure.server.wire.base import WireRequest
from perdure.server.wire.shapes import WireShape, computed

FILES_MAX, FILE_CHARS, PATH_CHARS = 100, 1_000_000, 300


class ManifestIn(WireRequest):
    """Files of agents and the Python files that they name, by their paths. `prune`: also take out of use what the files
    had once, and have no more; `digest`: that of the plan that was looked at, so that nothing else is applied."""

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
