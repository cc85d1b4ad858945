"""A use case each, such as to train, to evaluate or to explain."""
