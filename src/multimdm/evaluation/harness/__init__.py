"""lm-evaluation-harness: our models under the name `multimdm`, and the tasks of Tab. (llada).

The harness knows only the models of its own package, so it is started through ours, which registers and goes on:

    python -m multimdm.evaluation.harness --model multimdm --model_args checkpoint=DIR,gen_length=256,tps=2 \\
        --tasks multimdm_gsm8k --metadata '{"data": "benchmarks/"}'
"""
