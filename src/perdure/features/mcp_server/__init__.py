"""Perdure's memory for any program that speaks the Model Context Protocol, over stdio and HTTP."""
