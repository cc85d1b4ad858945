"""Tasks: the Lightning modules that train, validate and predict."""
