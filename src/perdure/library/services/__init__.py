"""The services: one class per noun, with everything that can be done to it.

Library, HTTP and CLI call them. A service owns its units of work, its paging and its checks; who calls it parses the
input and shapes the answer. What a method raises stands at the library's method that calls it.
"""
