"""The NELBO of models in words: a bound, or of autoregressive models the thing itself."""

from collections.abc import Sequence

from multimdm.evaluation.nelbo import Nelbo
from multimdm.evaluation.plan import Evaluation
from multimdm.report.document import Part, Table, section
from multimdm.report.formats import EXACT, NO_BOUND, NOTHING, ONE_STEP, entropy_text, perplexity_text


def loss_name(evaluations: Sequence[Evaluation]) -> str:
    """What the losses of these models are: bounds, exact, or some of both."""
    exact = {e.nelbo.exact for e in evaluations if e.nelbo is not None}
    return EXACT if exact == {True} else f"NELBO, or {EXACT}" if True in exact else "NELBO"


def models_table(evaluations: Sequence[Evaluation]) -> Table:
    """What kind of model each is, with its NELBO if one was measured."""
    name = "Models"
    if all(e.nelbo is None for e in evaluations):
        return Table(name, ["model", "kind"], [[e.label, e.description] for e in evaluations], "words")
    loss = loss_name(evaluations)
    header = ["model", "kind", f"{loss} (nats per token)", "perplexity at most" if "NELBO" in loss else "perplexity"]
    rows = [[e.label, e.description, *_figures(e.nelbo)] for e in evaluations]
    return Table(name, header, rows, "words")


def _figures(nelbo: Nelbo | None) -> list[str]:
    if nelbo is None:
        return [NOTHING] * 2
    bound = perplexity_text(nelbo.perplexity) if nelbo.bound else NO_BOUND
    bound += f", {ONE_STEP}" if nelbo.one_step else ""
    bound += f", exactly: its {EXACT}" if nelbo.exact else ""
    return [f"{nelbo.total:.4f} ± {nelbo.standard_error:.4f}", bound]


def nelbo_line(nelbo: Nelbo, nats_per_token: float | None) -> str:
    """The NELBO in a line, with the exact entropy of the source where it is known."""
    name = f"bound {ONE_STEP}" if nelbo.one_step else EXACT if nelbo.exact else "NELBO" if nelbo.bound else "loss"
    text = f"{name} {nelbo.total:.4f} ± {nelbo.standard_error:.4f} nats per token (± one standard error), "
    if nelbo.one_step:
        text += f"{nelbo.reconstruction:.4f} of the draft + {nelbo.identification:.4f} of its numbers, "
    most = "" if nelbo.exact else "at most "
    text += f"perplexity {most}{perplexity_text(nelbo.perplexity)}" if nelbo.bound else NO_BOUND
    return text if nats_per_token is None else f"{text}; exact entropy {nats_per_token:.4f}"


def nelbo_section(evaluations: Sequence[Evaluation]) -> list[Part]:
    """The NELBOs of the models that have one, in nats per token."""
    found = [(e.label, e.nelbo) for e in evaluations if e.nelbo is not None]
    rows = []
    for label, nelbo in found:
        note = f" ({ONE_STEP})" if nelbo.one_step else "" if nelbo.bound else f" ({NO_BOUND})"
        note = f" ({EXACT})" if nelbo.exact else note
        rows.append([label, f"{entropy_text(nelbo.total)} ± {entropy_text(nelbo.standard_error)}{note}"])
    title = "Negative log-likelihood" if all(nelbo.exact for _, nelbo in found) else "NELBO"
    return section(title, "", Table(title, ["model", "nats per token on held-out text ± standard error"], rows))
