"""Files that describe every kind of thing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.library import MODEL

RAN = Path(tempfile.gettempdir()) / "perdure-manifest-ran"
"""A file that is there if the source of the tool has run, or was imported."""

DICE = f'''
def roll_dice(sides: int) -> int:
    """Roll a die.

    Args:
        sides: how many sides it has.
    """
    return 4


open({str(RAN)!r}, "w").write("ran")
'''

OFFICE = f"""
version: 1
name: office
tools:
  roll_dice:
    file: tools/dice.py
    requires_approval: true
blocks:
  house-rules:
    label: rules
    value: |
      Be kind.
      Be brief.
    description: What all keep to.
archives:
  library:
    description: Books.
    seed: [Ada wrote notes.]
mcp_servers:
  weather:
    url: https://weather.example.com/mcp
    trusted: false
agents:
  ada:
    model: {MODEL}
    description: She writes.
    timezone: Europe/Rome
    tags: [team]
    metadata: {{desk: 4}}
    tools: [roll_dice]
    archives: [library]
    shared_blocks: [house-rules]
    blocks:
      persona:
        value: I am Ada.
      notes:
        seed: Nothing yet.
        limit_chars: 900
  bob:
    model: {MODEL}
    system: You are Bob.
    shared_blocks: [house-rules]
    companion: sleeptime
  cleo:
    model: {MODEL}
groups:
  council:
    kind: supervisor
    agents: [ada, bob]
    manager: cleo
    description: Decides.
    max_turns: 3
schedules:
  morning:
    agent: ada
    cron: "0 9 * * MON-FRI"
    message: Good morning.
    quiet_hours: 22:00-07:00
  tidy:
    agent: bob
    every: 1d
    companion: true
"""


def write_office(folder: Path, text: str = OFFICE) -> Path:
    """Write the files into a folder; return the YAML file."""
    (folder / "tools").mkdir(parents=True, exist_ok=True)
    (folder / "tools" / "dice.py").write_text(DICE)
    (folder / "agents.yaml").write_text(text)
    return folder / "agents.yaml"
