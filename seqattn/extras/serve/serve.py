"""HTTP server of a bundle, or of several."""

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import ByteSize, TypeAdapter, ValidationError

from seqattn.bundle.engine import PyTorch
from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.extras.serve.limits import Limits
from seqattn.installation import install
from seqattn.ops.memory import keep_freed_memory
from seqattn.subcommands.bundle_run import BundleRun


@dataclass(frozen=True, kw_only=True)
class Serving(BundleRun):
    """HTTP server that runs until it is stopped.

    Args:
        bundle, device: as `BundleRun`.
        bundles: instead of `bundle` a folder of bundles, or a list of them.
        memory: maximum size of the weights in memory, such as 4GB, for `bundles`.
        trust: as `BundleRun`; for several also lists by the names of bundles.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        hosts: host names of the server, besides `localhost` and IP addresses.
        cors: origins whose pages may send requests; `*` for all.
        languages: codes of source and target language, for LibreTranslate's clients; for several
            also by the names of bundles.
        limits: limits on its load.

    Raises:
        UserError: if there is not one of `bundle` and `bundles`, `languages` has a length other
            than 0 or 2, or an ensemble is given.
    """

    bundle: str | None = None  # type: ignore[assignment]
    bundles: str | Sequence[str] | None = None
    memory: str | int | None = None
    trust: Any = None
    host: str = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65_535)] = 8_000
    hosts: Sequence[str] = ()
    cors: Sequence[str] = ()
    languages: Any = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for key in ("trust", "languages"):
            value: Any = () if getattr(self, key) is None else getattr(self, key)
            object.__setattr__(self, key, value)
            by_name = isinstance(value, Mapping)
            if self.bundle and by_name:
                raise UserError(f"{key} by name needs bundles=DIR, not bundle")
            for one in value.values() if by_name else [value]:
                if not isinstance(one, list | tuple) or not all(isinstance(x, str) for x in one):
                    raise UserError(f"{key} must be a list of texts, got {shown(one)}")
                if key == "languages" and len(one) not in (0, 2):
                    came = ", ".join(one)
                    raise UserError(f"{key} must be a source and a target language, got [{came}]")
        if self.ensemble:
            raise UserError("serve takes one bundle; remove ensemble")
        if not self.bundle and not self.bundles:
            raise UserError("missing required key: bundle (add bundle=RUN/model, or bundles=DIR)")
        if self.bundle and (self.bundles or self.memory is not None):
            key = "bundles" if self.bundles else "memory"
            raise UserError(f"bundle and {key} are mutually exclusive; remove one")

    def run(self) -> None:
        """Serve requests until stopped.

        Raises:
            UserError: if the address or the bundle cannot be used, or a package is missing.
        """
        try:
            from seqattn.extras.serve.app import make_app
            from seqattn.extras.serve.http_server import address_of, bound, serve
            from seqattn.extras.serve.service import Service
        except ModuleNotFoundError as error:
            packages = ("fastapi", "starlette", "uvicorn", "prometheus_client", "python_multipart")
            if error.name not in packages:
                raise
            raise UserError(f"serve needs {error.name}; {install('serve')}") from error

        with bound(self.host, self.port) as on:
            service: Any = self._models() if self.bundles else Service(self.load(), self.limits)
            pair: Any = () if self.bundles else self.languages
            app = make_app(service, (*self.hosts, self.host), self.cors, pair)
            name = self.bundle or f"bundles={self.bundles}"
            message = f"serving {name} on {address_of(on)} (press Ctrl-C to stop)"
            print(message, file=sys.stderr, flush=True)
            serve(app, on, self.limits)

    def _models(self) -> Any:
        """Return the services of several bundles."""
        from seqattn.extras.serve.models import Model, Models, models_in

        paths, memory = models_in(self.bundles or ()), "4GB" if self.memory is None else self.memory
        lists: dict[str, Any] = {"trust": self.trust, "languages": self.languages}
        for key, value in lists.items():
            lists[key] = value if isinstance(value, Mapping) else dict.fromkeys(paths, value)
            for name in lists[key].keys() - paths.keys():
                raise UserError(f"{key} names {name}, but bundles has {', '.join(paths)}")
        try:
            size = TypeAdapter(ByteSize).validate_python(memory)
        except ValidationError:
            raise UserError(f"memory must be a size such as 4GB, got {memory}") from None
        values = [[value.get(name, ()) for value in lists.values()] for name in paths]
        models = [Model(name, path, *each) for (name, path), each in zip(paths.items(), values)]
        copies = 1 if isinstance(self.engine, PyTorch) else 2  # the engine's own
        keep_freed_memory()
        service = Models(models, self.limits, size, self.device, self.engine.attach, copies)
        gc.collect()
        gc.freeze()  # collections look at what comes later: requests and bundles
        return service
