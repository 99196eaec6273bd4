"""`perdure model`: list, get, use and remove the models that run on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, for_work

if for_work(__name__):
    import shlex

    from perdure.cli.session.work import confirm, progress_bar
    from perdure.cli.views.terminal import program
    from perdure.cli.views.view import Output, new_table
    from perdure.features.local.catalogue import catalogue, known_model
    from perdure.features.local.models import PROVIDER, LocalModels
    from perdure.settings import Settings

Name = Annotated[str, argument("As `perdure model list` shows it.", "NAME")]
NameOrFile = Annotated[str, argument("A model that is here, or a .gguf file anywhere.", "NAME")]

MB = 1_000_000


@command("model list")
async def list_models(view: Output) -> None:
    """List the models that are here, and those that can be fetched."""
    local = LocalModels(Settings.from_environment())
    models = local.models()
    table = new_table("NAME", "", "SIZE", "LICENCE", "", right={"SIZE"})
    for model in models:
        state = "default" if model.is_default else "here" if model.is_here else ""
        if model.fetched_bytes and not model.is_here:
            state = f"{100 * model.fetched_bytes // model.size_bytes} % of it"
        table.add_row(model.name, model.about, f"{model.size_bytes / 1e9:.1f} GB", model.licence, state)
    view.show([asdict(model) for model in models], table)
    name = local.default or next(iter(local.names()), "")
    view.hint(_next(local, name) if name else "`perdure model get small` fetches one.")


@command("model get")
async def get_model(view: Output, name: Name) -> None:
    """Fetch a model. If it is interrupted, run it again: it continues where it stopped."""
    local = LocalModels(Settings.from_environment())
    is_new = name not in local.names()
    if is_new:
        if missing := local.missing():
            view.note(f"To run {name}, {missing}.")
        with progress_bar() as show:
            await local.fetch(known_model(name), lambda done, total: show(f"{name}, MB", done // MB, total // MB))
    view.show({"name": name, "file": str(local.get(name))})
    view.hint(f"{name} is here{', and its checksum is right' if is_new else ' already'}. {_next(local, name)}")


@command("model use")
async def use_model(view: Output, name: NameOrFile) -> None:
    """Make a model the default, for new agents and for those that follow it."""
    local = LocalModels(Settings.from_environment())
    name = local.use(name)
    view.show({"name": name, "model": f"{PROVIDER}/{name}", "file": str(local.get(name))})
    view.hint(_next(local, name))


@command("model remove")
async def remove_model(view: Output, name: Name, yes: Yes = False) -> None:
    """Remove a model that was fetched. A file elsewhere that is in use stays where it is."""
    local = LocalModels(Settings.from_environment())
    if not local.removable(name).is_symlink():
        confirm(view, f"The file of model {name!r} will be gone. Remove?", action="delete the model", yes=yes)
    is_gone = local.remove(name)
    view.show({"name": name, "removed": is_gone})
    again = f"`perdure model get {name}` fetches it again" if name in catalogue() else "`perdure model list` shows all"
    view.hint(f"Removed {name}. {again}." if is_gone else f"{name} is no longer a model here; its file stays.")


def _next(local: LocalModels, name: str) -> str:
    """A sentence about what to do next with a model that is here."""
    handle, settings = f"{PROVIDER}/{name}", Settings.from_environment()
    if missing := local.missing():
        return f"To run it, {missing}."
    if settings.model not in ("", handle):
        return f"PERDURE_MODEL is {settings.model!r} and decides: unset it to answer with {handle}."
    if local.default == name:
        return f"Agents without a model of their own answer with {handle}: `{program()}` starts the chat."
    if settings.local_model:
        return f"PERDURE_LOCAL_MODEL is {settings.local_model!r} and decides: unset it to answer with {handle}."
    use = f"perdure model use {shlex.quote(name)}"
    return f"`{use}` makes it the default; without another model `{program()}` takes it at once."
