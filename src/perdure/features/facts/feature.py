"""What an agent knows as facts, with the times at which they were true, and where they come from."""

from __future__ import annotations

from perdure.core.features import Feature

FEATURE = Feature(name="facts", copies="copies:FACTS", points={"turns_read": "copies:count_turns_read"})
