"""From figures at two sizes to what 10 million agents need. No I/O; `benchmarks.scale_simulation` measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

AGENTS = 10_000_000
GB = 1e9
LARGEST = 10
"""How many tables are shown one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What was measured at one size: bytes of tables with TOAST, bytes of indexes, times as (median, 95 %) in ms."""

    agents: int
    rows: Mapping[str, int]
    table_bytes: Mapping[str, int]
    index_bytes: Mapping[str, int]
    latency_ms: Mapping[str, tuple[float, float]]
    open_s: float
    messages_per_s: float
    statements_per_message: float
    commits_per_message: float
    database_cpu_ms: float
    """CPU time of all processes of the server, for a message and its answer."""
    client_cpu_ms: float
    wal_bytes_per_message: float
    fill_s: float

    @property
    def bytes_per_agent(self) -> float:
        return (sum(self.table_bytes.values()) + sum(self.index_bytes.values())) / self.agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What nobody measured: how the agents are used, how large a node is, and what it costs."""

    active_share: float = 0.1  # of all agents on one day
    messages_a_day: float = 20.0  # of an active agent
    peak: float = 3.0  # the busiest second beside the mean of the day
    node_cores: int = 16
    cpu_share: float = 0.6  # of a node's cores that the load may take
    node_gb: float = 2_000.0
    disk_share: float = 0.7  # of a node's disk that data may take
    core_month_usd: float = 25.0
    gb_month_usd: float = 0.10
    copies: int = 2  # of the data: the node and a standby
    vector_dimensions: int = 384  # of each message and passage, if they are embedded
    vector_extra_bytes: int = 90  # of a vector's row and its entries in indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a number of agents needs."""

    agents: int
    rows: float
    table_gb: float
    index_gb: float
    vector_gb: float
    messages_per_s: float
    statements_per_s: float
    statements_per_s_of_a_node: float
    nodes_for_cpu: int
    nodes_for_disk: int
    wal_mb_per_s: float
    engine_cores: float
    usd_per_month: float

    @property
    def nodes(self) -> int:
        return max(self.nodes_for_cpu, self.nodes_for_disk)

    @property
    def usd_per_agent_and_year(self) -> float:
        return 12 * self.usd_per_month / self.agents


def forecast(measure: Measure, assumed: Assumptions, agents: int = AGENTS) -> Forecast:
    """What so many agents need if each is as those that were measured: sizes grow with their number, CPU time of a
    message does not."""
    factor = agents / measure.agents
    table_gb = sum(measure.table_bytes.values()) * factor / GB
    index_gb = sum(measure.index_bytes.values()) * factor / GB
    embedded = (measure.rows.get("messages", 0) + measure.rows.get("passages", 0)) * factor
    vector_gb = embedded * (2 * assumed.vector_dimensions + assumed.vector_extra_bytes) / GB
    messages_per_s = agents * assumed.active_share * assumed.messages_a_day * assumed.peak / 86_400
    node_messages_per_s = assumed.node_cores * assumed.cpu_share * 1000 / measure.database_cpu_ms
    nodes_for_cpu = math.ceil(messages_per_s / node_messages_per_s)
    data_gb = table_gb + index_gb + vector_gb
    nodes_for_disk = math.ceil(data_gb / (assumed.node_gb * assumed.disk_share))
    nodes = max(nodes_for_cpu, nodes_for_disk)
    engine_cores = messages_per_s * measure.client_cpu_ms / 1000 / assumed.cpu_share
    cores = nodes * assumed.node_cores * assumed.copies + engine_cores
    return Forecast(
        agents=agents,
        rows=sum(measure.rows.values()) * factor,
        table_gb=table_gb,
        index_gb=index_gb,
        vector_gb=vector_gb,
        messages_per_s=messages_per_s,
        statements_per_s=messages_per_s * measure.statements_per_message,
        statements_per_s_of_a_node=node_messages_per_s * measure.statements_per_message,
        nodes_for_cpu=nodes_for_cpu,
        nodes_for_disk=nodes_for_disk,
        wal_mb_per_s=messages_per_s * measure.wal_bytes_per_message / 1e6,
        engine_cores=engine_cores,
        usd_per_month=cores * assumed.core_month_usd + data_gb * assumed.copies * assumed.gb_month_usd,
    )


def report(found: Sequence[Measure], assumed: Assumptions, agents: int = AGENTS) -> str:
    """Three tables of text: assumptions, what was measured beside what follows for `agents`, and what breaks first."""
    small, large = found[0], found[-1]
    then = forecast(large, assumed, agents)
    lines = ["## Assumptions", ""]
    lines += [f"{field.name:<22} {getattr(assumed, field.name):>10,}" for field in fields(assumed)]
    lines += ["", "## Measured, and what follows", ""]
    lines.append(f"{'':<34}{small.agents:>16,}{large.agents:>16,}{agents:>18,}  what it rests on")
    for name, one, other, far, why in _rows(small, large, then):
        lines.append(f"{name:<34}{one:>16}{other:>16}{far:>18}  {why}")
    lines += ["", "## What breaks first", ""]
    lines += [f"{number}. {text}" for number, text in enumerate(_limits(large, then, assumed), start=1)]
    return "\n".join(lines)


Line = tuple[str, str, str, str, str]
"""Name, the figure at each of the two sizes, the one that follows, and why."""


def _rows(small: Measure, large: Measure, then: Forecast) -> list[Line]:
    def line(name: str, figure: Callable[[Measure], str], far: str, why: str) -> Line:
        return name, figure(small), figure(large), far, why

    def data_gb(one: Measure) -> str:
        return f"{sum(one.table_bytes.values()) / GB:.2f} + {sum(one.index_bytes.values()) / GB:.2f}"

    flat, grows = "does not grow", "grows with the agents"
    return [
        line("rows", lambda one: f"{sum(one.rows.values()):,}", f"{then.rows:,.0f}", grows),
        line("tables + indexes, GB", data_gb, f"{then.table_gb:,.0f} + {then.index_gb:,.0f}", grows),
        ("vectors, GB", "-", "-", f"{then.vector_gb:,.0f}", "computed, if messages and passages are embedded"),
        line("bytes of an agent", lambda one: f"{one.bytes_per_agent:,.0f}", f"{large.bytes_per_agent:,.0f}", flat),
        line("messages of an agent", lambda one: f"{one.rows['messages'] / one.agents:.1f}", "the same", "assumed"),
        *_tables(small, large, then.agents / large.agents, grows),
        *_times(small, large),
        line("start of a process, s", lambda one: f"{one.open_s:.2f}", "as measured", "reads what has not ended"),
        line(
            "messages/s of one process",
            lambda one: f"{one.messages_per_s:.0f}",
            f"{then.messages_per_s:,.0f} needed",
            "assumed use at its peak",
        ),
        line(
            "statements of a message",
            lambda one: f"{one.statements_per_message:.0f}",
            f"{then.statements_per_s:,.0f}/s",
            "of all nodes together",
        ),
        line("commits of a message", lambda one: f"{one.commits_per_message:.1f}", "the same", "those of reads too"),
        line(
            "database CPU of a message, ms",
            lambda one: f"{one.database_cpu_ms:.2f}",
            f"{then.nodes_for_cpu} nodes",
            "for the CPU time",
        ),
        line(
            "engine CPU of a message, ms",
            lambda one: f"{one.client_cpu_ms:.2f}",
            f"{then.engine_cores:,.0f} cores",
            "of Perdure's processes",
        ),
        line(
            "WAL of a message, bytes",
            lambda one: f"{one.wal_bytes_per_message:,.0f}",
            f"{then.wal_mb_per_s:,.1f} MB/s",
            "of all nodes together",
        ),
        ("nodes", "1", "1", f"{then.nodes}", f"{then.nodes_for_disk} for the disk, {then.nodes_for_cpu} for the CPU"),
        ("statements/s that a node takes", "-", "-", f"{then.statements_per_s_of_a_node:,.0f}", "cores over CPU time"),
        (
            "USD of 1,000 agents and year",
            "-",
            "-",
            f"{1000 * then.usd_per_agent_and_year:.2f}",
            "database, standby, engine",
        ),
    ]


def _tables(small: Measure, large: Measure, factor: float, why: str) -> Iterator[Line]:
    """The largest tables."""
    for table in sorted(large.rows, key=lambda name: -(large.table_bytes[name] + large.index_bytes[name]))[:LARGEST]:
        one, other = [
            (measure.table_bytes.get(table, 0) / GB, measure.index_bytes.get(table, 0) / GB)
            for measure in (small, large)
        ]
        yield (
            f"  {table}, GB",
            f"{one[0]:.3f} + {one[1]:.3f}",
            f"{other[0]:.3f} + {other[1]:.3f}",
            f"{other[0] * factor:,.0f} + {other[1] * factor:,.0f}",
            why,
        )


def _times(small: Measure, large: Measure) -> Iterator[Line]:
    """How long the operations took."""
    for name, (median, most) in large.latency_ms.items():
        before = small.latency_ms[name]
        why = "one place of an index" if name == "list 50 agents" else "by the key of one agent"
        yield (
            f"  {name}, ms (95 %)",
            f"{before[0]:.1f} ({before[1]:.1f})",
            f"{median:.1f} ({most:.1f})",
            "as measured",
            why,
        )


def _limits(large: Measure, then: Forecast, assumed: Assumptions) -> list[str]:
    """What stops growing first, in its order."""
    one_node_agents = assumed.node_gb * assumed.disk_share * GB / large.bytes_per_agent
    one_node_messages = assumed.node_cores * assumed.cpu_share * 1000 / large.database_cpu_ms
    creations = 1000 / large.latency_ms["create an agent"][0]
    return [
        f"One process: {large.messages_per_s:.0f} messages a second here; more processes share the database.",
        f"CPU of one node: {one_node_messages:,.0f} messages a second, the peak of"
        f" {one_node_messages * 86_400 / (assumed.active_share * assumed.messages_a_day * assumed.peak):,.0f} agents.",
        f"Disk of one node: {one_node_agents:,.0f} agents without vectors; deletions and vacuum slow down before.",
        f"New agents: each counts up the one row of `counters`, about {creations:,.0f} a second one after the other;"
        f" {then.agents:,} take {then.agents / creations / 86_400:.1f} days.",
        "Lists of all agents, and the search for runs to take over, ask every node: their time is that of the slowest.",
    ]
