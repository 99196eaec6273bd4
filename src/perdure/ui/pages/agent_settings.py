"""The page of an agent's settings, and the forms that change, delete and restore the agent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from perdure.context.prompts import base_prompt
from perdure.core.agents import OWN_TAGS, Agent
from perdure.core.errors import AlreadyExists, InvalidInput, NotFound
from perdure.core.features import feature_settings
from perdure.core.text.reprs import attributes, plural
from perdure.domain.agents.fields import GROUPS, SettingField, field_value, setting_fields, with_fields
from perdure.domain.agents.options import CONTEXT_ENGINE
from perdure.domain.agents.units import AgentChanges
from perdure.domain.blocks.units import NewBlock
from perdure.library.agent import AsyncAgentById
from perdure.library.perdure import AsyncPerdure
from perdure.ui.conflicts import WAS, FormConflict, changed_fields, three_ways
from perdure.ui.pages.home import agent_frame, home, page_author
from perdure.ui.pages.memory import edit_block
from perdure.ui.pages.tool_forms import parse_json
from perdure.ui.render import Data, Notice, Pages, agent_of, field_of, form_of, in_words

PERSONA = "persona"
"""The label of the block that says what an agent is like."""

MODEL = "model"

pages = Pages()


@pages.get("/agents/{agent_id}/settings", "agent_settings.html", sections="agent_settings")
async def agent_settings(request: Request, library: AsyncPerdure) -> Data:
    """The agent's own texts, and its settings by groups."""
    own = agent_of(request, library)
    agent = await library.all_agents.resolve(own.id)
    engines = library.app.ports.engine_calls.engines.names
    fields = [_field_shape(field, agent.settings, engines) for field in setting_fields().values()]
    groups = [
        {"name": name, "title": title, "fields": [one for one in fields if one["group"] == name]}
        for name, title in GROUPS.items()
    ]
    return agent_frame(agent, "Settings", "settings") | {
        "own": attributes(agent, "name", "description", "timezone", "system") | {"tags": _tags_of(agent)},
        "was": _about_of(agent) | {"system": agent.system or ""},
        "persona": await _persona(own),
        "base_prompt": base_prompt(agent.agent_type),
        "groups": [group | {"was": _form_values(group, agent)} for group in groups if group["fields"]],
        "models": list(library.app.models.handles()),
        "default_model": library.app.models.follow(agent.model) if agent.follows_default else library.app.choice.handle,
    }


def _tags_of(agent: Agent, *, own: bool = False) -> list[str]:
    """The tags that people give the agent; `own`: those by which Perdure marks it."""
    return [tag for tag in agent.tags if tag.startswith(OWN_TAGS) == own]


def _form_values(group: Data, agent: Agent) -> dict[str, str]:
    """What the form of a group of settings is filled with."""
    texts = {field["name"]: field["text"] for field in group["fields"]}
    return texts | ({MODEL: _model_choice(agent)} if group["name"] == MODEL else {})


def _about_of(agent: Agent) -> dict[str, str]:
    """What the agent is called and so on, as the form has it."""
    texts = {name: getattr(agent, name) or "" for name in ("name", "description", "timezone")}
    return texts | {"tags": ", ".join(_tags_of(agent))}


async def _persona(agent: AsyncAgentById) -> Data | None:
    """The block that says what the agent is like; None: it has none."""
    try:
        block = await agent.blocks.get(PERSONA)
    except NotFound:
        return None
    return attributes(block, "value", "version", limit="limit_chars")


def _field_shape(field: SettingField, settings: Mapping[str, Any], engines: tuple[str, ...]) -> Data:
    """A setting as the form shows it; a value that has no such form is shown as JSON."""
    value = field_value(settings, field.path)
    kind = field.kind if value is None or field.holds(value) else "json"
    choices = engines if field.path == CONTEXT_ENGINE else field.choices
    return {
        **attributes(field, "path", "group", "title", "help", "unit", "default", "least", "most", "is_rare"),
        "kind": kind,
        "choices": list(choices) if value in (None, *choices) or kind != "choice" else [*choices, value],
        "value": value,
        "name": f"{kind}:{field.path}",
        "text": _text_of(kind, value),
    }


def _text_of(kind: str, value: Any) -> str:
    """A value as the form's field holds it; empty: it is not set."""
    if value is None:
        return ""
    match kind:
        case "flag":
            return "yes" if value else "no"
        case "lines":
            return "\n".join(value)
        case "json":
            return json.dumps(value, ensure_ascii=False, indent=2)
        case "number":
            return f"{value:.10g}"
        case _:
            return str(value)


@pages.post("/agents/{agent_id}/settings/about", shows=agent_settings)
async def set_about(request: Request, library: AsyncPerdure) -> Notice:
    """Change the agent's name, description, time zone and tags."""
    own, form = agent_of(request, library), await form_of(request)
    before = _about_of((await library.agent(own.id)).info)
    tags = [tag.strip() for tag in form.get("tags", "").split(",") if tag.strip()]
    if any(tag.startswith(OWN_TAGS) for tag in tags):
        raise InvalidInput(f"tags: those that begin with {OWN_TAGS} are Perdure's own; choose another word")
    changes: Mapping[str, Any] = {
        "name": field_of(form, "name").strip(),
        "description": form.get("description", "").strip() or None,
        "timezone": form.get("timezone", "").strip() or "UTC",
    }

    def change(agent: Agent) -> AgentChanges:
        """The fields that the form changes; Perdure's own tags stay."""
        values = {**changes, "tags": [*tags, *_tags_of(agent, own=True)]}
        return cast(AgentChanges, {name: values[name] for name in changed_fields(form, _about_of(agent))})

    after = await own.edit(change, author=page_author(), same_name="refuse")
    fields = before | {WAS: json.dumps(_about_of(after))}
    return Notice(f"{after.name} was changed.", undo=f"/agents/{own.id}/settings/about", fields=fields)


@pages.post("/agents/{agent_id}/settings/blocks/{label}", shows=agent_settings)
async def write_persona(request: Request, library: AsyncPerdure) -> Notice:
    """Write the persona, as on the page of the agent's memory; an agent without one gets the block."""
    own, form, label = agent_of(request, library), await form_of(request), request.path_params["label"]
    value = form.get("value", "")
    if label == PERSONA and form.get("version") == "":
        with contextlib.suppress(AlreadyExists):
            await own.blocks.add(NewBlock(label=PERSONA, value=value), author=page_author())
            return Notice("The persona was stored; the agent reads it with its next message.")
        persona = await own.blocks.get(PERSONA)
        field = three_ways("value", PERSONA, base="", theirs=persona.value, mine=value)
        raise FormConflict([PERSONA], [field], {"version": str(persona.version)})
    return await edit_block(request, library)


@pages.post("/agents/{agent_id}/settings/system", shows=agent_settings)
async def set_system(request: Request, library: AsyncPerdure) -> Notice:
    """Change the agent's system prompt; an empty one is Perdure's own."""
    own, form = agent_of(request, library), await form_of(request)
    before, system = (await library.agent(own.id)).info, form.get("system", "").strip()
    is_own = system in ("", base_prompt(before.agent_type))

    def change(agent: Agent) -> AgentChanges:
        """The prompt, if nobody else changed it."""
        changed_fields(form, {"system": agent.system or ""}, {"system": "system prompt"})
        return {"system": None if is_own else system}

    after = await own.edit(change, author=page_author())
    text = f"{after.name} follows {'Perdure’s own' if is_own else 'the new'} prompt from its next message on."
    fields = {"system": before.system or "", WAS: json.dumps({"system": after.system or ""})}
    return Notice(text, undo=f"/agents/{own.id}/settings/system", fields=fields)


@pages.post("/agents/{agent_id}/settings/values", shows=agent_settings)
async def set_values(request: Request, library: AsyncPerdure) -> Notice:
    """Change the settings that are in the form, and the model if it is; an empty field takes its setting back."""
    own, form = agent_of(request, library), await form_of(request)
    before = (await library.agent(own.id)).info
    engines, sent = library.app.ports.engine_calls.engines.names, _values_in(form)

    def texts(agent: Agent, paths: Iterable[str]) -> dict[str, str]:
        """The fields of these settings as the form has them."""
        shown = [_field_shape(setting_fields()[path], agent.settings, engines) for path in paths]
        return {one["name"]: one["text"] for one in shown} | ({MODEL: _model_choice(agent)} if MODEL in form else {})

    every = [path for _, path, _ in sent]
    known = texts(before, every)
    titles = {f"{kind}:{path}": setting_fields()[path].title for kind, path, _ in sent}
    mine = changed_fields(form, known, titles)
    values = {path: value for kind, path, value in sent if (name := f"{kind}:{path}") in mine or name not in known}
    changes: AgentChanges = {}
    if MODEL in mine and form[MODEL] != _model_choice(before):
        changes = await library.all_agents.model_changes(form[MODEL] or None)

    def change(agent: Agent) -> AgentChanges:
        """The changes of the agent as it is now."""
        changed_fields(form, texts(agent, every), titles)
        return {**changes, "settings": with_fields(agent.settings, values)}

    try:
        _check_shapes(before.settings, with_fields(before.settings, values))
        after = await own.edit(change, author=page_author())
    except InvalidInput as error:
        words = {name: setting_fields()[path].title for path in every for name in (path, path.rpartition(".")[2])}
        raise in_words(error, words) from error
    old = texts(before, values) | {WAS: json.dumps(texts(after, values))}
    count = sum(field_value(before.settings, path) != field_value(after.settings, path) for path in values)
    said = [f"{after.name} answers with {after.model} from now on."] if changes else []
    said += [f"{plural(count, 'setting')} changed."] if count or not said else []
    return Notice(" ".join(said), undo=f"/agents/{own.id}/settings/values", fields=old)


def _model_choice(agent: Agent) -> str:
    """The agent's model as the form has it; empty: it follows the default."""
    return "" if agent.follows_default else agent.model


def _values_in(form: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """(Kind, path, value) of each setting in a form; None: the field is empty. Raises: InvalidInput."""
    found = []
    for name, text in form.items():
        kind, _, path = name.partition(":")
        field = setting_fields().get(path)
        if field is None or kind not in ("json", field.kind):
            continue
        is_json = kind == "json" and text.strip()
        found.append((kind, path, parse_json(field.title, text) if is_json else field.parse(text)))
    return found


def _check_shapes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Check the settings of features that change, as requests of the API are checked. Raises: InvalidInput."""
    for name, (feature, setting) in feature_settings().items():
        if name in after and after[name] != before.get(name):
            try:
                TypeAdapter(feature.load(setting.shape)).validate_python(after[name])
            except ValidationError as error:
                raise InvalidInput(f"{name}: {error.errors()[0]['msg']}") from error


@pages.post("/agents/{agent_id}/settings/discard", shows=home)
async def discard(request: Request, library: AsyncPerdure) -> Notice:
    """Take the agent out of the lists; it can be brought back until somebody deletes it for good."""
    agent = await agent_of(request, library).discard()
    return Notice(f"{agent.name} was deleted.", undo=f"/agents/{agent.id}/settings/restore", location="/")


@pages.post("/agents/{agent_id}/settings/restore", shows=agent_settings)
async def restore(request: Request, library: AsyncPerdure) -> Notice:
    """Bring back an agent that was discarded."""
    agent = await agent_of(request, library).restore()
    return Notice(f"{agent.name} is back.", location=f"/agents/{agent.id}/settings")
