"""Endpoints of LibreTranslate, such as `/translate`, for compatibility with its clients."""

import asyncio
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, UploadFile
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from seqattn.checking import shown
from seqattn.data.languages import language_name
from seqattn.extras.serve.files import FILE_RESPONSE, FileTranslator, model_in_form, name_of
from seqattn.extras.serve.files import Language as Code
from seqattn.extras.serve.language_pairs import Pairs
from seqattn.extras.serve.models import Models
from seqattn.extras.serve.schemas import GenerateRequest
from seqattn.extras.serve.service import Service


class Translated(BaseModel):
    """Translations: one for a text, a list for a list."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Any | None = Field(
        default=None, description="the source language, for source=auto"
    )


class Language(BaseModel):
    """Language, and the languages that it can be translated to."""

    code: str
    name: str
    targets: list[str]


def router(service: Service | Models, pairs: Pairs, translator: FileTranslator) -> APIRouter:
    """Build the endpoints. Args: pairs: languages of the models."""
    routes = APIRouter(tags=["LibreTranslate"])

    @routes.get("/languages")
    async def known() -> list[Language]:
        targets = dict[str, dict[str, None]]()
        for source, target in pairs().values():
            targets.setdefault(source, {})[target] = None
        codes = dict.fromkeys([*targets, *(code for each in targets.values() for code in each)])
        return [
            Language(code=code, name=language_name(code), targets=[*targets.get(code, ())])
            for code in codes
        ]

    @routes.post(
        "/translate",
        response_model_exclude_none=True,
        openapi_extra={"requestBody": _BODY},
    )
    async def translate(request: Request) -> Translated:
        pairs()
        values = await _values(request)
        texts: Any = values.get("q")
        several = isinstance(texts, list)
        if not all(isinstance(one, str) for one in (texts if several else [texts])):
            raise HTTPException(400, "q must be a text or a list of texts")
        name = service.named(values.get("model"))
        choice = await run_in_threadpool(pairs.choose, values, texts if several else [texts], name)
        form = values.get("format", "text")
        if form not in ("text", "html"):
            raise HTTPException(400, f"format must be text or html, got {shown(form)}")
        others = _count(values.get("alternatives") or 0)
        model = await service.select(choice.model, request)
        own = model.bundle.search()
        most = getattr(own, "beam_size", 100) if hasattr(own, "n_best") else 1
        count = min(others + 1, most)
        body = GenerateRequest.model_construct(inputs=texts, n_best=count, format=form)
        generate = model.writer(asks=False).generate
        results = (await model.respond(generate, body, request)).results
        best = [result.outputs[0].text for result in results]
        response = Translated(translatedText=best if several else best[0])
        if others:
            rest = [[one.text for one in result.outputs[1:]] for result in results]
            response.alternatives = rest if several else rest[0]
        if values.get("source") == "auto":
            confidence = round(100 * choice.probability)
            detected = {"confidence": confidence, "language": choice.source}
            response.detectedLanguage = [detected] * len(best) if several else detected
        return response

    @routes.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what LibreTranslate's page asks for."""
        sides = zip(("source", "target"), next(iter(pairs().values())), strict=True)
        return {
            "charLimit": service.limits.characters,
            "filesTranslation": bool(translator.formats),
            "supportedFilesFormat": [*translator.formats],
            "apiKeys": False,
            "keyRequired": False,
            "suggestions": False,
            "frontendTimeout": 500,
            "language": {side: {"code": code, "name": language_name(code)} for side, code in sides},
        }

    if not translator.formats:
        return routes
    files, limits = dict[str, Response](), service.limits

    @routes.post("/translate_file")
    async def translate_file(
        request: Request, file: UploadFile, source: Code = None, target: Code = None
    ) -> dict[str, str]:
        """Translate a file in its place, to be fetched from `translatedFileUrl`."""
        codes = {"source": source, "target": target}
        model = service.named(await model_in_form(request))
        if source not in (None, "auto") or len(pairs(model)) == 1:
            pairs.choose(codes, [], model)  # before the file is read

        async def choose(texts: Sequence[str]) -> Service:
            choice = await run_in_threadpool(pairs.choose, codes, texts, model)
            return await service.select(choice.model, request)

        response = await translator.translated(file, source, target, request, choose)
        name = secrets.token_urlsafe(16) + Path(name_of(file)).suffix
        files[name] = response
        asyncio.get_running_loop().call_later(limits.download_seconds, files.pop, name, None)
        while sum(_OVERHEAD + len(one.body) for one in files.values()) > limits.download_bytes:
            del files[next(iter(files))]
        url = request.url_for("download_file", name=name)
        if request.headers.get("x-forwarded-proto") == "https":
            url = url.replace(scheme="https")
        return {"translatedFileUrl": str(url)}

    @routes.get("/download_file/{name}", response_class=Response, responses=FILE_RESPONSE)
    async def download_file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file, or no longer; translate it again")
        return Response(files[name].body, headers=files[name].headers)

    return routes


_BODY = {
    "required": True,
    "content": {
        kind: {
            "schema": {
                "type": "object",
                "required": ["q", "source", "target"],
                "properties": {
                    "q": {"anyOf": [{"type": "string"}, {"type": "array"}]},
                    "source": {"type": "string"},
                    "target": {"type": "string"},
                    "format": {"type": "string", "enum": ["text", "html"]},
                    "alternatives": {"type": "integer"},
                    "api_key": {"type": "string"},
                },
            },
            "example": {"q": "He buys these books.", "source": "en", "target": "de"},
        }
        for kind in ("application/json", "application/x-www-form-urlencoded")
    },
}


_FIELDS = 1_000  # maximum fields of a form
_OVERHEAD = 100_000  # bytes that a stored file counts besides its own


def _count(value: Any) -> int:
    if not re.fullmatch(r"\d{1,2}", str(value)):
        raise HTTPException(
            400, f"alternatives must be an integer from 0 to 99, got {shown(value)}"
        )
    return int(value)


async def _values(request: Request) -> dict[str, Any]:
    """Return the keys of a request, from its query and its JSON or form body."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            values: Any = json.loads(body)
        elif kind == "multipart/form-data":
            raise HTTPException(400, "send JSON or application/x-www-form-urlencoded")
        else:
            values = _fields(body.decode())
        query = _fields(request.url.query)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"cannot parse the request: {error}") from error
    if not isinstance(values, dict):
        raise HTTPException(400, "the body must be an object with q, source and target")
    return {**query, **values}


def _fields(form: str) -> dict[str, Any]:
    """Parse a form; a repeated key gives a list."""
    fields = parse_qs(form, keep_blank_values=True, max_num_fields=_FIELDS)
    return {key: texts[0] if len(texts) == 1 else texts for key, texts in fields.items()}
