"""What a comparison found, as a file from which its tables can be made again: one entry for each judge."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from multimdm._files import read_json, write_text
from multimdm.report.reproduction_report import Reproduction, tables_text

NAME = "study.json"
TABLES = "tables.md"


def write_study(path: Path, results: Sequence[Reproduction]) -> None:
    """All figures, whole or not at all, in one line.

    Trajectories are pictures, not figures, and are left out; so are paths, which are true on one machine alone, and of
    single seeds the trials of alignments.
    """
    content = [asdict(result) for result in results]
    for result in content:
        single = [one for seeds in result["each"].values() for one in seeds]
        for evaluation in (*result["evaluations"], *single):
            evaluation |= {"trajectories": (), "path": ""}
        for aligned in (aligned for evaluation in single for aligned in evaluation["aligned"]):
            aligned["trials"] = ()
    write_text(path, json.dumps({"studies": content}, ensure_ascii=False, allow_nan=False) + "\n")


def read_study(path: Path) -> list[Reproduction]:
    """What `write_study` wrote."""
    try:
        return TypeAdapter(list[Reproduction]).validate_python(read_json(path).get("studies"))
    except ValidationError as error:
        raise ValueError(f"{path} is no study that multimdm reproduce wrote: {error.errors()[0]['msg']}") from None


def study_text(results: Sequence[Reproduction]) -> str:
    """The tables of all judges, as Markdown."""
    return "\n".join(map(tables_text, results))
