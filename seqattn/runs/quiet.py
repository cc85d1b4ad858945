"""What Lightning prints and warns of that nobody here need act on."""

import logging
import warnings


def quieten() -> None:
    """Leaves out what libraries print that a person training a model need not act on."""
    import lightning  # noqa: F401  # it sets the levels of its loggers when it is imported

    for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for message in (
        ".*does not have many workers.*",
        ".*litlogger.*",
        ".*Starting from v1.9.0.*",
        ".*isinstance.treespec.*",
        ".*lr_scheduler.step.*",
        ".*You are trying to `self.log.*",
        ".*exists and is not empty.*",
        ".*smaller than the logging interval.*",
        ".*could not find the monitored key.*",  # before the first validation
    ):
        warnings.filterwarnings("ignore", message=message)
