"""Secrets from the command line: set without showing them, listed by name, removed."""

from __future__ import annotations

import getpass
import sys

from perdure.cli.open_store import Shown, with_store
from perdure.cli.views.fold import local_time, visible
from perdure.core.errors import InvalidInput, NotFound, PerdureError
from perdure.core.secrets import SECRET_VALUE_CHARS_MAX, check_secret
from perdure.library.perdure import AsyncPerdure
from perdure.library.secrets import AsyncSecrets
from perdure.settings import Settings

__all__ = ["list_secrets", "remove_secret", "set_secret"]

NOTHING_YET = "There are no secrets yet: `perdure secret set NAME` makes one."


async def set_secret(*, name: str, agent: str | None) -> int:
    """Read the value and store it."""
    shown = Shown(as_json=False)
    try:
        check_secret(name, "")  # before the value is asked for
        value = _value(name)
        async with await AsyncPerdure.open(settings=Settings.from_environment()) as perdure:
            await (await _of(perdure, agent)).set(name, value)
    except PerdureError as error:
        shown.view.error(error)
        return 1
    use = (
        "the custom tools of that agent have it" if agent else f"a tool has it where its environment says secret:{name}"
    )
    shown.view.hint(f"Stored {name}, encrypted; {use}.")
    return 0


async def list_secrets(*, agent: str | None, as_json: bool) -> int:
    """Print the names. A data folder that is not there is left so."""
    shown = Shown(as_json=as_json)

    async def work(perdure: AsyncPerdure) -> int:
        secrets = await (await _of(perdure, agent)).list()
        if as_json:
            shown.json([{"name": one.name, "updated_at": one.updated_at.isoformat()} for one in secrets])
        elif not secrets:
            shown.view.hint(NOTHING_YET)
        for one in () if as_json else secrets:
            shown.print(f"{visible(one.name)}  {local_time(one.updated_at)}")
        return 0

    return await with_store(shown, work, empty=NOTHING_YET)


async def remove_secret(*, name: str, agent: str | None) -> int:
    """Remove one."""
    shown = Shown(as_json=False)
    try:
        settings = Settings.from_environment()
        if not settings.store_path.exists():
            raise NotFound("secret", name, hint="there is none yet")
        async with await AsyncPerdure.open(settings=settings) as perdure:
            await (await _of(perdure, agent)).delete(name)
    except PerdureError as error:
        shown.view.error(error)
        return 1
    shown.view.hint(f"Removed {name}.")
    return 0


async def _of(perdure: AsyncPerdure, agent: str | None) -> AsyncSecrets:
    return perdure.secrets if agent is None else (await perdure.agent(agent)).secrets


def _value(name: str) -> str:
    """What a person types unseen, or all of stdin without its last line end. Raises: InvalidInput: nothing came."""
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{name}: ")
    else:
        read = "" if sys.stdin is None else sys.stdin.read(4 * SECRET_VALUE_CHARS_MAX)
        value = read.removesuffix("\n").removesuffix("\r")
    if not value:
        raise InvalidInput(
            f"no value came for {name}: type it, or give it on stdin (`perdure secret set {name} < FILE`)"
        )
    return value
