"""Snapshots on pages: go back to a step, clone an agent there, and the states of an agent that are kept."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.ids import RunId
from perdure.core.text.reprs import attributes, plural
from perdure.features.snapshots.service import AsyncSnapshots
from perdure.features.snapshots.values import NOTE_CHARS, Clone, Restored
from perdure.library.perdure import AsyncPerdure
from perdure.ui.render import Data, Notice, Section, agent_id_of, field_of, form_of, is_number

SHOWN, STEPS_MAX = 50, 200


async def load_of_run(request: Request, library: AsyncPerdure) -> Data:
    """The steps of the run, each of which an agent can go back to."""
    run = await library.runs.run(RunId(request.path_params["run_id"]))
    steps = await library.agent_of(run.key.agent_id).steps(run_id=run.id, limit=STEPS_MAX)
    if not run.ended:
        return {}
    agent = await library.all_agents.resolve(run.key.agent_id)
    return {
        "run_id": run.id,
        "name": agent.name,
        "at": request.query_params.get("back"),
        "steps": [{"id": step.id, "number": number} for number, step in enumerate(reversed(steps), 1)],
    }


async def load_of_agent(request: Request, library: AsyncPerdure) -> Data:
    """The states of the agent that are kept."""
    own = library.agent_of(agent_id_of(request))
    names = ("number", "reason", "note", "step_id", "waits", "created_at")
    found = await own.snapshots.list(limit=SHOWN)
    return {"snapshots": [attributes(one, *names) for one in found], "note_chars": NOTE_CHARS}


async def make(request: Request, library: AsyncPerdure) -> Notice:
    """Keep the agent as it is now."""
    note = (await form_of(request)).get("note", "")
    made = await library.agent_of(agent_id_of(request)).snapshots.make(note=note)
    return Notice(f"Snapshot {made.number} is kept.")


async def restore(request: Request, library: AsyncPerdure) -> Notice:
    """Bring the agent back to a snapshot, or to the end of a step."""
    number, step = _place_in(await form_of(request))
    restored = await (await _snapshots_of(request, library)).restore(number, step=step)
    text = f"The agent is as it was there: {plural(restored.hidden, 'message')} left the view.{_not_restored(restored)}"
    return Notice(text, undo=request.url.path, fields={"number": str(restored.undo)})


async def clone(request: Request, library: AsyncPerdure) -> Notice:
    """Make another agent of this one, as it is now, in a snapshot, or at the end of a step."""
    form = await form_of(request)
    number, step = _place_in(form)
    made = await (await _snapshots_of(request, library)).clone(field_of(form, "name").strip(), number, step=step)
    return Notice(f"{made.name} was made.{_not_restored(made)}", link=(f"/agents/{made.agent_id}", f"Open {made.name}"))


async def delete(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a snapshot."""
    number = _number_in(await form_of(request))
    await library.agent_of(agent_id_of(request)).snapshots.delete(number)
    return Notice(f"Snapshot {number} was deleted.")


async def _snapshots_of(request: Request, library: AsyncPerdure) -> AsyncSnapshots:
    """The snapshots of the agent, or of the run's agent, in the path. Raises: NotFound."""
    if (run_id := request.path_params.get("run_id")) is None:
        return library.agent_of(agent_id_of(request)).snapshots
    return library.agent_of((await library.runs.run(RunId(run_id))).key.agent_id).snapshots


def _place_in(form: Mapping[str, str]) -> tuple[int | None, str | None]:
    """The (number of a snapshot, id of a step) in a form. Raises: InvalidInput."""
    return _number_in(form) if form.get("number") else None, form.get("step")


def _number_in(form: Mapping[str, str]) -> int:
    """The number of a snapshot in a form. Raises: InvalidInput."""
    if not is_number(number := form.get("number", "")):
        raise InvalidInput(f"{number!r:.40} is not a snapshot's number")
    return int(number)


def _not_restored(made: Restored | Clone) -> str:
    """Return sentences about what could not be restored."""
    return "".join(f" {one[0].upper()}{one[1:]}." for one in made.left)


OF_RUN = Section(
    name="snapshots_of_run",
    load=load_of_run,
    actions={"/runs/{run_id}/snapshots/back": restore, "/runs/{run_id}/snapshots/clone": clone},
)
OF_AGENT = Section(
    name="snapshots_of_agent",
    load=load_of_agent,
    actions={
        "/agents/{agent_id}/settings/snapshots": make,
        "/agents/{agent_id}/settings/snapshots/restore": restore,
        "/agents/{agent_id}/settings/snapshots/clone": clone,
        "/agents/{agent_id}/settings/snapshots/delete": delete,
    },
    is_shown_empty=True,
)
