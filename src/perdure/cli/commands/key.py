"""`perdure key`: the API key that clients of this machine's server send."""

from __future__ import annotations

from perdure.cli.chat.terminal import Terminal, standard_streams
from perdure.cli.views.text import TextView
from perdure.core.errors import InvalidInput, PerdureError
from perdure.server.config import ServerConfig
from perdure.server.key import key_path, load_key
from perdure.settings import Settings

__all__ = ["key"]


async def key() -> int:
    """Print the key and nothing else; the exit code is 1 if there is none."""
    out, err = standard_streams()
    try:
        found = ServerConfig.from_environment().api_key or load_key(key_path(Settings.from_environment()))
        if found is None:
            raise InvalidInput("no API key is set: start the server with PERDURE_API_KEY=auto, which makes one")
    except PerdureError as error:
        TextView(Terminal(out, err, interactive=False)).error(error)
        return 1
    print(found, file=out)
    return 0
