"""Speed beside that of what one would use instead, and scores that need no model."""
