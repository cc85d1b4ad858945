"""What `search` is made of: the space, its trials, successive halving and the report."""
