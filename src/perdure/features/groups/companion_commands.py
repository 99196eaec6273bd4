"""`perdure companion`: agents that tidy the memory of other agents while nobody waits, and what each pass changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from perdure.cli.commands.run import LastAgent, Yes, command, flag, for_work, option

if for_work(__name__):
    from rich.console import RenderableType
    from rich.text import Text

    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import deleting
    from perdure.cli.views.json import fields
    from perdure.cli.views.render import diff_view
    from perdure.cli.views.view import Output, fold, local_time, new_table, plural, visible
    from perdure.features.groups.companion_service import CompanionInfo, PassInfo
    from perdure.features.groups.feature import COMPANION
    from perdure.features.groups.values import PassCause, PassOutcome
    from perdure.library.agent import AsyncAgent
    from perdure.library.perdure import AsyncPerdure

NEWS_MAX = 5
TEXT_CHARS, DIFF_CHARS = 120, 160
NO_COMPANION = "No agent has a companion yet: `perdure companion on AGENT` gives it one."
CAUSES: dict[PassCause, str] = {
    "turns": "after its turns",
    "compaction": "after a compaction",
    "request": "on request",
    "schedule": "on schedule",
    "rest": "with the rest",
    "retry": "again",
}
OUTCOMES: dict[PassOutcome | None, str] = {
    None: "goes on",
    "finished": "finished",
    "budget": "stopped at its budget",
    "conflicts": "gave up: others edited the same block all the time",
    "requires_approval": "stopped: a call needs approval",
    "cancelled": "cancelled",
    "edited": "stopped: a message was edited meanwhile",
    "model_error": "failed: its model is down",
    "error": "failed",
}


@command("companion list", none=NO_COMPANION)
async def list_companions(view: Output, perdure: AsyncPerdure) -> None:
    """List the agents with a companion, which tidies their memory while nobody waits."""
    found = await perdure.companions.list()
    table = new_table("agent", "companion", "wakes after", "turns", "last pass", styles={"agent": "bold"})
    for info in found:
        last = "-"
        if (pass_ := info.last_pass) is not None:
            edited = ", ".join(dict.fromkeys(visible(edit.label) for edit in pass_.edits))
            last = f"{local_time(pass_.created_at)}  {OUTCOMES[pass_.outcome]}{f', changed {edited}' if edited else ''}"
        every = plural(info.frequency or 0, "turn")
        table.add_row(visible(info.agent_name), visible(info.name), every, str(info.turns), last)
    view.show([_companion_shape(info) for info in found], *([table] if found else []))
    view.hint("`perdure companion show AGENT` prints what it changed and why." if found else NO_COMPANION)


@command("companion show")
async def show(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    limit: Annotated[int, option("How many passes.", min=1, max=1_000)] = 10,
) -> None:
    """Show the passes of an agent's companion: what each changed and why, the newest last."""
    info = await agent.companion.get()
    passes = (await agent.companion.passes(limit=limit))[::-1]
    shape = _companion_shape(info) | {"passes": [pass_shape(pass_) for pass_ in passes]}
    view.show_long(shape, *_info_view(info), *(part for pass_ in passes for part in pass_view(pass_)))
    if not passes:
        view.hint("It has made no pass yet; `perdure companion wake` has it read what is new.")


@command("companion wake", change=True)
async def wake(view: Output, agent: LastAgent) -> None:
    """Have a companion read what is new now, and show what it changes."""
    done = await agent.companion.wake()
    if done is None:
        view.show({"pass": None}, f"Nothing new was said to {agent.name!r} since the last pass.")
    else:
        view.show({"pass": pass_shape(done)}, *pass_view(done))


@command("companion on", change=True)
async def on(
    view: Output,
    agent: LastAgent,
    reflects: Annotated[bool, flag("--reflects", "It reads what failed, and only proposes changes.")] = False,
) -> None:
    """Give an agent a companion, which shares its memory blocks."""
    info = await agent.companion.enable(kind="reflection" if reflects else "sleeptime")
    view.show(_companion_shape(info), *_info_view(info))
    if info.kind == "reflection" and not reflects:
        view.hint("It was one that reflects, and stays so: for one that tidies the memory take it away first.")
    wake = f"perdure companion wake {shell_word(info.agent_name)}"
    view.hint(f"It reads what is said from now on; `{wake}` does not wait for turns.")


@command("companion off", change=True)
async def off(view: Output, perdure: AsyncPerdure, agent: LastAgent, yes: Yes = False) -> None:
    """Delete the companion of an agent; what it wrote into memory stays."""
    info = await agent.companion.get()
    what, stays = f"companion {info.name!r} with its history", "what it wrote into memory stays"
    with deleting(view, what, stays, yes=yes, id_=info.companion.id):
        await agent.companion.disable()
    view.print(f"{agent.name!r} has no companion any more.")


@command(
    "companion update",
    change=True,
    refuses=[
        (
            lambda values: not (values["frequency"] or values["max_steps"] or values["max_tokens"]),
            "nothing to change: give --frequency, --max-steps or --max-tokens",
            None,
        )
    ],
)
async def update(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    frequency: Annotated[int | None, option("Wake after this many turns.", min=1)] = None,
    max_steps: Annotated[int | None, option("How many model calls a pass may make.", min=1)] = None,
    max_tokens: Annotated[int | None, option("Tokens, in and out, of a pass.", min=1)] = None,
) -> None:
    """Change how often a companion wakes, and what a pass may take."""
    values = {"frequency": frequency, "max_steps": max_steps, "max_tokens": max_tokens}
    changes: Any = {name: value for name, value in values.items() if value is not None}
    info = await agent.companion.update(**changes)
    view.show(_companion_shape(info), *_info_view(info))


def pass_view(pass_: PassInfo) -> Sequence[RenderableType]:
    """A pass: when and why, how it ended, and its differences."""
    used = f"{plural(pass_.steps, 'step')}, {pass_.usage.total_tokens:,} tokens"
    head = Text.assemble(
        (f"pass {pass_.number}", "bold"),
        (f"  {local_time(pass_.created_at)}  {CAUSES[pass_.cause]}, {OUTCOMES[pass_.outcome]}  ({used})", "dim"),
    )
    parts: list[RenderableType] = [head]
    if pass_.reason:
        parts.append(Text(f"  {visible(pass_.reason)}"))
    if pass_.failure is not None:
        parts.append(Text(f"  {visible(pass_.failure.message)}", style="yellow"))
    for edit in pass_.edits:
        parts += [Text(f"  {visible(edit.label)}, version {edit.version}", style="dim"), diff_view(edit.diff)]
    return parts if pass_.edits or pass_.outcome is None else [*parts, Text("  changed nothing", style="dim")]


def pass_shape(pass_: PassInfo) -> dict[str, Any]:
    """A pass as JSON."""
    return {
        **fields(pass_, "number", "cause", "outcome", "reason", "run_id", "last_message_id", "created_at", "ended_at"),
        "steps": pass_.steps,
        "tokens": pass_.usage.total_tokens,
        "failure": None if pass_.failure is None else fields(pass_.failure, "kind", "message"),
        "edits": [fields(edit, "block_id", "label", "version", "diff") for edit in pass_.edits],
    }


def _companion_shape(info: CompanionInfo) -> dict[str, Any]:
    return {
        "agent": {"id": info.agent_id, "name": info.agent_name},
        "companion": fields(info.companion, "id", "name", "model"),
        **fields(info, "kind", "frequency", "turns", "max_steps", "max_tokens"),
        "last_pass": None if info.last_pass is None else pass_shape(info.last_pass),
    }


def _info_view(info: CompanionInfo) -> list[RenderableType]:
    """Two lines about a companion: its name and model; what it does, how often, and its limits."""
    head = Text.assemble((visible(info.name), "bold"), (f"  {info.companion.id}  {info.companion.model}", "dim"))
    limits = {"steps": info.max_steps, "tokens": info.max_tokens}
    own = ", ".join(f"at most {value:,} {name} a pass" for name, value in limits.items() if value is not None)
    work = "reads what failed of" if info.kind == "reflection" else "tidies the memory of"
    text = (
        f"{work} {visible(info.agent_name)} after every {plural(info.frequency or 0, 'turn')};"
        f" {plural(info.turns, 'turn')} since its last pass"
    )
    return [head, Text(f"{text}; {own}" if own else text)]


class CompanionUpdates:
    """Shows each pass of a companion once. An agent without a companion costs no look into the store."""

    def __init__(self, view: Output) -> None:
        self._view = view
        self._since: datetime | None = None

    async def show_since_last_run(self, agent: AsyncAgent) -> None:
        """Show what was changed after the agent's last run began. Raises: PerdureError."""
        if agent.info.settings.get(COMPANION) and (runs := await agent.runs(limit=1)):
            self._since = runs[0].created_at
            await self.show(agent)

    async def show(self, agent: AsyncAgent) -> None:
        """Show what was changed since the last look. Raises: PerdureError."""
        if not agent.info.settings.get(COMPANION):
            return
        passes = await agent.companion.passes(limit=NEWS_MAX)
        since = self._since
        ended = [pass_ for pass_ in passes if pass_.ended_at is not None and (since is None or pass_.ended_at > since)]
        for pass_ in ended[::-1]:
            if pass_.ended_at is not None:
                self._since = pass_.ended_at
            for line in news_lines(pass_):
                self._view.hint(line)


def news_lines(pass_: PassInfo) -> list[str]:
    """A pass in at most two lines: which blocks it changed and why, and the difference; none if it changed nothing."""
    if not pass_.edits:
        return []
    labels = ", ".join(dict.fromkeys(visible(edit.label) for edit in pass_.edits))
    changed = [
        line
        for edit in pass_.edits
        for line in edit.diff.splitlines()
        if line[:1] in ("+", "-") and line[1:].strip() and not line.startswith(("+++", "---"))
    ]
    reason = f": {visible(pass_.reason)}" if pass_.reason else ""
    return [
        fold(f"meanwhile your companion changed {labels}{reason}", TEXT_CHARS),
        *([fold("  " + "  ".join(map(visible, changed)), DIFF_CHARS)] if changed else []),
    ]
