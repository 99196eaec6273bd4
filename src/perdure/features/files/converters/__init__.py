"""Uploaded files to text with lines: what kind a file is, what is refused, and the conversion itself.

Binary formats and HTML are read in a child process with limits on time and memory; see `child`.
"""
