"""Training: optimizers, schedules, checkpoints, callbacks and tasks."""
