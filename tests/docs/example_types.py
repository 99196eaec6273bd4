"""Check the types of the pages' Python examples: `make check` runs `python -m tests.docs.example_types`.

Each example is a file of its own, for `mypy --strict` and for pyright. npm installs pyright with the TypeScript client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.adapters.packages import FOLDER
from tests.docs.markdown import PAGES, ROOT, fences

PYRIGHT = ROOT / "tests" / "wire" / "typescript" / "node_modules" / ".bin" / "pyright"


def write_examples(pages: Iterable[Path], folder: Path) -> list[Path]:
    """Write each Python block of the pages to `PAGE_LINE.py`, at the line at which it stands in its page."""
    files = []
    for page in pages:
        for block in fences(page):
            if block.info.partition(" ")[0] == "python":
                name = page.name.removesuffix(".md").replace(".", "_").replace("-", "_")
                files.append(folder / f"{name}_{block.line}.py")
                files[-1].write_text("\n" * (block.line - 1) + block.text, encoding="utf-8")
    return files


def main() -> int:
    """Run both checkers; 1 if one of them finds an error."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_examples(PAGES, Path(folder))
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml"]
        failed = subprocess.run([*mypy, *map(str, files)], cwd=ROOT).returncode
        if not PYRIGHT.exists():
            print("There is no pyright here (install npm, then `make setup`): mypy alone read the examples.")
            return failed
        config = {"extraPaths": [str(ROOT), str(ROOT / "src"), str(FOLDER)], "pythonVersion": "3.11"}
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(config))
        pyright = [str(PYRIGHT), "--project", folder, "--pythonpath", sys.executable]
        return subprocess.run(pyright).returncode or failed


if __name__ == "__main__":
    sys.exit(main())
