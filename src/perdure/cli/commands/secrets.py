"""`perdure secret`: set a secret without showing it, list names, remove one."""

from __future__ import annotations

import getpass
import sys

from perdure.cli.open_store import Output, with_store
from perdure.cli.views.fold import local_time, visible
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.secrets import SECRET_VALUE_CHARS_MAX, check_secret
from perdure.library.perdure import AsyncPerdure
from perdure.library.secrets import AsyncSecrets
from perdure.settings import Settings

NO_SECRET = "There are no secrets yet: `perdure secret set NAME` makes one."


async def set_secret(*, name: str, agent: str | None) -> int:
    """Read the value from the terminal or stdin, and store it."""
    output = Output()
    value = ""

    def check(settings: Settings) -> None:
        nonlocal value
        check_secret(name, "")  # a wrong name is refused before anybody types a value
        value = _read_value(name)

    async def work(perdure: AsyncPerdure) -> int:
        await (await _secrets(perdure, agent)).set(name, value)
        use = "the custom tools of that agent have it"
        if agent is None:
            use = f"a tool has it where its environment says secret:{name}"
        output.view.hint(f"Stored {name}, encrypted; {use}.")
        return 0

    return await with_store(output, work, check=check)


async def list_secrets(*, agent: str | None, as_json: bool) -> int:
    """Print the names. No store is made."""
    output = Output(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        secrets = await (await _secrets(perdure, agent)).list()
        if as_json:
            output.json([{"name": secret.name, "updated_at": secret.updated_at.isoformat()} for secret in secrets])
            return 0
        if not secrets:
            output.view.hint(NO_SECRET)
        for secret in secrets:
            output.print(f"{visible(secret.name)}  {local_time(secret.updated_at)}")
        return 0

    return await with_store(output, work, empty=NO_SECRET)


async def remove_secret(*, name: str, agent: str | None) -> int:
    """Remove a secret."""
    output = Output()

    async def work(perdure: AsyncPerdure) -> int:
        await (await _secrets(perdure, agent)).delete(name)
        output.view.hint(f"Removed {name}.")
        return 0

    return await with_store(output, work, empty=NotFound("secret", name, hint="there is none yet"))


async def _secrets(perdure: AsyncPerdure, agent: str | None) -> AsyncSecrets:
    return perdure.secrets if agent is None else (await perdure.agent(agent)).secrets


def _read_value(name: str) -> str:
    """What a person types unseen, or all of stdin without its last line end. Raises: InvalidInput: it is empty."""
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{name}: ")
    else:
        text = "" if sys.stdin is None else sys.stdin.read(4 * SECRET_VALUE_CHARS_MAX)
        value = text.removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput(
            f"no value came for {name}: type it, or give it on stdin (`perdure secret set {name} < FILE`)"
        )
    return value
