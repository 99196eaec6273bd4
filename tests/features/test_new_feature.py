"""A feature with a table is a folder of `features`: its rows are written, listed, and found by who wants to forget."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import perdure

TABLE = """CREATE TABLE stickies (
    agent_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (agent_id, number)
);
"""
FILES = {
    "__init__.py": "",
    "feature.py": """
from perdure.core.features import Feature, TableUse, TextUse

FEATURE = Feature(
    name="stickies",
    tables=(TableUse(name="stickies", key=("number",)),),
    text_tables=(TextUse(name="stickies", place="sticky", key=("number",), texts=("text",)),),
)
""",
    "values.py": """
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sticky:
    agent_id: str
    number: int
    text: str
""",
    "tables.py": """
from perdure.features.stickies.values import Sticky
from perdure.storage.database import row_format
from perdure.storage.tables.table import OWN_AGENT, Table, own_agent

_STICKY = row_format.RowFormat(Sticky)


class Stickies(Table):
    def add(self, agent_id, text):
        number = self._next("stickies", "number", agent_id=own_agent(self._db, self._org_id, agent_id))
        sticky = Sticky(agent_id=agent_id, number=number, text=text)
        self._run(row_format.insert_into("stickies", _STICKY.columns), **_STICKY.params(sticky))

    def list(self, agent_id):
        sql = f"SELECT {_STICKY.columns} FROM stickies WHERE agent_id = :agent_id AND {OWN_AGENT}"
        return self._all(_STICKY, sql, agent_id=agent_id)
""",
    "service.py": """
from perdure.features.stickies.tables import Stickies
from perdure.library.parts.part import AsyncAgentPart, reads, writes
from perdure.storage.tx import Tx


class AsyncStickies(AsyncAgentPart):
    @writes
    def add(self, tx: Tx, text: str) -> None:
        tx.of(Stickies).add(self.id, text)

    @reads
    def list(self, tx: Tx):
        return tx.of(Stickies).list(self.id)
""",
    "migrations/m9000_stickies.sql": f"-- Agents may have notes; there are none yet.\n-- least: 1\n\n{TABLE}",
    "migrations/schema.sql": TABLE,
}
PROGRAM = """
import asyncio, json
from perdure import AsyncPerdure
from perdure.features.origins.commands import preview_view
from perdure.features.stickies.service import AsyncStickies

async def main():
    async with await AsyncPerdure.open("a.db") as library:
        agent = await library.create_agent("Ada")
        stickies = AsyncStickies(library.app, agent.id)
        await stickies.add("It is a zebra.")
        found = await agent.find_mentions("zebra")
        place = next(preview_view(found)[0].columns[1].cells)
        await agent.forget("zebra", erase=True)
        print(json.dumps([found.counts, place, [one.text for one in await stickies.list()]]))
        await agent.delete()

asyncio.run(main())
"""


def test_a_new_feature_is_a_folder(tmp_path: Path) -> None:
    """Its table is made, and a text in it is found and erased, in words that people understand."""
    package = tmp_path / "perdure"
    shutil.copytree(Path(perdure.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = package / "features" / "stickies"
    (folder / "migrations").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PERDURE_PROBE_LOCAL": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"sticky": 1}, "stickies", ["It is a [redacted]."]]
