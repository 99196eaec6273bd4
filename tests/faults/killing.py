"""Programs that kill themselves at a moment, or that print `ready` and then lines, until they are killed."""

from __future__ import annotations

import os
import random
import subprocess
import threading
from pathlib import Path

from tests.support.programs import environment
from tests.support.stores import SECRET_KEY
from tests.support.warm import KILL, killed, warm

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    "PERDURE_SECRET_KEY": SECRET_KEY,
}


def moments_until_killed(program: str, home: Path, *arguments: object, **more: str) -> int:
    """Run a program of this folder that kills itself at a moment; return how many there were, -1: it was killed."""
    ours = {**environment(home, **more), "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    command = [str(warm(f"tests.faults.{program}", ours)), *map(str, arguments)]
    done = subprocess.run(command, env=ours, capture_output=True, timeout=300, check=False)
    assert done.returncode in (0, -9), done.stderr.decode()
    return int(done.stdout) if done.returncode == 0 else -1


def lines_until_killed(
    program: str, address: str, *arguments: object, chance: random.Random, delay_s: float
) -> list[str]:
    """The whole lines that a program of this folder told between `ready` and its kill, which came up to so many seconds
    later. The store's address is its first argument."""
    with subprocess.Popen(
        [warm(str(Path(__file__).with_name(program)), ENVIRONMENT), address, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        timer = threading.Timer(chance.uniform(0, delay_s), child.send_signal, [KILL])
        timer.start()
        told = [line for line in child.stdout if line.endswith("\n")]
        timer.join()
    assert killed(child.returncode) == -9
    return told
