"""The one exception that speaks to the user."""


class UserError(ValueError):
    """What the user can mend; the command line prints it as one line and exits 2."""
