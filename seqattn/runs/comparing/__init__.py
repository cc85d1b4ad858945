"""What `compare` is made of: which runs are compared, the verdicts, costs, tables and pages."""
