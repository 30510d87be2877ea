"""A quickstart's story without any training: figures as wide as real ones, texts of the source."""

from dataclasses import replace

import torch

from multimdm.data import Tales
from multimdm.evaluation.alignment import Aligned
from multimdm.evaluation.bootstrap import Estimate
from multimdm.evaluation.measurement import Measurement
from multimdm.evaluation.plan import Evaluation
from multimdm.evaluation.real_text import RealFigures
from multimdm.evaluation.trajectory import Trajectory
from multimdm.report.quickstart_report import Done, Story
from support.measurements import made_up

STEPS = (1, 2, 4, 8, 16)
MODELS = ("MDLM", "MultiMDM", "MDLM distilled", "MultiMDM distilled", "quantile noise")


def _estimate(value: float) -> Estimate:
    return Estimate(value, value * 0.87, value * 1.13)


def _measurement(steps: int, gen_ppl: float, texts: tuple[str, ...], temperature: float) -> Measurement:
    share = _estimate(0.523)
    return made_up(
        steps,
        share,
        temperature=temperature,
        num=64,
        gen_ppl=_estimate(gen_ppl),
        entropy=_estimate(3.234),
        pooled_entropy=_estimate(4.715),
        token_chance=0.312,
        pair_chance=0.345,
        texts=texts,
        subject_distance=share,
        subject_chance=0.2,
        subject_pair_distance=share,
        subject_pair_chance=0.4,
    )


def _evaluation(label: str, factor: float, order: str, texts: tuple[str, ...]) -> Evaluation:
    points = tuple(_measurement(K, factor * 5000 / K, texts, tau) for K in STEPS for tau in (0.8, 1.0, 1.2))
    drawing = {"num": 64, "length": 48, "seed": 0, "batch_size": 64, "law": {"order": order, "threshold": "by_steps"}}
    words = (("17",) * 48, ("Lily",) * 48)
    return Evaluation(
        label=label,
        path=f"runs/quickstart/{label.replace(' ', '-')}/model",
        description="multi-mask diffusion, M = 20, rho = 1; 4 blocks of width 128, 1,144,404 parameters",
        fingerprint="0123456789abcdef" * 4,
        judge="tales",
        drawing=drawing,
        real=RealFigures("tales", 2048, _estimate(3.232), _estimate(4.769), "tales", 256, _estimate(2.83)),
        measurements=points,
        aligned=tuple(Aligned(3.232, K < 16, (), _measurement(K, factor * 5000 / K, texts, 0.9341)) for K in STEPS),
        trajectories=(Trajectory(4, (1.0, 0.0), words, ((1,) * 48, (0,) * 48), True),),
    )


def told_story() -> Story:
    """Of five models and the two limits."""
    tales = Tales()
    stories = tales.sample(3, torch.Generator().manual_seed(0))
    spoilt = stories.clone()
    spoilt[:, 7] = spoilt[:, 20]
    texts = tuple(tales.decode(ids) for ids in spoilt)
    orders = ("ancestral",) * 4 + ("confidence",)
    evaluations = [
        _evaluation(label, 1 / 4**number, order, texts)
        for number, (label, order) in enumerate(zip(MODELS, orders, strict=True))
    ]
    ar = _evaluation("AR", 1e-3, "ancestral", texts)
    always = tuple(replace(one, measurement=replace(one.measurement, nfe=48)) for one in ar.aligned)
    return Story(
        evaluations=evaluations,
        perfect=_evaluation("perfect network", 1.0, "ancestral", texts),
        autoregressive=replace(ar, aligned=always, trajectories=()),
        steps=STEPS,
        stages=[Done(label, "continued with one mask: the control", 1200, 93.0) for label in MODELS],
        trained={},
        distilled={},
        batch=32,
        seed=0,
    )
