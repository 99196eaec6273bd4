"""Make the pictures of the README: `python -m scripts.readme_images` writes `docs/images/readme-*`.

The screenshots show a small store on the real server, whose agents play a script. The recording shows the real
command: each line is what `perdure` printed, uncovered at the pace of a person who types.
"""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from perdure import AsyncPerdure, ModelReply
from perdure.core.runs import Usage
from perdure.server.config import ServerConfig
from perdure.settings import Settings
from perdure.testing import ScriptedModel, calls, says, thinks
from tests.support.servers import listening
from tests.ui.chromium import Theme, launch, open_page

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
MODEL = "openai/gpt-4.1"
PERSONA = "I plan journeys for Ada. I ask before I book."
HUMAN = "Name: Ada\nLives in: Turin\nEats: everything but fish"
COLUMNS = 84
QUIET_S, TYPED_S, LINE_S = 2.0, 0.05, 0.12
SESSIONS = (("My name is Ada and I live in Turin.", "I like 围棋."), ("Where do I live?", "我喜欢什么？"))


async def make_screenshots(folder: Path) -> None:
    """The chat of an agent that has just corrected its memory, in both themes."""
    script = ScriptedModel(*_script())
    settings = replace(Settings(), model=MODEL)
    async with (
        await AsyncPerdure.open(folder / "perdure.db", models={MODEL: script}, settings=settings) as library,
        listening(library, ServerConfig(port=0)) as address,
        launch() as chromium,
    ):
        for name, about in (("Kitchen", "recipes and the shopping list"), ("Support desk", "answers customers")):
            await (await library.create_agent(name, description=about)).send("Good morning.")
        agent = await library.create_agent(
            "Travel planner", persona=PERSONA, human=HUMAN, description="journeys, tickets, hotels"
        )
        await agent.archive("Hotel Aurora in Vienna: quiet, near the station, 94 € a night.", tags=["vienna"])
        for text in ("Which hotel did we note for Vienna?", "I moved to Genoa last week."):
            await agent.send(text)
        themes: tuple[Theme, ...] = ("light", "dark")
        for theme in themes:
            async with open_page(chromium, address, width=1120, height=1040, theme=theme) as (page, _):
                await page.goto(f"{address}/agents/{agent.id}")
                await page.wait_for_timeout(800)
                await page.evaluate("scrollTo(0, 0)")
                await page.screenshot(path=IMAGES / f"readme-chat-{theme}.png")


def _script() -> Iterator[ModelReply]:
    usage = Usage(input_tokens=1_742, output_tokens=61)
    yield says("Good morning! Shall we plan dinner?")
    yield says("Good morning. Two tickets are open.")
    yield calls("archival_memory_search", query="hotel Vienna")
    yield says("Hotel Aurora: quiet, near the station, 94 € a night.", usage=usage)
    edit = calls("memory_replace", label="human", old_string="Lives in: Turin", new_string="Lives in: Genoa")
    yield thinks("She has moved. I correct the line.", edit)
    yield says("Noted. Your journeys start in Genoa from now on.", usage=usage)


def make_recording(home: Path) -> None:
    """Two sessions of `perdure` in one terminal, as an SVG that plays once."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    times: list[tuple[float, int]] = []
    """When each line starts, in seconds, and how many characters are typed on it; 0: it stands there at once."""
    now = 0.5
    for text, typed in _session_lines(home):
        for row in text.wrap(console, COLUMNS) or [text]:
            times.append((now, len(text) if typed else 0))
            console.print(row, end="\n")
            now += (len(text) * TYPED_S + 0.5) if typed else LINE_S
    svg = console.export_svg(title="perdure", theme=MONOKAI, code_format=_TEMPLATE, unique_id="t")
    (IMAGES / "readme-terminal.svg").write_text(svg.replace("/*times*/", _animation(times)), encoding="utf-8")


_TEMPLATE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: system-ui, sans-serif; }}
{styles}
@media (prefers-reduced-motion: no-preference) {{
@keyframes show {{ from {{ width: 0 }} }}
/*times*/
}}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own without its fonts, which are loaded from elsewhere."""


def _animation(times: list[tuple[float, int]]) -> str:
    """Rules that uncover each line by widening the rectangle that it is cut to."""
    return "\n".join(
        f"#t-line-{number} rect {{ animation: show {max(typed * TYPED_S, 0.01):.2f}s "
        f"steps({max(typed, 1)}, jump-end) {start:.2f}s backwards }}"
        for number, (start, typed) in enumerate(times)
    )


def _session_lines(home: Path) -> Iterator[tuple[Text, bool]]:
    """(line, whether a person types it) of all sessions."""
    for session in SESSIONS:
        yield Text("$ perdure", style="bold"), True
        for line, typed in _lines_of(home, session):
            line.plain = line.plain.replace(str(home), "~/.local/share/perdure")
            yield line, typed
        yield Text(), False


def _lines_of(home: Path, typed: tuple[str, ...]) -> Iterator[tuple[Text, bool]]:
    """One session: the lines go into a pipe, and all that the command prints comes from a terminal."""
    ours, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PERDURE_HOME": str(home), "TERM": "xterm-256color"}
    env |= {"COLUMNS": "400", "PERDURE_PROBE_LOCAL": "0"}
    command = Path(sys.executable).with_name("perdure")
    with subprocess.Popen([command], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=env) as process:
        assert process.stdin is not None
        yield from _printed(ours, first_s=30.0)
        for line in typed:
            yield Text.assemble(("> ", "bold"), line), True
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            yield from _printed(ours, first_s=10.0)
        process.stdin.close()
        yield from _printed(ours, first_s=10.0)
        process.wait()
    os.close(theirs)
    os.close(ours)


def _printed(terminal: int, *, first_s: float) -> Iterator[tuple[Text, bool]]:
    """What is printed until it is quiet."""
    data, patience = b"", first_s
    while select.select([terminal], [], [], patience)[0]:
        data += os.read(terminal, 65536)
        patience = QUIET_S
    for line in data.decode().replace("\r", "").rstrip("\n").split("\n"):
        yield Text.from_ansi(re.sub(r"\x1b\[\?[0-9]+[hl]", "", line)), False


def main() -> None:
    """Write all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        make_recording(Path(folder) / "terminal")
        asyncio.run(make_screenshots(Path(folder)))


if __name__ == "__main__":
    main()
