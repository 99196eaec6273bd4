"""The verbs of `perdure org`, `user` and `key`."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.run import AsJson, Org, Yes, command, verbs

org, user, key = (verbs() for _ in range(3))

OrgName = Annotated[str, typer.Argument(metavar="ORG", help="Its name or id.")]
UserName = Annotated[str, typer.Argument(metavar="USER", help="The user's name or id.")]


@command(org, "access.access.create_org", name="create")
def create_org(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, which no other one has.")],
    as_json: AsJson = False,
) -> None:
    """Create an organisation: agents, tools, keys and users of its own, which no other one sees."""


@command(org, "access.access.list_orgs", name="list")
def list_orgs(as_json: AsJson = False) -> None:
    """List the organisations."""


@command(org, "access.access.delete_org", name="delete")
def delete_org(name: OrgName, yes: Yes = False) -> None:
    """Delete an organisation with everything in it, for good. Its keys count no more at once."""


@command(org, "access.access.list_audit", name="audit")
def list_audit(
    org: Org = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="TEXT", help="Only actions with this in them.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List who did what, newest first: administration, and changes of agents and memory through servers."""


@command(user, "access.access.create_user", name="create")
def create_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, such as an address.")],
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Create a user. What a key of the user writes carries the user's id."""


@command(user, "access.access.list_users", name="list")
def list_users(org: Org = None, as_json: AsJson = False) -> None:
    """List the users."""


@command(user, "access.access.delete_user", name="delete")
def delete_user(name: UserName, org: Org = None, yes: Yes = False) -> None:
    """Delete a user with the user's keys."""


@command(key, "access.access.create_key", name="create")
def create_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="`admin`, `builder`, `user` or `read-only`.")
    ] = "user",
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Whose it is, by name or id.")] = None,
    org: Org = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="90d, 12h, or a date; by default never.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option("--requests-per-minute", min=1, help="Further requests get 429.")
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option("--tokens-per-day", min=1, help="Of models, in and out; a day is one in UTC.")
    ] = None,
    cost_per_day: Annotated[
        float | None, typer.Option("--cost-per-day", metavar="USD", help="Of models with a known price.")
    ] = None,
    tokens_per_run: Annotated[
        int | None, typer.Option("--tokens-per-run", min=1, help="A run ends between two steps beyond it.")
    ] = None,
    cost_per_run: Annotated[
        float | None, typer.Option("--cost-per-run", metavar="USD", help="The same in US dollars.")
    ] = None,
    message_chars: Annotated[
        int | None, typer.Option("--message-chars", min=1, help="The longest message to an agent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it, once: only its digest is stored."""


@command(key, "access.access.list_keys", name="list")
def list_keys(org: Org = None, as_json: AsJson = False) -> None:
    """List the API keys of the store, without their texts."""


@command(key, "access.access.revoke_key", name="revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id as `perdure key list` shows it, or name.")],
    org: Org = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Revoke an API key; servers refuse it within seconds."""


@command(key, "access.access.delete_key", name="delete")
def delete_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id as `perdure key list` shows it, or name.")],
    org: Org = None,
    yes: Yes = False,
) -> None:
    """Delete an API key with its line in the list. A store without any keys is open to this machine again."""


@command(key, "serve.show_key", name="show")
def show_key() -> None:
    """Print the API key that the server asks for, such as the one of PERDURE_API_KEY=auto."""
