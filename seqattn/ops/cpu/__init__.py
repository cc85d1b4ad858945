"""Fast versions for CPUs; `seqattn.ops` says when they are used."""
