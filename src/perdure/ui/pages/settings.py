"""Settings: how this server is set up."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields

from starlette.requests import Request

from perdure.core.incoming.addresses import without_password
from perdure.core.incoming.limits import Limits
from perdure.core.text.reprs import attributes
from perdure.core.text.tables import read_table
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.health import VERSION
from perdure.server.wire.http import is_whole_server
from perdure.settings import Settings
from perdure.ui.render import Data, Pages

pages = Pages()

SECRET = frozenset({"secret_key", "secret_key_old"})
_PAGE = read_table(__file__)
GROUPS: Mapping[str, Sequence[str]] = _PAGE["groups"]
UNITS: Mapping[str, str] = _PAGE["units"]


@pages.get("/settings", "settings.html")
async def settings(request: Request, library: AsyncPerdure) -> Data:
    """Every setting with its variable and default; secrets as whether they are set, addresses without passwords. Only
    administrators of the default organisation see how the server itself is set up."""
    if not is_whole_server(request):
        return {"title": "Settings", "version": VERSION, "whole_server": False}
    current, search = library.app.settings, request.query_params.get("q", "").strip()
    rows = [row for row in _rows(current) if search.lower() in f"{row['variable']} {row['meaning']}".lower()]
    isolation = await library.app.shared.sandbox.isolation()
    return {
        "title": "Settings",
        "sandbox": {
            **attributes(isolation, "summary", "enough", "unsafe"),
            "network": current.sandbox_network == "on",
            "measures": [asdict(measure) for measure in isolation.measures],
        },
        "version": VERSION,
        "whole_server": True,
        "key_needed": request.app.state.gate.needs_key,
        "search": search,
        "changed": [row for row in rows if row["is_set"]],
        "groups": [
            {"name": name, "rows": found} for name in GROUPS if (found := [row for row in rows if row["group"] == name])
        ],
        "store": library.upkeep.place,
    }


def group_of(name: str) -> str | None:
    """The group of a setting; None: it is in none."""
    if name in Limits.__dataclass_fields__:
        return "Limits"
    named = (group for group, names in GROUPS.items() if name in names)
    begun = (group for group, names in GROUPS.items() for one in names if one.endswith("_") and name.startswith(one))
    return next(named, None) or next(begun, None)


def _rows(current: Settings) -> Iterator[Data]:
    """Each setting with its value, default, unit, group and meaning."""
    default, meanings = Settings(), _meanings()
    for field in fields(Settings):
        value, usual = getattr(current, field.name), getattr(default, field.name)
        is_set = value != usual
        if field.name in SECRET:
            value, usual = "set" if value else "not set", "not set"
        unit = next((unit for end, unit in UNITS.items() if field.name.endswith(end)), "")
        yield {
            "name": field.name.replace("_", " "),
            "variable": f"PERDURE_{field.name.upper()}",
            "group": group_of(field.name),
            "meaning": meanings.get(field.name, ""),
            "value": _with_unit(without_password(_text(value)), unit),
            "default": _with_unit(_text(usual), unit),
            "is_set": is_set,
        }


def _text(value: object) -> str:
    """A value of a setting, a number without a fraction of zero."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_unit(text: str, unit: str) -> str:
    """A value with its unit, and a whole number of five or more digits in groups of three."""
    if text.isascii() and text.isdecimal() and len(text) > 4:
        text = f"{int(text):,}"
    return f"{text} {unit}".strip() if text else ""


def _meanings() -> Mapping[str, str]:
    """Setting -> what it is, as the documentation of `Settings` and of the limits says it."""
    text = " ".join((inspect.getdoc(Settings) or "").partition("Raises:")[0].split("Args:")[-1].split())
    names = "|".join(Settings.__dataclass_fields__)
    parts = re.split(rf"(?:^|(?<=\.) )({names}): ", text)
    found = {name: meaning.rstrip(".;") for name, meaning in zip(parts[1::2], parts[2::2], strict=True)}
    limits = {name: f"the most {one.metadata['counts']}" for name, one in Limits.__dataclass_fields__.items()}
    return {**found, **limits, "schedule_interval_s": "the least seconds between two due times of a schedule"}
