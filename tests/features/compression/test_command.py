"""`perdure compress`: the output of a tool as an agent would see it."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.context import compress
from tests.support.programs import perdure, run_inside
from tests.support.tool_outputs import records


def test_a_file_is_printed_in_fewer_tokens(tmp_path: Path) -> None:
    """Byte for byte what the library gives, and what it saves stands on stderr or in the JSON."""
    (tmp_path / "rows.json").write_text(records())
    file = str(tmp_path / "rows.json")
    whole = run_inside(tmp_path, "compress", file, "--level", "lossless")
    short = json.loads(run_inside(tmp_path, "compress", file, "--budget", "300", "--json").stdout)
    piped = perdure(tmp_path, "compress", "-", "--level", "lossless", stdin=records())

    assert piped.stdout == whole.stdout == compress(records(), level="lossless").text + "\n"
    assert short["text"] == compress(records(), budget=300, handle=file).text
    assert (short["kind"], short["form"]) == ("json", "short")
    assert short["tokens_after"] < short["tokens_before"] / 3


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """With the file's name, and no traceback."""
    (tmp_path / "picture").write_bytes(b"\x89PNG")
    binary, missing = (run_inside(tmp_path, "compress", str(tmp_path / name)) for name in ("picture", "nothing"))

    assert (binary.returncode, missing.returncode) == (1, 1)
    assert "byte 1 is none" in binary.stderr and "No such file" in missing.stderr
