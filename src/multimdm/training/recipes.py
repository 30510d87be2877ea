"""Recipe files: read strictly, with errors that name the key and the nearest right one."""

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from multimdm._complaints import explain
from multimdm._files import check_plain, read_text
from multimdm._hints import nearest
from multimdm._inert import inert, shown
from multimdm.training.schema import RECIPES, TrainingRecipe

Recipe = TypeVar("Recipe")
_MOST_BYTES, _MOST_VALUES = 2**20, 10_000
"""The bounds of a recipe. YAML can name a part and repeat it: a page of text may stand for more than memory holds."""
_LONGEST_KEY = 80
"""The most characters of a key in an error."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-4 as a string; people mean a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"), list("-+0123456789")
)


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
    """The recipe that plain data describe; an error names the key, its value and where it was read.

    A recipe of training may name its command, which must then be that of its kind.
    """
    if issubclass(kind, TrainingRecipe):
        named = command_named(data, where)
        if named not in (None, kind.command):
            raise ValueError(f"{where}: this is a recipe of {named}, not of {kind.command}")
        data = {key: value for key, value in data.items() if key != "command"}
    _check_keys(data, kind, where, ())
    try:
        text = json.dumps(data)
    except (TypeError, ValueError) as error:  # YAML has dates and sets
        raise ValueError(f"{where}: every value must be a number, text, list or mapping: {error}") from None
    try:
        return TypeAdapter(kind).validate_json(text)  # as JSON, where a list may be a tuple
    except ValidationError as error:
        raise ValueError(explain(error, where)) from None


def command_named(data: dict[str, Any], where: str) -> str | None:
    """The command that a recipe says it is for; None if it does not say."""
    named = data.get("command")
    if "command" in data and named not in RECIPES:
        raise ValueError(f"{where}: command must be one of {', '.join(RECIPES)}; got {shown(named)}")
    return named


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    """data["a"]["b"] = value for the key a.b; a null section leaves it out."""
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(data.get(section), dict):
            data[section] = {}
        data = data[section]
    data[last] = value


def flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value under the key that `set_key` sets it by."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def dump_recipe(recipe: Any) -> dict[str, Any]:
    """The recipe as plain data for JSON and YAML."""
    return TypeAdapter(type(recipe)).dump_python(recipe, mode="json")


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
    near = nearest(key, known, cutoff=0.5)
    if near is not None:
        return f"did you mean '{'.'.join((*path, near))}'?"
    return f"the keys here are: {', '.join(known)}"


def _settings_class(annotation: Any) -> Any:
    """The class of a section; None for a plain value."""
    for candidate in (annotation, *get_args(annotation)):
        if is_dataclass(candidate):
            return candidate
    return None
