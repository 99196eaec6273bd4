"""Secrets with plain calls; every method is the asynchronous one's of `library.secrets`."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.secrets import Secret
from perdure.library.portal import Portal
from perdure.library.secrets import AsyncSecrets

__all__ = ["Secrets"]


class Secrets:
    """The secrets of an agent or of the organisation; see `AsyncSecrets`."""

    def __init__(self, portal: Portal, inner: AsyncSecrets) -> None:
        self._portal, self._inner = portal, inner

    def set(self, name: str, value: str) -> Secret:
        """The secret, made or changed, encrypted."""
        return self._portal.run(self._inner.set(name, value))

    def list(self) -> Sequence[Secret]:
        """Sorted by name; the values stay encrypted."""
        return self._portal.run(self._inner.list())

    def delete(self, name: str) -> None:
        """Remove it."""
        self._portal.run(self._inner.delete(name))
