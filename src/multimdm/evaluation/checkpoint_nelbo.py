"""The NELBO of a checkpoint on held-out text."""

from multimdm.data.prepared import Example
from multimdm.evaluation.nelbo import Nelbo, NelboSums, nelbo_sums, validation_times
from multimdm.evaluation.progress import Progress, ignore
from multimdm.evaluation.real_text import RealText
from multimdm.pipeline import Model
from multimdm.process import Streams
from multimdm.process.checks import check_integer


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
    check_integer("sequences", sequences, 1)
    check_integer("draws", draws, 1)
    check_integer("batch_size", batch_size, 1)
    example = text.take(sequences)
    n = len(example.ids)
    times = validation_times(n, draws, seed)
    device = next(model.network.parameters()).device
    sums = NelboSums.none()
    training = model.network.training
    model.network.eval()
    try:
        for start in range(0, n, batch_size):
            rows = slice(start, min(start + batch_size, n))
            ids, valid = Example(example.ids[rows], example.valid[rows]).on(device)
            streams = Streams.spawn(seed, len(ids), start)
            V = model.network.config.vocab_size
            sums += nelbo_sums(model.network, model.process, ids, valid, times[:, rows], streams, V)
            progress(len(ids) * draws)
    finally:
        model.network.train(training)
    return sums.estimate(model.process)
