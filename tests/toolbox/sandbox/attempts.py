"""Run many attempts in one call of the sandbox under test, one after the other, and collect their outcomes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from perdure.core.tools.sandbox import SandboxJob
from tests.toolbox.sandbox.cages import LIMITS, Cage
from tests.toolbox.sandbox.ground import NUMBERS

PRELUDE = f"""
import ctypes, fcntl, json, mmap, os, resource, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
library, folder, numbers = json.__file__, os.path.dirname(json.__file__), json.loads({json.dumps(json.dumps(NUMBERS))})

def system_call(name, *arguments):
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    done = libc.syscall(ctypes.c_long(numbers[name]), *words)
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done

def run(names):
    found = {{}}
    for name in names:
        try:
            found[name] = ["done", repr(ATTEMPTS[name]())[:500]]
        except (OSError, ValueError) as error:  # ValueError: a limit that is higher than it may be
            found[name] = ["refused", f"{{type(error).__name__}}: {{error}}"]
        os.closerange(5, 256)  # what it left open must not be what stops the next one
    return found

ATTEMPTS = {{}}
"""


def outcomes_of(cage: Cage, attempts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Name of each attempt -> "done" or "refused", and what it returned or raised.

    Args:
        attempts: name -> the body of a function. It may use `library`, a file of the standard library, `folder`, where
            that lies, and `system_call(name, ...)`.
    """
    source = PRELUDE + "".join(
        f"def attempt():\n{textwrap.indent(body, '    ')}\nATTEMPTS[{name!r}] = attempt\n"
        for name, body in attempts.items()
    )
    job = SandboxJob(source=source, function="run", arguments={"names": [*attempts]}, limits=LIMITS)
    result = cage.wait(cage.sandbox.run(job))
    assert result.status == "success", result
    return {name: (outcome, text) for name, (outcome, text) in result.value.items()}
