"""The worker process: event loop, state store, metrics and process tuning."""
