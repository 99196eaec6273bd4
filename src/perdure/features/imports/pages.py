"""Imports on the page of data: a file is dropped, looked at, and imported when that is confirmed; and the tools of
imported agents that wait for a review, on the page of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from starlette.requests import Request

from perdure.features.imports.forms import import_form
from perdure.features.imports.sources.items import ImportSource
from perdure.features.imports.views import nothing_line, report_lines
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of

PROGRAMS: Mapping[ImportSource, str] = {
    "chatgpt": "ChatGPT",
    "claude": "Claude",
    "mem0": "mem0",
    "zep": "Zep",
    "letta-db": "Letta's database (SQLite)",
    "markdown": "Markdown (a ZIP file of a folder)",
    "jsonl": "Lines of JSON, or a ZIP file of an export",
}


async def load(request: Request, library: AsyncPerdure) -> Data:
    """The programs to choose from, and what an import that was just asked for did or would do."""
    found: Data = {"programs": [*PROGRAMS.items()], "lines": [], "new": False, "dry": True, "why": ""}
    found["limit_mb"] = library.app.settings.file_limit_bytes // 1_000_000
    return found | getattr(request.state, "imported", {})


async def import_file(request: Request, library: AsyncPerdure) -> Notice:
    """Import a file, or with `choice` `check` only say what that would do."""
    report, done = await import_form(library, request)
    lines, is_new = report_lines(report, done=done), report.has_news and not done
    request.state.imported = {"lines": lines, "new": is_new, "dry": not done, "why": nothing_line(report)}
    return Notice("")


async def load_waiting(request: Request, library: AsyncPerdure) -> Sequence[Data]:
    """The tools that the agent gets once a person has read their code."""
    return [asdict(tool) for tool in await library.imports.unreviewed_tools(agent_id_of(request))]


async def enable(request: Request, library: AsyncPerdure) -> Notice:
    """Give a tool that a person has read to all agents that had it."""
    done = await library.imports.approve_tool(request.path_params["tool"])
    return Notice(f"{done.name} is enabled for {', '.join(done.agents)}.")


SECTION = Section(name="imports", load=load, actions={"/data/imports": import_file})
REVIEW = Section(
    name="unreviewed", load=load_waiting, actions={"/agents/{agent_id}/tools/waiting/{tool}/enable": enable}
)
