"""The figures of an evaluation as tables in the terminal."""

from rich import box, markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from multimdm._inert import inert
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.report.distances import chance_text
from multimdm.report.formats import (
    EXACT,
    INTERVAL,
    NO_BOUND,
    NO_TEXT,
    ONE_STEP,
    UNREACHED,
    UNREACHED_NOTE,
    entropy_text,
    full_text,
    interval_text,
    perplexity_text,
    ratio_text,
    share_text,
    value_text,
)
from multimdm.report.likelihoods import likelihood_texts
from multimdm.report.mask_readings import mask_reading_text
from multimdm.report.mauves import mauve_texts
from multimdm.report.recalls import recall_texts
from multimdm.report.shortfalls import HEADER, NOTE, shortfall_rows
from multimdm.report.weak_judge import weak_judge_text

_WIDTH = 148
"""Of what is not a terminal."""


def escape(text: str) -> str:
    """Text as text: neither rich's markup nor the terminal's own."""
    return markup.escape(inert(text))


def print_evaluation(evaluation: Evaluation) -> None:
    """Samples, aligned samples, real text, NELBO, what masks tell, recall, and where the network loses."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    console.print(f"[bold]{escape(evaluation.label)}[/bold]  {escape(evaluation.description)}")
    if evaluation.measurements:
        console.print(_measurements(evaluation))
        judge = "no judge, so no GenPPL" if evaluation.judge is None else f"GenPPL by judge {evaluation.judge}"
        console.print(f"[dim]in brackets: {INTERVAL}; {escape(judge)}[/dim]")
        if chance := chance_text(evaluation.measurements):
            console.print(f"[dim]distance from the source, of tokens and of pairs: {escape(chance)}[/dim]")
    if any(not one.reached for one in evaluation.aligned):
        console.print(f"[dim]{UNREACHED_NOTE}[/dim]")
    real = evaluation.real
    if real is not None:
        said = f", GenPPL {full_text(real.gen_ppl, perplexity_text)}" if real.gen_ppl is not None else ""
        entropies = f"entropy {full_text(real.entropy)}, pooled {full_text(real.pooled_entropy)}"
        console.print(escape(f"real text ({real.name}): {entropies}{said}"))
    elif evaluation.measurements:
        console.print(escape(NO_TEXT))
    if weak := weak_judge_text(evaluation):
        console.print(Text(inert(weak), style="bold red"))
    nelbo = evaluation.nelbo
    if nelbo is not None:
        name = f"bound {ONE_STEP}" if nelbo.one_step else EXACT if nelbo.exact else "NELBO" if nelbo.bound else "loss"
        text = f"{name} {nelbo.total:.4f} ± {nelbo.standard_error:.4f} nats per token (± one standard error), "
        if nelbo.one_step:
            text += f"{nelbo.reconstruction:.4f} of the draft + {nelbo.identification:.4f} of its numbers, "
        most = "" if nelbo.exact else "at most "
        text += f"perplexity {most}{perplexity_text(nelbo.perplexity)}" if nelbo.bound else NO_BOUND
        if evaluation.nats_per_token is not None:
            text += f"; exact entropy {evaluation.nats_per_token:.4f}"
        console.print(escape(text))
    for text in (*likelihood_texts(evaluation), *mauve_texts(evaluation)):
        console.print(escape(text))
    if evaluation.mask_reading is not None:
        console.print(escape(mask_reading_text(evaluation.mask_reading)))
    for text in recall_texts(evaluation):
        console.print(escape(f"recall in one step {text}"))
    if evaluation.shortfalls:
        console.print(_shortfalls(evaluation))
        console.print(f"[dim]{escape(NOTE)}[/dim]")


def _shortfalls(evaluation: Evaluation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in HEADER[1:]:
        table.add_column(name)
    for _, *cells in shortfall_rows([evaluation]):
        table.add_row(*cells)
    return table


def _measurements(evaluation: Evaluation) -> Table:
    rows = [(m, "") for m in evaluation.measurements]
    rows += [(one.measurement, "aligned" + ("" if one.reached else f" {UNREACHED}")) for one in evaluation.aligned]
    rows.sort(key=lambda row: (row[0].steps, row[1], row[0].temperature))
    tales = any(m.valid_stories is not None for m, _ in rows)
    calls = any(m.nfe != m.steps for m, _ in rows)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    names = ["K", *(["calls"] if calls else []), "tau", "GenPPL", "entropy", "pooled"]
    names += (["stories", "sentences", "distance"] if tales else []) + ["distinct 1/2/3", "duplicates"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=name.startswith("distinct"))
    for m, kind in rows:
        table.add_row(*_row(m, kind, calls, tales))
    return table


def _row(m: Measurement, kind: str, calls: bool, tales: bool) -> list[Text]:
    cells = [Text(str(m.steps)), *([Text(str(m.nfe))] if calls else []), _cell(f"{m.temperature:.4g}", kind)]
    cells += [_estimate(m.gen_ppl, perplexity_text)]
    # Of the pooled entropy and of distances no interval, for want of room; the report has them.
    cells += [_estimate(m.entropy, entropy_text), Text(entropy_text(m.pooled_entropy.value))]
    if tales:
        cells += [_estimate(x, share_text) for x in (m.valid_stories, m.valid_sentences)]
        far = (m.token_distance, m.pair_distance, m.subject_distance, m.subject_pair_distance)
        cells.append(Text("\n".join(value_text(x) for x in far if x is not None)))
    distinct = [Text.assemble(ratio_text(d.value), (f" {interval_text(d, ratio_text)}", "dim")) for d in m.distinct]
    return [*cells, Text("\n").join(distinct), _estimate(m.duplicates, share_text)]


def _estimate(estimate: Estimate | None, text) -> Text:
    return _cell(value_text(estimate, text), interval_text(estimate, text))


def _cell(value: str, below: str) -> Text:
    return Text.assemble(value, ("\n" + below if below else "", "dim"))
