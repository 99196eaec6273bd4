"""`perdure model`: list, get, use and remove the models that run on this machine."""

from __future__ import annotations

from dataclasses import asdict

from perdure.cli.chat.terminal import program
from perdure.cli.views.view import View, new_table
from perdure.cli.work import confirm, progress_bar
from perdure.features.local.folder import catalogue
from perdure.features.local.models import PROVIDER, LocalModels, find_model, shown_size
from perdure.settings import Settings

MB = 1_000_000


async def list_models(view: View) -> None:
    """Print what is here and what can be fetched."""
    local = LocalModels(Settings.from_environment())
    rows = local.rows()
    table = new_table("NAME", "", "SIZE", "LICENCE", "", right={"SIZE"})
    for row in rows:
        state = "default" if row.is_default else "here" if row.is_here else ""
        if row.fetched and not row.is_here:
            state = f"{shown_size(row.fetched)} of it"
        what = ": ".join(filter(None, (row.title, row.about)))
        table.add_row(row.name, what, shown_size(row.size), row.licence, state)
    view.show([asdict(row) for row in rows], table)
    here = [row.name for row in rows if row.is_here]
    if missing := local.missing():
        view.hint(f"To run them, {missing}.")
    if local.folder.default:
        view.hint(f"New agents answer with {PROVIDER}/{local.folder.default}: `{program()}` starts the chat.")
    else:
        makes = f"`perdure model use {here[0]}` makes it the default." if here else ""
        view.hint(makes or "`perdure model get small` fetches one.")


async def get_model(view: View, *, name: str, sha256: str) -> None:
    """Fetch a model, with a bar of progress for people."""
    model = find_model(name, sha256)
    local = LocalModels(Settings.from_environment())
    if model.name in local.folder.names():
        view.show({"name": model.name, "file": str(local.folder.get(model.name))})
        view.hint(f"{model.name} is here already. {_next(local, model.name)}")
        return
    if missing := local.missing():
        view.note(f"To run {model.name}, {missing}.")
    with progress_bar() as show:
        await local.get(model, lambda done, total: show(f"{model.title or model.name}, MB", done // MB, total // MB))
    view.show({"name": model.name, "file": str(local.folder.get(model.name))})
    checked = "is here, and its checksum is right" if model.sha256 else "is here; no checksum was given to compare"
    view.hint(f"{model.title or model.name} {checked}. {_next(local, model.name)}")


async def use_model(view: View, *, name: str) -> None:
    """Make a model the default."""
    local = LocalModels(Settings.from_environment())
    name = local.folder.use(name)
    view.show({"name": name, "model": f"{PROVIDER}/{name}", "file": str(local.folder.get(name))})
    view.hint(_next(local, name))


async def remove_model(view: View, *, name: str, yes: bool) -> None:
    """Remove the file of a model after a question, or the link to it."""
    folder = LocalModels(Settings.from_environment()).folder
    folder.check_removable(name)
    if not folder.file_of(name).is_symlink():
        confirm(view, f"The file of model {name!r} will be gone. Remove?", action="delete the model", yes=yes)
    is_gone = folder.remove(name)
    view.show({"name": name, "removed": is_gone})
    again = f"`perdure model get {name}` fetches it again" if name in catalogue() else "`perdure model list` shows all"
    view.hint(f"Removed {name}. {again}." if is_gone else f"{name} is no model here any more; its file stays.")


def _next(local: LocalModels, name: str) -> str:
    """What to do next with a model that is here."""
    if missing := local.missing():
        return f"To run it, {missing}."
    handle, settings = f"{PROVIDER}/{name}", Settings.from_environment()
    if settings.model not in ("", handle):
        return f"PERDURE_MODEL is {settings.model!r} and decides: unset it to answer with {handle}."
    if local.folder.default == name:
        return f"Agents without a model of their own answer with {handle}: `{program()}` starts the chat."
    if settings.local_model:
        return f"PERDURE_LOCAL_MODEL is {settings.local_model!r} and decides: unset it to answer with {handle}."
    return f"`perdure model use {name}` makes it the default; without another model `{program()}` takes it at once."
