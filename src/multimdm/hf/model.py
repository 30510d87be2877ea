"""Our models as transformers holds them: `from_pretrained`, `save_pretrained`, `generate`."""

import os
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput
from transformers.modeling_outputs import MaskedLMOutput

from multimdm._checks import require
from multimdm.data.tokenizer import Tokenizer
from multimdm.hf.config import LLaDAHubConfig, MultiMDMConfig
from multimdm.hf.generation import generate
from multimdm.models import DiT, LLaDA
from multimdm.objectives.next_token import shift_right
from multimdm.pipeline import Model, load
from multimdm.pipeline.devices import find_device
from multimdm.pipeline.hub import local_directory
from multimdm.pipeline.settings import CheckpointSettings, build_process, dump
from multimdm.process import MultiMask
from multimdm.samplers.blocks import time_of_share

_IDLE = ("trust_remote_code", "low_cpu_mem_usage", "use_safetensors", "force_download")
"""What callers of `from_pretrained` pass by habit, and what changes nothing here."""

_PUSHING = ("private", "revision", "commit_message", "token")


class MultiMDMModel(PreTrainedModel):
    """A checkpoint of ours. `model.model` is the `multimdm.Model`, with the same weights."""

    config_class = MultiMDMConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: MultiMDMConfig | LLaDAHubConfig, model: Model | None = None) -> None:
        """`model` has the weights; without it, a new network with random ones."""
        super().__init__(config)
        self.model = _new(config) if model is None else model
        self.network = self.model.network
        self.post_init()

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, pretrained_model_name_or_path: str | os.PathLike, *_: Any, **options: Any
    ) -> "MultiMDMModel":
        """A checkpoint by its directory or its name on the Hub; revision, token, dtype and device_map as usual."""
        name = os.fspath(pretrained_model_name_or_path)
        # Of an adapter, AutoModel names the base here and tells of the adapter beside it; our adapters know their base.
        adapter = options.pop("adapter_kwargs", None) or {}
        if "_adapter_model_path" in adapter:
            name, options["revision"] = os.fspath(adapter["_adapter_model_path"]), adapter.get("revision")
        fetching = {key: options.pop(key, None) for key in ("revision", "token", "cache_dir")}
        fetching["local_files_only"] = bool(options.pop("local_files_only", False))
        config, dtype = options.pop("config", None), options.pop("torch_dtype", None)
        dtype = options.pop("dtype", dtype)
        device = options.pop("device_map", None)
        _refuse_others(options)
        directory = Path(name) if Path(name).is_dir() else local_directory(name, **fetching)
        model = load(directory, _device(device))
        if config is None:
            kind: Any = cls.config_class
            adapter = model.network.adapter if isinstance(model.network, LLaDA) else None
            config = kind.from_pretrained(directory if adapter is None else local_directory(adapter.base))
        config.name_or_path = name
        held = cls(config, model)
        if dtype not in (None, "auto"):
            held.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        return held.eval()

    @classmethod
    def from_model(cls, model: Model) -> "MultiMDMModel":
        """A model that is here already; the weights are shared."""
        require(isinstance(model.network, DiT), "a LLaDA network is opened by from_pretrained on its directory")
        return cls(MultiMDMConfig(**_known(model.settings)), model).eval()

    @classmethod
    def can_generate(cls) -> bool:
        """Whether it can generate: pipelines ask."""
        return True

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Our own tokenizer; `AutoTokenizer` reads the same files."""
        return self.model.tokenizer

    def save_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, save_directory: str | os.PathLike, push_to_hub: bool = False, **options: Any
    ) -> None:
        """The files that `Model.save` writes, beside whatever else the directory has.

        With `push_to_hub`, also as `push_to_hub` does, to the repository `repo_id`.
        """
        require(options.get("state_dict") is None, "state_dict must be left out: the model saves its own weights")
        target = Path(save_directory)
        require(not target.is_file(), f"save_directory must be a directory; {target} is a file")
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as place:
            self.model.save(Path(place) / "model")
            files = list((Path(place) / "model").iterdir())
            if not any(file.name == "cells.safetensors" for file in files):
                (target / "cells.safetensors").unlink(missing_ok=True)  # of another model
            for file in files:
                os.replace(file, target / file.name)
        if push_to_hub:
            self.push_to_hub(options.pop("repo_id", target.name), **{k: v for k, v in options.items() if k in _PUSHING})

    def push_to_hub(self, repo_id: str, **options: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As `Model.push_to_hub`: with a model card; private, revision, commit_message and token as usual."""
        return self.model.push_to_hub(repo_id, **options)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        attention_mask: Tensor | None = None,
        t: float | Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> MaskedLMOutput | tuple[Tensor]:
        """Logits [B, L, V] of the clean tokens, position by position; masks are the ids from V on.

        `t` is the time of the process; unless given, that at which as many positions are masked as here. Of an
        autoregressive model the logits at l are for token l, given those before it.
        """
        require(labels is None, "labels must be left out: there is no loss here; models are trained by recipes")
        logits = self._logits(input_ids, None if attention_mask is None else attention_mask.bool(), t)
        return (logits,) if return_dict is False else MaskedLMOutput(logits=logits)

    def _logits(self, input_ids: Tensor, valid: Tensor | None, t: float | Tensor | None) -> Any:
        process = self.model.process
        if process is None:
            return self.network(shift_right(input_ids, self.config.vocab_size), valid=valid)
        require(
            not (isinstance(process, MultiMask) and process.noise_shown),
            "a model that is shown its noise predicts nothing without it; use generate",
        )
        if t is None and isinstance(process, MultiMask):
            there = torch.ones_like(input_ids, dtype=torch.bool) if valid is None else valid
            share = (process.active(input_ids) & there).sum(1) / there.sum(1).clamp_min(1)
            t = time_of_share(process.schedule, share)
        require(t is not None, "t must be given: this process has no masks by which a text shows its time")
        return self.network(input_ids, t, valid=valid)

    @torch.no_grad()
    def generate(
        self,
        input_ids: Int64[Tensor, "B n"] | None = None,
        attention_mask: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        **options: Any,
    ) -> Any:
        """The given ids and behind them `max_new_tokens` new ones (or up to `max_length` in all), made by K calls.

        Options: steps (K), temperature, order, seed, top_p, top_k, num_return_sequences, do_sample=False for the most
        probable tokens, and the other fields of `multimdm.samplers.Sampling` and `multimdm.pipeline.Run`. What is left
        out is as the checkpoint advises. Without ids, new texts; ids of masks (from V on) are gaps that are filled.
        Padding, on either side, is told by the attention mask. Equal seeds give equal texts; without a seed,
        torch.manual_seed decides. With return_dict_in_generate the ids are `.sequences` of what is given back. A
        generation_config says what options do not; without one, that of the model.
        """
        in_a_dict = bool(options.pop("return_dict_in_generate", False))
        config = getattr(self, "generation_config", None) if generation_config is None else generation_config
        ids = generate(self.model, input_ids, attention_mask, config, options)
        return GenerateDecoderOnlyOutput(sequences=cast("torch.LongTensor", ids)) if in_a_dict else ids

    def get_input_embeddings(self) -> nn.Module:
        """The rows of the clean tokens, then those of the masks; of LLaDA the published table, with masks inside."""
        return self.network.wte if isinstance(self.network, LLaDA) else self.network.vocab_embed

    def resize_token_embeddings(self, *_: Any, **__: Any) -> nn.Module:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refused: behind the clean tokens lie the masks."""
        raise ValueError(
            "the vocabulary cannot be resized: ids behind it are masks, and the process has its size; prepare data "
            "with the model's tokenizer, or train a model with another"
        )

    def _init_weights(self, module: nn.Module) -> None:
        """Networks come with their weights."""


class MultiMDMForLLaDA(MultiMDMModel):
    """LLaDA in its published layout, run by our code."""

    config_class = LLaDAHubConfig


def _new(config: Any) -> Model:
    require(isinstance(config, MultiMDMConfig), "a LLaDA network is opened by from_pretrained on its directory")
    settings = config.settings
    process = None if settings.process is None else build_process(settings.process, None)
    return Model(DiT(settings.network).eval(), process, lineage=settings.lineage, advice=settings.advice)


def _known(settings: CheckpointSettings) -> dict[str, Any]:
    """The settings without the type, which a configuration of transformers has in its class."""
    return {name: value for name, value in dump(settings).items() if name != "model_type"}


def _device(where: Any) -> torch.device:
    """The one device for everything that a device_map names, in any of the ways that are in use."""
    if isinstance(where, dict) and list(where) == [""]:
        where = where[""]
    if isinstance(where, torch.device):
        return where
    if isinstance(where, int):
        where = f"cuda:{where}"
    require(
        where is None or isinstance(where, str),
        f"device_map must be one device, such as 'cuda' or 'auto': networks are not split over several; got {where!r}",
    )
    return find_device("cpu" if where is None else str(where))


def _refuse_others(options: dict[str, Any]) -> None:
    """What would change the model elsewhere and cannot here."""
    usual = {"attn_implementation": (None, "sdpa"), "quantization_config": (None,)}
    for name, value in options.items():
        if name in _IDLE or name.startswith("_") or value in usual.get(name, ()):
            continue
        raise ValueError(f"from_pretrained has no option '{name}' for models of multimdm; leave it out")
