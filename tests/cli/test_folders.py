"""Uploading files and directories, listing them, and seeing in a chat which lines were read."""

from __future__ import annotations

from pathlib import Path

from perdure.cli.views.view import outcome
from perdure.core.messages import ToolResult
from perdure.features.files.commands import UploadEntry, select_files
from tests.support.office_files import pdf_of
from tests.support.programs import perdure


def tree(root: Path) -> Path:
    """A directory as sources have it."""
    for name, data in {
        "a.py": b"def a(): ...\n",
        "docs/plan.md": b"# Plan\n\nBuild it.\n",
        "docs/secret.key.txt": b"x\n",
        ".gitignore": b"*.log\n# a comment\n/out/\nsecret.*\n!kept\n",
        "run.log": b"x\n",
        "deep/more.log": b"x\n",
        "out/made.txt": b"x\n",
        "deep/out/kept.txt": b"kept\n",
        ".git/config": b"x\n",
        "node_modules/x/index.js": b"x\n",
        "image.png": b"\x89PNG\r\n\x1a\n",
        "data.bin2": b"\x00\x01",
        "empty.py": b"",
        "torn.pdf": b"%PDF-1.7 torn",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "link.py").symlink_to(root / "a.py")
    return root


def test_what_is_left_out_of_a_directory(tmp_path: Path) -> None:
    """Each with why; everything else in order, by its place below the directory."""
    entries = list(select_files([tree(tmp_path)], max_bytes=1_000))
    names = [one.name for one in entries if not one.skipped]
    assert names == [".gitignore", "a.py", "torn.pdf", "deep/out/kept.txt", "docs/plan.md"]
    skipped = {one.name for one in entries if one.skipped}
    assert skipped == {
        *(".git/", "node_modules/", "out/", "run.log", "deep/more.log", "docs/secret.key.txt"),
        *("image.png", "data.bin2", "empty.py", "link.py"),
    }
    assert list(select_files([tmp_path / "a.py"], max_bytes=1)) == [UploadEntry(tmp_path / "a.py", "a.py")]


def test_a_directory_is_uploaded_and_listed(tmp_path: Path) -> None:
    """One bad file fails with its reason, the others are there; again, nothing is done twice."""
    root, home = tree(tmp_path / "work"), tmp_path / "home"
    first = perdure(home, "file", "upload", str(root))
    assert first.returncode == 1
    assert first.stdout.startswith("4 files done (")
    assert "1 failed, 10 skipped." in first.stdout
    assert "failed: torn.pdf: " in first.stderr
    assert "Traceback" not in first.stderr
    assert "there already" not in first.stdout
    assert "`perdure folder attach work AGENT`" in first.stderr
    (root / "torn.pdf").unlink()
    (root / "a.py").write_text("def b(): ...\n")
    assert perdure(home, "chat", "helper", "--new", "-p", "hello").returncode == 0
    again = perdure(home, "file", "upload", str(root), "--agent", "helper")
    assert (again.returncode, again.stdout[:13]) == (0, "4 files done ")
    assert "; 3 of the files there already)" in again.stdout
    assert "perdure chat helper" in again.stderr
    assert perdure(home, "folder", "list").stdout == "work · 5 files · 1 agent\n"
    selected_names = perdure(home, "file", "list", "work").stdout.splitlines()
    assert "docs/plan.md · 3 lines" in selected_names
    assert any(line.startswith("torn.pdf · error: ") for line in selected_names)
    assert "work/docs/plan.md · 3 lines" in perdure(home, "file", "list", "helper").stdout
    assert "  docs/plan.md:1-3  # Plan Build it." in perdure(home, "search", "build plan", "--agent", "helper").stdout
    missing = perdure(home, "file", "upload", str(tmp_path / "none"))
    assert (missing.returncode, "there is no file or directory" in missing.stderr) == (1, True)
    nobody = perdure(home, "file", "list", "nobody")
    assert (nobody.returncode, "there are 'work'" in nobody.stderr) == (1, True)


def test_a_chat_shows_which_lines_were_read() -> None:
    """Of each of the three tools: file and lines, not the text."""

    def render_result(name: str, text: str) -> str:
        return outcome(ToolResult("call", name, text))

    assert render_result("open_files", "docs/plan.md: lines 17-18 of 40, page 2\n17: a\n18: b\n\n[closed: docs/x]") == (
        "docs/plan.md:17-18 (page 2)"
    )
    assert render_result(
        "grep_files", "docs/plan.md:17\n16| a\n17> b: lines\nsrc/a b.py:3\n3> c\n[2 files searched]"
    ) == ("docs/plan.md:17, src/a b.py:3")
    assert render_result("semantic_search_files", "docs/plan.md: lines 1-9, page 1\ntext\n\ndocs/b: lines 2-3\nx") == (
        "docs/plan.md:1-9 (page 1), docs/b:2-3"
    )
    assert render_result("grep_files", "[no match; 3 files searched]") == "[no match; 3 files searched]"


def test_texts_of_an_encoding_are_uploaded(tmp_path: Path) -> None:
    """A guess is said, and another encoding can be chosen; beside texts other files are read as always."""
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    (folder / "a.txt").write_bytes("Zażółć gęślą jaźń".encode("cp1250"))
    (folder / "b.pdf").write_bytes(pdf_of(["words"]))
    guessed = perdure(home, "file", "upload", str(folder))
    chosen = perdure(home, "file", "upload", str(folder), "--encoding", "cp1250")
    wrong = perdure(home, "file", "upload", str(folder / "a.txt"), "--encoding", "cp125")

    assert "note: a.txt: read as cp1250, guessed" in guessed.stderr + guessed.stdout
    assert (chosen.returncode, "guessed" in chosen.stderr + chosen.stdout) == (0, False)
    assert (wrong.returncode, "such as gb18030" in wrong.stderr) == (1, True)
