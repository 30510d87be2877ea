"""A model of ours as lm-evaluation-harness sees it."""

from bisect import bisect_left
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from tqdm import tqdm

from multimdm._checks import check_integer, require
from multimdm._hints import hint
from multimdm.data.chat import render
from multimdm.evaluation.likelihood import Bound, log_likelihood_bound
from multimdm.models.arithmetic import Precision
from multimdm.pipeline import Model, Run, load
from multimdm.pipeline.answers import Answering, answer
from multimdm.pipeline.generation import answers_of, length_of, tokenizer_of
from multimdm.pipeline.ranks import current, shared, speaks
from multimdm.process import Process
from multimdm.process.places import home_of

NAME = "multimdm"
_USUAL_LENGTH = 256
_ANSWERING = {field.name for field in fields(Answering)}
_OWN = ("checkpoint", "base", "draws", "greedy", "bos", "seed", "batch_size", "device", "precision")


class _Made(NamedTuple):
    """The answers of a batch, and what they cost."""

    texts: list[str]
    tokens: int
    """How many tokens the texts have, without what follows them."""
    calls: int
    gen_length: int


class MultiMDM(LM):
    """Any diffusion checkpoint of ours, with LLaDA's settings of generation.

    Ranks that share their work (`pipeline/ranks.py`) share it here; to the harness each looks like the only one.
    """

    def __init__(
        self,
        checkpoint: str | Model,
        base: str | None = None,
        draws: int = 128,
        greedy: bool = False,
        bos: bool = False,
        seed: int = 0,
        batch_size: int | str | None = 1,
        device: str | None = None,
        precision: Precision = "auto",
        max_batch_size: Any = None,
        **generation: Any,
    ) -> None:
        """`generation` are the fields of `multimdm.pipeline.answers.Answering`: gen_length, steps, tps, ...

        Without gen_length the task's own max_gen_toks is taken; what else a task says of generation, but for its stop
        words, is left unread. `draws` is the number of noised versions by which a
        log-likelihood is estimated; `greedy` also finds out whether a continuation is what the model would say, at one
        network call per token. The harness's own program gives no `device` unless it is told one: then it is a GPU, if
        there is one. `bos` puts the tokenizer's BOS before every prompt. `max_batch_size` is not used.
        """
        super().__init__()
        _check_names(generation)
        self._length_given = "gen_length" in generation
        self.answering = Answering(**{"gen_length": _USUAL_LENGTH, **generation})
        if self._length_given:
            self.answering.check()
        else:
            self.answering.check_values()
        check_integer("draws", draws, 1)
        self.batch_size = 1 if batch_size in (None, "auto") else check_integer("batch_size", int(batch_size or 1), 1)
        self.draws, self.greedy, self.seed = draws, bool(greedy), check_integer("seed", seed, 0)
        loaded = checkpoint if isinstance(checkpoint, Model) else load(checkpoint, device or "auto", precision, base)
        require(
            isinstance(loaded.process, Process),
            f"{checkpoint} must be a model of discrete diffusion; it has the process {loaded.process!r}",
        )
        self.model, self.tokens = loaded, tokenizer_of(loaded, "an evaluation on texts")
        self._start = [self.tokens.bos_id] if bos and self.tokens.bos_id is not None else []
        self._written_as_chat = False
        self.bounds: list[Bound] = []
        """Estimates of the last log-likelihoods, with their errors."""
        self.calls, self.gen_length = 0, self.answering.gen_length
        """Network calls and new tokens per answer, of the last answers."""
        self.num_tokens = 0
        """Tokens of the last answers together, up to where each was cut."""

    # -------------------------------------------------------------- generation

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answers, each cut at the first end of text or stop word. Equal seeds give equal answers in any batch size."""
        together = current().ranks
        with tqdm(total=len(requests), desc="answers", disable=_silent(disable_tqdm)) as bar:

            def made(start: int) -> _Made:
                part = requests[start : start + self.batch_size]
                answers = self._answers(part, start)
                bar.update(len(part) * together)
                return answers

            parts = shared(range(0, len(requests), self.batch_size), made)
        texts = [text for part in parts for text in part.texts]
        if parts:
            self.calls, self.gen_length = parts[-1].calls, parts[-1].gen_length
        self.num_tokens = sum(part.tokens for part in parts)
        for request, text in zip(requests, texts, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts

    def _answers(self, requests: list[Instance], first: int) -> "_Made":
        settings = self._settings(requests)
        longest = length_of(self.model, None)
        room = longest - settings.gen_length
        require(room > 0, f"gen_length must leave room for a prompt in {longest} positions; got {settings.gen_length}")
        asked = [_arguments(request) for request in requests]
        prompts = [self._encode(prompt)[-room:] for prompt, _ in asked]  # the end of a prompt is what asks
        run = Run(seed=self.seed, first=first, batch_size=len(prompts))
        made = answer(self.model, prompts, settings, run)
        texts = [self._text(ids, _stops(wishes)) for ids, (_, wishes) in zip(made.ids, asked, strict=True)]
        num_tokens = sum(self._tokens_of(ids, text) for ids, text in zip(made.ids, texts, strict=True))
        return _Made(texts, num_tokens, made.nfe, settings.gen_length)

    def _settings(self, requests: list[Instance]) -> Answering:
        """Ours; the length that the task asks for, if none was given. Blocks and steps must fit it."""
        if self._length_given:
            return self.answering
        lengths = {int(_arguments(request)[1].get("max_gen_toks", _USUAL_LENGTH)) for request in requests}
        return replace(self.answering, gen_length=max(lengths))

    def _text(self, ids: list[int], until: list[str]) -> str:
        (text,) = answers_of(self.tokens, [ids])
        return text[: min((text.find(word) for word in until if word in text), default=len(text))]

    def _tokens_of(self, ids: list[int], text: str) -> int:
        """How many of the new tokens it takes to write the text, which was cut off somewhere."""
        return bisect_left(range(len(ids)), len(text), key=lambda num: len(self._text(ids[:num], [])))

    def _encode(self, text: str) -> list[int]:
        return [*self._start, *(self.tokens.encode_template if self._written_as_chat else self.tokens.encode)(text)]

    # -------------------------------------------------------------- likelihood

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Lower bounds of log p(continuation | context), each by `draws` noised versions.

        Whether the continuation is what the model would say is found out only with `greedy`; else the answer is False.
        """

        def of(request: Instance) -> tuple[Bound, bool]:
            prompt, ids = self._split(*_arguments(request))
            return self._bound([*prompt, *ids], len(prompt)), self.greedy and self._says(prompt, ids)

        found = shared(tqdm(requests, desc="likelihoods", disable=_silent(disable_tqdm)), of)
        self.bounds, results = [bound for bound, _ in found], [(bound.value, says) for bound, says in found]
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, result)
        return results

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Lower bounds of log p(text), window by window of the longest length."""
        longest = length_of(self.model, None)

        def of(request: Instance) -> list[Bound]:
            ids = self._encode(request.args[0])
            windows = [ids[start : start + longest] for start in range(0, len(ids), longest)]
            return [self._bound(window, len(self._start) if n == 0 else 0) for n, window in enumerate(windows)]

        found = shared(tqdm(requests, desc="likelihoods", disable=_silent(disable_tqdm)), of)
        self.bounds = [bound for bounds in found for bound in bounds]
        return [sum(bound.value for bound in bounds) for bounds in found]

    def _split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of both, as the whole text is encoded; what does not fit is cut off the context."""
        spaces = len(context) - len(context.rstrip())
        if spaces:  # tokens begin with spaces, they do not end with them
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        whole, prompt = self._encode(context + continuation), self._encode(context)
        ids = whole[len(prompt) :]
        longest = length_of(self.model, None)
        room = longest - len(ids)
        require(room >= 0, f"a continuation of {len(ids)} tokens does not fit into {longest} positions")
        return prompt[max(0, len(prompt) - room) :], ids

    def _bound(self, ids: list[int], given: int) -> Bound:
        network, process = self.model.network, self.model.process
        assert isinstance(process, Process)
        device = home_of(next(network.parameters()).device)
        return log_likelihood_bound(
            network, process, torch.tensor(ids, device=device), given, self.draws, self.seed, max(1, self.batch_size)
        )

    def _says(self, prompt: list[int], ids: list[int]) -> bool:
        """Whether decoding token by token, surest first, gives just this."""
        return bool(ids) and answer(self.model, [prompt], Answering(gen_length=len(ids))).ids[0] == ids

    # ------------------------------------------------------------------- chat

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer, for the harness's caches."""
        return f"{self.tokens.name}-{self.tokens.fingerprint[:12]}"

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The chat template of the tokenizer."""
        return self.tokens.chat_template if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as a prompt; from here on, special tokens in prompts mean themselves."""
        require(add_generation_prompt, "prompts must end where the assistant is to speak")
        self._written_as_chat = True
        return render(self.tokens, chat_history)

    def get_model_info(self) -> dict[str, Any]:
        """What the model is, for the harness's records."""
        info = {"draws": self.draws, **asdict(self.answering)}
        return info if self._length_given else {**info, "gen_length": "of the task"}


register_model(NAME)(MultiMDM)


def _arguments(request: Instance) -> Any:
    """A prompt and wishes, or a context and a continuation."""
    return request.args


def _silent(wanted: bool) -> bool | None:
    """Whether no bar is shown; None leaves it to whether there is a terminal."""
    return True if wanted or not speaks() else None


def _stops(settings: dict[str, Any]) -> list[str]:
    """Words that end an answer."""
    until = settings.get("until") or []
    return [word for word in ([until] if isinstance(until, str) else until) if word]


def _check_names(generation: dict[str, Any]) -> None:
    for name in generation:
        if name not in _ANSWERING:
            known = sorted([*_ANSWERING, *_OWN])
            raise ValueError(f"model_args: there is no '{name}'; {hint(name, known, 'there are')}")
