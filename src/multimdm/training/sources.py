"""Where training sequences come from. A sequence is named by its number in the run: nothing needs to be remembered."""

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from multimdm.data.prepared import Example, PreparedData
from multimdm.data.tales import Tales, tales_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.tales_models import fingerprint_of_tales
from multimdm.process import Streams
from multimdm.process.settings import PromptForm
from multimdm.training.settings import DataSettings
from multimdm.training.step_plan import derive

_BLOCK = 1024
"""Stories that are drawn together."""


class Source(ABC):
    """Training and validation sequences of one length."""

    tokenizer: Tokenizer
    """The tokenizer of the data and of every model that is trained on them."""
    length: int
    """Tokens per sequence."""
    fingerprint: str
    """Equal for equal training data with equal ids."""
    valid_size: int | None = None
    """Number of validation sequences; None if there is no end of them."""
    entropy: float | None = None
    """The exact entropy per token in nats, where it is known: the least NELBO there can be."""
    hides_lengths: bool = False
    """Whether texts are of several lengths that a model does not learn."""
    begin_at_zero: bool = False
    """Whether texts begin at position 0, rather than anywhere in a sequence."""
    begins_with: int | None = None
    """The token that all sequences begin with, if there is one."""
    prompts: PromptForm | None = None
    """How prompts are written, if sequences are prompts and answers, of which only the latter are learnt."""

    @abstractmethod
    def train(self, first: int, num: int) -> Example:
        """The training sequences number first .. first + num - 1 of the run, through as many epochs as it takes."""

    @abstractmethod
    def valid(self, first: int, num: int) -> Example:
        """The validation sequences number first .. first + num - 1."""

    @abstractmethod
    def valid_text(self, first: int, num: int) -> Bool[Tensor, "num L"]:
        """What of these validation sequences is drawn by anyone: not padding, for one, even where it is learnt."""

    @abstractmethod
    def counts(self) -> Tensor:
        """How often each token occurs."""

    def ended(self, ids: Tensor) -> Tensor:
        """Texts that someone wrote, as these data would have them: with padding behind their end, if they have any."""
        return ids


class TalesSource(Source):
    """New stories without end; validation has its own."""

    begin_at_zero = True

    def __init__(self, length: int, seed: int) -> None:
        self.tales = Tales(length)
        self.tokenizer, self.length = tales_tokenizer(self.tales), length
        self.entropy = self.tales.entropy_per_token
        self.fingerprint = fingerprint_of_tales(self.tales)
        self._drawn: dict[str, tuple[int, Tensor]] = {}
        # Runs with different seeds are validated on the same stories.
        self._seeds = {"train": derive(seed, "tales train"), "valid": derive(0, "tales valid")}

    def train(self, first: int, num: int) -> Example:
        """Stories that occur once."""
        return self._draw("train", first, num)

    def valid(self, first: int, num: int) -> Example:
        """Stories that are not those of training."""
        return self._draw("valid", first, num)

    def valid_text(self, first: int, num: int) -> Bool[Tensor, "num L"]:
        """All: the padding of stories is drawn like their words."""
        return torch.ones((num, self.length), dtype=torch.bool)

    def counts(self) -> Tensor:
        """How often each token occurs in 10,000 stories."""
        return torch.bincount(self._draw("valid", 0, 10_000).ids.flatten(), minlength=self.tales.vocab_size)

    def _draw(self, split: str, first: int, num: int) -> Example:
        numbers = range(first // _BLOCK, (first + num - 1) // _BLOCK + 1)
        stories = torch.cat([self._block(split, number) for number in numbers])
        ids = stories[first - numbers[0] * _BLOCK :][:num]
        return Example(ids, torch.ones_like(ids, dtype=torch.bool))

    def _block(self, split: str, number: int) -> Tensor:
        """Stories are drawn many at once, which costs little more than drawing a few; each has its own stream."""
        if self._drawn.get(split, (-1, None))[0] != number:
            streams = Streams.spawn(self._seeds[split], _BLOCK, number * _BLOCK)
            self._drawn[split] = number, self.tales.sample(_BLOCK, streams)
        return self._drawn[split][1]


class PreparedSource(Source):
    """Prepared data, in a new order in every epoch."""

    def __init__(self, settings: DataSettings, seed: int) -> None:
        assert settings.path is not None
        root = Path(settings.path)
        split = (root / "train").is_dir()
        self.training = PreparedData.open(root / "train" if split else root)
        validation = Path(settings.valid) if settings.valid is not None else root / "valid"
        self._valid = PreparedData.open(validation) if settings.valid is not None or validation.is_dir() else None
        self.tokenizer, self.length = self.training.tokenizer(), self.training.manifest.length
        if self._valid is not None:
            self._valid.check_tokenizer(self.tokenizer)
            if self._valid.manifest.length != self.length:
                raise ValueError(
                    f"{validation} has sequences of {self._valid.manifest.length} tokens and {root} of {self.length}; "
                    "prepare both with the same --length"
                )
        if len(self.training) == 0:
            raise ValueError(f"{root} has no sequences to train on")
        self.valid_size = len(self._valid) if self._valid is not None else 0
        self.fingerprint = f"{self.training.fingerprint}, {self.tokenizer.fingerprint}"
        padded = self.training.manifest.layout != "packed"
        self.prompts = self.training.manifest.prompts
        self._check_pairs(settings, validation)
        self._learn_padding = padded if settings.learn_padding is None else settings.learn_padding
        self.hides_lengths = padded and not self._learn_padding
        self.begin_at_zero = padded
        self.begins_with = self.tokenizer.bos_id if self.training.manifest.ends in ("both", "bos") else None
        self._seed, self._order = seed, (-1, torch.empty(0))

    def _check_pairs(self, settings: DataSettings, validation: Path) -> None:
        """Answers end by what fills the rest, and held-out ones have prompts of the same form."""
        if self.prompts is not None and settings.learn_padding is False:
            raise ValueError(
                f"data.learn_padding must be left out: {settings.path} has prompts and answers, and where an answer "
                "ends is learnt from what follows it"
            )
        theirs = self.prompts if self._valid is None else self._valid.manifest.prompts
        if theirs != self.prompts:
            raise ValueError(
                f"{validation} and {settings.path} must be prepared alike; the prompts of one are {theirs or 'none'}, "
                f"of the other {self.prompts or 'none'}"
            )

    def train(self, first: int, num: int) -> Example:
        """Every sequence once per epoch."""
        return self._counted(self.training[self.rows(first, num).numpy()])

    def rows(self, first: int, num: int) -> Int64[Tensor, " num"]:
        """Where the training sequences number first .. first + num - 1 of the run stand in the file."""
        size = len(self.training)
        numbers = torch.arange(first, first + num)
        epochs = range(first // size, (first + num - 1) // size + 1)
        return torch.cat([self._permutation(epoch)[numbers[numbers // size == epoch] % size] for epoch in epochs])

    def valid(self, first: int, num: int) -> Example:
        """Held-out sequences, in the order of the file."""
        assert self._valid is not None
        return self._counted(self._valid[first : first + num])

    def valid_text(self, first: int, num: int) -> Bool[Tensor, "num L"]:
        """What of held-out sequences is text, by their lengths; of pairs, the answers."""
        assert self._valid is not None
        return self.drawn(self._valid[first : first + num].counted)

    def drawn(self, valid: Bool[Tensor, "num L"]) -> Bool[Tensor, "num L"]:
        """What of sequences is drawn by anyone: not padding, nor what packing puts before and behind all of them."""
        before, behind = (self.training.manifest.ends in ("both", end) for end in ("bos", "eos"))
        place = torch.arange(valid.shape[1])
        drawn = valid & (place > 0) if before else valid
        if behind and self.training.manifest.layout == "packed":
            drawn = drawn & (place < valid.sum(1, keepdim=True) - 1)
        return drawn

    def _counted(self, example: Example) -> Example:
        """The example with padding as a token like others, or hidden."""
        return example.with_padding() if self._learn_padding else example

    def counts(self) -> Tensor:
        """How often each token occurs in the whole training split."""
        return torch.from_numpy(self.training.counts)

    def ended(self, ids: Tensor) -> Tensor:
        """Texts with padding behind the first end of text, in a padded layout."""
        end, pad = self.tokenizer.eos_id, self.tokenizer.pad_id
        if self.training.manifest.layout != "padded" or end is None:
            return ids
        ends = ids == end
        if self.begins_with == end:  # as in GPT-2
            ends[:, 0] = False
        behind = ends.cumsum(1) - ends.long() > 0
        return ids.masked_fill(behind, end if pad is None else pad)

    def _permutation(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(derive(self._seed, "order", epoch))
            self._order = epoch, torch.randperm(len(self.training), generator=generator)
        return self._order[1]


class NoData(Source):
    """Where a teacher writes all texts: nothing to train on or to validate with."""

    valid_size = 0
    fingerprint = "no data"

    def __init__(self, length: int, tokenizer: Tokenizer) -> None:
        self.length, self.tokenizer = length, tokenizer

    def train(self, first: int, num: int) -> Example:
        """There is none."""
        raise ValueError("data.kind is none: there are no training texts but those that a teacher writes")

    def valid(self, first: int, num: int) -> Example:
        """There is none."""
        raise ValueError("data.kind is none: there are no texts to validate on")

    def valid_text(self, first: int, num: int) -> Bool[Tensor, "num L"]:
        """There is none."""
        raise ValueError("data.kind is none: there are no texts to validate on")

    def counts(self) -> Tensor:
        """None: nobody has counted."""
        raise ValueError("data.kind is none: process.assignment must not be frequency, which counts tokens of data")


def open_source(settings: DataSettings, seed: int, tokenizer: Tokenizer | None = None) -> Source:
    """The source that a recipe asks for; without data, the tokens are those of the model at hand."""
    if settings.kind == "none":
        if tokenizer is None:
            raise ValueError("data.kind none is for couple with quantile.texts: teacher, from a model with a tokenizer")
        return NoData(settings.length, tokenizer)
    return TalesSource(settings.length, seed) if settings.kind == "tales" else PreparedSource(settings, seed)
