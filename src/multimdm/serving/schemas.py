"""What requests say: OpenAI's fields, and all settings of `samplers.Sampling` (`order` is called `sampler` here)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from multimdm._field_texts import texts_below_fields
from multimdm._hints import hint
from multimdm.samplers.settings import Sampling, types_of_settings
from multimdm.serving.errors import ApiError

_WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
"""Fields of OpenAI's that say nothing about the text."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "best_of": (1,),
    "echo": (False,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Fields of OpenAI's that this server does not have, with the values at which that makes no difference."""


_THEIR_NAMES = {"order": "sampler"}
"""Settings that have another name in requests."""
_OUR_WORDS = {
    "max_new_tokens": "max_tokens",
    "new_tokens": "max_tokens",
    "gen_length": "max_tokens",
    "max_length": "max_tokens",
    "num_return_sequences": "n",
    "num": "n",
    "num_inference_steps": "steps",
    "num_steps": "steps",
    "order": "sampler",
    "input": "prompt",
    "text": "prompt",
}
"""Names that other interfaces, and our library, have for fields of this one."""
MOST_ALTERNATIVES = 20
"""Tokens that may be told beside each one that was chosen."""


def _unicode(text: str) -> str:
    """JSON can spell halves of characters, which no tokenizer and no answer can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("must be text; it holds half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(_unicode)]


def _alternatives(name: str, value: int) -> int:
    if not 0 <= value <= MOST_ALTERNATIVES:
        raise ApiError(400, f"{name} must be from 0 to {MOST_ALTERNATIVES}; got {value}", name)
    return value


class StreamOptions(BaseModel):
    """How a stream ends."""

    model_config = ConfigDict(strict=True)
    include_usage: bool | None = False


def _settings() -> dict[str, Any]:
    """The fields of `Sampling`, with what is written below each of them; null says nothing, like a missing field."""
    found = {}
    described = texts_below_fields(Sampling)
    for name, kind in types_of_settings().items():
        kind = int if name == "steps" else kind  # of which a server allows fewer (`plans.py`)
        field = Field(None, description=described[name].replace("--order", "sampler"))
        found[_THEIR_NAMES.get(name, name)] = (kind | None, field)
    return found


_STRICT = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Drawing(create_model("Settings", __config__=_STRICT, **_settings())):
    """How text is drawn."""

    model: Text | None = Field(None, description="One of /v1/models; the first unless given.")
    seed: int | None = Field(None, description="Equal seeds give equal texts, whatever else the server does.")

    @property
    def sampling(self) -> Sampling:
        """What the request says about how to sample."""
        given = {name: getattr(self, _THEIR_NAMES.get(name, name)) for name in types_of_settings()}
        return Sampling(**{name: value for name, value in given.items() if value is not None})

    def check_unknown(self) -> None:
        """Fields that are not ours: harmless ones pass, others are named."""
        for name, value in (self.model_extra or {}).items():
            if name in _WITHOUT_EFFECT or value is None:
                continue
            if name in _NEUTRAL:
                if not any(value == neutral and type(value) is type(neutral) for neutral in _NEUTRAL[name]):
                    raise ApiError(400, f"{name}: this server has no such thing; leave it out", name, "unsupported")
                continue
            if (word := _OUR_WORDS.get(name)) in type(self).model_fields:
                raise ApiError(400, f"{name}: there is no such field; here it is {word}", name, "unknown_field")
            near = hint(name, type(self).model_fields, "fields are")
            raise ApiError(400, f"{name}: there is no such field; {near}", name, "unknown_field")


class Answering(Drawing):
    """What completions of both kinds have."""

    max_tokens: int | None = Field(None, description="Tokens to make; all there is room for unless given.")
    n: int | None = Field(None, description="Answers to each prompt; 1 unless given.")
    stop: Text | list[Text] | None = Field(None, description="The text ends before the first of these; at most four.")
    stream: bool | None = Field(False, description="Send the text piece by piece, as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="Whether a stream ends with what it cost.")

    @property
    def wanted_tokens(self) -> tuple[str, int | None]:
        """The field that tells how many tokens to make, and what it says."""
        return "max_tokens", self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """How many alternatives are to be told with the log-probability of each token; None without it."""
        return None


class CompletionRequest(Answering):
    """POST /v1/completions."""

    prompt: Text | list[Text] | list[int] | list[list[int]] | None = Field(None, description="Text, ids, or several.")
    suffix: Text | None = Field(None, description="What comes after the answer: the middle is filled in.")
    logprobs: int | Literal[False] | None = Field(
        None,
        description="Tell the log-probability of every token in the call that decided it, and of so many others there.",
    )

    @property
    def wanted_logprobs(self) -> int | None:
        """A number, 0 included."""
        return None if self.logprobs is None or self.logprobs is False else _alternatives("logprobs", self.logprobs)


class Part(BaseModel):
    """A piece of a message."""

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """What someone said."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[Part]

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Answering):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(
        min_length=1,
        description="What was said so far; written by the tokenizer's chat template if it has one, else one below "
        "the other.",
    )
    max_completion_tokens: int | None = Field(None, description="The newer name of max_tokens.")
    logprobs: bool | None = Field(
        None, description="Tell the log-probability of every token, in the call that decided it."
    )
    top_logprobs: int | None = Field(None, description="And of so many others there; needs logprobs.")

    @property
    def wanted_tokens(self) -> tuple[str, int | None]:
        """The newer name counts if both are there."""
        if self.max_completion_tokens is None:
            return super().wanted_tokens
        return "max_completion_tokens", self.max_completion_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """A switch, and a number."""
        most = _alternatives("top_logprobs", self.top_logprobs or 0)
        if most and not self.logprobs:
            raise ApiError(400, f"top_logprobs needs logprobs true; got {most} without it", "top_logprobs")
        return most if self.logprobs else None


class TraceRequest(Drawing):
    """POST /v1/trace."""

    prompt: Text = Field("", description="Text to begin with; every [MASK] in it is one token to be made.")
    length: int | None = Field(
        None, description="Tokens in all. Unless given, a text with [MASK]s keeps its own and others get the longest."
    )
    candidates: int = Field(5, ge=0, le=10, description="Most probable tokens to tell for every open position.")
