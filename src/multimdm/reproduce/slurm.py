"""A shell script that hands every stage to Slurm as a job that waits for those it needs."""

import shlex
from collections.abc import Sequence

from multimdm.reproduce.stages import Stage

_HEAD = """\
#!/bin/bash
# Every stage as a job of its own. Jobs go on where they were stopped, so the script can be run again.
#   SBATCH_OPTIONS  for every job, such as "--partition=gpu --time=24:00:00"
#   TRAIN_OPTIONS   for training jobs, such as "--gres=gpu:8"
#   LAUNCH          before training commands, such as "torchrun --standalone --nproc-per-node=8 --no-python"
set -euo pipefail
declare -A job
submit() {  # submit NAME "NEEDS" OPTIONS COMMAND
  local after=""
  for need in $2; do after="$after:${job[$need]}"; done
  job[$1]=$(sbatch --parsable --job-name="$1" ${after:+--dependency=afterok$after} ${SBATCH_OPTIONS:-} $3 --wrap="$4")
}
"""


def slurm_script(stages: Sequence[Stage], command: Sequence[str]) -> str:
    """`command` does everything; with --stage NAME it does one."""
    lines = [_HEAD]
    for stage in stages:
        one = shlex.join([*command, "--stage", stage.name])
        options, launch = ('"${TRAIN_OPTIONS:-}"', "${LAUNCH:-} ") if stage.trains else ('""', "")
        lines.append(f'submit {stage.name} "{" ".join(stage.needs)}" {options} "{launch}{one}"')
    last = " ".join(stage.name for stage in stages)
    lines.append(f'submit write "{last}" "" "{shlex.join(command)}"')
    return "\n".join(lines) + "\n"
