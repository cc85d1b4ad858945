"""What kernels are made of, and share."""
