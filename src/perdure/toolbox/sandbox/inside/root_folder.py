"""The file tree that the code sees: a small root of its own with the interpreter and libraries in it, read-only.

Built once, when the fork server starts, in a mount namespace of its own; every call gets a copy of that namespace.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from .kernel import mount, pivot_root, system_call, unmount

WORK = "/home/tool"
"""The work folder of a call: HOME, the current folder, and the only place it can write to."""

PACKAGES = "/run/perdure/packages"
"""Where the installed requirements of a call are seen."""

SITE = "/run/perdure/site"
"""Where the packages that are installed beside Perdure are seen: /run/perdure/site/0 and so on."""

_STORE = "/run/perdure/store"
_EMPTY = "/run/perdure/empty"

DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
"""Without /dev/zero: what is mapped of it and shared is memory that no process counts."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 4_096, 16_384, 1 << 18, 1 << 21
_KEPT_BITS = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | 1_024 | 2_048  # and noatime, nodiratime
MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # the same number on every processor

_LIBRARIES = ("/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/nix/store")
_FACTS = (
    *("/usr/share/zoneinfo", "/usr/share/ca-certificates", "/etc/ld.so.cache"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust"),
)
_FILES = {
    "/etc/passwd": f"tool:x:1000:1000:tool:{WORK}:/nonexistent\n",
    "/etc/group": "tool:x:1000:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}


def system_files(interpreter: str, libraries: Sequence[str]) -> list[Path]:
    """The paths of this machine that are shown where they are: system libraries, the interpreter, its own libraries.

    A path within another one of them is left out, and so is what does not exist.
    """
    found: list[Path] = []
    for path in sorted({Path(text) for text in (*_LIBRARIES, *_FACTS, *libraries, interpreter)}):
        if path.exists() and not any(path.is_relative_to(outer) for outer in found):
            found.append(path)
    return found


def enter_root(shown: Sequence[Path], *, site: Sequence[Path], store: Path | None, outside: str) -> None:
    """Make a root folder of `shown`, and leave the old one for good.

    Args:
        site: folders of packages.
        store: the folder of installed requirement sets; None: there is none.
        outside: the name of the mount namespace of the process that started this one; this must be another.

    Raises: OSError: the kernel refuses. RuntimeError: this is no mount namespace of its own; nothing was mounted.
    """
    if str(Path("/proc/self/ns/mnt").readlink()) == outside:
        raise RuntimeError("there is no mount namespace of its own")
    mount("none", "/", "", MS_REC | MS_PRIVATE)  # first of all: nothing that is mounted from here on is seen outside
    sources = [path.resolve() for path in (*shown, *site, *([store] if store else []))]
    place = _unused_folder(sources)
    mount("root", str(place), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=2k,mode=755")
    for path in shown:
        _show(place, path)
    for device in DEVICES:
        _bind(Path(device), _under(place, device), MS_RDONLY | MS_NOSUID | MS_NOEXEC)  # written to all the same
    for name in (WORK, PACKAGES, _STORE, _EMPTY):
        _under(place, name).mkdir(mode=0o755, parents=True)
    for number, path in enumerate(site):
        _bind(path, _under(place, f"{SITE}/{number}"), MS_RDONLY | MS_NOSUID | MS_NODEV)
    if store is not None:
        _bind(store, _under(place, _STORE), MS_RDONLY | MS_NOSUID | MS_NODEV)
    for name, text in _FILES.items():
        _under(place, name).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _under(place, name).write_text(text, encoding="utf-8")
    if not _under(place, "/tmp").exists():  # the interpreter may lie in there
        _under(place, "/tmp").symlink_to(WORK)
    # Semaphores and shared memory are files there; in the work folder they share its size, and its end.
    _under(place, "/dev/shm").symlink_to(WORK)
    os.chdir(place)
    pivot_root(".", ".")
    unmount(".", MNT_DETACH)  # the old root, which lies on top of the new one
    os.chdir("/")
    mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def mount_work(*, disk_mb: int, files: int, uid: int) -> None:
    """A work folder of this size, owned by `uid`. To be called in the call's own mount namespace."""
    options = f"size={disk_mb}m,nr_inodes={files + 1},mode=700,uid={uid},gid={uid}"
    mount("work", WORK, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)


def mount_packages(name: str | None) -> None:
    """Show the call its own set of requirements, by its name in the store, and hide the store."""
    if name is not None:
        mount(f"{_STORE}/{name}", PACKAGES, "", MS_BIND)
    mount(_EMPTY, _STORE, "", MS_BIND)


def _under(place: Path, name: str | Path) -> Path:
    return place / str(name).lstrip("/")


def _unused_folder(sources: Sequence[Path]) -> Path:
    """An existing folder to mount over, which hides it in this namespace only. None of the sources lies in it."""
    for name in ("/mnt", "/media", "/srv", "/opt", "/tmp", "/var", "/home", "/root"):
        folder = Path(name)
        if folder.is_dir() and not folder.is_symlink() and not any(path.is_relative_to(folder) for path in sources):
            return folder
    raise FileNotFoundError(errno.ENOENT, "no folder is free to mount over")


def _show(place: Path, path: Path) -> None:
    """Show a path under the new root. Links on the way to it are made again as links, and where they lead is shown."""
    for folder in (*reversed(path.parents), path):
        target = _under(place, folder)
        if folder.is_symlink():
            if not target.is_symlink():
                target.symlink_to(folder.readlink())
            _show(place, path.resolve())
            return
        if folder != path:
            target.mkdir(mode=0o755, exist_ok=True)
    if not _under(place, path).exists():
        _bind(path, _under(place, path), MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(source: Path, target: Path, flags: int) -> None:
    """Show a file or folder at another place, with these flags on top of those it must keep."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir(mode=0o755, exist_ok=True)
    else:
        target.touch(mode=0o644)
    mount(str(source), str(target), "", MS_BIND | MS_REC)
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)  # the bits are the same ones
    try:
        path = os.fsencode(target)
        system_call("mount_setattr", _MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes))
    except OSError:  # before Linux 5.12: what is mounted further below keeps its own flags
        kept = os.statvfs(target).f_flag & _KEPT_BITS
        mount("none", str(target), "", MS_REMOUNT | MS_BIND | MS_RELATIME | kept | flags)
