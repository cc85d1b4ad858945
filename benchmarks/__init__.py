"""Programs that measure and check, and are not installed."""
