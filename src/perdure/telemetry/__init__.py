"""Who listens to what the program does: metrics for Prometheus, spans for OpenTelemetry."""
