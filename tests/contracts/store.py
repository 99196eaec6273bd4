"""What every store promises, as tests that any backend runs.

    class TestMyStore(StoreContract):
        async def open(self, *, org_id: OrgId = DEFAULT_ORG) -> Store:
            return await MyStore.open(self.place, at=START, org_id=org_id)

Plain classes and plain asserts: any runner that makes a new object per test and awaits coroutine tests will do. With
pytest, `pytest.register_assert_rewrite("perdure.testing")` makes a failing assert show its values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.contracts.base import Contract
from tests.support.features import missing

FOLDER = Path(__file__).parent


def contracts() -> Iterator[type[Contract]]:
    """The contract of each noun, but of those whose feature is not there."""
    for path in sorted(FOLDER.glob("*.py")):
        if path.name not in ("__init__.py", "base.py", "store.py") and not missing(path):
            module = importlib.import_module(f"tests.contracts.{path.stem}")
            for kind in vars(module).values():
                if isinstance(kind, type) and issubclass(kind, Contract) and kind.__module__ == module.__name__:
                    yield kind


if TYPE_CHECKING:

    class StoreContract(Contract):
        """All of it. Implement `open`."""

else:
    StoreContract = type("StoreContract", (*contracts(),), {"__doc__": "All of it. Implement `open`."})
