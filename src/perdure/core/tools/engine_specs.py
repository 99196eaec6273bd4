"""The built-in tools, all tools of the engine by name, and those of them that have a trait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.tools.memory_specs import CONTEXT_TOOL_SPECS, MEMORY_TOOL_SPECS
from perdure.core.tools.spec import ToolSpec, ToolTrait, object_schema


def _spec(
    name: str,
    description: str,
    properties: dict[str, Any],
    required: tuple[str, ...],
    *,
    timeout_s: float | None = None,
    traits: tuple[ToolTrait, ...] = (),
) -> ToolSpec:
    """A tool with these properties of its arguments' JSON schema."""
    return ToolSpec(
        name=name,
        description=description,
        parameters=object_schema(properties, required),
        kind="builtin",
        tool_type="letta_builtin",
        # None of them leaves anything changed, so a call that a crash interrupted is run again.
        idempotent=True,
        parallel=True,
        timeout_s=timeout_s,
        traits=frozenset(traits),
    )


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _text_list_schema(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_SPECS = (
    _spec(
        "ask_user",
        "Ask the user a question and wait for the answer, which is their next message. Only for what you can neither"
        " find out nor decide yourself.",
        {
            "question": _text_schema("The question, with all that the user needs to answer it."),
            "options": _text_list_schema("Suggested answers, if there are a few; the user may answer otherwise."),
        },
        ("question",),
    ),
    _spec(
        "run_code",
        "Run Python and see what it prints, the value of its last line, and its error. Each run begins anew, without"
        " network and files, and may take 30 seconds.",
        {
            "code": _text_schema("The code, a whole script."),
            "language": _text_schema("python, the only one that is run here."),
        },
        ("code",),
    ),
    _spec(
        "index_output",
        "For large outputs: run Python (as run_code), or read a file of your folders or a page of the web. The whole is"
        " stored, you see its first and last lines, and search_output finds in it what you look for.",
        {
            "command": _text_schema(
                "Python, a whole script. What it prints is stored. With file, it reads that file from standard input."
            ),
            "file": _text_schema("A file of your folders, such as docs/plan.md."),
            "url": _text_schema("The whole address of a page, with https://."),
        },
        (),
        timeout_s=60.0,
        traits=("repeats",),
    ),
    _spec(
        "run_code_with_tools",
        "Run Python that calls your other tools. It is not run here: call the tools one by one, or use run_code.",
        {"code": _text_schema("The code, a whole script.")},
        ("code",),
    ),
    _spec(
        "web_search",
        "Search the web. A result has a title, an address, often a date, and an excerpt; fetch_webpage reads a page.",
        {
            "query": _text_schema("What to look for, in plain words."),
            "num_results": {"type": "integer", "description": "How many results (default 10, up to 20)."},
            "category": {
                "type": "string",
                "enum": [
                    *("company", "research paper", "news", "pdf", "github", "tweet", "personal site"),
                    *("linkedin profile", "financial report"),
                ],
                "description": "Only results of this kind, where the engine knows it.",
            },
            "include_text": {"type": "boolean", "description": "Longer texts instead of excerpts (default false)."},
            "include_domains": _text_list_schema("Only from these domains, such as arxiv.org."),
            "exclude_domains": _text_list_schema("Nothing from these domains."),
            "start_published_date": _text_schema("Only what was published from this day on, such as 2026-11-20."),
            "end_published_date": _text_schema("Only what was published up to this day."),
            "user_location": _text_schema("Country of the searcher, two letters, such as US."),
        },
        ("query",),
        timeout_s=30.0,
    ),
    _spec(
        "fetch_webpage",
        "Read a page of the web: its main text as Markdown. Also plain text, JSON and PDF.",
        {"url": _text_schema("The whole address, with https://.")},
        ("url",),
        timeout_s=60.0,
    ),
)

BUILTIN_TOOL_SPECS: dict[str, ToolSpec] = {spec.name: spec for spec in _SPECS}
"""Name -> spec, of every built-in tool."""


ENGINE_TOOL_SPECS: Mapping[str, ToolSpec] = {**MEMORY_TOOL_SPECS, **CONTEXT_TOOL_SPECS, **BUILTIN_TOOL_SPECS}
"""Name -> spec."""


def tools_with(trait: ToolTrait) -> tuple[str, ...]:
    """Return the tools that have a trait."""
    return tuple(spec.name for spec in ENGINE_TOOL_SPECS.values() if trait in spec.traits)


def tool_writes_memory(name: str) -> bool:
    """Return whether a tool of the engine keeps a text beyond its conversation; one that nobody described does."""
    spec = ENGINE_TOOL_SPECS.get(name)
    return spec is None or spec.writes_memory


REPEATING_TOOLS = frozenset(tools_with("repeats"))
"""Built-in tools whose results only repeat blocks or hits of searches, or say that they worked. The search of history
excludes their results, or it would find earlier searches and edits instead of the messages. It also excludes outputs of
megabytes, which `search_output` searches."""
