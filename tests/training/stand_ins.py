"""Stand-ins for the trainer and the module of a run."""

from types import SimpleNamespace


class Module:
    """Stands for a LightningModule that keeps what it is told."""

    def __init__(self):
        self.logged = []

    def log(self, name, value, **options):
        self.logged.append({name: value})

    def log_dict(self, values, **options):
        self.logged.append(values)


def trainer(**attributes):
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.25}])
    return SimpleNamespace(
        **{
            "world_size": 1,
            "log_every_n_steps": 2,
            "optimizers": [optimizer],
            "sanity_checking": False,
            "is_global_zero": True,
            "fast_dev_run": False,
            "global_step": 12,
            "current_epoch": 2,
            "loggers": [],
            "state": SimpleNamespace(fn="fit"),
            "callback_metrics": {},
            "estimated_stepping_batches": 240,
            "max_steps": -1,
            "max_epochs": -1,
            "is_last_batch": False,
            "should_stop": False,
            "precision": "32-true",
            **attributes,
        }
    )
