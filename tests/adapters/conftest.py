"""Fixtures of the adapters' tests."""

from tests.adapters.packages import frameworks as frameworks
