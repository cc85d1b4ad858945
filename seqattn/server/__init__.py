"""A bundle behind HTTP: one model thread, requests that are searched together, JSON."""
