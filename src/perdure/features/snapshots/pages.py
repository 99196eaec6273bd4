"""Snapshots on pages: go back to a step, clone an agent there, and the states of an agent that are kept."""

from __future__ import annotations

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
        "steps": [{"id": step.id, "number": number} for number, step in enumerate(reversed(steps), 1)],
    }


async def load_of_agent(request: Request, library: AsyncPerdure) -> Data:
    """The states of the agent that are kept."""
    own = library.agent_of(agent_id_of(request))
    names = ("number", "reason", "note", "step_id", "waits", "created_at")
    found = await own.snapshots.list(limit=SHOWN)
    return {"snapshots": [attributes(one, *names) for one in found], "note_chars": NOTE_CHARS}


async def back(request: Request, library: AsyncPerdure) -> Notice:
    """Bring the run's agent back to the end of one of its steps."""
    snapshots = await _of_run(request, library)
    restored = await snapshots.restore(step=field_of(await form_of(request), "step"))
    return _restore_notice(restored, f"/runs/{request.path_params['run_id']}/snapshots/undo")


async def undo(request: Request, library: AsyncPerdure) -> Notice:
    """Take back that an agent went back."""
    await (await _of_run(request, library)).restore(_number_of(await form_of(request)))
    return Notice("The agent is as it was before.")


async def clone_of_run(request: Request, library: AsyncPerdure) -> Notice:
    """Make an agent of the run's agent, as one of its steps left it."""
    form = await form_of(request)
    made = await (await _of_run(request, library)).clone(field_of(form, "name").strip(), step=field_of(form, "step"))
    return _made(made)


async def make(request: Request, library: AsyncPerdure) -> Notice:
    """Keep the agent as it is now."""
    note = (await form_of(request)).get("note", "")
    made = await library.agent_of(agent_id_of(request)).snapshots.make(note=note)
    return Notice(f"Snapshot {made.number} is kept.")


async def restore(request: Request, library: AsyncPerdure) -> Notice:
    """Bring the agent back to a snapshot."""
    agent_id = agent_id_of(request)
    restored = await library.agent_of(agent_id).snapshots.restore(_number_of(await form_of(request)))
    return _restore_notice(restored, f"/agents/{agent_id}/settings/snapshots/restore")


async def clone(request: Request, library: AsyncPerdure) -> Notice:
    """Make another agent of this one, as it is now or in a snapshot."""
    form = await form_of(request)
    number = _number_of(form) if form.get("number") else None
    snapshots = library.agent_of(agent_id_of(request)).snapshots
    return _made(await snapshots.clone(field_of(form, "name").strip(), number))


async def delete(request: Request, library: AsyncPerdure) -> Notice:
    """Delete a snapshot."""
    number = _number_of(await form_of(request))
    await library.agent_of(agent_id_of(request)).snapshots.delete(number)
    return Notice(f"Snapshot {number} was deleted.")


async def _of_run(request: Request, library: AsyncPerdure) -> AsyncSnapshots:
    """The snapshots of the agent of the run in the path. Raises: NotFound."""
    run = await library.runs.run(RunId(request.path_params["run_id"]))
    return library.agent_of(run.key.agent_id).snapshots


def _restore_notice(restored: Restored, undo_path: str) -> Notice:
    """What a restore has done, with what takes it back."""
    left = "".join(f" {one[0].upper()}{one[1:]}." for one in restored.left)
    text = f"The agent is as it was there: {plural(restored.hidden, 'message')} left the view.{left}"
    return Notice(text, undo=undo_path, fields={"number": str(restored.undo)})


def _made(made: Clone) -> Notice:
    """The agent that was made, and what it has not got."""
    left = "".join(f" {one[0].upper()}{one[1:]}." for one in made.left)
    return Notice(f"{made.name} was made.{left}", link=(f"/agents/{made.agent_id}", f"Open {made.name}"))


def _number_of(form: Data) -> int:
    """The number of a snapshot in a form. Raises: InvalidInput."""
    number = form.get("number", "")
    if not is_number(number):
        raise InvalidInput(f"{number!r:.40} is not a snapshot's number")
    return int(number)


OF_RUN = Section(
    name="snapshots_of_run",
    load=load_of_run,
    actions={
        "/runs/{run_id}/snapshots/back": back,
        "/runs/{run_id}/snapshots/undo": undo,
        "/runs/{run_id}/snapshots/clone": clone_of_run,
    },
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
