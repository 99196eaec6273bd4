"""The benchmarks by their names."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.features.benchmarks.sets import dmr, locomo, longmemeval, niah
from perdure.features.benchmarks.sets.values import DataSet

DATA_SETS: Mapping[str, DataSet] = {
    "niah": niah.DATA_SET,
    "dmr": dmr.DATA_SET,
    "longmemeval": longmemeval.DATA_SET,
    "locomo": locomo.DATA_SET,
}
