"""The sandbox: run foreign Python code, isolated by what Linux offers. `linux.LinuxSandbox` is the adapter."""
