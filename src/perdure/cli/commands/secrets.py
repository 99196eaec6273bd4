"""`perdure secret`: set a secret without showing it, list names, delete one, change the key that encrypts."""

from __future__ import annotations

import sys
from typing import Annotated

from perdure.cli.run import Org, Yes, agent_option, argument, command, flag, for_work

if for_work(__name__):
    import getpass

    from perdure.cli.views.json import fields
    from perdure.cli.views.view import View, local_time, plural, visible
    from perdure.cli.work import confirm, deleted, get_agent, none_yet, open_store
    from perdure.core.errors import InvalidInput, NotFound
    from perdure.core.secrets import SECRET_VALUE_CHARS_MAX, check_secret
    from perdure.core.text.addresses import is_postgres
    from perdure.library.perdure import AsyncPerdure
    from perdure.library.tools.secrets import AsyncSecrets, rotate_store
    from perdure.settings import Settings

SecretName = Annotated[str, argument("Letters, digits and _, like an environment variable.", "NAME")]
SecretOwner = Annotated[str | None, agent_option("The agent that owns it; by default all agents may use it.")]

NO_SECRET = "There are no secrets yet: `perdure secret set NAME` makes one."


@command("secret set", json=False)
async def set_secret(view: View, name: SecretName, agent: SecretOwner = None, org: Org = None) -> None:
    """Create or change a secret. Its value is asked for, or read from stdin; it is never an argument.

    Tools are given it where their environment says `secret:NAME`; an agent's own go to all of its custom tools.
    """
    check_secret(name, "")  # a wrong name is refused before anybody types a value
    value = _read_value(name)
    async with open_store(view, org=org) as perdure:
        await (await _secrets_of(view, perdure, agent, change=True)).set(name, value)
        use = "the custom tools of that agent have it"
        if agent is None:
            use = f"a tool has it where its environment says secret:{name}"
        view.hint(f"Stored {name}, encrypted; {use}.")


@command("secret list")
async def list_secrets(view: View, agent: SecretOwner = None, org: Org = None) -> None:
    """List the names of the secrets; values are never shown."""
    async with open_store(view, empty=NO_SECRET, org=org) as perdure:
        secrets = await (await _secrets_of(view, perdure, agent, change=False)).list()
        lines = (f"{visible(secret.name)}  {local_time(secret.updated_at)}" for secret in secrets)
        view.show([fields(secret, "name", "updated_at") for secret in secrets], *lines)
        view.hint("`perdure secret set NAME` changes one, `delete NAME` deletes it." if secrets else NO_SECRET)


@command("secret delete", json=False)
async def delete_secret(
    view: View, name: SecretName, agent: SecretOwner = None, org: Org = None, yes: Yes = False
) -> None:
    """Delete a secret."""
    async with open_store(view, empty=none_yet("secret", name), org=org) as perdure:
        secrets = await _secrets_of(view, perdure, agent, change=True)
        if name not in [secret.name for secret in await secrets.list()]:
            raise NotFound("secret", name, hint="`perdure secret list` lists them")
        confirm(view, f"Secret {name!r} will be gone for good. Delete?", action="delete the secret", yes=yes)
        await secrets.delete(name)
        view.hint(deleted(f"secret {name!r}", f"`perdure secret set {name}` stores a value again"))


@command("secret rotate")
async def rotate_secrets(
    view: View,
    forget_old: Annotated[
        bool, flag("--forget-old", "Delete the older keys of the file; older backups need them.")
    ] = False,
) -> int:
    """Encrypt everything anew, with a new key: secrets, variables, keys of providers, tokens of MCP servers.

    Without PERDURE_SECRET_KEY the file secret.key beside the store gets a new key; servers that run take it by
    themselves. With it, start all servers with the new key in PERDURE_SECRET_KEY and the one before in
    PERDURE_SECRET_KEY_OLD, then call this. It covers all organisations; killed, it goes on when called again.
    """
    settings = Settings.from_environment()
    if not is_postgres(settings.store_address) and not settings.store_path.exists():
        view.hint(NO_SECRET)
        return 0
    rotated = await rotate_store(settings, forget_old=forget_old)
    left = [visible(one) for one in rotated.unreadable]
    view.show({"rotated": rotated.count, "unreadable": left}, *(f"{one}: no key decrypts it" for one in left))
    if left:
        view.hint("Set those anew, or put their key back: PERDURE_SECRET_KEY_OLD, or a line of secret.key.")
        return 1
    done = f"{plural(rotated.count, 'value')} encrypted with the new key."
    view.hint(done if rotated.count else "Everything is encrypted with the newest key already.")
    if settings.secret_key_old:
        view.hint("PERDURE_SECRET_KEY_OLD is needed no more, but for backups from before.")
    return 0


async def _secrets_of(view: View, perdure: AsyncPerdure, agent: str | None, *, change: bool) -> AsyncSecrets:
    """The secrets of an agent, or those of all."""
    return perdure.secrets if agent is None else (await get_agent(view, perdure, agent, change=change)).secrets


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
