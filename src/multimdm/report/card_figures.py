"""The figures of a model card, from the results of an evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from multimdm._complaints import explain
from multimdm._files import read_json
from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.nelbo import Nelbo
from multimdm.report.columns import ENTROPY, GEN_PPL, POOLED
from multimdm.report.formats import INTERVAL, full_text, perplexity_text, share_text
from multimdm.report.markdown import markdown_table


@dataclass(frozen=True)
class CardResults:
    """What a card needs of results.json, as `multimdm evaluate --out` writes it."""

    fingerprint: str
    measurements: tuple[Measurement, ...]
    aligned: tuple[Aligned, ...] = ()
    nelbo: Nelbo | None = None
    nats_per_token: float | None = None
    seeds: int = 1


def read_results(path: Path, fingerprint: str) -> CardResults:
    """Results of the checkpoint with this fingerprint; an error if they are another's."""
    try:
        results = TypeAdapter(CardResults).validate_python(read_json(path))
    except ValidationError as error:
        raise ValueError(explain(error, f"{path} is not what `multimdm evaluate --out` writes")) from None
    if results.fingerprint != fingerprint:
        raise ValueError(f"{path} has the figures of another checkpoint; evaluate this one, or leave --results out")
    return results


def card_figures(results: CardResults) -> str:
    """Markdown: samples with judge, entropy and seeds, and the bound on held-out text."""
    parts = list(_parts(results))
    return "\n\n".join(parts) if parts else "The evaluation has none."


def _parts(results: CardResults) -> Iterator[str]:
    rows = [(one, "") for one in results.measurements]
    rows += [(one.measurement, _alignment(one)) for one in results.aligned]
    if rows:
        yield _how(results, [one for one, _ in rows])
        header = ("K", "calls", "temperature", "GenPPL", "entropy in nats", "pooled entropy", "distinct 1-grams", "")
        yield "\n".join(markdown_table(header, (_row(one, note) for one, note in rows)))
    if results.nelbo is not None and results.nelbo.bound:
        yield _nelbo(results.nelbo, results.nats_per_token)


def _alignment(aligned: Aligned) -> str:
    if aligned.target is None:
        return ""
    return f"at the entropy {aligned.target:.3f}" + ("" if aligned.reached else ", as near as temperatures come")


def _row(m: Measurement, note: str) -> list[str]:
    figures = [figure.in_line(m) for figure in (GEN_PPL, ENTROPY, POOLED)]
    return [str(m.steps), str(m.nfe), f"{m.temperature:.4g}", *figures, full_text(m.distinct[0], share_text), note]


def _how(results: CardResults, rows: list[Measurement]) -> str:
    """What the figures rest on."""
    judges = sorted({one.judge for one in rows if one.judge is not None})
    judge = f"GenPPL is by the judge {', '.join(f'`{name}`' for name in judges)}." if judges else "There was no judge."
    nums = ", ".join(str(num) for num in sorted({one.num for one in rows}))
    lengths = ", ".join(str(length) for length in sorted({one.length for one in rows}))
    seeds = ", ".join(str(seed) for seed in sorted({one.seed for one in rows}))
    over = "samples" if results.seeds == 1 else f"{results.seeds} training seeds"
    training = "one training seed" if results.seeds == 1 else f"means over {results.seeds} training seeds"
    return (
        f"{judge} {nums} samples of {lengths} tokens, sampling seed {seeds}, {training}; in brackets, the {INTERVAL} "
        f"over {over}. A low GenPPL with a low entropy is no merit."
    )


def _nelbo(nelbo: Nelbo, source: float | None) -> str:
    what = "NELBO"
    if nelbo.one_step or nelbo.exact:
        what = "Negative log-likelihood" if nelbo.exact else "Bound for text that is written in one step"
    most = "" if nelbo.exact else "at most "
    words = (
        f"{what} on held-out text: {nelbo.total:.4f} ± {nelbo.standard_error:.4f} nats per token (standard error, "
        f"{nelbo.sequences:,} sequences), a perplexity of {most}{perplexity_text(nelbo.perplexity)}."
    )
    return words if source is None else f"{words} The source itself has {source:.4f} nats per token."
