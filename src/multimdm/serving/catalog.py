"""The checkpoints that a server serves, by name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch

from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.settings import label_of
from multimdm.models.arithmetic import Precision
from multimdm.pipeline import Model, load
from multimdm.pipeline.canvas import GAP
from multimdm.pipeline.hub import local_directory
from multimdm.process import MultiMask, Process
from multimdm.process.places import home_of
from multimdm.samplers.advice import resolve
from multimdm.samplers.settings import Order, Sampling
from multimdm.samplers.steps import orders_of
from multimdm.serving.cards import card_of, start_page
from multimdm.serving.limits import Limits


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model under a name, with what every request to it needs."""

    name: str
    model: Model
    process: Process
    tokenizer: Tokenizer
    bos: bool
    """Whether prompts begin with the tokenizer's BOS."""
    created: int

    @classmethod
    def of(cls, name: str, model: Model, bos: bool = False, created: int = 0) -> "ServedModel":
        """Refuses what cannot be served, with the remedy."""
        if model.process is None:
            raise ValueError(
                f"{name} is autoregressive; serve a diffusion model, and use `multimdm sample` for this one"
            )
        if not isinstance(model.process, Process):
            raise ValueError(
                f"{name} is a CANDI model, whose states are more than tokens; use `multimdm sample` for it"
            )
        if model.tokenizer is None:
            raise ValueError(f"{name} has no tokenizer to make text of its ids: import it with --tokenizer NAME")
        if bos and model.tokenizer.bos_id is None:
            raise ValueError(f"--bos must be left out: the tokenizer of {name} has no BOS token")
        model.network.eval()
        bos = bos or (model.advice is not None and model.advice.prompts == "bos")
        return cls(name, model, model.process, model.tokenizer, bos, created)

    @cached_property
    def device(self) -> torch.device:
        """The device of the network."""
        return home_of(next(self.model.network.parameters()).device)

    @property
    def masked(self) -> bool:
        """Whether there are masks, so that a token that shows is settled."""
        return isinstance(self.process, MultiMask)

    @property
    def samplers(self) -> tuple[Order, ...]:
        """The orders that a request may name."""
        return orders_of(self.process)

    def resolved(self, given: Sampling, limits: Limits) -> Sampling:
        """What is given, else what the model advises, else what is usual; no more steps than the server allows."""
        sampling = resolve(given, self.model.advice)
        if isinstance(sampling.grid, tuple):
            return sampling
        return replace(sampling, steps=min(sampling.num_steps, limits.max_steps))

    @cached_property
    def card(self) -> dict[str, Any]:
        """What it is and how it came to be."""
        return card_of(self.model)

    @cached_property
    def ends(self) -> frozenset[int | None]:
        """Tokens after which nothing belongs to the text: the ends of text and of a turn."""
        return frozenset({self.tokenizer.eos_id, *self.tokenizer.turn_ends})

    @cached_property
    def specials(self) -> frozenset[int]:
        """Tokens that no text shows."""
        return frozenset(self.tokenizer.special_tokens.values())

    def longest(self, limits: Limits) -> int:
        """Tokens of a sequence at most."""
        made_for = self.model.network.config.max_length
        return made_for if limits.max_length is None else min(made_for, limits.max_length)

    @cached_property
    def token_name(self):
        """A token as people read it; asked for often."""
        return lru_cache(maxsize=65_536)(self.model.token_name)

    def as_data(self, limits: Limits) -> dict[str, Any]:
        """An entry of /v1/models; `multimdm` holds what the playground needs to know."""
        default = self.resolved(Sampling(), limits)
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "multimdm",
            "multimdm": {
                "process": "multimask" if self.masked else "uniform",
                "num_masks": self.process.num_masks,
                "vocab_size": self.process.vocab_size,
                "max_length": self.longest(limits),
                "max_steps": limits.max_steps,
                "max_n": limits.max_n,
                "samplers": list(self.samplers),
                "defaults": {
                    "steps": default.num_steps,
                    "sampler": default.order,
                    "temperature": default.temperature,
                },
                "gap": GAP,
                "start": start_page(self.name, self.model),
                "card": self.card,
            },
        }


def open_checkpoints(
    paths: Sequence[str], device: str = "auto", bos: bool = False, precision: Precision = "auto"
) -> dict[str, ServedModel]:
    """Load every checkpoint under a name of its own."""
    served_models: dict[str, ServedModel] = {}
    for path in paths:
        name = unique_name(path, served_models)
        config = local_directory(path) / "config.json"
        created = int(config.stat().st_mtime) if config.is_file() else 0
        served_models[name] = ServedModel.of(name, load(path, device, precision), bos, created)
    return served_models


def unique_name(path: str, taken: dict[str, ServedModel]) -> str:
    """The directory's name, or its parent's if it is only called "model"; numbered if there is one already."""
    base = label_of(path)
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name
