"""A shell script that hands every stage to Slurm as a job that waits for those it needs."""

import shlex
from collections.abc import Sequence

from multimdm.reproduce.stages import Stage

_HEAD = """\
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
    """`command` does everything; with --stage NAME it does one. What is written at the end is read, not computed."""
    lines = [_HEAD]
    for stage in stages:
        one = shlex.join([*command, "--stage", stage.name])
        options = "$TRAIN_OPTIONS" if stage.trains else "$RUN_OPTIONS" if stage.runs_network else ""
        launch = "${LAUNCH:-} " if stage.trains else "${RUN_LAUNCH:-} " if stage.runs_network else ""
        lines.append(f'submit {stage.name} "{" ".join(stage.needs)}" "{options}" "{launch}{one}"')
    last = " ".join(stage.name for stage in stages)
    lines.append(f'submit write "{last}" "" "{shlex.join(command)}"')
    return "\n".join(lines) + "\n"
