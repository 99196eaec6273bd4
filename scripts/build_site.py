"""Build the documentation as a site in `site/`, without a network: `make docs`. A link that leads nowhere fails it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.reference_pages import http_page, library_page

ROOT = Path(__file__).resolve().parents[1]
SOURCE, SITE = ROOT / "build" / "docs", ROOT / "site"
GENERATOR = ROOT / ".venv" / "docs"
"""Where `make setup` puts Zensical and what it needs."""

FROM_CODE = {"library-reference.md": library_page, "http-reference.md": http_page}
"""The pages that are made from the code."""

_FENCE_WORDS = re.compile(r"^(```[\w+-]+) [^\n`]*$", re.MULTILINE)


def page_text(text: str) -> str:
    """A page as the generator reads it: it knows no second word behind a fence, which is for our tests, and no page
    outside of `docs/` but CONTRIBUTING.md, which becomes one."""
    return _FENCE_WORDS.sub(r"\1", text).replace("](../CONTRIBUTING.md", "](contributing.md")


def write_source(folder: Path) -> None:
    """Write the pages and pictures of `docs/` into a folder, as the generator reads them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for page in folder.rglob("*.md"):
        page.write_text(page_text(page.read_text(encoding="utf-8")), encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
    (folder / "contributing.md").write_text(page_text(contributing), encoding="utf-8")
    for name, make in FROM_CODE.items():
        (folder / name).write_text(make(), encoding="utf-8")


def main() -> int:
    """Build the site; return the generator's exit code."""
    if not GENERATOR.is_dir():
        print("The site's generator is not installed: run `make setup` first.", file=sys.stderr)
        return 1
    write_source(SOURCE)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(GENERATOR), "NO_COLOR": "1"})
    if done.returncode == 0:
        print("See it: python3 -m http.server --bind 127.0.0.1 --directory site 8000, then open http://127.0.0.1:8000")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
