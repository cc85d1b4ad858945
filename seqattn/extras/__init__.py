"""What can be deleted: a chapter each, with its verbs.

An extra imports the core, and the extras that its `NEEDS` lists. The core imports none: it reaches
them by name, through the table of verbs or a `_target_` in `conf/`.
"""
