"""POST /v1/completions and /v1/chat/completions, as OpenAI's clients expect them."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from multimdm.serving.events import DONE, event, failure, stream
from multimdm.serving.logprobs import Entry, Readings, as_chat, as_completion
from multimdm.serving.plans import Plan, plan_chat, plan_completion
from multimdm.serving.schemas import Answering, ChatRequest, CompletionRequest
from multimdm.serving.service import Service
from multimdm.serving.texts import Answer, Prefix, answer
from multimdm.serving.tickets import Failed, Finished, Stepped, Ticket


@dataclass(frozen=True)
class Format:
    """The fields of an answer, which the two kinds of completion name differently."""

    chat: bool
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, plan: Plan, choices: Sequence[dict[str, Any]], chunk: bool = False) -> dict[str, Any]:
        """The object of an answer or a chunk around its choices."""
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": plan.served.name,
            "choices": list(choices),
        }

    def choice(self, index: int, given: Answer, entries: Sequence[Entry] | None) -> dict[str, Any]:
        """The choice that holds a whole answer."""
        content = {"message": {"role": "assistant", "content": given.text}} if self.chat else {"text": given.text}
        return {"index": index, **content, "logprobs": self.logprobs(entries), "finish_reason": given.finish_reason}

    def delta(
        self,
        index: int,
        text: str,
        finish: str | None = None,
        first: bool = False,
        entries: Sequence[Entry] | None = None,
    ) -> dict[str, Any]:
        """The choice that holds a piece of an answer."""
        said = {"content": text} if text or not finish else {}
        content = {"delta": {**({"role": "assistant"} if first else {}), **said}} if self.chat else {"text": text}
        return {"index": index, **content, "logprobs": self.logprobs(entries), "finish_reason": finish}

    def logprobs(self, entries: Sequence[Entry] | None) -> dict[str, Any] | None:
        """The log-probabilities of the tokens of an answer or a piece, if they are wanted."""
        if entries is None:
            return None
        return as_chat(entries) if self.chat else as_completion(entries)


def completion_routes(service: Service) -> APIRouter:
    """The routes of both kinds of completion."""
    routes = APIRouter()

    @routes.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue a text, or fill in what stands before `suffix`."""
        plan = await service.planned(plan_completion, body)
        return await _respond(service, body, plan, request, Format(chat=False))

    @routes.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Continue what was said."""
        plan = await service.planned(plan_chat, body)
        return await _respond(service, body, plan, request, Format(chat=True))

    return routes


async def _respond(service: Service, body: Answering, plan: Plan, request: Request, form: Format) -> Response:
    wanted = body.wanted_logprobs
    readings = None if wanted is None else Readings(plan, wanted)
    candidates = 0 if wanted is None else max(1, wanted)
    if body.stream:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        ticket = service.submit(plan, watched=True, candidates=candidates)
        return stream(_chunks(ticket, form, usage, readings), over=partial(service.engine.cancel, ticket))
    ticket = service.submit(plan, watched=readings is not None, candidates=candidates)
    ends = await service.finished(ticket, request, None if readings is None else readings.add)
    answers = [answer(plan.served, plan.slots[end.index], end.ids, plan.stop) for end in ends]

    def entries() -> list[list[Entry] | None]:
        pairs = zip(ends, answers, strict=True)
        return [readings and readings.whole(end.index, end.ids, len(given.text)) for end, given in pairs]

    # In another thread: every token is decoded in its place.
    logprobs = await asyncio.to_thread(entries) if readings is not None else entries()
    choices = [form.choice(index, *pair) for index, pair in enumerate(zip(answers, logprobs, strict=True))]
    tokens = sum(given.tokens for given in answers)
    data = {**form.envelope(plan, choices), "usage": _usage(plan, tokens), "multimdm": _own(ticket, ends)}
    return JSONResponse(data)


async def _chunks(ticket: Ticket, form: Format, usage: bool, readings: Readings | None = None) -> AsyncIterator[str]:
    """Pieces of text as they are settled; of several answers, in turn."""
    plan, tokens, ends = ticket.plan, 0, []
    prefixes = [Prefix(plan.served, slot, plan.stop, plan.settles) for slot in plan.slots]
    sent = [0] * len(prefixes)
    """Tokens of each answer whose log-probabilities were sent."""

    def chunk(choice: dict[str, Any], **more: Any) -> str:
        return event({**form.envelope(plan, [choice], chunk=True), **more})

    def settled(index: int, ids: Sequence[int]) -> list[Entry] | None:
        """The log-probabilities of tokens whose text has gone out, as far as they were not sent."""
        if readings is None:
            return None
        new = range(sent[index], prefixes[index].covered)
        sent[index] = max(sent[index], new.stop)
        return readings.entries(index, ids, new)

    async with aclosing(ticket.events()) as events:
        if form.chat:
            for index in range(len(prefixes)):
                yield chunk(form.delta(index, "", first=True))
        async for happened in events:
            match happened:
                case Stepped():
                    index, ids = happened.index, happened.after.tolist()
                    if readings is not None:
                        readings.add(happened)
                    if text := prefixes[index].grow(ids):
                        yield chunk(form.delta(index, text, entries=settled(index, ids)))
                case Finished(index, ids, _):
                    ends.append(happened)
                    given = answer(plan.served, plan.slots[index], ids, plan.stop)
                    tokens += given.tokens
                    if text := prefixes[index].rest(given.text):
                        yield chunk(form.delta(index, text))
                    left = readings and readings.whole(index, ids, len(given.text), sent[index])
                    yield chunk(form.delta(index, "", given.finish_reason, entries=left))
                case Failed(message):
                    yield failure(message)
                    return
        if usage:
            last = {**form.envelope(plan, [], chunk=True), "usage": _usage(plan, tokens)}
            yield event({**last, "multimdm": _own(ticket, ends)})
        yield DONE


def _usage(plan: Plan, made: int) -> dict[str, int]:
    """Tokens of each prompt (and suffix) once, however many answers it has, and all that were made."""
    given = sum(token is not None for slot in plan.slots[:: plan.n] for token in slot.ids)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _own(ticket: Ticket, ends: Sequence[Finished]) -> dict[str, Any]:
    """What OpenAI's answers do not have."""
    return {"seed": ticket.plan.seed, **ticket.cost(max(end.calls for end in ends))}
