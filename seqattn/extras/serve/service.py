"""What the endpoints ask for: jobs for the model thread, awaited while the client waits."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.data.reading import question_source
from seqattn.errors import UserError
from seqattn.extras.report.document_types import SentenceDocument
from seqattn.extras.serve.answers import Spans, explained, pairs_of, reads_questions, source_of
from seqattn.extras.serve.figures import Figures
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import Alone, Job, ModelThread
from seqattn.extras.serve.page_documents import Sentences
from seqattn.extras.serve.schemas import (
    Answer,
    AnswerRequest,
    AnswerResponse,
    Answers,
    ExplainRequest,
    ExplainResponse,
    Generated,
    GenerateRequest,
    GenerateResponse,
    SentenceRequest,
)
from seqattn.extras.serve.streams import EventStream, streamed
from seqattn.extras.serve.text_lines import joined
from seqattn.extras.serve.texts import Texts


class Service:
    """A bundle at work for many clients.

    Args:
        bundle: fixed while it works.
        limits: what it takes.
    """

    def __init__(self, bundle: TextBundle | SpanBundle, limits: Limits) -> None:
        self.bundle = bundle
        self.figures = Figures(lambda: len(self.thread))
        self.asks = reads_questions(bundle)
        self.limits = limits
        self.reader: Texts | Spans
        if isinstance(bundle, SpanBundle):
            self.reader = Spans(bundle, limits, self.figures)
        else:
            self.reader = Texts(bundle, limits, self.figures)
        self.sentences = Sentences(self.reader, self.asks)
        self.thread = ModelThread(self.reader.search, limits, self.figures.batch)

    def writer(self, asks: bool) -> Texts:
        """What makes outputs, of questions or of texts.

        Raises:
            UserError: for a bundle of the other kind.
        """
        if self.asks != asks:
            kind = "questions; ask /v1/answer" if self.asks else "texts; ask /v1/generate"
            raise UserError(f"this bundle takes {kind}")
        if isinstance(self.reader, Spans):
            raise UserError("this bundle answers by spans and writes nothing; ask /v1/answer")
        return self.reader

    async def generate(self, asked: GenerateRequest, request: Request) -> GenerateResponse:
        """Outputs for texts."""
        results = await self._outputs(self.writer(asks=False), asked, request)
        return GenerateResponse(results=results)

    async def answer(self, asked: AnswerRequest, request: Request) -> AnswerResponse:
        """Answers to questions."""
        if isinstance(self.reader, Spans):
            jobs = await run_in_threadpool(self.reader.jobs, asked)
            found = await self._done(jobs, request)
            return AnswerResponse(results=list(map(self.reader.told, jobs, found)))
        texts = self.writer(asks=True)
        sources = [question_source(*pair) for pair in pairs_of(asked, self.limits)]
        of_texts = GenerateRequest.model_construct(  # whose checks would make plain texts of them
            inputs=sources, generation=asked.generation, n_best=asked.n_best
        )
        return AnswerResponse(
            results=[
                Answers(answers=[Answer(text=one.text, score=one.score) for one in found.outputs])
                for found in await self._outputs(texts, of_texts, request)
            ]
        )

    async def explain(self, asked: ExplainRequest, request: Request) -> ExplainResponse:
        """Contributions to an output."""
        texts, source = self.writer(asks=self.asks), source_of(asked, self.asks)
        job = Alone(partial(explained, texts, asked, source))
        return (await self._done([job], request))[0]

    async def _outputs(
        self, texts: Texts, asked: GenerateRequest, request: Request
    ) -> list[Generated]:
        inputs, lines = await run_in_threadpool(texts.read, asked)
        jobs = texts.jobs(asked, inputs)
        found = await self._done(jobs, request)
        if not jobs or not isinstance(jobs[0], Alone):
            found = [texts.told(asked, one, h) for one, h in zip(inputs, found, strict=True)]
        return joined(lines, found)

    async def _done(self, jobs: Sequence[Job], request: Request) -> list[Any]:
        """What came of jobs, which end when the client leaves."""
        self.thread.submit(jobs)
        work: asyncio.Future[Any] = asyncio.gather(*(asyncio.wrap_future(job.done) for job in jobs))
        gone: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise HTTPException(499, "the client has gone")
            return await work
        finally:
            gone.cancel()
            work.add_done_callback(_noted)
            work.cancel()
            for job in jobs:
                job.leave()

    async def stream(self, asked: GenerateRequest) -> EventStream:
        """Server-sent events of a request that is queued when this returns."""
        texts = self.writer(asks=False)
        inputs, _ = await run_in_threadpool(texts.read, asked)
        return streamed(
            self.thread,
            partial(texts.stream, asked, inputs),
            partial(texts.event, inputs),
            lambda found: GenerateResponse(results=found).model_dump_json(exclude_none=True),
        )

    async def sentence(self, asked: SentenceRequest, request: Request) -> SentenceDocument:
        """What the page shows of a sentence."""
        one = await run_in_threadpool(self.sentences.read, asked)
        job = self.sentences.job(asked, one)
        return (await self._done([job], request))[0]

    async def sentence_stream(self, asked: SentenceRequest) -> EventStream:
        """Server-sent events of a sentence that is queued when this returns."""
        sentences = self.sentences
        one = await run_in_threadpool(sentences.read, asked)
        return streamed(
            self.thread,
            partial(sentences.job, asked, one),
            partial(sentences.event, one),
            lambda document: json.dumps(document, ensure_ascii=False, allow_nan=False),
        )


def _noted(work: asyncio.Future[Any]) -> None:
    """Looks at an error that nobody waits for, which asyncio would print."""
    if not work.cancelled():
        work.exception()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
