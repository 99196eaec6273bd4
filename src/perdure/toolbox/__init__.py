"""Tools that run code or reach other systems: functions, the sandbox, web tools, and hook commands."""
