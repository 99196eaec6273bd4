"""Attempts to get out of the cage that pip is in, as code of a package would make them if it ever ran there.

Every attempt runs inside the cage, and nowhere else: where the cage can't be entered it is not made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure.toolbox.sandbox as sandbox
from perdure.toolbox.sandbox.inside import landlock
from perdure.toolbox.sandbox.package_cache import remove_tree
from tests.toolbox.sandbox.conftest import options_of
from tests.toolbox.sandbox.ground import NUMBERS, Ground
from tests.toolbox.sandbox.test_escapes import PRELUDE, PROBES

FOLDER = Path(sandbox.__file__).parent
ENTER = "import sys; sys.path.insert(0, sys.argv[1]); import json; from inside.installer import _enter; "
RUN = "_enter(json.loads(sys.argv[2])); exec(sys.argv[3]); print(json.dumps(run(sys.argv[4])))"

MORE = {
    **PROBES,
    "start": "import subprocess; return subprocess.run([target, '--version'], capture_output=True).stdout",
    "shell": "done = os.system(target)\n    if done: raise OSError(done, 'not run')\n    return done",
    "fork": "return os.fork()",
    "spawn": "return os.posix_spawn(target, [target, '--version'], {})",
    "thread that starts": "import concurrent.futures as f, subprocess\n    with f.ThreadPoolExecutor(1) as pool:\n"
    "        return pool.submit(subprocess.run, [target, '--version'], capture_output=True).result()",
    "owner": "return os.geteuid()",
    "move out": "open('mine', 'w').close(); return os.rename('mine', target)",
    "link in": "os.symlink(target, 'pointer'); return open('pointer', 'ab').write(b'x')",
    "fill": "done = open('large', 'wb').write(bytes(2 << 20)); return done",
}

CASES = [
    ("start", sys.executable),
    ("shell", "true"),
    ("fork", ""),
    ("spawn", sys.executable),
    ("execute", sys.executable),
    ("thread that starts", sys.executable),
    ("write", "{ground}/secret.txt"),
    ("append", "{ground}/perdure.db"),
    ("create", "{ground}/tenant-b/new.txt"),
    ("delete", "{ground}/secret.txt"),
    ("rename", "{ground}/secret.txt"),
    ("move out", "{ground}/tenant-b/new.txt"),
    ("link in", "{ground}/secret.txt"),
    ("truncate", "{shared}"),
    ("make device", "1:3"),
    ("fill", ""),
    ("tcp", "127.0.0.1:{tcp}"),
    ("udp", "127.0.0.1:{udp}"),
    ("unix", "{ground}/socket"),
    ("unix", "@{abstract}"),
    ("pair", "@{abstract}-datagrams"),
    ("raw", "16,3,0"),
    ("listen", ""),
    ("signal", "{victim},9"),
    ("pidfd", "{victim}"),
    ("call", "{n[ptrace]},16,{victim},0,0"),
    ("call", "{n[unshare]},268435456"),
    ("memory of another", "{n[process_vm_readv]},{victim}"),
    ("become", "0"),
    ("limits", ""),
]


@pytest.fixture(scope="module", params=["root", "user"])
def place(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Where and as whom the attempts are made, and at what."""
    options = options_of(request.param)
    if landlock.supported_version() < 4:
        pytest.skip("this kernel's Landlock holds no connections back")
    user = options.get("user")
    python = options.get("python", sys.executable)
    ground = Ground(python=python, user=user)
    work = Path(tempfile.mkdtemp(prefix="perdure-installer-"))
    if user is not None:
        os.chown(work, user, user)
    yield {"python": python, "user": user, "ground": ground, "work": work}
    ground.close()
    remove_tree(work)


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "target"), CASES, ids=[f"{probe}-{n}" for n, (probe, _) in enumerate(CASES)])
def test_the_attempt_is_refused(place: dict[str, Any], probe: str, target: str) -> None:
    ground: Ground = place["ground"]

    result = attempt(place, probe, target.format(**ground.facts, n=NUMBERS))

    assert result[0] == "refused", result
    assert ground.changed() == []


@pytest.mark.slow
def test_the_same_code_does_what_it_says_where_it_may(place: dict[str, Any]) -> None:
    """In its own folder it may write; so it is the cage that refuses the rest, not a mistake in the attempts."""
    mine = str(place["work"] / "made")

    assert attempt(place, "create", mine)[0] == "done"
    assert attempt(place, "append", mine) == ["done", "1"]
    assert attempt(place, "delete", mine)[0] == "done"


def test_where_the_server_is_root_pip_is_a_user_that_owns_nothing(place: dict[str, Any]) -> None:
    """Landlock does not look at modes and times of files: what keeps them is that they are somebody else's."""
    if place["user"] is not None:
        pytest.skip("the server is no root here")
    ground: Ground = place["ground"]

    assert int(attempt(place, "owner", "")[1]) > 65_535
    for probe in ("change mode", "change times"):
        assert attempt(place, probe, f"{ground.folder}/secret.txt")[0] == "refused"
    assert ground.changed() == []


def attempt(place: dict[str, Any], probe: str, target: str) -> list[str]:
    cage = {"scratch": str(place["work"]), "port": 9, "bytes_max": 1 << 20, "memory_bytes": 1 << 30, "cpu_s": 20}
    user: dict[str, Any] = {}
    if place["user"] is not None:
        user = {"user": place["user"], "group": place["user"], "extra_groups": []}
    command = [place["python"], "-E", "-P", "-c", ENTER + RUN, str(FOLDER), json.dumps(cage)]
    source = PRELUDE + "    " + MORE[probe]
    result = subprocess.run(
        [*command, source, target], cwd=place["work"], env={}, capture_output=True, timeout=60, check=False, **user
    )
    assert result.stdout, result.stderr.decode()[-1_000:]
    answer: list[str] = json.loads(result.stdout.splitlines()[-1])
    return answer
