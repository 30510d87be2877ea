"""Recipe files: found by path or by name, read strictly, with errors that name the key and the nearest right one."""

import json
import re
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

import multimdm
from multimdm._files import check_plain, read_text
from multimdm._inert import inert, shown

Recipe = TypeVar("Recipe")
_MOST_BYTES, _MOST_VALUES = 2**20, 10_000
"""Of a recipe. YAML can name a part and repeat it: a page of text may stand for more than memory holds."""
_LONGEST_KEY = 80
"""In an error."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-4 as a string; people mean a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def recipe_directories() -> tuple[Path, ...]:
    """Where recipes that come with the package are: in an installed package, or in a checkout."""
    package = Path(multimdm.__file__).parent
    return package / "recipes", package.parents[1] / "recipes"


def find_recipe(name: str) -> Path:
    """The file of this path, or of this name among the recipes that come with the package."""
    return find_file(name, "recipe")


def shipped(folder: str = ".") -> dict[str, Path]:
    """Name -> file, of what comes with the package in a folder of its recipes."""
    found: dict[str, Path] = {}
    for directory in recipe_directories():
        found |= {file.stem: file for file in sorted((directory / folder).glob("*.yaml"))}
    return found


def find_file(name: str, what: str, folder: str = ".") -> Path:
    """The file of this path, or of this name among those that come with the package in a folder of its recipes."""
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a directory; give a {what} file, or the name of a {what}")
    known = shipped(folder)
    if path.stem in known and len(path.parts) == 1:
        return known[path.stem]
    near = get_close_matches(path.stem, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"those that come with the package: {', '.join(known)}"
    raise ValueError(f"there is no {what} file '{name}'; {hint}")


def read_recipe(path: Path, kind: type[Recipe]) -> Recipe:
    """The recipe in a file."""
    return parse_recipe(read_yaml(path), kind, str(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a file, as plain data."""
    try:
        data = yaml.load(read_text(path, _MOST_BYTES), _Loader)
    except OSError:
        raise
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply to be a recipe") from None
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path} is not YAML: {error}") from None
    except Exception as error:  # what a scalar with a tag cannot be made into raises nearly anything
        raise ValueError(f"{path} is not YAML: {inert(' '.join(str(error).split()))}") from None
    check_plain(data, str(path), most=_MOST_VALUES)
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold keys and values; it holds a {type(data).__name__}")
    return data


def parse_recipe(data: dict[str, Any], kind: type[Recipe], where: str) -> Recipe:
    """The recipe that plain data describe; an error names the key, its value and where it was read."""
    _check_keys(data, kind, where, ())
    try:
        text = json.dumps(data)
    except (TypeError, ValueError) as error:  # YAML has dates and sets
        raise ValueError(f"{where}: every value must be a number, text, list or mapping: {error}") from None
    try:
        return TypeAdapter(kind).validate_json(text)  # as JSON, where a list may be a tuple
    except ValidationError as error:
        raise ValueError(explain(error, where)) from None


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    """data["a"]["b"] = value for the key a.b; a null section leaves it out."""
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    data[last] = value


def dump_recipe(recipe: Any) -> dict[str, Any]:
    """As plain data for JSON and YAML."""
    return TypeAdapter(type(recipe)).dump_python(recipe, mode="json")


def explain(error: ValidationError, where: str) -> str:
    """The first complaint of a validation, in one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{where}: {key} is missing"
    value = "" if isinstance(first["input"], dict | ArgsKwargs) else f"; got {shown(first['input'])}"
    return inert(f"{where}: {key + ': ' if key else ''}{message}{value}")


def _check_keys(data: dict[str, Any], kind: Any, where: str, path: tuple[str, ...]) -> None:
    """Complain about the first unknown key, with the nearest known one."""
    known = {field.name: _settings_class(field.type) for field in fields(kind)}
    for key, value in data.items():
        if key not in known:
            full = inert(".".join((*path, str(key))))[:_LONGEST_KEY]
            near = _nearest(str(key)[:_LONGEST_KEY], known, path)
            raise ValueError(f"{where}: there is no key '{full}'; {near}")
        if isinstance(value, dict) and known[key] is not None:
            _check_keys(value, known[key], where, (*path, key))


def _nearest(key: str, known: dict[str, Any], path: tuple[str, ...]) -> str:
    for name, inner in known.items():  # a key of a section, written outside of it
        if inner is not None and key in {field.name for field in fields(inner)}:
            return f"did you mean '{'.'.join((*path, name, key))}'?"
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean '{'.'.join((*path, near[0]))}'?"
    return f"the keys here are: {', '.join(known)}"


def _settings_class(annotation: Any) -> Any:
    """The class of a section; None for a plain value."""
    for candidate in (annotation, *get_args(annotation)):
        if is_dataclass(candidate):
            return candidate
    return None
