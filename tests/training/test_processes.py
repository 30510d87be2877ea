"""The process that a recipe asks for."""

import pytest
import torch

from multimdm.process import clustered, frequency_balanced, modulo, random_balanced
from multimdm.training.processes import multi_mask
from multimdm.training.settings import DataSettings, ProcessChoice
from multimdm.training.sources import open_source
from multimdm.training.step_plan import derive

M, SEED = 7, 3
SOURCE = open_source(DataSettings(kind="tales"), SEED)
V = SOURCE.tokenizer.vocab_size
EMBEDDINGS = torch.randn(V + 1, 6, generator=torch.Generator().manual_seed(0))
"""With the mask's own."""


@pytest.mark.parametrize(
    ("assignment", "wanted"),
    [
        ("modulo", lambda: modulo(V, M)),
        ("random", lambda: random_balanced(V, M, derive(SEED, "assignment"))),
        ("frequency", lambda: frequency_balanced(SOURCE.counts().double(), M)),
        ("clustered", lambda: clustered(EMBEDDINGS[:V], M, derive(SEED, "assignment"))),
    ],
)
def test_tokens_are_assigned_to_masks_as_asked(assignment, wanted):
    choice = ProcessChoice(num_masks=M, rho=2.0, alpha="cosine", assignment=assignment)
    process = multi_mask(choice, M, SOURCE, SEED, embeddings=EMBEDDINGS)
    assert (process.vocab_size, process.num_masks) == (V, M)
    assert (process.schedule.rho, process.schedule.kind) == (2.0, "cosine")
    torch.testing.assert_close(process.assignment, wanted())


def test_clusters_need_embeddings():
    with pytest.raises(ValueError, match=r"process.assignment clustered groups tokens by the embeddings of a trained"):
        multi_mask(ProcessChoice(num_masks=M, assignment="clustered"), M, SOURCE, SEED)
