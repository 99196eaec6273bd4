"""Foreign Python code, held back by what Linux has for that. `linux.LinuxSandbox` is the adapter."""
