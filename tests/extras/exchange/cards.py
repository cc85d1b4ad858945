"""Pages of exports."""

import re


def program(directory, text):
    """The program of the page, for a text."""
    page = (directory / "README.md").read_text(encoding="utf-8")
    code = re.search("```python\n(.*)```", page, re.DOTALL)[1]
    return code.replace('"DIR', f'"{directory}').replace('"TEXT"', repr(text))
