"""What a comparison found, as a file from which its tables can be made again: one entry for each judge."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from multimdm.data.json_files import read_json
from multimdm.evaluation.store import write_json
from multimdm.report.reproduction_report import Reproduction, tables_text

NAME = "study.json"
TABLES = "tables.md"


def write_study(path: Path, results: Sequence[Reproduction]) -> None:
    """All figures, whole or not at all. Trajectories are pictures, not figures, and are left out."""
    content = [asdict(result) for result in results]
    for evaluation in (one for result in content for one in result["evaluations"]):
        evaluation["trajectories"] = ()
    write_json(path, {"studies": content})


def read_study(path: Path) -> list[Reproduction]:
    """What `write_study` wrote."""
    try:
        return TypeAdapter(list[Reproduction]).validate_python(read_json(path).get("studies"))
    except ValidationError as error:
        raise ValueError(f"{path} is no study that multimdm reproduce wrote: {error.errors()[0]['msg']}") from None


def study_text(results: Sequence[Reproduction]) -> str:
    """The tables of all judges, as Markdown."""
    return "\n".join(map(tables_text, results))
