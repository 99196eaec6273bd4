"""Pushes that can't be memory: refused with file and line, nothing half-written, no code run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel
from tests.features.memory_git.serving import Served, refused, served
from tests.support.git_folders import GitFolder
from tests.support.servers import listening, open_library

__all__ = ["served"]

HUGE_BYTES = 2**30 if os.environ.get("PERDURE_FAULTS") == "full" else 2**24
HEAD = "---\ndescription: x\n---\n\n"
HOOK = "#!/bin/sh\ntouch ran\n"


def link(folder: GitFolder) -> None:
    (folder.path / "system" / "passwd.md").symlink_to("/etc/passwd")


def submodule(folder: GitFolder) -> None:
    folder.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},inner.md")


def program(folder: GitFolder) -> None:
    path = folder.path / "run.md"
    path.write_text("x")
    path.chmod(0o755)


def binary(folder: GitFolder) -> None:
    (folder.path / "picture.md").write_bytes(b"line\n\x89PNG\xff\x00")


def zero(folder: GitFolder) -> None:
    (folder.path / "zero.md").write_bytes(b"line\nline\na\x00b")


def huge(folder: GitFolder) -> None:
    """A file of a gigabyte, of which its pack has a megabyte; git alone takes half a minute for it."""
    with (folder.path / "huge.md").open("wb") as file:
        file.truncate(HUGE_BYTES)


def files(**texts: str) -> Callable[[GitFolder], None]:
    """What writes files: names with `/` for `__` and `.` for `_dot_`."""

    def write(folder: GitFolder) -> None:
        for name, text in texts.items():
            folder.write(name.replace("__", "/").replace("_dot_", "."), text)

    return write


BAD = [
    (link, "system/passwd.md: it is a symbolic link"),
    (submodule, "inner.md: it is a repository in the repository"),
    (program, "run.md: it is a program that can be run"),
    (binary, "picture.md:2: it is no text in UTF-8"),
    (zero, "zero.md:3: it is binary: there is a zero byte"),
    (huge, f"huge.md: it has {HUGE_BYTES:,} bytes, the limit is 1,000,000"),
    (files(hooks__pre_commit=HOOK), "hooks/pre_commit: only Markdown files"),
    (files(_dot_githooks__post_dot_md=HOOK), ".githooks/post.md: a name that is empty, or begins with a dot"),
    (files(system__a_dot_md="---\nlimt: 5\n---\n"), "system/a.md:2: unknown field `limt`"),
    (files(system__a_dot_md="---\na: &x [1]\nb: [*x]\n---\n"), "system/a.md:2: anchors"),
    (files(system__a_dot_md="---\nlimit: 5\n---\n\ntoo long"), "block 'a' would hold 8 characters, its limit is 5"),
    (files(system__a_dot_md="---\nlimit: many\n---\n"), "system/a.md:2: limit is 'many'"),
    (files(system__a_dot_md="---\nread_only: true\n---\n"), "system/a.md:2: whether a block is read-only"),
    (files(system__a_dot_md="---\nlimit: 5\n"), "system/a.md:1: the frontmatter has no end"),
    (files(system__rules_dot_md="Do as you like."), "only a person changes this block"),
    (files(system__human_dot_md="ok", notes__x_dot_md="---\nkind: walrus\n---\n\nx"), "notes/x.md: kind is 'walrus'"),
    (files(skills__x__SKILL_dot_md="---\nname: y\n---\n\nx"), "skills/x/SKILL.md:2: the name of the skill is that"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "why"), BAD, ids=[why[:40] for _, why in BAD])
async def test_what_can_not_be_memory_is_refused(served: Served, bad: Callable[[GitFolder], None], why: str) -> None:
    """With the file, where it is known also the line; what else the push has is not written either."""
    await served.agent.blocks.create("rules", "Be kind.", read_only=True)
    folder = await served.clone()
    folder.commit("a good one", {"system/human.md": "Name: Eva"})
    await asyncio.to_thread(bad, folder)
    if bad is not submodule:
        folder.git("add", "--all")
    folder.git("commit", "--quiet", "-m", "a bad one")
    before = await served.agent.memory_git.commits()

    assert why in " ".join((await refused(folder)).split())
    assert (await served.agent.blocks.get("human")).value == "Name: Ada"
    assert await served.agent.memory_git.commits() == before


async def test_a_label_that_another_agent_of_the_block_has_is_refused_with_its_name(served: Served) -> None:
    """And with what helps."""
    ben, eve = [await served.perdure.create_agent(name) for name in ("ben", "eve")]
    shared = await served.agent.blocks.create("house", "Third floor.")
    for other in (ben, eve):
        await other.blocks.attach(shared.id)
    await ben.blocks.create("home", "Turin")
    folder = await served.clone()
    folder.git("mv", "system/house.md", "system/home.md")
    folder.git("commit", "--quiet", "-m", "another label")
    said = " ".join((await refused(folder)).split())

    assert f"system/home.md: block with label 'home' exists already: 'ben' ({ben.id}) has this block" in said
    assert "detach or rename that one, or choose another label" in said and "'eve'" not in said


async def test_a_path_that_leads_outside_is_refused(served: Served) -> None:
    """Git itself makes no such commit, so it is made of its parts."""
    folder = await served.clone()
    blob = folder.git("hash-object", "-w", "system/human.md").strip()
    (folder.path / "tree").write_bytes(b"100644 ..\0" + bytes.fromhex(blob))
    tree = folder.git("hash-object", "-w", "-t", "tree", "--literally", "tree").strip()
    commit = folder.git("commit-tree", tree, "-p", "HEAD", "-m", "outside").strip()
    folder.git("update-ref", "refs/heads/main", commit)

    assert "contains '..'" in await refused(folder)


async def test_a_forced_push_another_branch_and_a_tag_are_refused(served: Served) -> None:
    await served.agent.blocks.update("human", "Name: Ida")
    folder = await served.clone()
    folder.git("reset", "--quiet", "--hard", "HEAD~1")
    folder.commit("over it", {"system/human.md": "Name: Eva"})
    forced = await refused(folder, "--force")
    _, branch = await asyncio.to_thread(folder.try_git, "push", "origin", "main:other")
    _, tag = await asyncio.to_thread(folder.try_git, "push", "origin", "HEAD:refs/tags/one")
    _, deleted = await asyncio.to_thread(folder.try_git, "push", "origin", ":main")

    assert "rejected" in forced
    assert all("only the branch main is memory" in said for said in (branch, tag))
    assert "rejected" in deleted and "deletion prohibited" in deleted
    assert (await served.agent.blocks.get("human")).value == "Name: Ida"


async def test_hooks_of_a_folder_do_not_run(served: Served, tmp_path: Path) -> None:
    """Not for a checkout, not for a push."""
    folder = (await served.agent.memory_git.checkout(tmp_path / "mine")).folder
    mine = GitFolder(Path(folder))
    for name in ("pre-push", "post-checkout", "post-merge", "reference-transaction"):
        hook = mine.path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    mine.git("-c", f"core.hooksPath={os.devnull}", "commit", "--quiet", "--allow-empty", "-m", "nothing")
    await served.agent.memory_git.push(folder)
    await served.agent.blocks.update("human", "Name: Ida")
    await served.agent.memory_git.checkout(folder)

    assert not (tmp_path / "ran").exists()
    assert mine.body("system/human.md") == "Name: Ida"


async def test_a_key_is_the_password_of_git(tmp_path: Path) -> None:
    """Without one git is asked for it; a key of small scope fetches and can't push."""
    async with (
        open_library(tmp_path, ScriptedModel(), ()) as perdure,
        listening(perdure, ServerConfig(port=0, api_key="walrus-key")) as address,
    ):
        agent = await perdure.create_agent("ann")
        (tmp_path / "clone").mkdir()
        folder = GitFolder(tmp_path / "clone")
        url = f"{address}/v1/git/{agent.id}/state.git"
        code, said = await asyncio.to_thread(folder.try_git, "clone", url, ".")
        assert code and "could not read Username" in said

        url = url.replace("://", "://letta:walrus-key@")
        await asyncio.to_thread(folder.git, "clone", "--quiet", url, ".")
        folder.commit("hello", {"system/human.md": "Name: Eva"})
        await asyncio.to_thread(folder.git, "push", "--quiet", "origin", "main")

        assert (await agent.blocks.get("human")).value == "Name: Eva"
