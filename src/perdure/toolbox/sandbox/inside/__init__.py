"""What runs in the fork server and in its children: a package of its own, on the standard library alone.

The fork server is started with this package's parent folder on its path, not with Perdure: it has no settings, no keys,
no database, and its children, which run foreign code, are copies of it.
"""
