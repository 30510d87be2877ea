"""What objectives and samplers cost on a GPU: bytes per logit, launches per row, waits per micro-batch; none may grow.

A logit in bfloat16 is written once (2 bytes), read by the loss (2), read again for its gradient (2), which is written
(2) and read by two products of matrices (4) and a sum (2): 14 bytes, and a few numbers per row.
"""

import pytest

from support.gpu_costs import cost_of_sampling, cost_of_training, objectives, samplers

TRAINING = {
    "mdlm": (15.0, 0.013, 2),
    "multimask": (17.5, 0.016, 2),  # the scheduler for CPUs takes two passes for the sums of groups
    "multimask, random": (15.5, 0.016, 2),
    "multimask, context": (17.5, 0.019, 2),
    "a mask for every token": (253.0, 0.016, 2),  # the sums of groups are as large as the logits, and in float64
    "multimask, mistakes": (17.5, 0.019, 2),
    # Waits: which sequences have mistakes, where the network is asked for them, and where it is asked in that call.
    "multimask, own mistakes": (17.5, 0.032, 5),
    "duo": (15.0, 0.012, 2),
    "autoregressive": (15.0, 0.006, 2),
    "duo, relaxed": (18.0, 0.028, 2),
    "candi": (16.5, 0.016, 2),
    # Two tables. Waits: where the student, and where the teacher, is asked; how many rows of a chunk the teacher knows.
    "consistency": (32.0, 0.020, 4),
    "consistency, smoothed": (42.5, 0.017, 4),
    "consistency, gaussian": (24.0, 0.031, 4),
    # Two tables. Waits: as above, and where something is still hidden after the first of the teacher's two steps.
    "sdtt": (46.0, 0.046, 5),
    "sdtt, uniform states": (123.0, 0.049, 5),  # the evidence of the state joins each prediction in a table of its own
    "tied": (52.0, 0.019, 2),  # what x_1 tells joins the logits in a table of its own
    "tied, noise shown": (33.5, 0.017, 2),
    # Waits: for which sequences the network guesses a draft, and where it is asked in that call.
    "tied, drafts": (53.5, 0.022, 4),
}


@pytest.mark.parametrize("name", TRAINING)
def test_training(name):
    bytes_per_logit, launches_per_row, waits = TRAINING[name]
    cost = cost_of_training(objectives()[name])
    assert cost.bytes_per_logit < bytes_per_logit
    assert cost.launches_per_row < launches_per_row
    assert cost.waits <= waits


SAMPLING = {  # waits: where something is hidden (sampler and head), whether all are done, which sequences go on
    "ancestral": (10.0, 0.030, 4),
    "ancestral, temperature": (13.0, 0.030, 4),  # a table of scaled logits
    "ancestral, top-p": (95.0, 0.032, 4),  # rows are sorted
    "uniform states": (29.0, 0.042, 4),  # the evidence of the state joins in a table of its own
    "confidence": (12.0, 0.037, 4),
    "left to right": (12.0, 0.035, 4),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_sampling(name):
    bytes_per_logit, launches_per_row, waits = SAMPLING[name]
    cost = cost_of_sampling(*samplers()[name])
    assert cost.bytes_per_logit < bytes_per_logit
    assert cost.launches_per_row < launches_per_row
    assert cost.waits <= waits
