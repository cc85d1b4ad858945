"""Programs that measure and check; not installed with the package."""
