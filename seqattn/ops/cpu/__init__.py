"""Quick versions for CPUs; `seqattn.ops` says when they serve."""
