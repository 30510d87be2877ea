"""Models whose lineage names a teacher: found again, and how probable they make held-out text in one step."""

from dataclasses import replace

import pytest
import torch

from multimdm.evaluation.one_step import OneStep
from multimdm.evaluation.quantile_models import (
    has_quantile_noise,
    one_step_bound,
    open_quantile_noise,
    recall_by_importance,
)
from multimdm.evaluation.real_text import real_text
from multimdm.process import MultiMask, Streams
from multimdm.process.quantile import bucket_information, buckets, numbers
from support.tiny_models import shown_tales_model

LINEAGE = ({"command": "couple", "recipe": {"init": "nowhere", "quantile": {"teacher": "tales", "order": "similar"}}},)


def model_with_noise():
    return replace(shown_tales_model(), lineage=LINEAGE)


def test_the_lineage_says_whether_there_is_quantile_noise():
    assert has_quantile_noise(model_with_noise())
    assert not has_quantile_noise(shown_tales_model())
    with pytest.raises(ValueError, match="a teacher is for models with quantile noise"):
        open_quantile_noise(shown_tales_model())


def test_a_teacher_that_has_moved_is_asked_for():
    lost = replace(model_with_noise(), lineage=({"recipe": {"init": "./gone", "quantile": {"teacher": None}}},))
    with pytest.raises(ValueError, match=r"teacher './gone' cannot be found.*say where: --teacher"):
        open_quantile_noise(lost)


def test_the_line_of_the_checkpoint_counts():
    """A table that was learnt is not made anew; without one it is made as the recipe says."""
    model = model_with_noise()
    table = torch.arange(model.network.config.vocab_size).flip(0)
    assert open_quantile_noise(replace(model, cell_order=table)).order is table
    made = open_quantile_noise(model).order
    assert isinstance(made, torch.Tensor)
    assert not torch.equal(made, table)


def test_the_bound_has_the_two_terms_of_the_law():
    model = model_with_noise()
    assert isinstance(model.process, MultiMask)
    model.network.train()
    noise, text = open_quantile_noise(model), real_text("tales", model)
    found = one_step_bound(model, noise, text, 8, draws=2, seed=3)
    assert found.one_step
    assert model.network.training  # as it was
    model.network.eval()
    ids, M = text.take(8).ids, model.process.num_masks
    cells, streams = noise.teacher.cells(ids, noise.order), Streams.spawn(3, 8)
    drafts = []
    for _ in range(2):
        x_1 = model.process.vocab_size + buckets(numbers(cells, streams), M)
        with torch.no_grad():
            drafts.append(-OneStep(model.network, model.process, ids).log_prob_given(x_1))
    assert found.reconstruction == pytest.approx(float(torch.stack(drafts).mean() / ids.shape[1]), rel=1e-9)
    assert found.identification == pytest.approx(float(bucket_information(cells, M).mean()), rel=1e-9)


def test_recall_lies_below_the_bound():
    """Both of -log p_1, which the bound exceeds."""
    model = model_with_noise()
    noise, text = open_quantile_noise(model), real_text("tales", model)
    recall = recall_by_importance(model, noise, text, 8, 16)
    assert recall.proposed
    assert recall.sequences == 8
    assert recall.nats.value < one_step_bound(model, noise, text, 8, draws=8).total
