"""The NELBO of a checkpoint on held-out text."""

from dataclasses import replace

from multimdm.evaluation.held_out import Part, parts_of
from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.pipeline import Model
from multimdm.pipeline.generation import evaluating
from multimdm.pipeline.ranks import shared


def evaluate_nelbo(
    model: Model,
    text: RealText,
    sequences: int = 512,
    draws: int = 1,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress = ignore,
) -> Nelbo:
    """Nats per token with standard error; times evenly spread over the sequences, anew in each of the draws.

    The noise of a sequence is its own, so the batch size changes nothing. Of prompts and answers it is the bound for
    answers and their ends given the prompts, per token of an answer.
    """
    V = model.network.config.vocab_size

    def of(part: Part) -> NelboSums:
        streams = part.streams(seed)
        sums = nelbo_sums(
            model.network, model.process, part.ids, part.valid, part.times, streams, V, part.given, part.tokens
        )
        progress(len(part.ids) * draws)
        return sums

    with evaluating(model.network):
        found = shared(parts_of(model, text, sequences, draws, seed, batch_size), of)
    return replace(NelboSums.of_parts(found).estimate(model.process), exact=model.process is None)
