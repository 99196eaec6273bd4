"""Encryption at rest: what is sealed can be opened by its key, for its purpose, and by nothing else."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidInput, SecretKeyMissing, SecretUnreadable
from perdure.storage.cipher import AesCipher, add_key, forget_old_keys, read_key_file

KEY = "a key of sixteen"
cipher = AesCipher(KEY, file=None)


@given(plain=st.binary(max_size=200), purpose=st.text(st.characters(codec="utf-8"), max_size=20))
def test_what_is_sealed_comes_back(plain: bytes, purpose: str) -> None:
    """Any bytes for any purpose; the same value looks different each time, and never like itself."""
    sealed = cipher.encrypt(plain, bound_to=purpose)

    assert cipher.decrypt(sealed, bound_to=purpose) == plain
    assert cipher.encrypt(plain, bound_to=purpose) != sealed
    assert len(plain) < 8 or plain not in sealed


@pytest.mark.parametrize("at", [0, 1, 4, 5, 16, 17, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    """Wherever it stands."""
    sealed = bytearray(cipher.encrypt(b"value", bound_to="here"))
    sealed[at] ^= 1

    with pytest.raises(SecretUnreadable):
        cipher.decrypt(bytes(sealed), bound_to="here")


def test_a_value_in_anothers_place_is_refused() -> None:
    """A row copied over another's can't be read as that."""
    with pytest.raises(SecretUnreadable, match="another's place"):
        cipher.decrypt(cipher.encrypt(b"value", bound_to="mine"), bound_to="yours")


def test_another_key_is_named_as_the_reason() -> None:
    """The message says which key was used, and never shows one."""
    other = AesCipher("another key of this kind", file=None)

    with pytest.raises(SecretUnreadable, match="another key than that of PERDURE_SECRET_KEY") as caught:
        other.decrypt(cipher.encrypt(b"value", bound_to="here"), bound_to="here")
    assert "another key of this kind" not in str(caught.value)


def test_a_short_setting_is_refused() -> None:
    """With what helps, and without the key."""
    with pytest.raises(InvalidInput, match="openssl rand") as caught:
        AesCipher("hunter2", file=None)
    assert "hunter2" not in str(caught.value)


def test_without_setting_or_file_there_is_no_key() -> None:
    """As on PostgreSQL."""
    with pytest.raises(SecretKeyMissing, match="PERDURE_SECRET_KEY"):
        AesCipher("", file=None).encrypt(b"value", bound_to="here")


def test_the_key_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """At the first secret, mode 0600; the next process finds it."""
    file = tmp_path / "secret.key"
    first = AesCipher("", file=file)
    assert not file.exists()
    sealed = first.encrypt(b"value", bound_to="here")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert AesCipher("", file=file).decrypt(sealed, bound_to="here") == b"value"
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_processes_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    """The first one's stays."""
    file, start = tmp_path / "secret.key", threading.Barrier(8)
    sealed: list[bytes] = []

    def seal() -> None:
        one = AesCipher("", file=file)
        start.wait()
        sealed.append(one.encrypt(b"value", bound_to="here"))

    threads = [threading.Thread(target=seal) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {AesCipher("", file=file).decrypt(one, bound_to="here") for one in sealed} == {b"value"}
    assert len(sealed) == 8


def test_a_lost_key_file_is_not_made_anew_by_reading(tmp_path: Path) -> None:
    """A new key would hide that the old one can be put back."""
    file = tmp_path / "secret.key"
    sealed = AesCipher("", file=file).encrypt(b"value", bound_to="here")
    file.unlink()
    with pytest.raises(SecretUnreadable, match="is gone: put it back"):
        AesCipher("", file=file).decrypt(sealed, bound_to="here")
    assert not file.exists()
    file.write_bytes(b"")

    with pytest.raises(SecretUnreadable, match="holds no key"):
        AesCipher("", file=file).decrypt(sealed, bound_to="here")


def test_a_new_key_encrypts_and_the_one_before_decrypts_still(tmp_path: Path) -> None:
    """Also in a process that has loaded the file before; without its line the older key is gone."""
    file = tmp_path / "secret.key"
    running = AesCipher("", file=file)
    old = running.encrypt(b"value", bound_to="here")
    assert running.is_current(old)
    add_key(file)
    new = running.encrypt(b"value", bound_to="here")

    assert not running.is_current(old) and running.is_current(new)
    assert [running.decrypt(one, bound_to="here") for one in (old, new)] == [b"value", b"value"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert forget_old_keys(file) == 1
    with pytest.raises(SecretUnreadable, match="another key"):
        running.decrypt(old, bound_to="here")
    assert running.decrypt(new, bound_to="here") == b"value"


class _Interrupted(type(Path())):  # type: ignore[misc]
    """A path whose file another process gives a new key just before it is opened to be locked."""

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode == "rb":
            add_key(Path(self))
        return super().open(mode, *args, **kwargs)


@pytest.mark.parametrize("change", [add_key, forget_old_keys])
def test_a_key_that_another_process_adds_meanwhile_is_kept(change: Callable[[Path], Any], tmp_path: Path) -> None:
    """It may have encrypted something already."""
    file = tmp_path / "secret.key"
    AesCipher("", file=file).encrypt(b"value", bound_to="here")
    before = set(read_key_file(file))
    change(_Interrupted(file))

    keys = read_key_file(file)
    assert set(keys) - before
    assert len(keys) == (3 if change is add_key else 1)


def test_the_old_setting_and_the_file_only_decrypt(tmp_path: Path) -> None:
    """What was encrypted with either is readable beside a new setting, and not current."""
    file = tmp_path / "secret.key"
    sealed = [one.encrypt(b"value", bound_to="here") for one in (AesCipher("", file=file), cipher)]
    moved = AesCipher("a new key of some length", file=file, old_key=KEY)

    assert [moved.decrypt(one, bound_to="here") for one in sealed] == [b"value", b"value"]
    assert not any(moved.is_current(one) for one in sealed)
    assert moved.is_current(moved.encrypt(b"value", bound_to="here"))


def test_a_running_process_keeps_the_key_of_a_file_that_is_gone(tmp_path: Path) -> None:
    """And makes no other one in its place, which would lose what was encrypted."""
    file = tmp_path / "secret.key"
    running = AesCipher("", file=file)
    sealed = running.encrypt(b"value", bound_to="here")
    file.unlink()

    assert running.decrypt(running.encrypt(b"more", bound_to="here"), bound_to="here") == b"more"
    assert running.decrypt(sealed, bound_to="here") == b"value"
    assert not file.exists()
