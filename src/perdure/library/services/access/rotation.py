"""Rotation of the key that encrypts secrets, for all organisations of a store."""

from __future__ import annotations

from perdure.app import open_store
from perdure.app.keys import add_key, cipher_of, forget_old_keys, key_file_of
from perdure.core.errors import Conflict
from perdure.core.ids import OrgId, ToolId
from perdure.core.ports import Clock
from perdure.core.secrets import Cipher, Secret
from perdure.domain.rotation import Rotated as Rotated
from perdure.domain.rotation import rotate_registered, rotate_secrets, rotate_tools
from perdure.engine.ports import SystemClock
from perdure.settings import Settings
from perdure.storage.store import Store

PASSES = 10
"""How often all is looked at until nothing is found: another process may encrypt with the old key meanwhile."""


async def rotate_store(settings: Settings, *, forget_old: bool = False) -> Rotated:
    """Encrypt everything in the store of the settings with the newest key. Without the setting `secret_key` the file
    beside the store gets a new one first.

    Args:
        forget_old: whether older keys then leave that file; backups from before can't be read any more.
    Raises: StoreError, SecretKeyMissing, SecretUnreadable, InvalidInput; Conflict: the keys have to stay.
    """
    clock, address = SystemClock(), settings.store_address
    file = None if settings.secret_key else key_file_of(address)
    store = await open_store(address, at=clock.now(), limits=settings)
    try:
        if file is not None and file.exists():
            add_key(file)
        rotated = await rotate_all(store, cipher_of(settings, address), clock)
    finally:
        await store.close()
    if forget_old and file is not None and file.exists():
        if rotated.unreadable:
            raise Conflict("the older keys stay: some values could not be decrypted by any of them")
        forget_old_keys(file)
    return rotated


async def rotate_all(store: Store, cipher: Cipher, clock: Clock) -> Rotated:
    """Encrypt everything that has an older key again, in steps of bounded size. Killed, it goes on when it is called
    again. Raises: StoreError, SecretKeyMissing, SecretUnreadable."""
    rotated = Rotated()
    for _ in range(PASSES):
        found = Rotated()
        for org_id in await _organisations(store):
            found += await _rotate_one(store.for_organisation(org_id), cipher, clock)
        rotated = Rotated(rotated.count + found.count, found.unreadable)
        if not found.count:
            break
    return rotated


async def _rotate_one(store: Store, cipher: Cipher, clock: Clock) -> Rotated:
    """The same for one organisation, once."""
    rotated = await store.write(rotate_registered, cipher=cipher)
    secret: Secret | None = None
    tool: ToolId | None = None
    while True:
        more, secret = await store.write(rotate_secrets, secret, cipher=cipher)
        rotated += more
        if secret is None:
            break
    while True:
        more, tool = await store.write(rotate_tools, tool, cipher=cipher, at=clock.now())
        rotated += more
        if tool is None:
            return rotated


async def _organisations(store: Store) -> list[OrgId]:
    """Those that are not being removed."""
    found: list[OrgId] = []
    after: OrgId | None = None
    while page := await store.read_directory(lambda one, after: one.organisations.list(after=after, limit=200), after):
        found += [one.id for one in page if one.deleted_at is None]
        after = page[-1].id
    return found
