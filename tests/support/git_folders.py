"""Folders of users with git repositories in them."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GitFolder:
    """A folder in which a user runs git, without the configuration of the machine."""

    path: Path

    def try_git(self, *arguments: str) -> tuple[int, str]:
        """(Exit code, all that git says)."""
        own = {"HOME": str(self.path.parent), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        own |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        own |= {f"GIT_{who}_{what}": "ben@example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        out = subprocess.PIPE
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.path, env=own, stdout=out, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout

    def git(self, *arguments: str) -> str:
        """What git says. Raises: AssertionError: it fails."""
        code, said = self.try_git(*arguments)
        assert code == 0, f"git {' '.join(arguments)}: {said}"
        return said

    def read(self, path: str) -> str:
        """The text of a file."""
        return (self.path / path).read_text("utf-8")

    def body(self, path: str) -> str:
        """The text of a file behind its frontmatter."""
        return self.read(path).partition("\n---\n")[2].strip("\n")

    def write(self, path: str, text: str) -> None:
        """Write a file; one that is there keeps its frontmatter, unless the text has one."""
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not text.startswith("---"):
            head = file.read_text("utf-8").partition("\n---\n")[0]
            text = f"{head}\n---\n\n{text}\n"
        file.write_text(text, "utf-8")

    def commit(self, message: str, files: dict[str, str | None]) -> None:
        """Commit changes: path -> text; None: the file goes."""
        for path, text in files.items():
            if text is None:
                (self.path / path).unlink()
            else:
                self.write(path, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    def log(self, *options: str) -> list[str]:
        """The subjects of the commits, newest first."""
        return self.git("log", "--format=%s", *options).splitlines()


async def clone(url: str, path: Path) -> GitFolder:
    """A clone of a repository, made beside the loop in which its server runs."""
    folder = GitFolder(path)
    await asyncio.to_thread(path.mkdir)
    await asyncio.to_thread(folder.git, "clone", "--quiet", url, ".")
    return folder
