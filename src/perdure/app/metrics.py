"""Metrics for the server, which doesn't import adapters; apart, as importing them takes long."""

from perdure.telemetry.metrics import Metrics as Metrics
