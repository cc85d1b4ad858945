"""Files of clients, translated in their place in batches, between which others have their turn."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from mimetypes import guess_type
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from urllib.parse import quote

import python_multipart
from fastapi import Form, UploadFile
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from seqattn.bundle.text_options import TextOption, node_of, options_of
from seqattn.errors import UserError
from seqattn.extras.serve.language_pairs import Pairs
from seqattn.extras.serve.limits import Limits, TooMuch
from seqattn.extras.serve.schemas import GenerateRequest
from seqattn.extras.serve.service import Service

# FastAPI reads forms by it; no warning for each request that is none
logging.getLogger(python_multipart.__name__).setLevel(logging.ERROR)

_BATCH, _PAUSE = 32, 0.5  # texts, and seconds before they are tried again if the queue is full
_KEY = re.compile(r"\bfiles\.(\w+?)(?:_language)?\b")
FILE_RESPONSE: Any = {200: {"content": {"application/octet-stream": {}}}}
"""Response of a file, for OpenAPI."""
Language = Annotated[str | None, Form(pattern=r"^[\w-]{1,100}$")]

Flag = Annotated[bool, Form()]
Choose = Callable[[Sequence[str]], Awaitable[Service]]
"""Function that returns the service to generate outputs of texts."""


class FileTranslator:
    """Translator of the files that an extra reads.

    Args:
        limits: limits of a request.
        pairs: languages of the models.
    """

    def __init__(self, limits: Limits, pairs: Pairs) -> None:
        self._limits, self._pairs = limits, pairs
        self._turn = asyncio.Lock()  # batches of one file at a time leave others room in the queue
        self._key, self._option = "", TextOption()
        for key, option in options_of({}, defaults=True).items():
            if option.formats and all(node_of(*one) for one in option.units_need.items()):
                self._key, self._option = key, option

    @property
    def formats(self) -> Sequence[str]:
        """Suffixes of the files; none if an extra is not installed."""
        return self._option.formats

    async def translated(
        self,
        file: UploadFile,
        source: str | None,
        target: str | None,
        request: Request,
        choose: Choose,
        **flags: bool,
    ) -> Response:
        """Return a file with translations in place of its texts.

        Args:
            file: the file; its name chooses how it is read.
            source, target: languages of the texts, where it has several; None for its own.
            request: the HTTP request, whose client may disconnect.
            choose: chooses the model by the texts of the file.
            flags: further settings of files, such as `skip_broken`.

        Raises:
            HTTPException: if the file cannot be read, or takes too long.
            UserError: if a text is too long, or the bundle takes questions.
        """
        name, suffix = name_of(file), Path(name_of(file)).suffix
        if suffix.lower() not in self.formats:
            kinds = ", ".join(self.formats)
            raise HTTPException(400, f"the name of a file must end in one of {kinds}, got {name}")
        codes = {"source_language": source, "target_language": target}
        settings: dict[str, Any] = {
            key: code for key, code in codes.items() if code not in (None, "auto")
        }
        settings |= {key: True for key, value in flags.items() if value}
        seconds = self._limits.file_seconds
        with TemporaryDirectory(prefix="seqattn-") as folder:
            path = Path(folder) / f"file{suffix.lower()}"
            await run_in_threadpool(path.write_bytes, await file.read())
            try:
                option = options_of({self._key: settings or self._option})[self._key]
                async with asyncio.timeout(seconds):
                    units = await run_in_threadpool(option.units, path)
                    texts = await self._outputs(choose, units, request)
                    content = await run_in_threadpool(lambda: b"".join(option.written(path, texts)))
            except TooMuch:
                raise
            except UserError as error:
                line = _KEY.sub(r"\1", str(error).replace(str(path), name))
                raise HTTPException(400, line) from error
            except TimeoutError:
                line = f"the file took longer than {seconds:g} seconds; split it"
                raise HTTPException(504, line) from None
            except asyncio.CancelledError:  # uvicorn waits no longer
                raise HTTPException(503, "the server is stopping") from None
        target_code = self._pairs.target(request.scope.get("model", ""))
        code = f".{target_code}" if target_code else ""
        return _file_response(f"{name.removesuffix(suffix)}{code}{suffix}", content)

    async def _outputs(self, choose: Choose, units: Sequence[str], request: Request) -> list[str]:
        """Return the outputs of texts, in smaller batches where one is too large.

        Between batches, the model may be evicted for another.
        """
        largest = size = min(_BATCH, self._limits.inputs)
        form = self._option.units_need.get("markup", "text")
        outputs = list[str]()

        async def results_of(body: GenerateRequest) -> Any:
            service = await choose(units)
            read = service.writer(asks=False).generate
            async with self._turn:
                return (await service.respond(read, body, request)).results

        while batch := [*units[len(outputs) : len(outputs) + size]]:
            body = GenerateRequest.model_construct(inputs=batch, format=form)
            try:
                results = await results_of(body)
            except (TooMuch, HTTPException) as error:
                is_full = "Retry-After" in (getattr(error, "headers", None) or ())
                if not is_full and (isinstance(error, HTTPException) or len(batch) == 1):
                    raise
                size = max(1, len(batch) // 2)
                await asyncio.sleep(_PAUSE if is_full else 0)
            else:
                outputs += [result.outputs[0].text for result in results]
                size = min(2 * size, largest)
        return outputs


async def model_in_form(request: Request) -> Any:
    """Return the name of a model in a form, if there is one."""
    return (await request.form()).get("model")


def name_of(file: UploadFile) -> str:
    """Return the name of a client's file, without folders and what cannot be seen."""
    last = re.split(r"[/\\]", file.filename or "")[-1]
    return "".join(filter(str.isprintable, last))[-100:]


def _file_response(name: str, content: bytes) -> Response:
    """Return a response that is saved as a file; a page in it never acts as one of ours."""
    quoted, suffix = quote(name), Path(name).suffix
    parameter = f'="{quoted}"' if quoted == name else f"*=utf-8''{quoted}"
    headers = {
        "Content-Disposition": f"attachment; filename{parameter}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Type": guess_type(f"file{suffix}")[0] or "application/octet-stream",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(content, headers=headers)
