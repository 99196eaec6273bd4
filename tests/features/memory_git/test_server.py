"""Memory over git's smart HTTP protocol: cloned, merged, pushed; what was forgotten or erased is in no commit."""

from __future__ import annotations

import asyncio

import pytest

from perdure import InvalidInput
from tests.features.memory_git.serving import Served, push, refused, served

__all__ = ["served"]


async def test_a_pushed_commit_is_a_version_by_the_person_with_its_message(served: Served) -> None:
    folder = await served.clone()
    folder.commit("She told me her town", {"system/human.md": "Name: Ada\nTown: Turin"})
    await push(folder)

    newest = (await served.agent.blocks.history("human"))[0]
    assert (newest.value, newest.author.kind) == ("Name: Ada\nTown: Turin", "user")
    assert newest.reason == "She told me her town"


async def test_what_the_store_wrote_meanwhile_is_merged_as_git_does(served: Served) -> None:
    """A push behind it is refused; after a merge both changes are there, in both places."""
    await served.agent.blocks.update("human", "1\n2\n3\n4\n5\n6\n7\n8\n9")
    folder = await served.clone()
    await served.agent.blocks.update("human", "one\n2\n3\n4\n5\n6\n7\n8\n9")
    folder.commit("nine", {"system/human.md": "1\n2\n3\n4\n5\n6\n7\n8\nnine"})

    assert "fetch first" in await refused(folder)
    await asyncio.to_thread(folder.git, "pull", "--no-rebase", "--quiet", "origin", "main")
    await push(folder)
    assert (await served.agent.blocks.get("human")).value == "one\n2\n3\n4\n5\n6\n7\n8\nnine"
    commits = await served.agent.memory_git.commits()
    assert len([one for one in commits if one.versions]) == 5  # persona, four of human: the merge is one version


async def test_a_push_from_behind_what_was_written_since_it_asked_is_told_to_fetch(served: Served) -> None:
    """The client looked where the branch is, and sent its push after the agent wrote."""
    folder = await served.clone()
    folder.commit("mine", {"system/human.md": "Name: Eva"})
    asked, go = served.path / "asked", served.path / "go"
    hook = folder.path / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {asked}\nwhile [ ! -e {go} ]; do sleep 0.02; done\n")
    hook.chmod(0o755)
    pushing = asyncio.create_task(refused(folder))
    while not asked.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await served.agent.blocks.append("persona", "Kind.")
    go.touch()

    assert "the memory has changed meanwhile: fetch first" in await pushing
    assert (await served.agent.blocks.get("human")).value == "Name: Ada"


async def test_a_client_that_asks_whether_it_may_push_is_told_nothing(served: Served) -> None:
    """It sends an empty list first where its push is large; what is no push is refused."""
    assert [await served.agent.memory_git.receive(body) for body in (b"", b"0000")] == [b"", b""]
    for body in (b"000", b"00000000", b"zzzz", b"0032" + b"x" * 46 + b"0000PACK"):
        with pytest.raises(InvalidInput, match="no push of git"):
            await served.agent.memory_git.receive(body)


async def test_memory_that_is_again_as_it_was_is_a_commit(served: Served) -> None:
    """Its files are known to git already, so that the commit is all that is new."""
    folder = await served.clone()
    for value in ("Name: Ida", "Name: Ada"):
        await served.agent.blocks.update("human", value)
        await asyncio.to_thread(folder.git, "pull", "--quiet", "origin", "main")

    assert folder.body("system/human.md") == "Name: Ada"
    assert [one.versions for one in await served.agent.memory_git.commits(limit=2)] == [("human 2",), ("human 1",)]


async def test_a_conflict_is_shown_as_git_shows_it(served: Served) -> None:
    folder = await served.clone()
    folder.commit("mine", {"system/human.md": "Name: Eva"})
    await served.agent.blocks.update("human", "Name: Ida")
    await refused(folder)
    code, said = await asyncio.to_thread(folder.try_git, "pull", "--no-rebase", "origin", "main")

    assert code and "CONFLICT (content): Merge conflict in system/human.md" in said
    assert "<<<<<<< HEAD\nName: Eva\n=======\nName: Ida\n>>>>>>> " in folder.read("system/human.md")
    folder.commit("both", {"system/human.md": "Name: Eva Ida"})
    await push(folder)
    assert (await served.agent.blocks.get("human")).value == "Name: Eva Ida"


@pytest.mark.slow
async def test_each_version_is_a_commit_and_each_commit_a_version(served: Served) -> None:
    """A hundred edits from both sides, of blocks, skills and notes."""
    folder = await served.clone()
    for number in range(10):
        for _ in range(5):
            await served.agent.blocks.append("persona", f"store {number}")
        await asyncio.to_thread(folder.git, "pull", "--quiet", "--rebase", "origin", "main")
        for step in range(5):
            folder.commit(f"edit {number} {step}", {"system/human.md": f"Name: {number} {step}"})
        await push(folder)
    history = await served.agent.blocks.history("human"), await served.agent.blocks.history("persona")
    commits = await served.agent.memory_git.commits(limit=1_000)

    made = [tuple(one.versions) for one in commits[:-1]]
    assert sorted(made) == sorted(
        (f"{label} {one.version}",)
        for label, versions in zip(("human", "persona"), history, strict=True)
        for one in versions
    )
    assert commits[-1].versions == ()  # the first commit, of an empty memory
    assert [one.subject for one in commits if one.versions[:1] == ("human 50",)] == ["edit 9 4"]
    assert [one.reason for one in history[0][:5]] == [f"edit 9 {step}" for step in (4, 3, 2, 1, 0)]


@pytest.mark.slow
async def test_what_is_forgotten_or_erased_is_in_no_commit(served: Served) -> None:
    """The commits are made anew: an old clone can't be merged, and its commits are refused."""
    await served.agent.blocks.update("human", "Name: Ada\nPIN: walrus 42")
    folder = await served.clone()
    folder.commit("more walrus 42", {"reference/pin.md": "walrus 42", "system/persona.md": "Kind.\nwalrus 42"})
    await push(folder)
    await served.agent.forget("walrus 42")
    fresh = await served.clone("fresh")
    assert "walrus 42" not in await asyncio.to_thread(fresh.git, "log", "--patch", "--all")
    assert "[redacted]" in fresh.read("reference/pin.md")

    await served.agent.undo()
    again = await served.clone("again")
    assert "walrus 42" in await asyncio.to_thread(again.git, "log", "--patch", "--all")
    assert (again.read("reference/pin.md"), again.body("system/persona.md")) == ("walrus 42", "Kind.\nwalrus 42")

    await served.agent.forget("walrus 42", erase=True)
    data = b"".join(path.read_bytes() for path in served.path.glob("p.db*"))
    last = await served.clone("last")
    assert "walrus 42" not in await asyncio.to_thread(last.git, "log", "--patch", "--all")
    assert b"walrus 42" not in data
    code, said = await asyncio.to_thread(again.try_git, "pull", "--no-rebase", "origin", "main")
    assert code and "unrelated histories" in said
    again.git("merge", "--quiet", "--allow-unrelated-histories", "-X", "ours", "-m", "both", "FETCH_HEAD")
    assert "rejected" in await refused(again)
    assert "nothing in common" in await refused(again)
