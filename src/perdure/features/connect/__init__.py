"""One command that gives a program, such as Claude Code, Perdure's memory; and the hooks that such programs run."""
