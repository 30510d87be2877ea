"""Who does the stages: processes that work side by side, each with stages and a GPU of its own, or jobs of Slurm."""

import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from multimdm._locks import take_lock
from multimdm.pipeline.ranks import speaks
from multimdm.reproduce.stages import Stage
from multimdm.training.overall import Overall

_SECONDS_BETWEEN_LOOKS = 5.0


def do_all(stages: Sequence[Stage], locks: Path) -> None:
    """Until all stages are done, by this process or by others that were given the same ones.

    A lock goes with the process that holds it, so a stage whose process was killed is taken up by another.
    """
    pending = {stage.name: stage for stage in stages}
    waiting = False
    with Overall({stage.name: stage.cost for stage in stages}) as overall:
        while pending:
            for name in [name for name, stage in pending.items() if stage.done()]:
                overall.skip(name)
                del pending[name]
            taken = next((stage for stage in _ready(pending) if _take(stage, locks, overall)), None)
            if taken is not None:
                waiting = False
                del pending[taken.name]
            elif pending:
                if not waiting:
                    overall.say(f"waiting for other processes, which work on: {', '.join(pending)}")
                waiting = True
                time.sleep(_SECONDS_BETWEEN_LOOKS)


def do_one(stage: Stage, locks: Path) -> None:
    """A single stage; refused while another process works on it, other than a rank of ours."""
    if stage.done():
        return
    with Overall({stage.name: stage.cost}) as overall:
        if not speaks():
            stage.run(overall)
        elif not _take(stage, locks, overall):
            raise ValueError(f"another process works on the stage '{stage.name}'")


def _ready(pending: dict[str, Stage]) -> list[Stage]:
    """The stages whose needs are no longer pending, in their order."""
    return [stage for stage in pending.values() if not any(need in pending for need in stage.needs)]


def _take(stage: Stage, locks: Path, overall: Overall) -> bool:
    """Do it, unless another process has it; whether it is done now."""
    with locked(locks / f"{stage.name}.lock") as free:
        if not free:
            return False
        if stage.done():  # by another process, a moment ago
            overall.skip(stage.name)
        else:
            stage.run(overall)
        return True


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether the lock could be had. It is held until the end, and never outlives the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take_lock(path)
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def own_gpu() -> Iterator[None]:
    """Compute on a GPU that no other process of ours has, where there are several and no launcher chooses."""
    names = gpu_names()
    if len(names) < 2 or "LOCAL_RANK" in os.environ:
        yield
        return
    with claimed(names, _folder()) as number:
        torch.cuda.set_device(number)
        yield


@contextmanager
def claimed(names: list[str], folder: Path) -> Iterator[int]:
    """The place of a GPU in the list that fewest processes have claimed; it is ours until the end.

    A GPU has as many places as there are processes: the first of all GPUs are taken before the second of any.
    """
    for place in count():
        for number, name in enumerate(names):
            with locked(folder / f"{name}-{place}.lock") as free:
                if free:
                    yield number
                    return


def gpu_names() -> list[str]:
    """The names of the GPUs that this process sees, as other processes know them too."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = torch.cuda.device_count()
    names = visible.split(",") if visible else [str(number) for number in range(seen)]
    return [name.strip().replace("/", "-") for name in names][:seen]


def _folder() -> Path:
    """The folder of locks on this machine, where the results need not be."""
    return Path(tempfile.gettempdir()) / f"multimdm-gpus-{os.getuid()}"


_SLURM_HEAD = """\
#!/bin/bash
# Every stage as a job of its own. Jobs go on where they were stopped, so the script can be run again.
#   SBATCH_OPTIONS  for every job, such as "--partition=gpu --time=24:00:00"
#   TRAIN_OPTIONS   for training jobs; "--gres=gpu:1" unless set, such as "--gres=gpu:8"
#   RUN_OPTIONS     for other jobs that run a network, which measure; "--gres=gpu:1" unless set
#   LAUNCH          before training commands, such as
#                   "torchrun --standalone --nproc-per-node=8 --shutdown-timeout=300 --no-python"
#   RUN_LAUNCH      the same before measuring commands
set -euo pipefail
: "${TRAIN_OPTIONS=--gres=gpu:1}" "${RUN_OPTIONS=--gres=gpu:1}"
# NOTICE seconds (300 unless set) before its time is over, a job is told so. Training then saves its step; the job is
# queued again and goes on. What is told is handed on to the command, since Slurm tells the job's shell alone.
handed_on='& pid=$!; trap "told=1; kill -TERM $pid" USR1; wait $pid; code=$?
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
if [ "${told:-0}" = 1 ] && [ $code != 0 ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code'
declare -A job
submit() {  # submit NAME "NEEDS" OPTIONS COMMAND
  local after=""
  for need in $2; do after="$after:${job[$need]}"; done
  job[$1]=$(sbatch --parsable --requeue --open-mode=append --signal=B:USR1@"${NOTICE:-300}" --job-name="$1" \\
    ${after:+--dependency=afterok$after} ${SBATCH_OPTIONS:-} $3 --wrap="$4 $handed_on")
}
"""


def slurm_script(stages: Sequence[Stage], command: Sequence[str]) -> str:
    """A shell script that hands every stage to Slurm as a job that waits for those it needs.

    `command` does everything; with --stage NAME it does one. What is written at the end is read, not computed.
    """
    lines = [_SLURM_HEAD]
    for stage in stages:
        one = _within_quotes([*command, "--stage", stage.name])
        options = "$TRAIN_OPTIONS" if stage.trains else "$RUN_OPTIONS" if stage.runs_network else ""
        launch = "${LAUNCH:-} " if stage.trains else "${RUN_LAUNCH:-} " if stage.runs_network else ""
        lines.append(f'submit {stage.name} "{" ".join(stage.needs)}" "{options}" "{launch}{one}"')
    last = " ".join(stage.name for stage in stages)
    lines.append(f'submit write "{last}" "" "{_within_quotes(command)}"')
    return "\n".join(lines) + "\n"


def _within_quotes(command: Sequence[str]) -> str:
    """The words of a command, to stand within double quotes of a script: a shell reads them twice."""
    return re.sub(r'(["$`\\])', r"\\\1", shlex.join(command))
