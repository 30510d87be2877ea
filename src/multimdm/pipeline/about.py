"""What a model is, in words: its kind and size in a line, and everything else under headings."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from multimdm.models import Backbone, DiT
from multimdm.process import AnyProcess, Hybrid, MultiMask
from multimdm.samplers.advice import resolve
from multimdm.samplers.settings import Sampling

if TYPE_CHECKING:
    from multimdm.pipeline.model import Model


def describe(model: "Model") -> dict[str, str | list[str]]:
    """Headings and what is to be said under them, of a model as `multimdm.load` gives it."""
    network, process, tokenizer = model.network, model.process, model.tokenizer
    lines: dict[str, str | list[str]] = {"kind": kind_of(process), "network": _network(network)}
    if process is not None:
        schedule = process.schedule
        words = [f"{type(process).__name__}, V = {process.vocab_size:,}"]
        if isinstance(process, MultiMask):
            words += [f"M = {process.num_masks}", f"rho = {schedule.rho:g}"]
            if process.tied_noise:
                words.append("noise tied to the text" + (" and shown" if process.noise_shown else ""))
        lines["process"] = ", ".join([*words, f"alpha {schedule.kind}"])
    if tokenizer is None:
        lines["tokenizer"] = "none: import the checkpoint with --tokenizer NAME to have texts instead of ids"
    else:
        lines["tokenizer"] = f"{tokenizer.name}, {tokenizer.vocab_size:,} tokens, {tokenizer.fingerprint[:12]}"
    lines["lineage"] = [_step(step) for step in model.lineage] or ["unknown"]
    lines["sampling"] = _sampling(model)
    return lines


def _network(network: Backbone) -> str:
    config = network.config
    heads = f"{config.num_heads} heads, up to {config.max_length:,} tokens"
    dtypes = sorted({str(weights.dtype).removeprefix("torch.") for weights in network.parameters()})
    if not isinstance(network, DiT):
        return f"LLaDA: {size_of(network)} in {', '.join(dtypes)}; {heads}"
    sees = {"none": "sees nothing of t", "sigma": "sees sigma(t)", "time": "sees t"}[network.config.conditioning]
    if network.config.mask_fade is not None:
        sees += f", masks that fade by (1 - t)^{network.config.mask_fade:g}"
    return f"DiT: {size_of(network)} in {', '.join(dtypes)}; {heads}; {sees}"


def _step(step: dict[str, Any]) -> str:
    """One step of a lineage: a run with its recipe, or an import."""
    if "command" not in step:
        return ", ".join(f"{name} {value}" for name, value in step.items())
    recipe = step.get("recipe", {})
    data, train = recipe.get("data", {}), recipe.get("train", {})
    words = [f"{step['command']} {step.get('name', '')}: {step.get('steps', 0):,} steps"]
    if "batch_size" in train:
        words.append(f"batch {train['batch_size']}")
    if "kind" in data:
        words.append(f"data {data.get('path') or data['kind']}")
    if "init" in recipe:
        words.append(f"from {recipe['init']}")
    return ", ".join(words)


def _sampling(model: "Model") -> list[str]:
    """How it is sampled unless told otherwise, and whether the checkpoint or the library says so."""
    if model.process is None:
        return ["token by token, from left to right"]
    resolved = asdict(resolve(Sampling(), model.advice))
    advised = {} if model.advice is None else {k: v for k, v in asdict(model.advice).items() if v is not None}
    names = [name for name in ("order", "steps", "temperature", "grid", "threshold") if resolved[name] is not None]
    return [f"{name} {resolved[name]} ({'advised' if name in advised else 'as usual'})" for name in names]


def kind_of(process: AnyProcess | None) -> str:
    """The process; None is that of an autoregressive model."""
    if process is None:
        return "autoregressive, one network call per token"
    if isinstance(process, Hybrid):
        return "hybrid diffusion (CANDI)"
    if not isinstance(process, MultiMask):
        return "uniform-state diffusion"
    M = process.num_masks
    kind = "masked diffusion" if M == 1 else f"multi-mask diffusion, M = {M}, rho = {process.schedule.rho:g}"
    kind += ", x_1 kept" if process.tied_noise else ""
    return kind + (", own masks read by Bayes' rule" if process.readout == "context" else "")


def size_of(network: Backbone) -> str:
    """The size of the network: blocks, width and parameters."""
    config = network.config
    size = sum(weights.numel() for weights in network.parameters())
    blocks = f"{config.num_blocks} block{'s' * (config.num_blocks > 1)} of width {config.hidden_dim}"
    return f"{blocks}, {size / 1e6:,.2f} million parameters"
