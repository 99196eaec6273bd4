"""`perdure org`, `perdure user` and `perdure key`: who may use a store through a server. They need no server."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from perdure.cli.commands.run import Limit, Org, Yes, argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, deleting, load_all
    from perdure.cli.views.json import fields
    from perdure.cli.views.view import Output, local_time, visible
    from perdure.core.errors import InvalidInput
    from perdure.core.incoming.principals import limits_of
    from perdure.features.access.service import LAST_WRITES_S, Access
    from perdure.features.access.values import ApiKey, AuditFilter, Organisation, User, as_scope
    from perdure.server.config import ServerConfig, key_path, load_key
    from perdure.settings import Settings

OrgName = Annotated[str, argument("Its name or id.", "ORG")]
UserName = Annotated[str, argument("The user's name or id.", "USER")]
KeyName = Annotated[str, argument("Id as `perdure key list` shows it, or name.", "KEY")]

_SPAN = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """What a key may use: the fields of `UseLimits`."""

    requests_per_minute: Annotated[int | None, option("Further requests get 429.", min=1)] = None
    tokens_per_day: Annotated[int | None, option("Of models, in and out, in a day of UTC.", min=1)] = None
    cost_per_day: Annotated[float | None, option("Of models with a known price.", "USD")] = None
    tokens_per_run: Annotated[int | None, option("A run that exceeds it ends after its current step.", min=1)] = None
    cost_per_run: Annotated[float | None, option("The same in US dollars.", "USD")] = None
    message_chars: Annotated[int | None, option("The longest message to an agent, in characters.", min=1)] = None


@command("org create")
async def create_org(
    view: Output, access: Access, name: Annotated[str, argument("Its name, which no other one has.", "NAME")]
) -> None:
    """Create an organisation: agents, tools, keys and users of its own, which no other one sees."""
    made = await access.create_organisation(name)
    view.show(fields(made, "id", "name", "created_at"), _owner_line(made))
    view.hint(f"`perdure key create admin --scope admin --org {shell_word(visible(made.name))}` makes its first key.")


@command("org list")
async def list_orgs(view: Output, access: Access) -> None:
    """List the organisations."""
    found = await load_all(access.organisations)
    lines = (f"{_owner_line(one)}{'' if one.deleted_at is None else '  (is being removed)'}" for one in found)
    view.show([fields(one, "id", "name", "created_at", "deleted_at") for one in found], *lines)


@command("org delete")
async def delete_org(view: Output, access: Access, name: OrgName, yes: Yes = False) -> None:
    """Delete an organisation with everything in it, for good. Its keys stop working at once."""
    found = await access.organisation(name)
    what, helps = f"organisation {visible(found.name)!r}", "`perdure store scrub` empties free space too"
    with deleting(view, what, "its users, keys, agents and files too", yes=yes, after=helps, id_=found.id):
        await access.delete_organisation(found.id)
        view.show_status(f"removing; servers may know its keys for {LAST_WRITES_S:g} seconds…")
        await access.remove_organisation(found.id, Settings.from_environment())
        view.clear_status()


@command("org audit")
async def list_audit(
    view: Output,
    access: Access,
    org: Org = None,
    action: Annotated[str | None, option("Only actions with this in them.", "TEXT")] = None,
    limit: Limit = 50,
) -> None:
    """List who did what, newest first: administration, and changes of agents and memory through servers."""
    found = await access.audit(AuditFilter(action=action), limit=limit)
    names = ("seq", "at", "user_id", "key_id", "action", "object_id", "trace_id")
    lines = (
        f"{local_time(one.at)}  {one.user_id or one.key_id or 'this machine'}  {visible(one.action)}  {one.object_id}"
        for one in found
    )
    view.show([fields(one, *names) for one in found], *lines)
    if not found:
        view.hint("The audit log is empty.")


@command("user create")
async def create_user(
    view: Output,
    access: Access,
    name: Annotated[str, argument("The name, such as an address.", "NAME")],
    org: Org = None,
) -> None:
    """Create a user. What a key of the user writes carries the user's id."""
    made = await access.create_user(name)
    view.show(_user_shape(made), _owner_line(made))
    view.hint(f"`perdure key create NAME --user {shell_word(visible(made.name))}` makes a key of that user.")


@command("user list")
async def list_users(view: Output, access: Access, org: Org = None) -> None:
    """List the users."""
    found = await load_all(access.users)
    view.show(list(map(_user_shape, found)), *map(_owner_line, found))
    if not found:
        view.hint("There are no users yet: `perdure user create NAME` makes one.")


@command("user delete")
async def delete_user(view: Output, access: Access, name: UserName, org: Org = None, yes: Yes = False) -> None:
    """Delete a user with the user's keys."""
    found = await access.user(name)
    with deleting(view, f"user {visible(found.name)!r}", "the user's keys too", yes=yes, id_=found.id):
        await access.delete_user(found.id)


@command("key create")
async def create_key(
    view: Output,
    access: Access,
    *,
    name: Annotated[str, argument("What the key is for.", "NAME")],
    scope: Annotated[str, option("`admin`, `builder`, `user` or `read-only`.", "SCOPE")] = "user",
    user: Annotated[str | None, option("Whose it is, by name or id.", "USER")] = None,
    org: Org = None,
    expires: Annotated[str | None, option("90d, 12h, or a date; by default never.", "TIME")] = None,
    limits: LimitOptions,
) -> None:
    """Create an API key and print it, once: only its digest is stored."""
    is_first = not await access.has_keys()
    made, text = await access.create_key(
        name,
        as_scope(scope),
        user_id=None if user is None else (await access.user(user)).id,
        expires_at=None if expires is None else read_moment(expires),
        limits=limits_of({key: value for key, value in asdict(limits).items() if value is not None}),
    )
    view.show({**_key_shape(made), "key": text}, text)
    view.hint("Keep it now: only its digest is stored, and nobody can show it again.")
    if is_first:
        view.note("It is the first key: from now on every client of a server of this store needs one.")
    if is_first and made.scope != "admin":
        view.note("`perdure key create NAME --scope admin` makes one that may change the settings too.")


@command("key list")
async def list_keys(view: Output, access: Access, org: Org = None) -> None:
    """List the API keys of the store, without their texts."""
    found, now = await load_all(access.keys), datetime.now(UTC)
    view.show([_key_shape(one) for one in found], *(_key_line(one, now) for one in found))
    if not found:
        view.hint("There are no keys yet: `perdure key create NAME` makes one.")


@command("key revoke")
async def revoke_key(view: Output, access: Access, key: KeyName, org: Org = None, yes: Yes = False) -> None:
    """Revoke an API key; servers refuse it within seconds."""
    found = await access.key(key)
    confirm(view, f"Key {visible(found.name)!r} will count no more. Revoke?", action="revoke the key", yes=yes)
    view.show(_key_shape(await access.revoke_key(found.id)))
    view.hint(f"Revoked {visible(found.name)!r}; servers refuse it within seconds.")


@command("key delete")
async def delete_key(view: Output, access: Access, key: KeyName, org: Org = None, yes: Yes = False) -> None:
    """Delete an API key with its line in the list. A store without any keys is open to this machine again."""
    found = await access.key(key)
    with deleting(view, f"key {visible(found.name)!r}", "servers refuse it within seconds", yes=yes, id_=found.id):
        is_guarded = await access.delete_key(found.id)
    if not is_guarded:
        view.note("That was the last key: a server on loopback is now open to every program of this machine.")


@command("key show", json=False)
async def show_key(view: Output) -> None:
    """Print the API key that the server asks for, such as the one of PERDURE_API_KEY=auto."""
    api_key = ServerConfig.from_environment().api_key or load_key(key_path(Settings.from_environment()))
    if api_key is None:
        raise InvalidInput(
            "the server has no API key of its own: start it with PERDURE_API_KEY=auto, which makes one. Keys of the"
            " store are shown only when they are made: `perdure key create NAME` makes another one"
        )
    view.print(api_key)


def read_moment(text: str) -> datetime:
    """Return the moment that a text names: a date, a time, or a span from now on like `90d`. Raises: InvalidInput."""
    if match := _SPAN.fullmatch(text):
        return datetime.now(UTC) + timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"expires is {text!r:.60}: write 90d, 12h, or 2027-01-31") from error
    return at if at.tzinfo is not None else at.astimezone()


def _owner_line(owner: Organisation | User) -> str:
    return f"{owner.id}  {visible(owner.name)}"


def _user_shape(user: User) -> dict[str, Any]:
    return fields(user, "id", "org_id", "name", "created_at")


def _key_shape(key: ApiKey) -> dict[str, Any]:
    names = "id org_id user_id name start scope created_at expires_at last_used_at revoked_at"
    return fields(key, *names.split(), limits="limits.present")


def _key_line(key: ApiKey, now: datetime) -> str:
    state = "revoked" if key.revoked_at is not None else "" if key.counts_at(now) else "expired"
    used = "never used" if key.last_used_at is None else f"used {local_time(key.last_used_at)}"
    until = "" if key.expires_at is None else f"until {local_time(key.expires_at)}"
    parts = (key.id, visible(key.name), f"{key.start}…", key.scope, until, used, state)
    return "  ".join(part for part in parts if part)
