"""The harness's own command line, as a process: our model by its name, our tasks, items from files."""

import json
import subprocess
import sys
from pathlib import Path

from support.runs import environment
from support.tiny_llada import chat_tokenizer, tiny_llada, write_llada


def write_gsm8k(directory: Path) -> Path:
    """Files as published, with items of our own."""
    (directory / "gsm8k").mkdir(parents=True)
    for split, num in (("train", 6), ("test", 3)):
        items = [{"question": f"how many are {n} and 1", "answer": f"one more\n#### {n + 1}"} for n in range(num)]
        text = "".join(json.dumps(item) + "\n" for item in items)
        (directory / "gsm8k" / f"{split}.jsonl").write_text(text)
    return directory


def test_a_model_by_its_name_on_a_task_of_ours(tmp_path):
    base = write_llada(tmp_path / "base", tiny_llada(), chat_tokenizer())
    data = write_gsm8k(tmp_path / "benchmarks")
    command = [sys.executable, "-m", "multimdm.evaluation.harness", "--model", "multimdm"]
    command += ["--model_args", f"checkpoint={base},steps=4,gen_length=8,tps=2", "--device", "cpu"]
    command += ["--tasks", "multimdm_gsm8k", "--metadata", json.dumps({"data": str(data)}), "--limit", "2"]
    command += ["--output_path", str(tmp_path / "out"), "--log_samples"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "multimdm_gsm8k" in done.stdout
    (file,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(file.read_text())
    assert 0.0 <= results["results"]["multimdm_gsm8k"]["accuracy,none"] <= 1.0
    assert results["n-samples"]["multimdm_gsm8k"] == {"original": 3, "effective": 2}
    assert (results["config"]["gen_length"], results["config"]["tps"]) == (8, 2)
    (file,) = (tmp_path / "out").rglob("samples_*.jsonl")
    first = json.loads(file.read_text().splitlines()[0])
    asked = first["arguments"]["gen_args_0"]["arg_0"]
    assert asked.endswith("Question: how many are 0 and 1\nAnswer:")
    assert asked.count("Question:") == 6  # five worked problems before it
