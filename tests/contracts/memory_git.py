"""Commits of memories: each line of commits is an agent's own, and of two who add to it at once one is refused."""

from __future__ import annotations

from dataclasses import replace

from perdure.core.blocks import Author
from perdure.core.errors import NotFound
from perdure.core.ids import AgentId
from perdure.features.memory_git.tables import MemoryGit
from perdure.features.memory_git.values import GitHistory, HeadFile, MemoryMoved, Pack
from perdure.storage.tx import Tx
from tests.contracts.base import AT, LATER, Contract, raises

PACK = Pack(pack=b"PACK\x00\xff", pack_index=b"\xfftOc\x00")
AWKWARD = "walrus \x00\x1b\ud800"


def new_git_history(agent_id: AgentId) -> GitHistory:
    """Where the commits of an agent stand after the first ones."""
    entries = {"system/human.md": HeadFile("block", "block-1", 3, "d1"), f"{AWKWARD}.md": HeadFile("file", "n", 0, "")}
    return GitHistory(agent_id=agent_id, head="a" * 40, entries=entries, left={"block-2": 1}, forgotten="f")


class MemoryGitContract(Contract):
    async def test_commits_come_back_as_they_were(self) -> None:
        """With packs in order; of two who add behind the same commit the second is refused."""
        async with self.open_store() as store:
            agent, other = [await store.write(self.add_agent, name) for name in ("ann", "ben")]
            first = new_git_history(agent.id)
            second = replace(PACK, pack=b"PACK2")
            assert await store.read(_history, agent.id) == GitHistory(agent_id=agent.id)

            stored = await store.write(lambda tx: tx.of(MemoryGit).advance(first, PACK, {}, whole=False))
            with raises(MemoryMoved):
                await store.write(lambda tx: tx.of(MemoryGit).advance(first, PACK, {}, whole=False))
            await store.write(lambda tx: tx.of(MemoryGit).advance(stored, second, {}, whole=False))

            assert stored == replace(first, seq=1)
            assert await store.read(_history, agent.id) == replace(first, seq=2)
            assert await store.read(lambda tx: tx.of(MemoryGit).packs(agent.id)) == [PACK, second]
            assert await store.read(lambda tx: tx.of(MemoryGit).packs(other.id)) == []
            assert await store.read(_history, other.id) == GitHistory(agent_id=other.id)
            with raises(NotFound):
                await store.read(_history, AgentId("agent-nobody"))

    async def test_dropped_commits_are_gone_and_the_next_line_has_another_number(self) -> None:
        """The versions keep their reasons; one pack takes the place of all."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent, "ann")
            block = await store.write(lambda tx: self.add_block(tx, agent_id=agent.id))

            def fill(tx: Tx) -> GitHistory:
                git, author = tx.of(MemoryGit), Author(kind="user", id="ada")
                tx.blocks.put(replace(block, value="new"), expected=0, author=author, at=LATER)
                commits: dict[tuple[str, int], tuple[str, str]] = {
                    (block.id, 0): ("a", ""),
                    (block.id, 1): ("b", AWKWARD),
                }
                stored = git.advance(new_git_history(agent.id), PACK, commits, whole=False)
                return git.advance(stored, PACK, {(block.id, 1): ("c", "")}, whole=True)

            stored = await store.write(fill)
            assert await store.read(lambda tx: tx.of(MemoryGit).packs(agent.id)) == [PACK]
            commits = {(block.id, 0): ("a", ""), (block.id, 1): ("c", AWKWARD)}
            assert await store.read(lambda tx: tx.of(MemoryGit).commits(agent.id)) == commits

            await store.write(lambda tx: tx.of(MemoryGit).drop(agent.id))
            after = await store.read(_history, agent.id)
            assert (after.generation, after.seq, after.head, after.entries) == (1, stored.seq + 1, "", {})
            assert await store.read(lambda tx: tx.of(MemoryGit).packs(agent.id)) == []
            assert await store.read(lambda tx: tx.of(MemoryGit).reasons(block.id, [0, 1, 2])) == {1: AWKWARD}

    async def test_further_files_are_kept(self) -> None:
        """The last text of each counts; None removes it."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent, "ann")
            for path, text in (("a.md", "1"), (f"{AWKWARD}.md", AWKWARD), ("a.md", "2"), ("b.md", "3"), ("b.md", None)):
                await store.write(_put, agent.id, path, text)

            found = await store.read(lambda tx: tx.of(MemoryGit).files(agent.id))
            assert found == {"a.md": ("2", AT, "ada"), f"{AWKWARD}.md": (AWKWARD, AT, "ada")}


def _history(tx: Tx, agent_id: AgentId) -> GitHistory:
    return tx.of(MemoryGit).history(agent_id)


def _put(tx: Tx, agent_id: AgentId, path: str, text: str | None) -> None:
    tx.of(MemoryGit).put_file(agent_id, path, text, by="ada", at=AT)
