"""How often torch compiles in a run: recipes of the paper's size compile their blocks, and every graph takes its time.

Networks are tiny; what is counted is how many graphs the compiler is asked for, not what it makes of them.
"""

from typing import Any

import pytest
import torch

from multimdm.training.building import distill_job
from multimdm.training.loop import train
from multimdm.training.recipes import parse_recipe
from multimdm.training.schema import DistillRecipe
from support.runs import tiny_distillation, tiny_job, tiny_starts

pytestmark = [
    pytest.mark.unchecked,  # the compiler would trace the checks
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # the compiler looks at all of a tensor
]

TRAIN = {"steps": 3, "batch_size": 8, "micro_batch": 4, "warmup": 0, "compile": True, "precision": "bfloat16"}
LOG = {"validate_every": 2, "validation_sequences": 4, "sample_every": 2, "samples": 4, "sample_steps": 2}
MOST = 4


@pytest.fixture
def graphs(monkeypatch) -> list[Any]:
    """What the compiler was given."""
    given: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        given.append(graph)
        return graph.forward

    compile_plainly = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compile_plainly(self, backend=backend))
    torch._dynamo.reset()
    return given


@pytest.mark.parametrize("system", ["mdlm", "multimdm", "duo", "candi", "ar"])
def test_pretraining(system, graphs, tmp_path):
    network = {"num_blocks": 3, "dropout": 0.1}
    train(tiny_job(system=system, network=network, train=TRAIN, log=LOG), tmp_path, quiet=True)
    assert 0 < len(graphs) <= MOST


@pytest.mark.parametrize("objective", ["consistency", "sdtt"])
def test_distillation(objective, graphs, tmp_path):
    start = tiny_starts(tmp_path)["multimdm"]
    sections = {} if objective == "consistency" else {"sdtt": {"rounds": 3}}
    data = tiny_distillation(start, **sections, train=TRAIN, log=LOG)
    train(distill_job(parse_recipe(data, DistillRecipe, "test"), objective), tmp_path / "run", quiet=True)
    assert 0 < len(graphs) <= MOST
