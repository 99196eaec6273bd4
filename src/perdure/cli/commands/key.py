"""`perdure key`: the API key that clients of this machine's server send."""

from __future__ import annotations

from perdure.cli.open_store import Output
from perdure.core.errors import InvalidInput, PerdureError
from perdure.server.config import ServerConfig
from perdure.server.key import key_path, load_key
from perdure.settings import Settings


async def key() -> int:
    """Print the key and nothing else; the exit code is 1 if there is none."""
    output = Output()
    try:
        api_key = ServerConfig.from_environment().api_key or load_key(key_path(Settings.from_environment()))
        if api_key is None:
            raise InvalidInput("no API key is set: start the server with PERDURE_API_KEY=auto, which makes one")
    except PerdureError as error:
        output.view.error(error)
        return 1
    output.print(api_key)
    return 0
