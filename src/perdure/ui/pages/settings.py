"""Settings: how this server is set up."""

from __future__ import annotations

from dataclasses import asdict, fields

from starlette.requests import Request

from perdure.core.incoming.addresses import without_password
from perdure.core.text.reprs import attributes
from perdure.library.perdure import AsyncPerdure
from perdure.server.routes.health import VERSION
from perdure.server.wire.http import is_whole_server
from perdure.settings import Settings
from perdure.ui.render import Data, Pages

pages = Pages()

SECRET = frozenset({"secret_key", "secret_key_old"})


@pages.get("/settings", "settings.html")
async def settings(request: Request, library: AsyncPerdure) -> Data:
    """Every setting with its variable and default; secrets as whether they are set, addresses without passwords. Only
    administrators of the default organisation see how the server itself is set up."""
    if not is_whole_server(request):
        return {"title": "Settings", "version": VERSION, "whole_server": False}
    current, default = library.app.settings, Settings()
    rows = []
    for field in fields(Settings):
        value, usual = getattr(current, field.name), getattr(default, field.name)
        is_set = value != usual
        if field.name in SECRET:
            value, usual = "set" if value else "not set", "not set"
        rows.append(
            {
                "name": field.name.replace("_", " "),
                "variable": f"PERDURE_{field.name.upper()}",
                "value": without_password(str(value)),
                "default": str(usual),
                "is_set": is_set,
            }
        )
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
        "rows": sorted(rows, key=lambda row: not row["is_set"]),
        "store": library.upkeep.place,
    }
