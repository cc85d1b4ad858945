"""Optional parts of the package, each a folder with its subcommands; any of them can be deleted.

An extra imports the core, and the extras that its `NEEDS` lists. The core imports none: it reaches
them by name, through the table of subcommands or a `_target_` in `conf/`.
"""
