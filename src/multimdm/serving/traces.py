"""POST /v1/trace: every denoising step of a request, as token states."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import torch
from fastapi import APIRouter, Response
from torch import Tensor

from multimdm.pipeline.generation import decode
from multimdm.process import MultiMask
from multimdm.samplers.joint import Top
from multimdm.samplers.trace import CLEAN, DESIGNATED, OTHER, Trace
from multimdm.serving.catalog import ServedModel
from multimdm.serving.events import event, failure, stream
from multimdm.serving.plans import plan_trace
from multimdm.serving.schemas import TraceRequest
from multimdm.serving.service import Service
from multimdm.serving.tickets import Failed, Finished, Stepped, Ticket

_KINDS = {CLEAN: "clean", DESIGNATED: "designated", OTHER: "other"}


def trace_routes(service: Service) -> APIRouter:
    """The route of traces."""
    routes = APIRouter()

    @routes.post("/v1/trace")
    async def trace(body: TraceRequest) -> Response:
        """Events `start`, `step` (K at most) and `done`; `error` if something broke on the way."""
        plan = await service.planned(plan_trace, body)
        ticket = service.submit(plan, watched=True, candidates=max(1, body.candidates))
        return stream(_events(ticket, body.candidates), over=partial(service.engine.cancel, ticket))

    return routes


async def _events(ticket: Ticket, shown: int) -> AsyncIterator[str]:
    served, slot = ticket.plan.served, ticket.plan.slots[0]
    given = [token is not None for token in slot.ids]
    states: list[Tensor] = []
    times: list[float] = []
    async with aclosing(ticket.events()) as events:
        yield event({**_start(ticket), "given": given}, "start")
        async for happened in events:
            match happened:
                case Stepped(_, k, t, before, _, top):
                    assert top is not None
                    yield event({"step": k, "t": t, "tokens": _step_tokens(served, before, top, shown)}, "step")
                    states.append(before)
                    times.append(t)
                case Finished(_, ids, calls):
                    states.append(torch.tensor(ids))
                    times.append(0.0)
                    yield event({**_result(served, states, times, ids), **ticket.cost(calls)}, "done")
                case Failed(message):
                    yield failure(message, "error")


def _start(ticket: Ticket) -> dict[str, Any]:
    """How the text will be made, with what was advised or usual where the request said nothing."""
    plan, sampling = ticket.plan, ticket.plan.sampling
    return {
        "model": plan.served.name,
        "length": len(plan.slots[0].ids),
        "steps": sampling.num_steps,
        "sampler": sampling.order,
        "temperature": sampling.temperature,
        "seed": plan.seed,
        "num_masks": plan.served.process.num_masks,
    }


def _step_tokens(served: ServedModel, before: Tensor, top: Top, shown: int) -> list[dict[str, Any]]:
    """The states before a step, with what the network thought of the open positions.

    What a position will be is not known yet: a mask counts as designated if it is that of the most probable token.
    """
    guesses = iter(zip(top.ids.tolist(), top.probs.tolist(), strict=True))
    best = before.clamp_max(served.process.vocab_size - 1)
    best[top.positions] = top.ids[:, 0]
    kinds = _kinds(served, before, best)
    tokens = []
    for state, kind, asked in zip(before.tolist(), kinds, top.positions.tolist(), strict=True):
        token = {**_token(served, state), "kind": kind}
        if asked:
            ids, probs = next(guesses)
            token["confidence"] = round(probs[0], 4)
            pairs = list(zip(ids, probs, strict=True))[:shown]
            token["candidates"] = [[served.token_name(one), round(prob, 4)] for one, prob in pairs]
        tokens.append(token)
    return tokens


def _result(
    served: ServedModel, states: Sequence[Tensor], times: Sequence[float], ids: Sequence[int]
) -> dict[str, Any]:
    """The text, and the kinds of all states, now that the final tokens are known: Fig. 1 has these colours."""
    whole = Trace(torch.stack(list(states))[:, None], torch.tensor(times)[:, None])
    kinds = whole.kinds(served.process)[:, 0].tolist()
    return {
        "text": decode(served.tokenizer, torch.tensor([ids]))[0],
        "tokens": [{**_token(served, token), "kind": "clean"} for token in ids],
        "kinds": [[_KINDS[kind] for kind in row] for row in kinds],
    }


def _kinds(served: ServedModel, states: Tensor, final: Tensor) -> list[str]:
    both = Trace(torch.stack([states, final])[:, None], torch.zeros(2, 1))
    return [_KINDS[kind] for kind in both.kinds(served.process)[0, 0].tolist()]


def _token(served: ServedModel, state: int) -> dict[str, Any]:
    """A word, or the number of a mask."""
    V = served.process.vocab_size
    if state >= V and isinstance(served.process, MultiMask):
        return {"mask": state - V}
    word = {"text": served.token_name(state)}
    return {**word, "special": True} if state in served.specials else word
