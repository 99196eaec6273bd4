"""pip in a cage of its own: it can start no program, and write to one folder only.

What builds a source distribution, or fetches from a repository, is a program that pip starts. The kernel refuses to
start any, so no author's code runs at an installation, whatever the metadata of a package says.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import sys
from collections.abc import Mapping
from typing import Any

from . import landlock, seccomp
from .cage import set_hard
from .identity import current_map, free_range
from .kernel import PR_SET_PDEATHSIG, drop_capabilities, keep_capabilities, no_new_privileges, prctl

PROXY_VARIABLE, SETTINGS_PREFIX = "PERDURE_PIP_PROXY", "perdure-settings:"
SETTING_NAMES = ("index_url", "extra_index_urls", "find_links", "no_index", "proxy")

_CAP_DAC_READ_SEARCH = 2
_OPEN_FILES = 256


def main() -> None:
    """Run pip, with the arguments behind the first two: this package's folder, and the cage as JSON.

    Before it does anything, a line says where it looks: `SETTINGS_PREFIX`, then JSON. `PROXY_VARIABLE` holds the
    address of its proxy.
    """
    _, _, cage, *arguments = sys.argv
    del sys.path[0]  # this package's folder: from here on only what pip needs is found
    _enter(json.loads(cage))
    proxy = os.environ.pop(PROXY_VARIABLE)
    from pip._internal.commands import create_command  # in the cage: pip is foreign code

    # Where pip would look for packages, from its files, its variables and its defaults.
    options, _ = create_command("install").parse_args([])
    print(SETTINGS_PREFIX, json.dumps({name: getattr(options, name) for name in SETTING_NAMES}), flush=True)
    os.environ["PIP_PROXY"] = proxy  # in no argument: those are for everybody to see
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _enter(cage: Mapping[str, Any]) -> None:
    """Put this process into its cage. Nothing undoes it.

    Args:
        cage: `scratch`, the only folder it may write to; `port`, of the proxy on loopback; `bytes_max`, of a file;
            `memory_bytes`, `cpu_s`.
    Raises: OSError: the filter of system calls was refused; pip must not run.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)
    set_hard(
        {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: _OPEN_FILES,
            resource.RLIMIT_FSIZE: cage["bytes_max"],
            resource.RLIMIT_AS: cage["memory_bytes"],
            resource.RLIMIT_CPU: cage["cpu_s"],
        }
    )
    if os.geteuid() == 0:
        _become_nobody(cage["scratch"])
    else:
        drop_capabilities()
    no_new_privileges()
    if version := landlock.supported_version():
        landlock.restrict(version, read=["/"], write=[cage["scratch"]], network=False, connect=(cage["port"],))
    seccomp.install(seccomp.program(network=True, namespaces=False, file_metadata=True, pid=os.getpid()))


def _become_nobody(scratch: str) -> None:
    """Become a user that owns nothing but the scratch folder. The interpreter may lie where only root can read."""
    user = free_range(current_map(), 1, number=os.getppid())
    for folder, _, _ in os.walk(scratch):
        os.chown(folder, user, user)
    os.setgroups([])
    keep_capabilities((_CAP_DAC_READ_SEARCH,), user)
