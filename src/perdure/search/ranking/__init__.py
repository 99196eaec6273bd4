"""Ranking: rows found by words and by vectors, put in one order. Pure: values in, values out, no store, no clock.

`matching` counts the query's words in texts; `pool` holds the columns; `arms` scores one signal each; `fuse` adds them
up; `late` and `thin` finish the top; `weights` has every number. They need numpy, so nothing here imports them.
"""

from __future__ import annotations
