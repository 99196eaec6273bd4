"""A program with one thread that sends numbered messages: `sending_program STORE FIRST`, until it is killed.

It prints `ready`, and then the number of each message that is answered. Each has a key.
"""

from __future__ import annotations

import itertools
import sys

from perdure import Perdure
from perdure.testing import ScriptedModel


def main(path: str, first: str) -> None:
    with Perdure(path, models={"test/scripted": ScriptedModel()}) as perdure:
        agent = perdure.agent("ada")
        print("ready", flush=True)
        for number in itertools.count(int(first)):
            agent.send(f"message {number}", idempotency_key=f"key {number}")
            print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
