"""Ids that lead to a run: what a run is asked and answers, and its steps, are found by them."""

from __future__ import annotations

from perdure.core.errors import NotFound
from perdure.core.ids import MessageId, OrgId, RunId, StepId, id_in_run
from perdure.core.messages import Draft, Message, Text
from perdure.core.runs import Recipe, Run, Step
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, UNTIL, Contract, raises

RECIPE = Recipe(prefix_seq=0, upto_message_seq=0, tail="", settings_revision=0, digest="", tokens=1)


def draft(id_: MessageId, text: str) -> Draft:
    return Draft(id=id_, role="user", parts=(Text(text),))


class MessageIdContract(Contract):
    async def test_what_a_run_made_is_found_by_its_ids(self) -> None:
        """Inputs, answers and steps of several runs of one agent, ended or not, beside messages with other ids."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def work(tx: Tx) -> tuple[Run, list[Message], Step]:
                opening = tx.conversations.get_state(agent.id, 0)
                run_id = RunId(self.ids.new("run"))
                inputs = [
                    draft(MessageId(id_in_run(run_id, "input", index, self.ids)), f"in {index} of {run_id}")
                    for index in range(2)
                ]
                run = tx.runs.add(
                    opening,
                    run_id,
                    drafts=inputs,
                    at=AT,
                    max_steps=50,
                    background=False,
                    running=True,
                    lease_owner="here",
                    lease_until=UNTIL,
                    waiting_input=None,
                )
                asked = tx.messages.append(run, inputs, [1, 1], at=AT, opening=opening)
                step = tx.steps.add(
                    run,
                    StepId(id_in_run(run_id, "step", 0, self.ids)),
                    index=0,
                    model="test/model",
                    recipe=RECIPE,
                    at=AT,
                )
                answer = draft(MessageId(id_in_run(run_id, "answer", 0, self.ids)), "out")
                answered = tx.messages.append(run, [answer], [1], at=AT, step_id=step.id)
                return run, [*asked, *answered], step

            def end(tx: Tx, run: Run) -> None:
                tx.runs.end(run, reason="end_turn", usage=run.usage, step_count=1, failure=None, at=AT)

            ended, before, first_step = await store.write(work)
            await store.write(end, ended)
            (other,) = await store.write(self.say, agent.id, "by another id")
            open_, after, last_step = await store.write(work)
            made = [*before, other, *after]
            for message in made:
                assert await store.read(lambda tx, id_=message.id: tx.messages.get(id_)) == message  # type: ignore[misc]
                place = await store.read(lambda tx, id_=message.id: tx.messages.place(id_))  # type: ignore[misc]
                assert place == (agent.id, message.seq)
            for step in (first_step, last_step):
                assert await store.read(lambda tx, id_=step.id: tx.steps.get(id_)) == step  # type: ignore[misc]
            absent = MessageId(id_in_run(open_.id, "input", 7, self.ids))
            ids = [message.id for message in made]
            assert await store.read(lambda tx: tx.messages.find_existing([*ids, absent])) == set(ids)

    async def test_ids_are_found_by_their_beginnings(self) -> None:
        """Of runs, passages and blocks; `_` stands for any character, and other organisations see none."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            block = await store.write(self.add_block, "human", "Ada")
            for start, found in (
                (run.id, [run.id]),
                (run.id[:-4], [run.id]),
                (f"run-___{run.id[7:]}", [run.id]),
                (block.id[:-1], [block.id]),
                ("run-ffff", []),
            ):
                assert list(await store.read(lambda tx, start=start: tx.id_starts.list(start, limit=9))) == found  # type: ignore[misc]
            assert await other.read(lambda tx: tx.id_starts.list("run-", limit=9)) == []
            assert len(await store.read(lambda tx: tx.id_starts.list("", limit=2))) == 2

    async def test_an_id_that_leads_to_a_run_needs_the_message_itself(self) -> None:
        """One that no message or step has is not found, though there is such a run; nor is another organisation's."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            agent = await store.write(self.add_agent)
            run = await store.write(self.add_run, agent.id)
            there = MessageId(id_in_run(run.id, "input", 0, self.ids))
            await store.write(self.say, agent.id, draft(there, "hello"), run=run)
            assert await store.read(lambda tx: tx.messages.place(there)) == (agent.id, 0)
            with raises(NotFound):
                await other.read(lambda tx: tx.messages.place(there))
            assert await other.read(lambda tx: tx.messages.find_existing([there])) == set()
            for absent in (
                MessageId(id_in_run(run.id, "input", 1, self.ids)),
                MessageId(id_in_run(run.id, "answer", 0, self.ids)),
                MessageId(run.id),
            ):
                with raises(NotFound):
                    await store.read(lambda tx, id_=absent: tx.messages.get(id_))  # type: ignore[misc]
            for no_step in (StepId(id_in_run(run.id, "step", 0, self.ids)), StepId("step-1"), StepId("\ud800")):
                with raises(NotFound):
                    await store.read(lambda tx, id_=no_step: tx.steps.get(id_))  # type: ignore[misc]

    async def test_input_that_waited_is_found_by_its_id(self) -> None:
        """Behind the run before it, once it is in the log; also after it was taken out of view."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            first = await store.write(self.add_run, agent.id)
            await store.write(
                self.say, agent.id, draft(MessageId(id_in_run(first.id, "input", 0, self.ids)), "first"), run=first
            )
            second = await store.write(lambda tx: self.add_run(tx, agent.id, waiting_input="[]"))
            waited = MessageId(id_in_run(second.id, "input", 0, self.ids))
            with raises(NotFound):
                await store.read(lambda tx: tx.messages.place(waited))

            def begin(tx: Tx) -> Message:
                tx.runs.end(first, reason="end_turn", usage=first.usage, step_count=0, failure=None, at=AT)
                (message,) = self.say(tx, agent.id, draft(waited, "second"), run=second)
                tx.runs.begin_input(second.key, first_message_seq=message.seq)
                return message

            message = await store.write(begin)
            assert await store.read(lambda tx: tx.messages.get(waited)) == message
            assert (
                await store.read(lambda tx: tx.messages.get(MessageId(id_in_run(first.id, "input", 0, self.ids))))
            ).text == "first"
            await store.write(lambda tx: tx.messages.revise(waited, None, author=ADA, at=AT))
            assert await store.read(lambda tx: tx.messages.place(waited)) == (agent.id, message.seq)
            assert await store.read(lambda tx: tx.messages.find_existing([waited])) == {waited}
