"""What pydantic finds wrong, in a sentence of ours."""

from pydantic import ValidationError
from pydantic_core import ArgsKwargs

from multimdm._inert import inert, shown

_LONGEST_FIELD = 80


def explain(error: ValidationError, where: str, named: str = "{}") -> str:
    """The first complaint in one line: where it was read, the field (as `named` has it), what is wrong with it and
    what it is."""
    first = error.errors()[0]
    field = inert(".".join(map(str, first["loc"])))[:_LONGEST_FIELD]
    field = named.format(field) if field else ""
    if first["type"] == "missing":
        return f"{where}: {field} is missing"
    message = first["msg"].removeprefix("Value error, ")
    value = "" if isinstance(first["input"], dict | ArgsKwargs) else f"; got {shown(first['input'])}"
    return inert(f"{where}: {field + ': ' if field else ''}{message}{value}")
