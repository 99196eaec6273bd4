"""Hooks from outside: functions of the program, entry points of packages, and commands of this machine's owner."""
