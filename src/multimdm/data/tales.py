"""Tales: short English stories from a grammar, so that the probability of any text is known exactly."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64, Integer
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm.data.tales_conditionals import Chain, Reader, conditionals, write
from multimdm.data.tales_draws import Derivations, derive
from multimdm.data.tales_grammar import END, PAD, STOP, Grammar
from multimdm.data.tales_inference import Inference, Judge
from multimdm.data.tales_messages import least_epsilon
from multimdm.data.tales_plan import Plan
from multimdm.data.tales_variables import Variables
from multimdm.data.tales_words import DEFAULT
from multimdm.data.tokenizer import Tokenizer
from multimdm.process.checks import check_ids, debug_checks, kind_of
from multimdm.process.draws import Generator, Streams
from multimdm.process.quantile import Order

_MESSAGE = 2**19
"""How many numbers a message holds per position, over the stories that are scored together: a few MB."""
_INFERRED = 2**17
"""Likewise over the stories that are inferred together: a pass backward keeps some MB for each."""
_WRITTEN = 1024
"""How many stories are written together: their laws take a few MB."""
_TOKEN = re.compile(r"\[\w+\]|[\w']+|\S")


class SentenceCounts(NamedTuple):
    """How many sentences each story has, and how many of them are well formed by themselves."""

    valid: Int64[Tensor, " num"]
    total: Int64[Tensor, " num"]


class Tales:
    """Stories of `length` tokens: five short sentences (with the default grammar), an end marker, and padding.

    Every position counts. The end marker and the padding after it are tokens like others (padding has probability one
    in the pure source), so figures per token divide by `length`, whatever the number of words.

    There are two sources. The pure one makes the stories that `sample` draws. The judged one replaces each of the
    `length` tokens of a pure story, independently and with probability epsilon, by a token drawn uniformly from the
    vocabulary (which may be the same one): every string of ids then has a positive probability.
    """

    EPSILON = 1e-3
    """The default probability, per token, of a replacement in the judged source."""

    def __init__(self, length: int = 48, grammar: Grammar = DEFAULT) -> None:
        self._plan = Plan(grammar)
        self.variables = Variables(self._plan, grammar)
        """What stories are about: who, where, what, and how it ends."""
        self.length = check_integer("length", length, 1)
        require(
            length >= self._plan.longest,
            f"length must be at least {self._plan.longest}, for the longest story to fit; got {length}",
        )
        self.vocabulary: list[str] = self._plan.vocabulary
        """The tokens; the id of a token is its index."""
        self.pad_id, self.end_id, self.stop_id = (self._plan.index[word] for word in (PAD, END, STOP))
        self._chunk = min(_MESSAGE // self._plan.states + 1, 4096)
        self.shortest, self.longest = self._plan.shortest, self._plan.longest
        """The least and the greatest number of tokens of a story, with the end marker and without padding."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of a story, with end marker and padding; the first word of a sentence may be capitalised."""
        ids = [self._id_of(word) for word in _TOKEN.findall(text)]
        require(
            len(ids) < self.length,
            f"text must have at most {self.length - 1} words and stops, to leave room for {END}; got {len(ids)}",
        )
        return [*ids, self.end_id, *[self.pad_id] * (self.length - len(ids) - 1)]

    def _id_of(self, word: str) -> int:
        for form in (word, word[0].lower() + word[1:]):
            if form in self._plan.index:
                return self._plan.index[form]
        raise ValueError(f"text must be made of words of the vocabulary; got {word!r} (see Tales.vocabulary)")

    def decode(self, ids: Sequence[int] | Integer[Tensor, " length"]) -> str:
        """Readable text up to the end marker, whether or not it is a story; ids that are no tokens show as numbers."""
        text, capital = "", True
        for i in ids.tolist() if isinstance(ids, Tensor) else ids:
            if i == self.end_id:
                break
            word = self.vocabulary[i] if 0 <= i < self.vocab_size else f"[{i}]"
            text += word if word == STOP else " " + (word[0].upper() + word[1:] if capital else word)
            capital = word == STOP
        return text.strip()

    def sample(self, num: int, generator: Generator = None) -> Int64[Tensor, "num length"]:
        """Stories of the pure source; with `Streams`, each story depends on its own stream only."""
        return self.derive(num, generator).ids

    def derive(self, num: int, generator: Generator = None) -> Derivations:
        """Stories of the pure source, with the log-probability of the draws that made each."""
        check_integer("num", num, 1)
        require(
            not isinstance(generator, Streams) or len(generator) == num,
            f"generator must have one stream per story, {num}; "
            f"got {len(generator) if isinstance(generator, Streams) else 0}",
        )
        return derive(self._plan, self.length, num, generator)

    def log_prob(self, ids: Integer[Tensor, "num length"], epsilon: float | int = EPSILON) -> Float64[Tensor, " num"]:
        """log p(ids) in nats under the judged source, summed over all derivations; epsilon = 0 is the pure source.

        Finite for all ids if epsilon > 0; -inf for what is no story if epsilon = 0.
        """
        judge = Judge(self._plan, 0.0 if epsilon == 0 else self.check_epsilon(epsilon, "0 or "))
        parts = self._check(ids).split(self._chunk)
        return torch.cat([judge.log_prob(part) for part in parts]).to(ids.device)

    def leave_one_out(
        self, evidence: Float64[Tensor, "num length V"], epsilon: float | int = EPSILON
    ) -> Float64[Tensor, "num length V"]:
        """log p(x^l = a | what was seen at all positions but l) under the judged source, exactly.

        `evidence` [num, length, V] is the likelihood of what was seen at each position for each token, up to a factor
        per position; with the log-evidence of the position added, it is the posterior. A known token is a 1 among
        zeros, a position of which nothing is known has ones. epsilon must be positive: evidence may contradict itself.
        """
        expected = (self.length, self.vocab_size)
        require(
            evidence.ndim == 3 and evidence.shape[1:] == expected,
            f"evidence must have shape [num, {expected[0]}, {expected[1]}]; got {list(evidence.shape)}",
        )
        inference = Inference(self._plan, self.check_epsilon(epsilon))
        parts = evidence.detach().cpu().split(min(_INFERRED // self._plan.states + 1, 1024))
        return torch.cat([inference.leave_one_out(part) for part in parts]).to(evidence.device)

    def wrong(self, ids: Integer[Tensor, "num length"], epsilon: float | int = EPSILON) -> Bool[Tensor, "num length"]:
        """Which tokens are rather replaced ones than the story's own: p(replaced | all tokens) > 1/2.

        Under the judged source p(x^l | the others) is (1-ε) p(w^l = x^l | the others) + ε / V, of which the last term
        is that of a replacement. Nothing is wrong in a story of the pure source.
        """
        x = self._check(ids)
        seen = torch.nn.functional.one_hot(x, self.vocab_size).double()
        log_others = self.leave_one_out(seen, epsilon).gather(2, x[..., None])[..., 0]
        return (math.log(epsilon / self.vocab_size) - log_others > math.log(0.5)).to(ids.device)

    def valid(self, ids: Integer[Tensor, "num length"]) -> Bool[Tensor, " num"]:
        """Whether the pure source can make the story."""
        return self.log_prob(ids, epsilon=0.0) > -math.inf

    def valid_sentences(self, ids: Integer[Tensor, "num length"]) -> SentenceCounts:
        """How many sentences are well formed by themselves, and how many there are.

        A sentence is a run of tokens up to and including a stop, before the first end marker; what is left without a
        stop counts as a sentence that is not well formed. A sentence is well formed if some template of any of the
        story's sentences makes it with some values of the variables: agreement within the sentence is asked for,
        agreement with the other sentences and their order are not.
        """
        x = self._check(ids)
        before_end = (x == self.end_id).cumsum(1) == 0
        stops = (x == self.stop_id) & before_end
        begins = before_end & torch.nn.functional.pad(stops[:, :-1], (1, 0), value=True)
        story, start = begins.nonzero(as_tuple=True)
        judge = Judge(self._plan, 0.0)
        parts = zip(story.split(self._chunk), start.split(self._chunk), strict=True)
        well = torch.cat([judge.well_formed(x, *part) for part in parts])
        valid = torch.zeros(len(x), dtype=torch.long).index_add(0, story, well.long())
        return SentenceCounts(valid.to(ids.device), begins.sum(1).to(ids.device))

    def reader(self, num: int) -> Reader:
        """Reads `num` stories of the pure source from left to right: predict(), observe(tokens), and so on."""
        return Reader(self._chain, check_integer("num", num, 1))

    def conditionals(self, ids: Integer[Tensor, "num length"]) -> Iterator[Float64[Tensor, "num V"]]:
        """q(. | x^{<l}) under the pure source, exactly, position by position: l = 0 .. length - 1.

        Only one position is held at a time; some thousands of stories take tens of MB. Where a story cannot be one of
        the pure source, the iterator ends in an error at its first impossible token.
        """
        return (law.to(ids.device) for law in conditionals(self._chain, self._check(ids)))

    def write(self, numbers: Float64[Tensor, "num length"], order: Order = "id") -> Int64[Tensor, "num length"]:
        """The stories that the pure source draws from left to right by given numbers from 0 to 1, one for each token.

        Each number falls into the cell of one token: of the cells of q(. | x^{<l}), laid out in the given order (see
        process.quantile). If the numbers are uniform and independent, the stories are those of `sample`, in law.
        """
        parts = self._check_numbers(numbers).split(_WRITTEN)
        return torch.cat([write(self._chain, part, order) for part in parts]).to(numbers.device)

    @cached_property
    def _chain(self) -> Chain:
        """Made when it is first needed: most uses of Tales do without."""
        return Chain(self._plan)

    def entropy(self) -> float:
        """The entropy of a story of the pure source in nats, computed from the grammar.

        It is the entropy of the derivations: a grammar must not have two of them for one story, as the default has not.
        """
        return self._plan.entropy()

    @property
    def entropy_per_token(self) -> float:
        """Entropy of a story divided by `length`."""
        return self.entropy() / self.length

    def check_epsilon(self, epsilon: float | int, also: str = "") -> float:
        """A positive epsilon with which probabilities stay in range; `also` says what else could have been given."""
        least = least_epsilon(self._plan)
        require(
            isinstance(epsilon, int | float) and least <= epsilon <= 1,
            f"epsilon must be {also}from {least:.1e} (less would leave the range of float64) to 1; got {epsilon!r}",
        )
        return float(epsilon)

    def _check(self, ids: Tensor) -> Tensor:
        """Ids of whole sequences, all of them tokens; int64 on the CPU, where the tables are."""
        with debug_checks():
            check_ids("ids", ids, self.vocab_size)
        require(
            ids.ndim == 2 and ids.shape[1] == self.length,
            f"ids must have shape [num, {self.length}]; got {list(ids.shape)}",
        )
        return ids.detach().to("cpu", torch.long)

    def _check_numbers(self, numbers: Tensor) -> Tensor:
        """Numbers for whole sequences, on the CPU, where the tables are."""
        require(
            isinstance(numbers, Tensor) and numbers.dtype == torch.float64,
            f"numbers must be a float64 tensor, for rare tokens to have cells; got {kind_of(numbers)}",
        )
        require(
            numbers.ndim == 2 and numbers.shape[1] == self.length,
            f"numbers must have shape [num, {self.length}]; got {list(numbers.shape)}",
        )
        u = numbers.detach().cpu()
        require(bool(((u >= 0) & (u < 1)).all()), "numbers must be from 0 to 1, 1 excluded; some are not")
        return u


def tales_tokenizer(tales: Tales) -> Tokenizer:
    """Its words as a tokenizer, so that a model of Tales is saved and used like any other.

    One token per word or stop; ids are those of `tales.vocabulary`.
    """
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.WordLevel({word: number for number, word in enumerate(tales.vocabulary)}))
    words_and_stops = pre_tokenizers.Split(Regex(r"[.,!?]"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words_and_stops])
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)  # words with spaces between, none before a stop
    backend.add_special_tokens([PAD, END])
    return Tokenizer(backend.to_str(), {"pad": PAD, "eos": END}, "tales", sentence_case=True)
