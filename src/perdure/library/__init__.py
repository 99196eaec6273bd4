"""The library face: open a store, make agents, talk to them, look into their memory.

`AsyncPerdure` does the work; `Perdure` is the same with plain calls, by one event loop in one thread; `sync` is
generated from the asynchronous classes.
"""
