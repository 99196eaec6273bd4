"""Helpers: agents that work for another one, each on the model that fits it."""

from __future__ import annotations

from perdure.core.features import Feature

FEATURE = Feature(name="helpers", uses=("groups", "plugins"))
