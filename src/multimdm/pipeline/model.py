"""Load and save: a directory with config.json, model.safetensors and the tokenizer's files."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multimdm.data.directories import whole_directory
from multimdm.data.tokenizer import Tokenizer
from multimdm.models import DiT
from multimdm.models.foreign import Foreign, load_exactly
from multimdm.pipeline.canvas import empty_canvas, encode_gaps, infill_canvas, prompt_canvas, start_ids
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.files import new_directory, read_json, read_safetensors, write_safetensors
from multimdm.pipeline.generation import Samples, fill, length_of, settings_of, tokenizer_of
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.settings import (
    CheckpointSettings,
    ForeignSettings,
    build_process,
    describe_process,
    dump,
    parse,
)
from multimdm.process import MultiMask, Process
from multimdm.process.checks import require

_ASSIGNMENT = "process.assignment"
_NETWORK = "network."
_LEFTOVER = "foreign."


@dataclass
class Model:
    """A network with its process and, if it has one, its tokenizer."""

    network: DiT
    process: Process | None
    """None for an autoregressive network."""
    tokenizer: Tokenizer | None = None
    foreign: ForeignSettings | None = None
    leftover: dict[str, Tensor] = field(default_factory=dict)
    """What an imported checkpoint has and our network does not use."""
    lineage: tuple[dict[str, Any], ...] = ()

    def sample(
        self,
        num: int = 4,
        length: int | None = None,
        steps: int | None = None,
        temperature: float | int = 1.0,
        seed: int = 0,
        **options: Any,
    ) -> Samples:
        """New sequences of `length` tokens (the network's longest unless given), by `steps` network calls (4).

        `options` are the other fields of `multimdm.samplers.Sampling` (what is drawn: top_p, top_k, grid, order, ...)
        and of `multimdm.pipeline.Run` (how the work is done: first, batch_size, trace, watch).
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        return fill(self, empty_canvas(num, length_of(self, length)), sampling, run)

    def complete(
        self,
        prompt: str,
        num: int = 1,
        length: int | None = None,
        steps: int | None = None,
        temperature: float | int = 1.0,
        seed: int = 0,
        bos: bool = False,
        **options: Any,
    ) -> Samples:
        """Continuations of a text; `length` counts the prompt too. `bos` puts the tokenizer's BOS before it.

        `options` as for `sample`.
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        tokenizer = tokenizer_of(self, "a prompt")
        ids = [*start_ids(tokenizer, bos), *tokenizer.encode(prompt)]
        return fill(self, prompt_canvas(ids, num, length_of(self, length)), sampling, run)

    def infill(
        self,
        text: str,
        num: int = 1,
        steps: int | None = None,
        temperature: float | int = 1.0,
        seed: int = 0,
        bos: bool = False,
        **options: Any,
    ) -> Samples:
        """The text with every [MASK] replaced by one token; what is given stays, token by token.

        `options` as for `sample`.
        """
        sampling, run = settings_of(steps=steps, temperature=temperature, seed=seed, **options)
        tokenizer = tokenizer_of(self, "a text to fill in")
        ids = [*start_ids(tokenizer, bos), *encode_gaps(tokenizer, text)]
        return fill(self, infill_canvas(ids, num), sampling, run)

    def token_name(self, token: int) -> str:
        """A token as it looks inside a text; its number if there is no word for it."""
        if self.tokenizer is None or token >= self.tokenizer.vocab_size:
            return f"[{token}]"
        # The second of two, since the first word of a text may be capitalised.
        alone, twice = (self.tokenizer.decode([token] * n, keep_special=True) for n in (1, 2))
        return twice[len(alone) :].strip() or alone.strip() or repr(alone)

    def save(self, path: str | Path, replace: bool = False) -> None:
        """Write the checkpoint; the directory appears whole or not at all.

        A directory that is there already is an error, unless it is to be replaced.
        """
        tensors = {_NETWORK + name: x.detach().contiguous() for name, x in self.network.state_dict().items()}
        tensors |= {_LEFTOVER + name: x.contiguous() for name, x in self.leftover.items()}
        if isinstance(self.process, MultiMask):
            tensors[_ASSIGNMENT] = self.process.assignment
        settings = CheckpointSettings(
            network=self.network.config,
            process=describe_process(self.process) if self.process is not None else None,
            foreign=self.foreign,
            lineage=self.lineage,
        )
        with (whole_directory if replace else new_directory)(Path(path)) as directory:
            (directory / "config.json").write_text(json.dumps(dump(settings), indent=2) + "\n", encoding="utf-8")
            write_safetensors(tensors, directory / "model.safetensors")
            if self.tokenizer is not None:
                self.tokenizer.save(directory)

    def as_foreign(self) -> Foreign:
        """The network as its foreign kind knows it."""
        if self.foreign is None:
            raise ValueError("only a checkpoint that was imported can be exported; this one was made here")
        return Foreign(self.network, self.foreign.kind, self.foreign.mask_id, self.leftover, self.foreign.dtypes)


def load(path: str | Path, device: str | torch.device | None = None) -> Model:
    """A model from a directory that `Model.save` wrote, or from one with that content on the Hub.

    Its network is put on the `device`: cpu (unless given), cuda, cuda:1, or auto for the first GPU if there is one.
    """
    place = device if isinstance(device, torch.device) else find_device("cpu" if device is None else device)
    directory = local_directory(path)
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a checkpoint directory")
    settings = parse(read_json(directory / "config.json"), str(directory / "config.json"))
    tensors = read_safetensors(directory / "model.safetensors")
    strangers = sorted(n for n in tensors if n != _ASSIGNMENT and not n.startswith((_NETWORK, _LEFTOVER)))
    require(
        not strangers, f"{directory}: model.safetensors has a tensor of unknown purpose, '{(strangers or [''])[0]}'"
    )
    _check_fit(settings, directory)
    network = DiT(settings.network).eval()
    load_exactly(network, _under(tensors, _NETWORK))
    process = None
    if settings.process is not None:
        if settings.process.kind == "multimask":
            require(_ASSIGNMENT in tensors, f"{directory}: model.safetensors lacks '{_ASSIGNMENT}'")
        process = build_process(settings.process, tensors.get(_ASSIGNMENT))
    return Model(
        network=network.to(place),
        process=process,
        tokenizer=Tokenizer.load(directory) if Tokenizer.saved_in(directory) else None,
        foreign=settings.foreign,
        leftover=_under(tensors, _LEFTOVER),
        lineage=settings.lineage,
    )


def _check_fit(settings: CheckpointSettings, directory: Path) -> None:
    """Network and process must speak of the same states."""
    network, process = settings.network, settings.process
    if process is not None:
        ours, theirs = (network.vocab_size, network.num_masks), (process.vocab_size, process.num_masks)
        require(ours == theirs, f"{directory}: the network has V, M = {ours} and the process {theirs}")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
