"""HTTP server of a bundle."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

from seqattn.errors import UserError
from seqattn.extras.serve.limits import Limits
from seqattn.installation import install
from seqattn.subcommands.bundle_run import BundleRun


@dataclass(frozen=True, kw_only=True)
class Serving(BundleRun):
    """HTTP server that runs until it is stopped.

    Args:
        bundle, device, trust: as `BundleRun`.
        host: address to listen on.
        port: port to listen on; 0 for any free one.
        hosts: host names of the server, besides `localhost` and IP addresses.
        cors: origins whose pages may send requests; `*` for all.
        languages: codes of source and target language, for LibreTranslate's clients.
        limits: limits on its load.

    Raises:
        UserError: if `languages` has a length other than 0 or 2, or an ensemble is given.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65_535)] = 8_000
    hosts: Sequence[str] = ()
    cors: Sequence[str] = ()
    languages: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if len(self.languages) not in (0, 2):
            came = ", ".join(self.languages)
            raise UserError(f"languages must be a source and a target language, got [{came}]")
        if self.ensemble:
            raise UserError("serve takes one bundle; remove ensemble")

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
            service = Service(self.load(), self.limits)
            app = make_app(service, (*self.hosts, self.host), self.cors, self.languages)
            message = f"serving {self.bundle} on {address_of(on)} (press Ctrl-C to stop)"
            print(message, file=sys.stderr, flush=True)
            serve(app, on, self.limits)
