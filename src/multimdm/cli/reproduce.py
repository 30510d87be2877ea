"""`multimdm reproduce`: a table or figure of the paper, from its specification."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from multimdm.cli.parsing import parse


@dataclass(frozen=True)
class Options:
    """Run a specification of the paper's experiments: train, distil, measure, and write its table or figure.

    Example: multimdm reproduce text-gen-pretrain --scale tales --seeds 3

    Stage by stage; what is finished is not done again, models are shared between specifications, and any number of
    processes may be given the same command: each takes a stage that no other works on. Without a specification, lists
    those that there are.
    """

    spec: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[SPEC]")] = None
    """The name of a specification, or a file."""
    scale: str = "tales"
    """tales: minutes to hours on a laptop. captions: real text of your own (--text). paper: the paper's corpus A
    (paper-lm1b: corpus B), on a cluster. Or a file."""
    seeds: int = 1
    """How many training seeds: 0, 1, ..."""
    first_seed: int = 0
    """Begin with this seed instead of 0: for machines that share no files, each with seeds of its own."""
    merge: tuple[Path, ...] = ()
    """Only put together what machines with other seeds found: the study.json of each. All tables and figures over all
    seeds are then written to the directory that --out names."""
    longer: int = 1
    """Train everything so many times as long as the scale says; it is kept beside the rest, as tales-x3 for 3."""
    micro_batch: int | None = None
    """Sequences that one rank works on at once, in place of what the recipes say: for GPUs with less memory. It changes
    no budget, and a run may go on with another one."""
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    """The precision of training, in place of what the recipes say. bfloat16 takes about half of the time on CPUs that
    compute in it (avx512_bf16, amx), and much longer on others."""
    compile: bool = False
    """Compile the blocks of networks in training with torch.compile: faster after the first minute."""
    text: tuple[Path, ...] = ()
    """Files of your own with one text per line, for a scale that trains on them."""
    benchmarks: str | None = None
    """Directory with the items of benchmarks; from the Hub unless given."""
    run_code: bool = False
    """Run programs that models write (HumanEval, MBPP), in a process with limits."""
    out: Path | None = None
    """Where everything is kept; scales have folders of their own. Default: runs/reproduce."""
    list: bool = False
    """Only list the stages, and which of them are done."""
    stage: str | None = None
    """Only do this stage; with torchrun, by all of its ranks."""
    slurm: Path | None = None
    """Only write a script that hands all stages to Slurm."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and run."""
    options = parse(Options, arguments, "multimdm reproduce", config=(tyro.conf.FlagCreatePairsOff,))
    if options.merge:
        _merge(options)
        return
    if options.spec is None:
        _list_specs()
        return
    if options.first_seed < 0:
        raise ValueError(f"--first-seed must be 0 or more; got {options.first_seed}")
    numbers = (("seeds", options.seeds), ("longer", options.longer), ("micro-batch", options.micro_batch))
    for name, value in numbers:
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1; got {value}")
    for path in options.text:
        if not path.is_file():
            raise ValueError(f"--text must name files; there is no {path}")
    try:
        from multimdm.reproduce.running import Request, open_experiment, run_all, run_stage
        from multimdm.reproduce.scale import Execution
    except ModuleNotFoundError as error:
        raise ValueError(f"reproduce needs the package {error.name}: pip install 'multimdm[train]'") from None

    request = Request(
        options.spec,
        options.scale,
        options.seeds,
        options.out or Path("runs/reproduce"),
        tuple(path.resolve() for path in options.text),
        options.benchmarks,
        options.run_code,
        options.longer,
        Execution(options.micro_batch, options.precision, True if options.compile else None),
        options.first_seed,
    )
    experiment = open_experiment(request)
    if options.list:
        for stage in experiment.stages():
            print(f"{'done' if stage.done() else '    '}  {stage.name}")
    elif options.slurm is not None:
        from multimdm._files import write_text
        from multimdm.reproduce.workers import slurm_script

        command = ["multimdm", "reproduce", *_without_slurm(arguments)]
        write_text(options.slurm, slurm_script(experiment.stages(), command))
        print(f"wrote {options.slurm}: its head says what to set; then: bash {options.slurm}")
    elif options.stage is not None:
        run_stage(experiment, options.stage)
    else:
        _tell(run_all(experiment))


def _tell(out: Path) -> None:
    """Print what was written."""
    print((out / "tables.md").read_text(encoding="utf-8") if (out / "tables.md").exists() else "")
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} to {out}")


def _merge(options: Options) -> None:
    """Merge several studies into one."""
    if options.out is None:
        raise ValueError("--merge needs --out DIR: where the tables and figures of all seeds are to be written")
    from multimdm.reproduce.results import merge, write_results
    from multimdm.reproduce.spec import read_spec

    results = merge(options.merge)
    if options.spec is not None and (title := read_spec(options.spec)[1].title) != results[0].title:
        raise ValueError(f"--merge got studies of '{results[0].title}'; {options.spec} is '{title}'")
    _tell(write_results(options.out, results, [result.judge for result in results]))


def _without_slurm(arguments: Sequence[str]) -> list[str]:
    """The command that was given, without what asks for the script."""
    kept = [argument for argument in arguments if not argument.startswith("--slurm=")]
    if "--slurm" in kept:
        place = kept.index("--slurm")
        del kept[place : place + 2]
    return kept


def _list_specs() -> None:
    from multimdm.reproduce.spec import read_spec
    from multimdm.training.shipped import shipped

    print("specifications:")
    for name in shipped("paper"):
        spec = read_spec(name)[1]
        print(f"  {name:<28} {spec.title} ({spec.shows})")
    print(f"scales: {', '.join(shipped('paper/scales'))}")
