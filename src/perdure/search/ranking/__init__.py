"""Ranking: rows found by words and by vectors, put in one order. Values in, values out, without a clock;
only `query`, `history` and `late` read the store.

`matching` counts the query's words in texts; `pool` holds the columns; `arms` scores one signal each; `fuse` adds them
up; `late` compares the words of the first rows; `weights` has every number. They need numpy, so nothing here imports
them.
"""
