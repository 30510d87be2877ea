"""What is written below the fields of a dataclass, which Python itself does not keep."""

import ast
import inspect
import textwrap
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise


@cache
def texts_below_fields(kind: type) -> dict[str, str]:
    """Field -> the text below it in the source, in one line; those of parents included."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if not is_dataclass(parent):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        found |= {
            field.target.id: " ".join(below.value.value.split())
            for field, below in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(below.value.value, str)
        }
    return found
