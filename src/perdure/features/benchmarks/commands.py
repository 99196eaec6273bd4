"""`perdure bench`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from perdure.cli.commands.run import Yes, argument, command, for_work, option

if for_work(__name__):
    from perdure.cli.session.agent_choice import shell_word
    from perdure.cli.session.work import confirm, progress_bar
    from perdure.cli.views.context import cost
    from perdure.cli.views.view import Output, plural
    from perdure.core.errors import InvalidInput
    from perdure.features.benchmarks.figures import build_result
    from perdure.features.benchmarks.opening import open_benchmark
    from perdure.features.benchmarks.page import write_page, write_result
    from perdure.features.benchmarks.sets.values import Setup
    from perdure.features.benchmarks.setups import make_setup
    from perdure.features.benchmarks.views import result_view
    from perdure.scratch import user_path


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How a benchmark is run."""

    data: Annotated[str | None, option("The data as published, or `sample`; of niah a text.", "PATH")] = None
    model: Annotated[str, option("The model that answers; without one only the search is measured.", "HANDLE")] = ""
    judge: Annotated[str, option("A model, exact or f1.", "HANDLE")] = ""
    baselines: Annotated[str, option("Of full, bm25, files and none, separated by commas; or all.", "NAMES")] = ""
    seeds: Annotated[int, option("How often everything is asked.", min=1, max=100)] = 2
    out: Annotated[Path | None, option("The folder for answers and results; by default bench/NAME.", "DIR")] = None
    kind: Annotated[str, option("Only questions of these kinds, separated by commas.", "KINDS")] = ""
    most: Annotated[int, option("At most so many questions of each history.", min=0)] = 0
    engine: Annotated[str, option("The context engine of the agent that answers.", "NAME")] = ""
    settings: Annotated[str, option("Settings of that agent, as a JSON object.", "JSON")] = ""
    facts: Annotated[bool, option("Let that model read facts from the histories first.")] = False
    line: Annotated[str, option("Ask in a `new` conversation, or in a `fork` of the history.", "WHERE")] = ""
    at_once: Annotated[int, option("How many histories are worked on at once.", min=1, max=100)] = 1
    lengths: Annotated[str, option("Of niah: tokens, separated by commas.", "NUMBERS")] = ""
    depths: Annotated[str, option("Of niah: percents, separated by commas.", "NUMBERS")] = ""


@command("bench")
async def bench(
    view: Output,
    name: Annotated[str, argument("niah, dmr, longmemeval or locomo; or page.", "NAME")],
    folder: Annotated[Path | None, argument("Of page: the folder with the results.", "DIR")] = None,
    *,
    options: BenchOptions,
    yes: Yes = False,
) -> None:
    """Measure what agents remember, by published benchmarks.

    It says what is to be asked and what that costs, and asks. If it is stopped, the same command goes on, and asks
    nothing twice. `perdure bench page DIR` writes the results as a page.
    """
    if name == "page":
        if folder is None:
            raise InvalidInput("give the folder with the results: `perdure bench page DIR`")
        page = write_page(user_path(folder))
        view.show({"page": str(page)}, f"The results are in {page}")
        return
    if folder is not None:
        raise InvalidInput(f"{folder} is one argument too many: the folder of a run is given by --out")
    setup = make_setup(name, **asdict(options))
    view.show_status("reading…")
    await _run(view, setup, yes=yes)


async def _run(view: Output, setup: Setup, *, yes: bool) -> None:
    """Run a benchmark, and show and write its result."""
    async with open_benchmark(setup) as benchmark:
        view.clear_status()
        if setup.model:
            estimate = benchmark.estimate()
            if estimate.questions:
                price = "its price is not known" if estimate.price is None else f"about {cost(estimate.price)}"
                models = " and ".join(dict.fromkeys([setup.model, *([setup.judge] if "/" in setup.judge else [])]))
                tokens = f"about {estimate.input_tokens:,} tokens in and {estimate.output_tokens:,} out"
                view.print(f"{plural(estimate.questions, 'question')} for {models}, {tokens}: {price}.")
                confirm(view, "Ask?", action="ask them", yes=yes)
        try:
            with progress_bar() as progress:
                await (benchmark.run if setup.model else benchmark.search)(progress)
        finally:
            result = build_result(benchmark)
            write_result(setup.out, result)
    view.show(result, *result_view(result))
    view.hint(f"`perdure bench page {shell_word(str(setup.out))}` writes the page; the store is in its folder home.")
