"""What a model was shown, and whether it is still so when its answer comes.

A model is asked between two transactions, and may take minutes. Meanwhile people edit, forget and erase what it reads,
or forbid what it does. So the transaction that stores an answer first reads again all that was shown, and stores
nothing if any of it has changed: then the model is asked again about what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.storage.tx import Tx

AGAIN_MAX = 5
"""How often a model is asked again, because what it was shown has changed, before that is left for later."""


class ModelInputChanged(Exception):
    """Nothing was stored: what the model is to read is no longer so."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What a model is shown.

    Attributes:
        value: all of it that matters for the answer.
        again: locks what it reads, and returns it as it is now. Raises: NotFound: it is gone.
    """

    value: object
    again: Callable[[Tx], object]

    def holds(self, tx: Tx) -> bool:
        """Return whether all of it is still so, and keep it so until the transaction ends. Raises: NotFound."""
        return self.again(tx) == self.value

    def check(self, tx: Tx) -> None:
        """Raise ModelInputChanged if the input has changed since it was read, and NotFound if it was deleted."""
        if not self.holds(tx):
            raise ModelInputChanged


NOTHING = ModelInput((), lambda tx: ())
"""The reading of who reads nothing that may change."""
