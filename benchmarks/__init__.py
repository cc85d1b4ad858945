"""Programs that measure and check; not installed."""
