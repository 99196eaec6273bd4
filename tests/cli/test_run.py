"""A command is declared once, by the function that does its work."""

from __future__ import annotations

import json
import subprocess
import sys

NEEDED_BY_WORK = ("perdure.library", "perdure.app", "perdure.storage", "perdure.server", "asyncio", "httpx", "rich")

READ_ALL = f"""
import json, sys, typer
from perdure.cli.app import app
root = typer.main.get_group(app)
context = typer.Context(root)
found = [root.get_command(context, name) for name in root.list_commands(context)]
print(json.dumps([[one.name for one in found], [name for name in {NEEDED_BY_WORK} if name in sys.modules]]))
"""


def test_the_arguments_of_all_commands_are_read_without_what_their_work_needs() -> None:
    """`--help` and completion wait for no library; what a module imports for its work stands below `for_work`."""
    done = subprocess.run([sys.executable, "-c", READ_ALL], capture_output=True, text=True, timeout=60, check=True)

    names, imported = json.loads(done.stdout)
    assert {"agent", "search", "doctor"} <= set(names)
    assert imported == []
