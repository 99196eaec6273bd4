"""Searching what an agent remembers: the messages of its history and the passages of its archives.

Words find candidates in the database's index, vectors in a matrix; neighbours join them, and `search.ranking` puts all
in one order. What is found is the same for an agent's tools, a person and another program. `hits` says what a search
gives back; `messages` and `passages` are the units of work, and need numpy, so nothing here imports them.
"""
