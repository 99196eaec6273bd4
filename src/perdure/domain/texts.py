"""Texts that memories come from: what features do when one is changed or deleted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.core.features import Point
from perdure.storage.tx import Tx

TEXTS_DELETED: Point[[Tx, Sequence[str], datetime], None] = Point("texts_deleted")
"""Messages or passages are deleted, by their ids."""
TEXTS_CHANGED: Point[[Tx, Sequence[str], datetime], None] = Point("texts_changed")
"""Messages or passages say something else now, by their ids."""
