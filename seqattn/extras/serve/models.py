"""Several bundles: loaded when first requested, the least recently used ones evicted."""

import asyncio
import ctypes
import gc
import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

from safetensors import SafetensorError, safe_open
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import read_config
from seqattn.bundle.load import load_bundle
from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.extras.serve.examples import languages_of
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import Metrics
from seqattn.extras.serve.model_thread import ModelThread
from seqattn.extras.serve.service import Service
from seqattn.settings.documents import CONFIG, WEIGHTS, bundle_dir
from seqattn.storage import file_faults, is_file, user_path
from seqattn.subcommands.provenance import bundle_contents

Stamp = Sequence[tuple[str, int, int, int]]
"""Name, size, time and inode of each file; empty if there are none."""
_NAME = re.compile(r"(?!.*\.\.)\w[\w.+@-]{0,99}")
_AGAIN, _SETTLED = 10.0, 0.5  # seconds until unchanged files are tried again, or changing ones
_PAUSE = 0.02  # seconds until memory is looked at again


@dataclass(eq=False)
class Model:
    """Bundle that a server may load.

    Args:
        name: name in requests.
        path: path of the bundle.
        trust: packages besides seqattn that its parts may come from.
        languages: codes of source and target; empty for those of its configuration.
        service: its service while it is loaded.

    Attributes:
        pair: codes of source and target; empty if unknown.
        stamp: that of the files that were loaded last, or could not be.
        digests, size: contents and bytes of weights of the loaded bundle.
        users, last_use: number of requests that use it, and the order of the last one.
        retry_at: time at which unchanged files that could not be loaded are tried again.
        error: why it could not be loaded; "" if it could.
        loading: the load that requests wait for.
    """

    name: str
    path: str
    trust: Collection[str] = ()
    languages: Sequence[str] = ()
    service: Service | None = None
    pair: Sequence[str] = ()
    stamp: Stamp | None = None
    digests: Sequence[str] = ()
    size: int = 0
    users: int = 0
    last_use: int = 0
    retry_at: float = math.inf
    error: str = ""
    loading: "asyncio.Task[Service | None] | None" = None

    def leave(self) -> None:
        """Count a request that has ended."""
        self.users -= 1

    def stamp_now(self) -> Stamp:
        """Return the stamp of its files."""
        path = user_path(self.path)
        try:
            path = path / "model" if (path / "model" / CONFIG).is_file() else path
            files = [(file.name, file.stat()) for file in os.scandir(path) if file.is_file()]
        except OSError:
            return []
        stamp = ((name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in files)
        return sorted(one for one in stamp if one[0][0] != ".")

    def check(self, folder: Path) -> int:
        """Check configuration and weights as far as that is cheap; return the bytes to load.

        Raises:
            UserError: if the bundle in a folder cannot be loaded.
        """
        config = read_config(folder, self.trust)
        pair = self.languages or languages_of(config)
        self.pair = self.pair if self.service else pair  # until the new one can be loaded
        try:
            with safe_open(str(folder / WEIGHTS), framework="pt") as tensors:
                slices = [tensors.get_slice(name) for name in tensors.keys()]  # noqa: SIM118
                sizes = [(math.prod(one.get_shape()), one.get_dtype() == "I8") for one in slices]
                self.pair = pair
                return sum(number * (4 + is_int8) for number, is_int8 in sizes)  # int8: a copy
        except (SafetensorError, OSError) as error:
            reason = str(error).split("\n")[0]
            line = f"cannot read {folder / WEIGHTS} ({reason}); copy it again or retrain"
            raise UserError(line) from error


class Models:
    """Services of several bundles, one of which a request chooses.

    Weights in memory take at most `memory` bytes; a bundle counts until its weights are really
    freed. To load another, the least recently used ones are evicted, those that no request uses
    first; others take no more requests, and are evicted after their last. Changed files are loaded
    at the next request; if that fails, the bundle loaded before is used further.

    Args:
        models: the bundles.
        limits: limits on the load, those of the queue for each bundle.
        memory: maximum bytes of weights.
        device: device of all models.
        attach: prepares a loaded bundle, such as `Engine.attach`.
        copies: how many times an engine holds the weights.

    Raises:
        UserError: if a bundle needs more than `memory`.
    """

    def __init__(
        self,
        models: Sequence[Model],
        limits: Limits,
        memory: float = 4e9,
        device: str = "cpu",
        attach: Callable[[Bundle], Bundle] = lambda bundle: bundle,
        copies: int = 1,
    ) -> None:
        self.models = {model.name: model for model in models}
        self.limits, self.memory, self._device = limits, memory, device
        self._attach, self._copies = attach, copies
        self.thread = ModelThread(limits)
        self._alive, self._clock = WeakKeyDictionary[Any, int](), count()
        self._lock = asyncio.Lock()  # one load at a time
        queued = {name: partial(self._queued, model) for name, model in self.models.items()}
        self.metrics = Metrics(queues=queued, loaded=self._loaded_bytes)
        for model in models:
            model.pair = model.languages
            try:
                size = model.check(bundle_dir(model.path))
            except UserError as error:
                model.error = str(error).replace(str(user_path(model.path)), model.name)
                _tell(model, model.error)
            else:
                self._check_size(model, size)

    def close(self) -> None:
        """Stop once all waiting jobs are done."""
        self.thread.close()

    def model(self, name: Any) -> Model:
        """Return the model of a name; None for the only one.

        Raises:
            HTTPException: if there is none.
        """
        known = ", ".join(self.models)
        if name is None and len(self.models) > 1:
            raise HTTPException(422, f"missing required key: model; choose from {known}")
        if not isinstance(name, str | None) or name not in [None, *self.models]:
            raise HTTPException(404, f"unknown model {shown(name)}; choose from {known}")
        return self.models[name or next(iter(self.models))]

    def named(self, name: Any) -> str | None:
        """Return the name of the model that a request names, None for none. Raises: as `model`."""
        return None if name is None else self.model(name).name

    async def select(self, name: Any, request: Request) -> Service:
        """Return the service of the model that a request names, for the time of the request.

        Raises:
            HTTPException: if there is none, or it cannot be loaded, or not in time.
        """
        model, loop = self.model(name), asyncio.get_running_loop()
        request.scope["model"], began = model.name, loop.time()
        model.users, model.last_use = model.users + 1, next(self._clock)
        request.scope["at_end"].callback(model.leave)
        stamp = await run_in_threadpool(model.stamp_now)
        is_tried = model.stamp == stamp and loop.time() < model.retry_at
        if is_tried and (model.service or model.error):
            service = model.service
        else:
            model.loading = model.loading or asyncio.create_task(self._load(model))
            loading, seconds = model.loading, self.limits.timeout
            await asyncio.wait({loading}, timeout=seconds)
            if not loading.done():
                raise HTTPException(504, f"loading took longer than {seconds:g} seconds")
            service = loading.result()
        if service is None:
            raise HTTPException(503, f"model {model.name} cannot be loaded: {model.error}")
        request.scope["waited"] = loop.time() - began
        return service

    async def _load(self, model: Model) -> Service | None:
        """Load a bundle unless its files are those that are loaded.

        Returns:
            Its service; if that fails, the one loaded before or None.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.limits.timeout
        line, stamp = await self._tried(model)
        while line and not model.service and loop.time() < ends:
            await asyncio.sleep(_SETTLED)
            if stamp == await run_in_threadpool(model.stamp_now):
                break
            line, stamp = await self._tried(model)  # its files were being written
        if line and line != model.error:
            _tell(model, line + " (the one loaded before is used)" * bool(model.service))
        model.stamp, model.error, model.loading = stamp, line, None
        model.retry_at = loop.time() + _AGAIN if line else math.inf
        return model.service

    async def _tried(self, model: Model) -> tuple[str, Stamp]:
        """Load a bundle; return why it cannot be loaded, "" if it can, and its stamp."""
        line, folders = "", [str(user_path(model.path))]
        async with self._lock:
            stamp = await run_in_threadpool(model.stamp_now)
            try:
                with TemporaryDirectory(prefix="seqattn-") as folder:
                    folders.append(f"{folder}/model")
                    await self._load_copy(model, Path(folder) / "model", stamp)
            except Exception as error:  # of a damaged bundle, which must not end the others
                kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                line = f"{kind}{error}".split("\n")[0] or "unknown error"
            # also the file that weights were read from; before another load evicts this one
            await run_in_threadpool(_free)
        for path in folders:  # clients see no folder of the server
            line = line.replace(path, model.name)
        return line, stamp

    async def _load_copy(self, model: Model, folder: Path, stamp: Stamp) -> None:
        """Load a copy of a bundle: weights that are overwritten while they are read end a process.

        Raises:
            UserError: if it cannot be loaded.
        """
        original = await run_in_threadpool(bundle_dir, model.path)
        await run_in_threadpool(_copy, original, folder)
        size = self._copies * await run_in_threadpool(model.check, folder)
        digests = await run_in_threadpool(bundle_contents, folder)
        if stamp != await run_in_threadpool(model.stamp_now):
            raise UserError("its files are being written; try again later")
        if model.service and model.digests == digests:
            return
        self._check_size(model, size)
        await self._make_room(model, size)
        bundle = await run_in_threadpool(load_bundle, folder, self._device, model.trust)
        bundle.path = original
        bundle = await run_in_threadpool(self._attach, bundle)
        self._alive[bundle.model] = size
        metrics = self.metrics.by_model[model.name]
        model.service = Service(bundle, self.limits, metrics, self.thread)
        model.digests, model.size = digests, size
        self.metrics.loads.labels(model.name).inc()

    async def _make_room(self, model: Model, size: int) -> None:
        """Evict models until another has room, and wait until their last request has ended."""
        loaded = {one for one in self.models.values() if one.service}
        while sum(one.size for one in loaded) + size > self.memory:
            victim = min(loaded, key=lambda one: (one is model, one.users > 0, one.last_use))
            victim.service = None
            loaded.remove(victim)
        await run_in_threadpool(_free)
        while self._loaded_bytes() + size > self.memory:
            await asyncio.sleep(_PAUSE)
            await run_in_threadpool(_free)

    def _check_size(self, model: Model, size: int) -> None:
        if size > self.memory:
            raise UserError(
                f"the weights of {model.name} take {size / 1e6:,.0f} MB, more than "
                f"memory={self.memory / 1e6:,.0f}MB; raise it"
            )

    def _loaded_bytes(self) -> int:
        return sum(self._alive.values())

    def _queued(self, model: Model) -> int:
        return self.thread.waiting(model.service.reader) if model.service else 0


def _tell(model: Model, line: str) -> None:
    print(f"serve: model {model.name}: {line}", file=sys.stderr, flush=True)


def _copy(original: Path, folder: Path) -> None:
    """Copy the files of a bundle; none if it is not there."""
    with file_faults("copy", original):
        for file in original.iterdir() if original.is_dir() else ():
            if file.is_file():
                folder.mkdir(exist_ok=True)
                shutil.copyfile(file, folder / file.name)


def _free() -> None:
    """Free what nothing refers to, and return its memory to the system."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def models_in(paths: str | Sequence[str]) -> dict[str, str]:
    """Return the path of each bundle by name, which is that of its folder or of its run's.

    Args:
        paths: a folder with bundles and runs in it, or a list of bundles.

    Raises:
        UserError: if there is none, or two have the same name, or a name is not allowed.
    """
    if isinstance(paths, str):
        home = user_path(paths)
        with file_faults("read", home):
            folders = [home] if is_file(home / CONFIG) else sorted(home.iterdir())
        visible = [one for one in folders if one.name[0] != "." and one.suffix != ".ctranslate2"]
        bundles = [one for one in visible if _is_bundle(one)]
        if not bundles:
            raise UserError(f"bundles={paths} has no bundles in it; use their folder, or a list")
        if left_out := [one.name for one in visible if one not in bundles]:
            print(f"serve: not bundles, left out: {', '.join(left_out)}", file=sys.stderr)
        paths = [*map(str, bundles)]
    names = dict[str, str]()
    for path in paths:
        folder = Path(os.path.normpath(user_path(path).absolute()))
        name = folder.parent.name if folder.name == "model" else folder.name
        if not _NAME.fullmatch(name) or name in names:
            why = "is there twice" if name in names else "cannot be a model's name"
            raise UserError(f"{shown(name)} of bundles {why}; rename the folder")
        names[name] = path
    return names


def _is_bundle(folder: Path) -> bool:
    try:
        return is_file(folder / CONFIG) or is_file(folder / "model" / CONFIG)
    except UserError:  # it may not be read
        return False
