"""Tool rules against models that try everything: 60 rule sets in `make test-all`, 10,000 in `make faults`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from perdure import AsyncPerdure, RunFailed, tool
from perdure.core.errors import ToolRulesInvalid
from perdure.core.messages import Text, ToolCall
from perdure.core.models import ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.core.tools import rules as tool_rules
from perdure.engine.approvals import answers
from perdure.engine.log import next_action
from perdure.engine.log import tool_rules as judging
from perdure.engine.run import tool_calls
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel
from tests.properties.rule_checker import Effect, broken

SETS, CHUNK = (10_000, 500) if os.environ.get("PERDURE_FAULTS") == "full" else (60, 60)

MODEL = "test/adversary"
TOOLS = ("a", "b", "c", "d", "e")
NAMES = (*TOOLS, "absent")
OUTPUTS = ("yes", "no", "7")


def random_rules(rng: random.Random) -> list[dict[str, Any]]:
    """A few rules, about few tools, so that they meet."""
    few = rng.sample(NAMES, rng.randint(2, len(NAMES)))

    def name() -> str:
        return rng.choice(few)

    def names() -> list[str]:
        return rng.sample(few, rng.randint(1, min(3, len(few))))

    def args() -> dict[str, Any]:
        return {key: rng.randint(100, 102) for key in ("n", "m") if rng.random() < 0.5}

    def rule() -> dict[str, Any]:
        kind = rng.choice(list(tool_rules.RULE_TYPES)[:8])
        made: dict[str, Any] = {"type": kind, "tool_name": name()}
        match kind:
            case "run_first":
                made["args"] = rng.choice((None, args()))
            case "conditional":
                made["child_output_mapping"] = {output: name() for output in OUTPUTS if rng.random() < 0.6}
                made["default_child"] = rng.choice((None, name()))
                made["require_output_mapping"] = rng.random() < 0.3
            case "constrain_child_tools":
                made["children"] = names()
                made["child_arg_nodes"] = [{"name": child, "args": args()} for child in made["children"]]
            case "parent_last_tool":
                made["children"] = names()
            case "max_count_per_step":
                made["max_count_limit"] = rng.choice((0, 1, 1, 2, 3))
        return made

    return [rule() for _ in range(rng.randint(1, 6))]


class World:
    """Tools that write down what they did, and a model that calls whatever comes to its mind."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.rng = random.Random(0)

    def tools(self) -> list[Callable[..., Any]]:
        return [self._tool(name, parallel=name in "abc") for name in TOOLS]

    def _tool(self, name: str, *, parallel: bool) -> Callable[..., Any]:
        @tool(name=name, parallel=parallel)
        async def act(n: int = 0, m: int = 0) -> str:
            """Do something."""
            output = self.rng.choice(OUTPUTS)
            self.effects.append(Effect(name, {"n": n, "m": m}, output))
            return output

        return act

    def answer(self, request: ModelRequest) -> ModelReply:
        rng = self.rng
        calls = []
        wanted = request.options.tool_choice
        if rng.random() < 0.75:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                # Half of the time it does as it is asked, or it would get nowhere.
                obeys = isinstance(wanted, tuple) and rng.random() < 0.6
                name = rng.choice(wanted) if obeys else rng.choice((*TOOLS, "unknown"))
                arguments = json.dumps({"n": rng.randint(0, 3)}) if rng.random() < 0.85 else '{"n": '
                calls.append(ToolCall("", name, arguments))
        said = (Text("done"),) if not calls or rng.random() < 0.2 else ()
        return ModelReply(parts=(*said, *calls), usage=Usage(input_tokens=1, output_tokens=1))


async def violations(seeds: Sequence[int], *, enough: int | None = None) -> tuple[int, int, list[str]]:
    """How many rule sets were kept to, how many tools ran, and every violation that was found."""
    world, found, served, effects = World(), list[str](), 0, 0
    settings = replace(Settings(), model=MODEL, embedding="none", max_steps=9)
    async with await AsyncPerdure.open(
        store=InlineStore(),
        models={MODEL: ScriptedModel(otherwise=world.answer)},
        tools=world.tools(),
        settings=settings,
    ) as perdure:
        agent = await perdure.create_agent(tools=TOOLS)
        for seed in seeds:
            rng = random.Random(seed)
            while True:
                rules = random_rules(rng)
                try:
                    agent = await agent.update(settings={"tool_rules": rules})
                    break
                except ToolRulesInvalid:
                    continue
            world.rng, world.effects = rng, []
            try:
                line = (await agent.new_conversation()).id
                reason: str = (await agent.send("go", conversation=line)).stop_reason
            except RunFailed as error:
                reason = error.stop_reason
            served, effects = served + 1, effects + len(world.effects)
            found += [f"{seed}: {wrong}; {rules}" for wrong in broken(rules, TOOLS, world.effects, reason)]
            if enough is not None and len(found) >= enough:
                break
    return served, effects, found


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SETS, CHUNK))
def test_no_model_gets_past_any_set_of_rules(first: int) -> None:
    """Whatever it calls, in whatever order, alone or together, with whatever arguments."""
    served, effects, found = asyncio.run(violations(range(first, first + CHUNK)))

    assert (served, found) == (CHUNK, [])
    assert effects > CHUNK  # tools did run, or there would be nothing to break a rule with


def _judge_once(patch: pytest.MonkeyPatch) -> None:
    """Calls of one answer are judged before the first of them has run."""
    kept: dict[str, Any] = {}
    check = tool_calls._ToolPhase._check

    async def stale(phase: Any, open_call: Any) -> Any:
        log = phase.log
        phase.log = kept.setdefault(open_call.message.id, log)
        try:
            return await check(phase, open_call)
        finally:
            phase.log = log

    patch.setattr(tool_calls._ToolPhase, "_check", stale)


def _count_wrongly(patch: pytest.MonkeyPatch) -> None:
    """One call more than allowed."""
    read = tool_rules._rule

    def one_more(where: str, shape: Any) -> Any:
        rule = read(where, shape)
        if isinstance(rule, tool_rules.MaxCount) and rule.max_count_limit:
            return replace(rule, max_count_limit=rule.max_count_limit + 1)
        return rule

    patch.setattr(tool_rules, "_rule", one_more)


def _count_refused(patch: pytest.MonkeyPatch) -> None:
    """A call that was refused counts as one that was made."""
    made = judging.past_calls_in

    def all_made(messages: Any) -> Any:
        shown = [
            replace(one, parts=tuple(replace(part, refused=False) for part in one.parts)) if one.role == "tool" else one
            for one in messages
        ]
        return made(shown)

    patch.setattr("perdure.engine.log.run_log.past_calls_in", all_made)


def _without(kind: type) -> Callable[[pytest.MonkeyPatch], None]:
    """The engine has never heard of a kind of rule."""

    def forget(patch: pytest.MonkeyPatch) -> None:
        ordered: Any = vars(tool_rules.ToolRules)["order_rules"].fget
        kept = property(lambda rules: tuple(rule for rule in ordered(rules) if not isinstance(rule, kind)))
        patch.setattr(tool_rules.ToolRules, "order_rules", kept)

    return forget


def _never_filled(patch: pytest.MonkeyPatch) -> None:
    """The model's own arguments stay."""
    for place in (answers, tool_calls):
        patch.setattr(place, "prefill", lambda arguments, filled: arguments)


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "nothing is refused": lambda patch: patch.setattr(judging.RuleState, "violation", lambda *_: None),
    "judged once for all": _judge_once,
    "one too many": _count_wrongly,
    "refused calls count": _count_refused,
    "rules don't end a run": lambda patch: patch.setattr(next_action, "_rule_action", lambda *_: None),
    "arguments are the model's": _never_filled,
    **{
        f"no {kind.type}": _without(kind)
        for kind in (
            tool_rules.RunFirst,
            tool_rules.ExitLoop,
            tool_rules.Conditional,
            tool_rules.ChildTools,
            tool_rules.ParentTool,
            tool_rules.MaxCount,
            tool_rules.RequiredBeforeExit,
        )
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_checker_finds_an_engine_that_does_not_keep_rules(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these defects is found among the first few hundred sets."""
    DEFECTS[defect](monkeypatch)

    _, _, found = asyncio.run(violations(range(400), enough=1))

    assert found
