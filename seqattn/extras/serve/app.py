"""HTTP endpoints."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, UploadFile
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)

import seqattn
from seqattn.errors import UserError
from seqattn.extras.report.single_file import page
from seqattn.extras.serve import models_api
from seqattn.extras.serve.docs_page import docs_page
from seqattn.extras.serve.files import FILE_RESPONSE, FileTranslator, Flag, Language, model_in_form
from seqattn.extras.serve.guard import Guard
from seqattn.extras.serve.language_pairs import Pairs
from seqattn.extras.serve.libretranslate import router
from seqattn.extras.serve.limits import TooMuch
from seqattn.extras.serve.models import Models
from seqattn.extras.serve.schemas import (
    AnswerRequest,
    AnswerResponse,
    ExplainRequest,
    ExplainResponse,
    GenerateRequest,
    GenerateResponse,
    Health,
    Problem,
    SentenceRequest,
    naming_model,
)
from seqattn.extras.serve.service import FAILED, Service
from seqattn.settings.nodes import nearest

_STATUSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": about}
    for status, about in {
        400: "invalid JSON, or unknown host name",
        403: "a page of another origin; see cors",
        408: "the request did not arrive in time",
        413: "the request is too large",
        422: "the request is invalid, with a one-line reason",
        503: "the queue is full; see Retry-After",
        504: "the request took too long",
    }.items()
}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'"
)
"""Content security policy: pages may request this server only."""
_HEADERS = {"Content-Security-Policy": _POLICY}
_TYPE = re.compile(r"(str|SearchSettings|list\[.*|constrained-.*|function-before.*)$")
"""Names that pydantic gives to the types of a union."""
_SUBJECT = re.compile(r"^(Input|String|List|Dictionary) | after validation")
_LINE = 1_000  # maximum characters of an error, which may quote what a client sent
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}


def make_app(
    service: Service | Models,
    hosts: Sequence[str] = (),
    cors: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> FastAPI:
    """Build the application.

    Args:
        service: service of the bundle, or of several, closed with the application.
        hosts: host names of the server, besides `localhost` and IP addresses.
        cors: origins whose pages may send requests, such as `https://example.org`; `*` for all.
        languages: codes of source and target language, for LibreTranslate's clients; those of
            several bundles are their own.
    """
    title = "seqattn" if isinstance(service, Models) else service.looks.name

    def languages_now() -> dict[str, Sequence[str]]:
        if isinstance(service, Models):
            models = sorted(service.models.values(), key=lambda model: bool(model.error))
            return {model.name: model.pair for model in models}  # those that work come first
        return {"": languages}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title=title,
        version=seqattn.__version__,
        summary=f"API of a trained encoder-decoder, served by seqattn {seqattn.__version__}",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        responses=_STATUSES,
    )
    pairs = Pairs(languages_now, service.limits.detection)
    translator = FileTranslator(service.limits, pairs)
    _add_endpoints(app, service)
    if isinstance(service, Models):
        app.include_router(models_api.router(service, pairs, _HEADERS))
    if translator.formats:

        @app.post("/v1/file", response_class=Response, responses=FILE_RESPONSE)
        async def file(
            request: Request,
            file: UploadFile,
            source: Language = None,
            target: Language = None,
            everything: Flag = False,
            skip_broken: Flag = False,
        ) -> Response:
            """Translate a file in its place; languages choose among those of XLIFF and TMX."""
            flags = {"everything": everything, "skip_broken": skip_broken}
            model = await model_in_form(request)
            (await service.select(model, request)).writer(asks=False)

            async def choose(texts: Sequence[str]) -> Service:
                return await service.select(model, request)

            return await translator.translated(file, source, target, request, choose, **flags)

    app.include_router(router(service, pairs, translator))
    _add_errors(app)
    paths = {getattr(route, "path", "") for route in app.routes} | set(app.openapi()["paths"])
    if cors:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(
        Guard,
        hosts=hosts,
        cors=cors,
        limits=service.limits,
        metrics=service.metrics,
        paths=paths,
        file_paths=paths & {"/v1/file", "/translate_file"},
    )
    return app


def _add_endpoints(app: FastAPI, service: Service | Models) -> None:
    async def service_for(body: Any, request: Request) -> Service:
        return await service.select(getattr(body, "model", None), request)

    @app.post("/v1/generate", response_model_exclude_none=True, responses=_EVENTS)
    @naming_model(isinstance(service, Models))
    async def generate(body: GenerateRequest, request: Request) -> GenerateResponse:
        """Generate outputs for one text or several."""
        model = await service_for(body, request)
        return await model.respond(model.writer(asks=False).generate, body, request)

    @app.post("/v1/answer", response_model_exclude_none=True)
    @naming_model(isinstance(service, Models))
    async def answer(body: AnswerRequest, request: Request) -> AnswerResponse:
        """Answer one question or several."""
        model = await service_for(body, request)
        return await model.respond(model.answerer.answer, body, request)

    @app.post("/v1/explain", response_model_exclude_none=True)
    @naming_model(isinstance(service, Models))
    async def explain(body: ExplainRequest, request: Request) -> ExplainResponse:
        """Explain which tokens determined an output."""
        model = await service_for(body, request)
        return await model.respond(model.looks.explain, body, request)

    @app.get("/v1/page")
    async def page_document(request: Request) -> Response:
        """Return the `PageDocument` of the bundle."""
        model = await service.select(request.query_params.get("model"), request)
        return JSONResponse(await run_in_threadpool(model.looks.page))

    @app.post("/v1/sentence", responses=_EVENTS)
    @naming_model(isinstance(service, Models))
    async def sentence(body: SentenceRequest, request: Request) -> Response:
        """Return a `seqattn.extras.report.document_types.SentenceDocument`, shown on the page."""
        model = await service_for(body, request)
        response = await model.respond(model.looks.sentence, body, request)
        return response if body.stream else JSONResponse(response)

    if isinstance(service, Service):

        @app.get("/health")
        async def health() -> Health:
            """Report that the server is alive."""
            gives: Any = service.bundle.output
            return Health(status="ok", gives=gives, waiting=len(service.thread))

        @app.get("/", include_in_schema=False)
        async def live_page() -> HTMLResponse:
            return HTMLResponse(page(title=service.looks.name), headers=_HEADERS)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counts and times in Prometheus's text format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers=_HEADERS)


def worded(errors: Sequence[Any]) -> tuple[int, str]:
    """Return status and one-line message for pydantic's errors; for a union, the closest match."""
    deepest = max(len(error["loc"]) for error in errors)
    closest = [error for error in errors if len(error["loc"]) == deepest]
    kind, place = closest[0]["type"], closest[0]["loc"]
    if kind == "json_invalid":
        return 400, f"the body is not valid JSON: {closest[0]['ctx']['error']}"
    if place == ("body",):  # no body, or one that is no object
        return 422, "the body must be a JSON object, sent with Content-Type: application/json"
    if place == ("body", "file") and kind != "extra_forbidden":
        return 422, "send a file as the field file of multipart/form-data"
    unknown = [error for error in closest if error["type"] == "extra_forbidden"]
    missing = [_key_of(error) for error in closest if error["type"] == "missing"]
    if unknown and missing and kind == "missing":
        key = _key_of(unknown[0])
        return 422, f"unknown key {key}{nearest(key, missing)}"
    key = _key_of(closest[0])
    if kind == "extra_forbidden":  # its value is the list of the keys that are known
        place, _, wrong = key.rpartition(".")
        return 422, f"unknown key {key}{nearest(wrong, closest[0]['input'], place)}"
    if any(error["type"] == "string_unicode" for error in closest):
        return 422, f"{key} contains an unpaired surrogate; send valid Unicode"
    same = (error["msg"] for error in closest if _key_of(error) == key)
    reasons = dict.fromkeys(_SUBJECT.sub("", reason) for reason in same)
    return 422, f"{key} {' or '.join(reasons)}"


def _key_of(error: Any) -> str:
    """Return the key of an error, without the union types between keys."""
    *parts, last = map(str, error["loc"][1:])
    keys = [part for part in parts if not _TYPE.match(part)]
    is_key = error["type"] == "extra_forbidden" or not _TYPE.match(last)
    return ".".join([*keys, last] if is_key else keys)


def _add_errors(app: FastAPI) -> None:
    """Return each error as one line of JSON."""

    def problem(status: int, line: str, headers: Any = None) -> JSONResponse:
        line = line.encode(errors="backslashreplace").decode()  # unpaired surrogates
        line = " ".join(line[: _LINE + 1].split())
        content = {"error": line if len(line) <= _LINE else f"{line[:_LINE]}..."}
        return JSONResponse(content, status_code=status, headers=headers)

    @app.exception_handler(UserError)
    async def user(request: Request, error: UserError) -> JSONResponse:
        return problem(413 if isinstance(error, TooMuch) else 422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem(*worded(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        line, status = error.detail, error.status_code
        if status in (404, 405) and line == HTTPStatus(status).phrase:
            line = f"{line}: {request.method} {request.url.path}"
        return problem(status, line, error.headers)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return problem(500, FAILED)
