"""Load and save: a directory with config.json, model.safetensors and the tokenizer's files."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from multimdm._checks import check_integer, require
from multimdm._files import whole_directory
from multimdm._inert import shown
from multimdm.data.chat import chat_ids
from multimdm.data.foreign_tokenizers import saved_tokenizer
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import Backbone, DiT, LLaDA
from multimdm.models.arithmetic import Precision, set_up
from multimdm.models.foreign import Foreign
from multimdm.pipeline.canvas import empty_canvas, encode_gaps, prompt_row, repeated, rows_canvas, start_ids, texts_of
from multimdm.pipeline.card import CardDetails, model_card
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.files import new_directory, read_safetensors, write_safetensors
from multimdm.pipeline.generation import Samples, answers_of, check_fit, fill, length_of, settings_of, tokenizer_of
from multimdm.pipeline.hub import check_repository, local_directory, push_directory
from multimdm.pipeline.llada import is_adapter, is_llada, load_adapter_alone, load_llada, save_llada
from multimdm.pipeline.settings import (
    CheckpointSettings,
    ForeignSettings,
    as_json,
    build_process,
    describe_process,
    read_file,
)
from multimdm.pipeline.tensor_file import TensorFile, check_sizes
from multimdm.process import AnyProcess, MultiMask
from multimdm.samplers.advice import SamplingAdvice
from multimdm.samplers.settings import Sampling

_ASSIGNMENT = "process.assignment"
_NETWORK = "network."
_LEFTOVER = "foreign."
_CELLS, _ORDER = "cells.safetensors", "order"
"""The file of a model with quantile noise, beside its weights, and what is in it."""


@dataclass
class Model:
    """A network with its process and, if it has one, its tokenizer."""

    network: Backbone
    process: AnyProcess | None
    """None for an autoregressive network."""
    tokenizer: Tokenizer | None = None
    foreign: ForeignSettings | None = None
    leftover: dict[str, Tensor] = field(default_factory=dict)
    """What an imported checkpoint has and our network does not use."""
    lineage: tuple[dict[str, Any], ...] = ()
    advice: SamplingAdvice | None = None
    """How it wants to be sampled: followed wherever nothing else is said."""
    cell_order: Int64[Tensor, " V"] | None = None
    """The place of every token within the cells of quantile noise, if a table says so."""

    def sample(
        self,
        num: int = 4,
        length: int | None = None,
        steps: int | None = None,
        temperature: float | int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Samples:
        """New sequences of `length` tokens (the network's longest unless given), by `steps` network calls.

        What is None or left out is as the checkpoint advises (`model.advice`), else 4 steps at temperature 1 in
        ancestral order; `Samples.sampling` tells what came of it. `options` are the other fields of
        `multimdm.samplers.Sampling` (what is drawn: order, grid, top_p, top_k, ...) and of `multimdm.pipeline.Run`
        (how the work is done: first, batch_size, trace, watch). `sampling=Sampling(...)` stands for all of the former.
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        return fill(self, empty_canvas(num, length_of(self, length)), sampling, run)

    def complete(
        self,
        prompt: str | Sequence[str],
        num: int = 1,
        length: int | None = None,
        steps: int | None = None,
        temperature: float | int | None = None,
        seed: int = 0,
        bos: bool | None = None,
        chat: bool | None = None,
        new_tokens: int | None = None,
        **options: Any,
    ) -> Samples:
        """Continuations of a text; `length` counts the prompt too, `new_tokens` only what follows it.

        Of several prompts, each has `num` continuations, which stand together; prompts may differ in length, and
        neighbours do not change a text. `bos` puts the tokenizer's BOS before the prompt. With `chat` the prompt is
        what a user says: it is put into the tokenizer's chat template, and the texts are the answers alone, up to their
        end. A model that was trained on prompts and answers (`model.advice.prompts`) knows which of both it wants; what
        it gives are answers, too. `options` as for `sample`.
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        tokenizer = tokenizer_of(self, "a prompt")
        if new_tokens is not None:
            require(length is None, f"give length or new_tokens, not both; got {length} and {new_tokens}")
            check_integer("new_tokens", new_tokens, 1)
        form = None if self.advice is None else self.advice.prompts
        if form == "chat" if chat is None else chat:
            form = "chat"
            prompts = [chat_ids(tokenizer, [{"role": "user", "content": one}]) for one in texts_of("prompt", prompt)]
        else:
            start = start_ids(tokenizer, form == "bos" if bos is None else bos)
            prompts = [[*start, *tokenizer.encode_given(one)] for one in texts_of("prompt", prompt)]
        lengths = [length if new_tokens is None else len(ids) + new_tokens for ids in prompts]
        rows = [prompt_row(ids, length_of(self, own)) for ids, own in zip(prompts, lengths, strict=True)]
        samples = fill(self, rows_canvas(rows, num), sampling, run)
        if form is None:
            return samples
        whole = zip(samples.ids.tolist(), repeated(rows, num), repeated(prompts, num), strict=True)
        made = [ids[len(prompt) : len(row)] for ids, row, prompt in whole]
        return replace(samples, texts=answers_of(tokenizer, made))

    def infill(
        self,
        text: str | Sequence[str],
        num: int = 1,
        steps: int | None = None,
        temperature: float | int | None = None,
        seed: int = 0,
        bos: bool = False,
        **options: Any,
    ) -> Samples:
        """The text with every [MASK] replaced by one token; what is given stays, token by token.

        Of several texts, each is filled in `num` times, as with `complete`. `options` as for `sample`.
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        tokenizer = tokenizer_of(self, "a text to fill in")
        rows = [[*start_ids(tokenizer, bos), *encode_gaps(tokenizer, one)] for one in texts_of("text", text)]
        return fill(self, rows_canvas(rows, num), sampling, run)

    def token_name(self, token: int) -> str:
        """A token as it looks inside a text; its number if there is no word for it."""
        if self.tokenizer is None or token >= self.tokenizer.vocab_size:
            return f"[{token}]"
        # The second of two, since the first word of a text may be capitalised.
        alone, twice = (self.tokenizer.decode([token] * n, keep_special=True) for n in (1, 2))
        return twice[len(alone) :].strip() or alone.strip() or repr(alone)

    def save(self, path: str | Path, replace: bool = False) -> None:
        """Write the checkpoint; the directory appears whole or not at all.

        A directory that is there already is an error, unless it is to be replaced. LLaDA networks keep their published
        layout; one with an adapter is saved as the adapter alone.
        """
        network = self.network
        with (whole_directory if replace else new_directory)(Path(path)) as directory:
            if isinstance(network, LLaDA):
                assert isinstance(self.process, MultiMask)
                save_llada(network, self.process, self.lineage, directory, advice=self.advice)
            else:
                self._save_dit(network, directory)
            if self.tokenizer is not None:
                self.tokenizer.save(directory)
            if self.cell_order is not None:
                write_safetensors({_ORDER: self.cell_order.contiguous()}, directory / _CELLS)

    def _save_dit(self, network: DiT, directory: Path) -> None:
        tensors = {_NETWORK + name: x.detach().contiguous() for name, x in network.state_dict().items()}
        tensors |= {_LEFTOVER + name: x.contiguous() for name, x in self.leftover.items()}
        if isinstance(self.process, MultiMask):
            tensors[_ASSIGNMENT] = self.process.assignment
        (directory / "config.json").write_text(as_json(self.settings), encoding="utf-8")
        write_safetensors(tensors, directory / "model.safetensors")

    @property
    def settings(self) -> CheckpointSettings:
        """Everything about it but its tensors, as its checkpoint says it; LLaDA networks have their own layout."""
        require(isinstance(self.network, DiT), "the settings of a LLaDA network are in its published config.json")
        assert isinstance(self.network, DiT)
        return CheckpointSettings(
            network=self.network.config,
            process=describe_process(self.process) if self.process is not None else None,
            foreign=self.foreign,
            lineage=self.lineage,
            advice=self.advice,
        )

    def push_to_hub(
        self,
        repo: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
        token: str | bool | None = None,
        card: CardDetails | str | None = CardDetails(),  # noqa: B008  (it is frozen)
    ) -> str:
        """Give the checkpoint to a repository on the Hugging Face Hub, which is made if need be; the commit's address.

        `revision` is a branch, made likewise. Without a token the client finds one (`hf auth login`, HF_TOKEN). `card`
        is what the model card is to say beside the lineage, or the whole text of README.md; with None, the README.md
        that is there stays.
        """
        check_repository(repo)
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place) / "model"
            self.save(directory)
            if card is not None:
                text = card if isinstance(card, str) else model_card(self, repo, card, revision)
                (directory / "README.md").write_text(text, encoding="utf-8")
            return push_directory(directory, repo, private, revision, commit_message, token)

    def as_foreign(self) -> Foreign:
        """The network as its foreign kind knows it."""
        if self.foreign is None or not isinstance(self.network, DiT):
            raise ValueError("only a checkpoint that was imported can be exported; this one was made here")
        return Foreign(self.network, self.foreign.kind, self.foreign.mask_id, self.leftover, self.foreign.dtypes)


def load(
    path: str | Path,
    device: str | torch.device | None = None,
    precision: Precision = "auto",
    base: str | Path | None = None,
    revision: str | None = None,
) -> Model:
    """A model from a directory that `Model.save` wrote, one in LLaDA's published layout, or the name of one on the Hub.

    A name may have a `revision` (a branch, a tag or a commit), also written `org/name@revision`.
    Its network is put on the `device`: cpu (unless given), cuda, cuda:1, or auto for the first GPU if there is one. Its
    `precision` is that of products of matrices (see `multimdm.models.arithmetic`), and for LLaDA also that of the
    weights in memory; `base` is the network that an adapter of LLaDA lies on, if it is no longer where it was.
    """
    place = device if isinstance(device, torch.device) else find_device("cpu" if device is None else device)
    set_up(precision, place)
    directory = local_directory(path, revision)
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a checkpoint directory")
    if is_llada(directory):
        found = load_llada(directory, place, precision, base)
        model = Model(found.network, found.process, found.tokenizer, lineage=found.lineage, advice=found.advice)
        model = replace(model, cell_order=_cell_order(directory, found.process.vocab_size))
        _check_advice(model, directory)
        return model
    require(base is None, f"base is for LLaDA networks; {directory} is none: leave it out")
    settings = read_file(CheckpointSettings, directory / "config.json")
    tensors = TensorFile(directory / "model.safetensors")
    unknown = sorted(n for n in tensors if n != _ASSIGNMENT and not n.startswith((_NETWORK, _LEFTOVER)))
    require(
        not unknown,
        f"{directory}: model.safetensors has a tensor of unknown purpose, {shown((unknown or [''])[0])}",
    )
    _check_fit(settings, directory)
    check_sizes(settings.network, tensors, _NETWORK)
    network = DiT(settings.network).eval()
    network.arithmetic = torch.bfloat16 if precision == "bfloat16" else None
    with torch.no_grad():
        for name, weights in network.state_dict().items():
            weights.copy_(tensors[_NETWORK + name])
    process = None
    if settings.process is not None:
        if settings.process.kind == "multimask":
            require(_ASSIGNMENT in tensors, f"{directory}: model.safetensors lacks '{_ASSIGNMENT}'")
        process = build_process(settings.process, tensors.get(_ASSIGNMENT))
    tokenizer = saved_tokenizer(directory)
    require(
        tokenizer is None or tokenizer.vocab_size <= settings.network.vocab_size,
        f"{directory}: its tokenizer has {tokenizer and tokenizer.vocab_size} tokens, its network only "
        f"{settings.network.vocab_size}: it is another one's",
    )
    model = Model(
        network=network.to(place),
        process=process,
        tokenizer=tokenizer,
        foreign=settings.foreign,
        leftover={name.removeprefix(_LEFTOVER): tensors[name] for name in tensors if name.startswith(_LEFTOVER)},
        lineage=settings.lineage,
        advice=settings.advice,
        cell_order=_cell_order(directory, settings.network.vocab_size),
    )
    _check_advice(model, directory)
    return model


def load_outline(path: str | Path) -> Model:
    """What a directory holds by itself: of an adapter, its own tensors and settings, without the base."""
    directory = Path(path)
    if not is_adapter(directory):
        return load(directory)
    found = load_adapter_alone(directory)
    model = Model(found.network, found.process, found.tokenizer, lineage=found.lineage, advice=found.advice)
    return replace(model, cell_order=_cell_order(directory, found.process.vocab_size))


def _cell_order(directory: Path, vocab_size: int) -> Tensor | None:
    """A place for every token, if the checkpoint has such a table."""
    path = directory / _CELLS
    if not path.exists():
        return None
    order = read_safetensors(path).get(_ORDER)
    require(order is not None, f"{path} lacks the tensor '{_ORDER}'")
    assert order is not None
    # A network may have rows for more tokens than its tokenizer has.
    places = torch.arange(min(order.numel(), vocab_size))
    require(
        order.dtype == torch.int64 and order.shape == places.shape and torch.equal(order.sort().values, places),
        f"{path}: '{_ORDER}' must give every token, at most {vocab_size}, a place of its own",
    )
    return order


def _check_fit(settings: CheckpointSettings, directory: Path) -> None:
    """Network and process must speak of the same states."""
    network, process = settings.network, settings.process
    if process is not None:
        ours, theirs = (network.vocab_size, network.num_masks), (process.vocab_size, process.num_masks)
        require(ours == theirs, f"{directory}: the network has V, M = {ours} and the process {theirs}")
        rows = process.num_masks if process.noise_shown else 0
        require(
            network.noise_rows == rows,
            f"{directory}: the network has {network.noise_rows} rows for noise; its process needs {rows}",
        )
        require(
            process.noise_dim in (None, network.vocab_size, network.hidden_dim),
            f"{directory}: noise_dim must be V = {network.vocab_size} or the width {network.hidden_dim}; got "
            f"{process.noise_dim}",
        )


def _check_advice(model: Model, directory: Path) -> None:
    """What a checkpoint advises must be possible with it."""
    if model.advice is not None:
        try:
            check_fit(model, None, Sampling())
        except ValueError as error:
            raise ValueError(f"{directory}: advice: {error}") from None
