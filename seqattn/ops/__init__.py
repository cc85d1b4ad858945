"""Quick parts, each beside a plain twin that tests hold it to; skip them on a first reading."""
