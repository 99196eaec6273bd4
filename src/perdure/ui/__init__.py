"""The dashboard: pages over the library, which a browser shows.

`pages` has one module per page, `templates` their HTML, `static` the style, our scripts, and vendored ones.
"""
