"""From a request to work for the engine: ids, settings, seeds, all checked."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch

from multimdm.data.chat import chat_ids
from multimdm.pipeline.canvas import GAP, encode_gaps, start_ids
from multimdm.pipeline.generation import check_tokens
from multimdm.samplers.joint import Draft, begin, check_shared
from multimdm.samplers.settings import Sampling, types_of_settings
from multimdm.samplers.steps import AnyStep, step_of
from multimdm.serving.catalog import ServedModel
from multimdm.serving.errors import ApiError
from multimdm.serving.limits import Limits
from multimdm.serving.schemas import Answering, ChatRequest, CompletionRequest, Drawing, TraceRequest

_MOST_STOPS = 4


@dataclass(frozen=True)
class Slot:
    """A sequence before it is made: given ids, None where a token is to be made."""

    ids: tuple[int | None, ...]
    made: slice
    """The part that answers the request."""
    open_end: bool = True
    """Whether the text may end before the length does; not in front of a suffix."""


@dataclass(frozen=True)
class Plan:
    """All sequences of a request."""

    served: ServedModel
    slots: tuple[Slot, ...]
    sampling: Sampling
    seed: int
    n: int = 1
    """Answers to each prompt, one after the other in `slots`."""
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what the sequences cannot be made by, before they wait for their turn."""
        with _refusing():
            check_shared(self.step)
            for free in {tuple(token is None for token in slot.ids) for slot in self.slots}:
                self.step.check(self.served.process, torch.tensor([free]))

    @cached_property
    def step(self) -> AnyStep:
        """How the sequences are made."""
        return step_of(self.served.process, self.sampling)

    @property
    def settles(self) -> bool:
        """Whether a token that shows stays: not without masks, nor where all is rewritten."""
        return self.served.masked and not self.step.revises

    def drafts(self) -> list[Draft]:
        """The sequences at noise; equal ones, which differ in their streams only, together."""
        drafts: list[Draft] = []
        for slot, equal in groupby(self.slots):
            num = len(list(equal))
            given = torch.tensor([[token or 0 for token in slot.ids]], device=self.served.device).expand(num, -1)
            free = torch.tensor([[token is None for token in slot.ids]], device=self.served.device).expand(num, -1)
            drafts += begin(self.served.process, given, free, self.step, self.seed, len(drafts))
        return drafts


def plan_completion(request: CompletionRequest, served: ServedModel, limits: Limits) -> Plan:
    """Continuations of prompts, or what stands between a prompt and a suffix."""
    prompts = _prompts(request)
    n = _answers_each(request, limits, len(prompts))  # before the prompts are encoded: there may be very many
    ids = [_prompt_ids(served, prompt) for prompt in prompts]
    return _answers(request, served, limits, n, ids, _encode(served, request.suffix or "", "suffix"))


def plan_chat(request: ChatRequest, served: ServedModel, limits: Limits) -> Plan:
    """The conversation as the model was tuned on it."""
    return _answers(request, served, limits, _answers_each(request, limits, 1), [_conversation(request, served)])


def _conversation(request: ChatRequest, served: ServedModel) -> list[int]:
    """The prompt of a conversation, by the tokenizer's template.

    Without one the messages stand one below the other, as text to be continued: such a model knows no roles.
    """
    if served.tokenizer.chat_template is None:
        text = "\n\n".join(message.text for message in request.messages)
        return [*start_ids(served.tokenizer, served.bos), *_encode(served, text, "messages")]
    try:
        said = [{"role": message.role, "content": message.text} for message in request.messages]
        return chat_ids(served.tokenizer, said)
    except ValueError as error:
        raise ApiError(400, f"messages: {error}", "messages") from None


def plan_trace(request: TraceRequest, served: ServedModel, limits: Limits) -> Plan:
    """One sequence: the text, its gaps, and what comes after it."""
    request.check_unknown()
    sampling, longest = _sampling(request, served, limits), served.longest(limits)
    gaps = request.prompt.count(GAP)
    if gaps > longest:  # before the pieces between them are looked at, one by one
        raise ApiError(400, f"prompt must fit into the {longest} tokens of this model; it has {gaps} gaps", "prompt")
    try:
        text = encode_gaps(served.tokenizer, request.prompt) if gaps else _encode(served, request.prompt, "prompt")
    except ValueError as error:
        raise ApiError(400, f"prompt: {error}", "prompt") from None
    ids = [*start_ids(served.tokenizer, served.bos), *text]
    length = request.length if request.length is not None else len(ids) if gaps else longest
    _within("length", length, 1, longest)
    if len(ids) > length:
        raise ApiError(400, f"prompt must fit into the length of {length}; it has {len(ids)} tokens", "prompt")
    if len(ids) == length and not gaps:
        raise ApiError(400, f"length must leave room after the prompt's {len(ids)} tokens; got {length}", "length")
    slot = Slot((*ids, *[None] * (length - len(ids))), slice(0, length))
    return Plan(served, (slot,), sampling, _seed(request))


def _answers(
    request: Answering,
    served: ServedModel,
    limits: Limits,
    n: int,
    prompts: Sequence[Sequence[int]],
    suffix: Sequence[int] = (),
) -> Plan:
    """n answers to each prompt."""
    request.check_unknown()
    sampling, longest, slots = _sampling(request, served, limits), served.longest(limits), []
    for prompt in prompts:
        room = longest - len(prompt) - len(suffix)
        if room < 1:
            raise ApiError(
                400,
                f"prompt must leave room in the {longest} tokens of this model; "
                f"it has {len(prompt)} tokens{f', the suffix {len(suffix)}' if suffix else ''}",
                "prompt",
                "context_length_exceeded",
            )
        field, asked = request.wanted_tokens
        make = room if asked is None else asked
        _within(field, make, 1, room)
        made = slice(len(prompt), len(prompt) + make)
        slots += [Slot((*prompt, *[None] * make, *suffix), made, not suffix)] * n
    return Plan(served, tuple(slots), sampling, _seed(request), n, _stops(request))


def _answers_each(request: Answering, limits: Limits, prompts: int) -> int:
    """n, if that many for every prompt are not too many."""
    n = 1 if request.n is None else request.n
    _within("n", n, 1, limits.max_n)
    if n * prompts > limits.max_n:
        raise ApiError(400, f"n times the number of prompts must be at most {limits.max_n}; got {n * prompts}", "n")
    return n


def _sampling(request: Drawing, served: ServedModel, limits: Limits) -> Sampling:
    """What the request says, else what the model advises, else what is usual."""
    given = request.sampling
    if given.steps is not None:
        _within("steps", given.steps, 1, limits.max_steps)
    if isinstance(given.grid, tuple) and len(given.grid) - 1 > limits.max_steps:
        raise ApiError(400, f"grid must have at most {limits.max_steps + 1} times; got {len(given.grid)}", "grid")
    if given.order is not None and given.order not in served.samplers:
        why = "is not shown its noise" if served.masked else "has no masks"
        allowed = " or ".join(f"'{name}'" for name in served.samplers)
        raise ApiError(400, f"sampler must be {allowed} for {served.name}, which {why}", "sampler")
    with _refusing():
        check_tokens(served.process.vocab_size, given)
        return served.resolved(given, limits)


@contextmanager
def _refusing() -> Iterator[None]:
    """Settings that do not go together, or not with the model, are the client's mistake."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace("order=", "sampler=")
        name = text.split(" ", 1)[0]
        raise ApiError(400, text, name if name in types_of_settings() else None) from None


def _prompts(request: CompletionRequest) -> list[str | list[int]]:
    """One by one, as texts or as ids."""
    prompt = request.prompt if request.prompt is not None else ""
    if prompt == []:
        raise ApiError(400, "prompt must not be an empty list; leave it out for text from nothing", "prompt")
    if isinstance(prompt, str):
        return [prompt]
    ids = [token for token in prompt if isinstance(token, int)]
    return [ids] if ids else [one for one in prompt if not isinstance(one, int)]


def _prompt_ids(served: ServedModel, prompt: str | list[int]) -> list[int]:
    ids = _encode(served, prompt, "prompt") if isinstance(prompt, str) else prompt
    for token in ids:
        if not 0 <= token < served.tokenizer.vocab_size:
            raise ApiError(400, f"prompt: ids are 0 to {served.tokenizer.vocab_size - 1}; got {token}", "prompt")
    return [*start_ids(served.tokenizer, served.bos), *ids]


def _encode(served: ServedModel, text: str, param: str) -> list[int]:
    try:
        return served.tokenizer.encode_given(text)
    except ValueError as error:
        raise ApiError(400, f"{param}: {error}", param) from None


def _stops(request: Answering) -> tuple[str, ...]:
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stops) > _MOST_STOPS:
        raise ApiError(400, f"stop must hold at most {_MOST_STOPS} texts; got {len(stops)}", "stop")
    if "" in stops:
        raise ApiError(400, "stop must not be empty; leave it out", "stop")
    return tuple(stops)


def _seed(request: Drawing) -> int:
    """The request's own, or a random one."""
    if request.seed is None:
        return secrets.randbits(53)  # a number that every client can hold exactly
    _within("seed", request.seed, 0, 2**63 - 1)
    return request.seed


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ApiError(400, f"{name} must be from {least} to {most}; got {value}", name)
