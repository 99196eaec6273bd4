"""Scripts of skills run in the sandbox, beside the skill's other files; other files are read."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import ModelReply
from perdure.core.tools.sandbox import Isolation
from perdure.features.skills.files import FILES_MAX
from perdure.testing import ScriptedModel, calls, says
from tests.support.library import open_async

SCRIPT = """import json, sys
from helper import double
print(json.load(open("data/numbers.json"))["one"], double(int(sys.argv[1])))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder with a skill that has a script, a module, data, and a link that leads out of it."""
    skill = tmp_path / "home" / "skills" / "count"
    for name, text in {
        "SKILL.md": "---\nname: count\ndescription: Count things\n---\nRun scripts/count.py.",
        "scripts/count.py": SCRIPT,
        "scripts/helper.py": "def double(number):\n    return 2 * number\n",
        "scripts/fail.py": "import sys\nsys.exit(3)\n",
        "scripts/shell.sh": "#!/bin/sh\necho no",
        "scripts/bare": "#!/usr/bin/env python3\nprint('bare')\n",
        "data/numbers.json": '{"one": 1}',
    }.items():
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).write_text(text)
    (tmp_path / "secret.py").write_text("print('secret')")
    (skill / "outside.py").symlink_to(tmp_path / "secret.py")
    (skill / "all").symlink_to(tmp_path)
    return tmp_path / "home"


async def answers(home: Path, *script: ModelReply) -> tuple[list[str], Isolation]:
    """What the tools answer to these calls."""
    model = ScriptedModel(*script, says("done"))
    async with await open_async(home / "perdure.db", model=model, home=str(home)) as perdure:
        sandbox = perdure.app.shared.sandbox
        isolation = (
            await sandbox.isolation()
            if sandbox is not None
            else Isolation(backend="none", measures=(), enough=False, summary="")
        )
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.send("go")
        return [one.messages[-1].text for one in model.requests[1:]], isolation


async def test_a_script_runs_beside_the_files_of_its_skill(home: Path) -> None:
    """With its arguments; one that fails is an error."""
    script = calls("run_skill_script", name="count", script="scripts/count.py", arguments=["21"])
    failing = calls("run_skill_script", name="count", script="scripts/fail.py")
    bare = calls("run_skill_script", name="count", script="./scripts/bare")
    (worked, failed, plain), isolation = await answers(home, script, failing, bare)
    if not isolation.enough:
        pytest.skip("the sandbox does not suffice here")

    assert worked.strip() == "stdout:\n1 42"
    assert "the script ended with 3" in failed
    assert plain.strip() == "stdout:\nbare"


async def test_a_script_in_the_text_of_a_skill_runs(tmp_path: Path) -> None:
    """One that an agent wrote in a block of code with a name."""
    text = "Check it:\n\n```python check.py\nprint('checked', 6 * 7)\n```\n"
    model = ScriptedModel(calls("run_skill_script", name="check", script="check.py"), says("done"))
    async with await open_async(tmp_path / "perdure.db", model=model) as perdure:
        agent = await perdure.create_agent("ann")
        await agent.skills.enable()
        await agent.skills.write("check", text)
        await agent.send("go")
        sandbox = perdure.app.shared.sandbox
        if sandbox is None or not (await sandbox.isolation()).enough:
            pytest.skip("the sandbox does not suffice here")

        assert "checked 42" in model.requests[1].messages[-1].text
        assert (await agent.skills.get("check")).files == ("check.py",)
        assert (await agent.skills.get("check")).uses.uses == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (calls("run_skill_script", name="count", script="outside.py"), "count has no file 'outside.py'"),
        (calls("run_skill_script", name="count", script="../../../secret.py"), "count has no file"),
        (calls("run_skill_script", name="count", script="all/secret.py"), "count has no file"),
        (
            calls("run_skill_script", name="count", script="scripts/shell.sh"),
            "the sandbox has Python, and neither a shell",
        ),
        (calls("run_skill_script", name="coun", script="x.py"), "skill 'coun' not found: is it count?"),
        (calls("read_skill", name="count", file="../SKILL.md"), "count has no file '../SKILL.md': it has data/"),
        (calls("read_skill", name="count", file="data/numbers.json"), '{"one": 1}'),
        (calls("read_skill", name="count"), "[files: data/numbers.json, scripts/bare, scripts/count.py"),
    ],
)
async def test_only_the_files_of_a_skill_are_read(home: Path, call: ModelReply, told: str) -> None:
    (text,), _ = await answers(home, call)

    assert told in text
    assert "secret" not in text.replace("secret.py", "")


async def test_a_huge_folder_is_not_walked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it looked at while others wait to write; a file that is named is found all the same."""
    folder = home / "skills" / "count"
    many = [folder / f"part{number}" for number in range(30)]
    for place in many:
        place.mkdir()
        for number in range(100):
            (place / f"{number}.txt").write_text("x", encoding="utf-8")
    walked = list[str]()
    scan, is_file = os.scandir, Path.is_file

    def seen(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A call that notes its path."""
        return lambda path: (walked.append(str(path)), call(path))[1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(os, "scandir", seen(scan))
    monkeypatch.setattr(Path, "is_file", seen(is_file))
    (text, last), _ = await answers(
        home, calls("read_skill", name="count"), calls("read_skill", name="count", file="part29/99.txt")
    )

    assert "[files: data/numbers.json, part0/0.txt" in text and "and 170 more]" in text
    assert last == "x"
    assert len([one for one in walked if str(folder) in one]) < 2 * FILES_MAX


async def test_names_are_found_in_both_forms_of_unicode(tmp_path: Path) -> None:
    """A file system may keep é as a letter and a mark."""
    plain, marked = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    skill = tmp_path / "skills" / "brew"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: brew\ndescription: Brew\n---\nHot.", encoding="utf-8")
    (skill / f"{marked}.md").write_text("Slowly.", encoding="utf-8")
    for name in (plain, marked):
        (text,), _ = await answers(tmp_path, calls("read_skill", name="brew", file=f"{name}.md"))
        assert text == "Slowly."
        (tmp_path / "perdure.db").unlink()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="special files need root")
async def test_a_special_file_is_no_file_of_a_skill(home: Path) -> None:
    """A pipe would keep the reader waiting."""
    os.mkfifo(home / "skills" / "count" / "pipe.py")
    (text,), _ = await answers(home, calls("run_skill_script", name="count", script="pipe.py"))

    assert "count has no file 'pipe.py'" in text
