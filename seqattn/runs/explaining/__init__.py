"""What `explain` and `heads` share: bundles and sentences that are looked into, and tables."""
