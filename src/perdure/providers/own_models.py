"""The port of models that this process serves itself, as the registry sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.core.models import ModelTraits
from perdure.providers.choosing import Choice
from perdure.providers.discovery import Endpoint


class OwnModels(Protocol):
    """Models that this process serves itself."""

    @property
    def endpoint(self) -> Endpoint:
        """The provider that they have; its guard takes requests to them."""

    def names(self) -> Sequence[str]:
        """Those that there are now. No network, and quick."""

    def choice(self) -> Choice | None:
        """The one to take by default: by a setting before all others, else before there is none."""

    def traits(self, name: str) -> ModelTraits:
        """What is known of one."""

    def what_helps(self, name: str) -> str:
        """Advice that makes one available."""
