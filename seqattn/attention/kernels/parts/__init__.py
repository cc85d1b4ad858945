"""Components shared by kernels."""
