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
"""The work folder of a call: HOME, the current folder, and the only folder it can write to."""

PACKAGES = "/run/perdure/packages"
"""The mount point of a call's installed requirements."""

SITE = "/run/perdure/site"
"""The mount points of the packages that are installed beside Perdure: /run/perdure/site/0 and so on."""

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
_SYSTEM_DATA = (
    *("/usr/share/zoneinfo", "/usr/share/ca-certificates", "/etc/ld.so.cache"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/pki/ca-trust"),
)
_FILES_TO_WRITE = {
    "/etc/passwd": f"tool:x:1000:1000:tool:{WORK}:/nonexistent\n",
    "/etc/group": "tool:x:1000:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}


def system_files(interpreter: str, libraries: Sequence[str]) -> list[Path]:
    """The paths of this machine that code may read: system libraries, the interpreter, and its own libraries. A path
    within another one of them is left out, and so is what does not exist."""
    files: list[Path] = []
    for path in sorted({Path(text) for text in (*_LIBRARIES, *_SYSTEM_DATA, *libraries, interpreter)}):
        if path.exists() and not any(path.is_relative_to(outer) for outer in files):
            files.append(path)
    return files


def enter_root(readable: Sequence[Path], *, site: Sequence[Path], store: Path | None, outside: str) -> None:
    """Make a root folder of `readable` paths, and leave the old one for good.

    Args:
        site: folders of packages.
        store: the folder of installed requirement sets; None: there is none.
        outside: the name of the mount namespace of the process that started this one; this must be another.

    Raises: OSError: the kernel refuses. RuntimeError: this is no mount namespace of its own; nothing was mounted.
    """
    if str(Path("/proc/self/ns/mnt").readlink()) == outside:
        raise RuntimeError("there is no mount namespace of its own")
    mount("none", "/", "", MS_REC | MS_PRIVATE)  # first of all: nothing that is mounted from here on is seen outside
    sources = [path.resolve() for path in (*readable, *site, *([store] if store else []))]
    root = _unused_folder(sources)
    mount("root", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=2k,mode=755")
    for path in readable:
        _show(root, path)
    for device in DEVICES:
        _bind(Path(device), _path_below(root, device), MS_RDONLY | MS_NOSUID | MS_NOEXEC)  # written to all the same
    for name in (WORK, PACKAGES, _STORE, _EMPTY):
        _path_below(root, name).mkdir(mode=0o755, parents=True)
    for number, path in enumerate(site):
        _bind(path, _path_below(root, f"{SITE}/{number}"), MS_RDONLY | MS_NOSUID | MS_NODEV)
    if store is not None:
        _bind(store, _path_below(root, _STORE), MS_RDONLY | MS_NOSUID | MS_NODEV)
    for name, text in _FILES_TO_WRITE.items():
        _path_below(root, name).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _path_below(root, name).write_text(text, encoding="utf-8")
    if not _path_below(root, "/tmp").exists():  # the interpreter may lie in there
        _path_below(root, "/tmp").symlink_to(WORK)
    # Semaphores and shared memory are files there; in the work folder they share its size, and its end.
    _path_below(root, "/dev/shm").symlink_to(WORK)
    os.chdir(root)
    pivot_root(".", ".")
    unmount(".", MNT_DETACH)  # the old root, which lies on top of the new one
    os.chdir("/")
    mount("none", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def mount_work(*, disk_mb: int, files: int, uid: int) -> None:
    """Mount a work folder of this size, owned by `uid`. Only for the call's own mount namespace."""
    options = f"size={disk_mb}m,nr_inodes={files + 1},mode=700,uid={uid},gid={uid}"
    mount("work", WORK, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)


def mount_packages(name: str | None) -> None:
    """Mount the call's own set of requirements, by its name in the store, and hide the store."""
    if name is not None:
        mount(f"{_STORE}/{name}", PACKAGES, "", MS_BIND)
    mount(_EMPTY, _STORE, "", MS_BIND)


def _path_below(root: Path, name: str | Path) -> Path:
    """Where an absolute path lies below another root folder."""
    return root / str(name).lstrip("/")


def _unused_folder(sources: Sequence[Path]) -> Path:
    """Return a folder to mount over that contains none of the sources. Raises: FileNotFoundError."""
    for name in ("/mnt", "/media", "/srv", "/opt", "/tmp", "/var", "/home", "/root"):
        folder = Path(name)
        if folder.is_dir() and not folder.is_symlink() and not any(path.is_relative_to(folder) for path in sources):
            return folder
    raise FileNotFoundError(errno.ENOENT, "no folder is free to mount over")


def _show(root: Path, path: Path) -> None:
    """Bind a path below the new root. Links on the way are copied, and what they lead to is bound too."""
    for folder in (*reversed(path.parents), path):
        target = _path_below(root, folder)
        if folder.is_symlink():
            if not target.is_symlink():
                target.symlink_to(folder.readlink())
            _show(root, path.resolve())
            return
        if folder != path:
            target.mkdir(mode=0o755, exist_ok=True)
    if not _path_below(root, path).exists():
        _bind(path, _path_below(root, path), MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(source: Path, target: Path, flags: int) -> None:
    """Bind-mount a file or folder at another place, with these flags on top of those it must keep."""
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
        flags |= os.statvfs(target).f_flag & _KEPT_BITS
        mount("none", str(target), "", MS_REMOUNT | MS_BIND | MS_RELATIME | flags)
