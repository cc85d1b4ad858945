"""Endpoints of a server of several models: which there are, translations by languages, pages."""

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from seqattn.bundle.text_arguments import text_list
from seqattn.data.languages import language_name
from seqattn.extras.report.single_file import page
from seqattn.extras.serve.language_pairs import Pairs
from seqattn.extras.serve.models import Models
from seqattn.extras.serve.schemas import (
    GenerateRequest,
    SentenceRequest,
    TranslationRequest,
    TranslationResponse,
)

_LIST = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>models</title><style>'
    ":root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;margin:2rem}}"
    "</style></head><body><h1>models</h1><ul>{}</ul></body></html>\n"
)


def router(models: Models, pairs: Pairs, headers: Mapping[str, str]) -> APIRouter:
    """Build the endpoints. Args: headers: those of pages."""
    routes, by_name = APIRouter(), models.models

    @routes.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """List the bundles: `loaded` if in memory, `error` if one cannot be loaded."""
        data = [
            {"id": name, "object": "model", "loaded": model.service is not None}
            | {"languages": model.pair, "error": model.error or None}
            for name, model in by_name.items()
        ]
        return {"object": "list", "data": data}

    @routes.post("/v1/translations")
    async def translations(body: TranslationRequest, request: Request) -> TranslationResponse:
        """Translate a text, or several of one language."""
        texts, name = text_list(body.text), models.named(body.model)
        codes = {"source": body.source_language, "target": body.target_language}
        choice = await run_in_threadpool(pairs.choose, codes, texts, name)
        service = await models.select(choice.model, request)
        read, inputs = service.writer(asks=False).generate, GenerateRequest(inputs=[*texts])
        results = (await service.respond(read, inputs, request)).results
        outputs = [result.outputs[0].text for result in results]
        return TranslationResponse(
            model=choice.model,
            translated_text=outputs[0] if isinstance(body.text, str) else outputs,
            source_language=choice.source,
            target_language=choice.target,
        )

    @routes.get("/health")
    async def health() -> dict[str, Any]:
        """Report that the server is alive, with numbers of models and of waiting inputs."""
        loaded = sum(model.service is not None for model in by_name.values())
        counts = {"models": len(by_name), "loaded": loaded, "waiting": len(models.thread)}
        return {"status": "ok", **counts}

    @routes.get("/", include_in_schema=False)
    async def list_page(model: str | None = None) -> Response:
        if model is not None:
            return RedirectResponse(f"models/{quote(models.model(model).name)}/")
        lines = [
            f'<li><a href="models/{quote(name)}/">{escape(name)}</a> '
            f"{escape(' to '.join(map(language_name, model.pair)))}"
            for name, model in by_name.items()
        ]
        return HTMLResponse(_LIST.format("".join(lines)), headers=headers)

    # below a folder of each model, since the page requests documents beside itself
    @routes.get("/models/{model}/", include_in_schema=False)
    async def live_page(model: str) -> HTMLResponse:
        return HTMLResponse(page(title=models.model(model).name), headers=headers)

    @routes.get("/models/{model}/docs", include_in_schema=False)
    async def docs(model: str) -> Response:
        return RedirectResponse("../../docs")

    @routes.get("/models/{model}/v1/page", include_in_schema=False)
    async def page_document(model: str) -> Response:
        return RedirectResponse(f"../../../v1/page?model={quote(models.model(model).name)}")

    @routes.post("/models/{model}/v1/sentence", include_in_schema=False)
    async def sentence(model: str, body: SentenceRequest, request: Request) -> Response:
        service = await models.select(model, request)
        response = await service.respond(service.looks.sentence, body, request)
        return response if body.stream else JSONResponse(response)

    return routes
