"""The model card: what a checkpoint tells of itself, as the README.md of its repository on the Hub."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import yaml

from multimdm.builtin import builtin_directory
from multimdm.models import DiT, LLaDA
from multimdm.pipeline.about import kind_of, size_of
from multimdm.pipeline.hub import is_hub_name
from multimdm.process import Hybrid, MultiMask
from multimdm.samplers.settings import USUAL_STEPS

if TYPE_CHECKING:
    from multimdm.pipeline.model import Model

_TITLE = "Multi-Mask Diffusion Language Models for Few-Step Generation"
_AUTHORS = ("Sijin Chen", "Yinuo Ren", "Heyang Zhao", "Ziheng Cheng", "Quanquan Gu", "Lexing Ying")


@dataclass(frozen=True)
class CardDetails:
    """What the lineage does not know."""

    license: str | None = None
    """The licence as the Hub calls it (apache-2.0, mit, ...); without it, the card does not speak of one."""
    language: tuple[str, ...] = ()
    """Codes such as en."""
    figures: str | None = None
    """Measurements, in Markdown: `multimdm push --results` makes them of an evaluation."""


def model_card(model: "Model", name: str, details: CardDetails | None = None, revision: str | None = None) -> str:
    """The text of README.md for a model that is to be found under this name."""
    details = CardDetails() if details is None else details
    address = name if revision is None else f"{name}@{revision}"
    sections = [
        f"# {name.rpartition('/')[2]}",
        _summary(model),
        f"## Use\n\n{_use(model, address)}",
        f"## How it wants to be sampled\n\n{_sampling(model)}",
        f"## How it was made\n\n{_lineage(model)}",
        f"## Figures\n\n{details.figures or 'None were given when this card was written.'}",
    ]
    if details.license is not None:
        sections.append(f"## Licence\n\n{details.license}")
    sections.append(f"## Citation\n\n{_citation()}")
    front = yaml.safe_dump(_front_matter(model, details), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(sections) + "\n"


def _front_matter(model: "Model", details: CardDetails) -> dict[str, Any]:
    """The head of the card, which the Hub reads."""
    front: dict[str, Any] = {"library_name": "multimdm", "pipeline_tag": "text-generation"}
    if details.license is not None:
        front["license"] = details.license
    if details.language:
        front["language"] = list(details.language)
    front["tags"] = _tags(model)
    adapter = model.network.adapter if isinstance(model.network, LLaDA) else None
    if adapter is not None and is_hub_name(adapter.base):
        front["base_model"] = adapter.base.partition("@")[0]
    return front


def _tags(model: "Model") -> list[str]:
    process = model.process
    if process is None:
        return ["autoregressive"]
    if isinstance(process, Hybrid):
        kind = "hybrid-diffusion"
    elif not isinstance(process, MultiMask):
        kind = "uniform-state-diffusion"
    else:
        kind = "masked-diffusion" if process.num_masks == 1 else "multi-mask-diffusion"
    return ["diffusion", "discrete-diffusion", "diffusion-language-model", kind]


def _summary(model: "Model") -> str:
    config, kind = model.network.config, kind_of(model.process)
    words = f"{kind[0].upper()}{kind[1:]}; {size_of(model.network)}."
    words += f" It writes texts of up to {config.max_length:,} tokens out of {config.vocab_size:,}"
    return f"{words} (tokenizer `{model.tokenizer.name}`)." if model.tokenizer is not None else f"{words}, as ids."


def _use(model: "Model", address: str) -> str:
    what = "texts" if model.tokenizer is not None else "ids"
    ours = f'import multimdm\nmodel = multimdm.load("{address}")\nprint(model.sample(num=2).{what})'
    if not isinstance(model.network, DiT):
        return f"```python\n{ours}\n```"
    name, _, revision = address.partition("@")
    if builtin_directory(name) is not None:  # transformers would ask the Hub for that name
        theirs = f'import multimdm.hf\nmodel = multimdm.hf.MultiMDMModel.from_pretrained("{name}")'
    else:
        place = f'"{name}"' + (f', revision="{revision}"' if revision else "")
        theirs = (
            "import multimdm.hf  # makes it known to transformers; no remote code\n"
            f"from transformers import AutoModel\nmodel = AutoModel.from_pretrained({place})"
        )
    return f"```python\n{ours}\n```\n\nWith transformers:\n\n```python\n{theirs}\n```"


def _sampling(model: "Model") -> str:
    advice = {} if model.advice is None else {k: v for k, v in asdict(model.advice).items() if v is not None}
    if model.process is None:
        return "From left to right, one network call per token, at temperature 1 unless told otherwise."
    if not advice:
        return (
            f"It has no wishes: {USUAL_STEPS} network calls, at temperature 1, in ancestral order, unless told "
            "otherwise."
        )
    lines = [f"- {name}: `{value}`" for name, value in advice.items()]
    return "These settings are followed unless told otherwise:\n\n" + "\n".join(lines)


def _lineage(model: "Model") -> str:
    if not model.lineage:
        return "Its checkpoint does not say."
    steps = [f"{number}. {_step(step)}" for number, step in enumerate(model.lineage, 1)]
    recipes = yaml.safe_dump(list(model.lineage), sort_keys=False, allow_unicode=True)
    whole = f"<details>\n<summary>All settings</summary>\n\n```yaml\n{recipes}```\n\n</details>"
    return "\n".join(steps) + "\n\n" + whole


def _step(step: dict[str, Any]) -> str:
    """One step of the lineage as a sentence."""
    if "imported" in step:
        source, weights = step.get("from"), step.get("weights")
        return f"Imported from `{source}`, a checkpoint of {step['imported']}; weights: {weights}."
    if "command" not in step:
        return "A step that this version has no words for; see below."
    return f"`multimdm {step['command']}`, recipe `{step.get('name')}`: " + "; ".join(_facts(step)) + "."


def _facts(step: dict[str, Any]) -> Iterator[str]:
    """Start, data, budget, teacher and seed, as far as the recipe names them."""
    recipe = step.get("recipe") or {}
    data, train = recipe.get("data") or {}, recipe.get("train") or {}
    if recipe.get("init") is not None:
        yield f"from `{recipe['init']}`"
    if data.get("kind") is not None:
        yield f"data `{data['path'] if data.get('path') is not None else data['kind']}`"
    steps, batch = step.get("steps"), train.get("batch_size")
    if steps is not None and batch is not None:
        yield f"{steps:,} steps of {batch:,} sequences, {steps * batch:,} in all"
    elif steps is not None:
        yield f"{steps:,} steps"
    teacher = (recipe.get("quantile") or {}).get("teacher")
    if teacher is not None:
        yield f"teacher `{teacher}`"
    if train.get("learning_rate") is not None:
        yield f"learning rate {train['learning_rate']:g}"
    if train.get("seed") is not None:
        yield f"seed {train['seed']}"


def _citation() -> str:
    entry = f"@misc{{multimdm,\n  title = {{{_TITLE}}},\n  author = {{{' and '.join(_AUTHORS)}}}\n}}"
    return f"The method is that of this paper:\n\n```bibtex\n{entry}\n```"
