"""The NELBO of a checkpoint on held-out text."""

from dataclasses import replace

from multimdm.evaluation.held_out import parts_of
from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.pipeline import Model
from multimdm.pipeline.generation import evaluating


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

    The noise of a sequence is its own, so the batch size changes nothing.
    """
    sums, V = NelboSums.none(), model.network.config.vocab_size
    with evaluating(model.network):
        for part in parts_of(model, text, sequences, draws, seed, batch_size):
            streams = part.streams(seed)
            sums += nelbo_sums(model.network, model.process, part.ids, part.valid, part.times, streams, V)
            progress(len(part.ids) * draws)
    return replace(sums.estimate(model.process), exact=model.process is None)
