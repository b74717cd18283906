"""Typed records of settings: checked by pydantic when they are made, with errors of one line.

A field's docstring is its help text and its annotation says what is allowed. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BeforeValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from apil.errors import ApilError, unknown_name

Option = str | int | float | bool
"""A setting of a part that apil does not know beforehand: a plain value."""

_LARGEST = 2**63 - 1
_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Says(str):
    """What a field may be, for its error message."""

    __slots__ = ()


def _printable(text: str) -> str:
    if not text.isprintable() or len(text) > 4000:
        raise ValueError
    return text


Text = Annotated[str, AfterValidator(_printable), Says("give printable text of at most 4,000 characters")]
"""It may end up in a report, in a figure or in the name of a file."""
Count = Annotated[int, Ge(1), Le(100_000_000), Says("give a whole number from 1 to 100,000,000")]
Few = Annotated[int, Ge(1), Le(1000), Says("give a whole number from 1 to 1,000")]
Size = Annotated[int, Ge(1), Le(1_000_000), Says("give a whole number from 1 to 1,000,000")]
Whole = Annotated[int, Ge(0), Le(100_000_000), Says("give a whole number from 0 to 100,000,000")]
Seed = Annotated[int, Ge(-_LARGEST), Le(_LARGEST), Says("give a whole number below 2^63")]
Above = Annotated[float, Gt(0), Le(1e9), Says("give a number above 0, at most 1e9")]
Distance = Annotated[float, Ge(0), Le(1e9), Says("give a number from 0 to 1e9")]
Rate = Annotated[float, Ge(0), Lt(1), Says("give a rate from 0 to below 1")]
Share = Annotated[float, Gt(0), Le(1), Says("give a share above 0, at most 1")]
Options = Annotated[
    Mapping[Text, bool | Seed | float | Text], Says("give plain values by name: text, finite numbers, true or false")
]


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


FromList = BeforeValidator(_as_tuple)
"""JSON and TOML have lists where a record has a tuple."""


def nested(cls: Any, key: str = "") -> BeforeValidator:
    """A record inside a record, from its table; where there is a `key`, a plain name stands for a table with it."""

    def make(value: object) -> object:
        table = {key: value} if key and isinstance(value, str) else value
        return cls(**table) if isinstance(table, dict) and all(isinstance(name, str) for name in table) else value

    return BeforeValidator(make)


Cls = TypeVar("Cls")


@dataclass_transform(frozen_default=True)
def record(cls: type[Cls]) -> type[Cls]:
    """A frozen dataclass whose fields are checked; a bad value is an `ApilError` that names the field."""
    made: Any = dataclass(cls, frozen=True, config=_CONFIG)
    checked = made.__init__

    def make(self: Any, *args: Any, **values: Any) -> None:
        values |= dict(zip(described(made), args, strict=False))
        for name in values:
            if name not in described(made):
                raise unknown_name("setting", name, described(made))
        try:
            checked(self, **values)
        except ValidationError as error:
            raise _complaint(made, error) from None

    made.__init__ = make
    return made  # type: ignore[no-any-return]


def _complaint(cls: Any, error: ValidationError) -> ApilError:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if not first["loc"]:
        return cause if isinstance(cause, ApilError) else ApilError(f"{first['msg']}.")
    # Behind the name come places in a list, and what pydantic calls the parts of a union.
    name, *behind = first["loc"]
    where = " ".join((spelled(str(name)), *(str(part + 1) for part in behind if isinstance(part, int))))
    if isinstance(cause, ApilError):
        return ApilError(f"{where}: {cause}")
    words = allowed(described(cls)[str(name)])
    return ApilError(f"{where} is {'missing' if 'missing' in first['type'] else shown(first['input'])}: {words}.")


def spelled(name: str) -> str:
    """A setting's name as it is typed on the command line."""
    return name.replace("_", "-")


def shown(value: object) -> str:
    """A value in a message: short, and in one line."""
    if isinstance(value, float):
        return f"{value:g}"
    text = f"'{value}'" if isinstance(value, str) and value.isprintable() else f"{value!r:.200}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def allowed(info: FieldInfo) -> str:
    """What a field may be, in a few words."""
    marks = _marks(info.annotation, info.metadata)
    choices = [part for mark in marks if get_origin(mark) is Literal for part in get_args(mark)]
    words = [str(mark) for mark in marks if isinstance(mark, Says)]
    if words:
        return words[0] + "".join(f", or {choice}" for choice in choices)
    return f"give {' or '.join(map(str, choices))}" if choices else "give a value of its type"


def _marks(annotation: Any, metadata: Any = ()) -> list[Any]:
    """Everything that is said about a type, inside unions too."""
    inner = [] if get_origin(annotation) is Literal else list(get_args(annotation))
    own = inner[1:] if get_origin(annotation) is Annotated else []
    parts = inner[:1] if get_origin(annotation) is Annotated else inner
    # The last is said of the narrowest type.
    return [*reversed(metadata), *reversed(own), *(mark for part in parts for mark in _marks(part)), annotation]


def described(cls: Any) -> Mapping[str, FieldInfo]:
    """The fields of a record, with annotation, default and help text (`description`)."""
    found: Mapping[str, FieldInfo] = cls.__pydantic_fields__
    return found


def default_of(info: FieldInfo) -> Any:
    """A field's default; `dataclasses.MISSING` where there is none."""
    return MISSING if info.is_required() else info.get_default(call_default_factory=True)


Plain = Annotated[bool | Seed | float | Text, Says("give text, a finite number, true or false")]
_KINDS: dict[Any, Any] = {
    bool: Annotated[bool, Says("give true or false")],
    int: Seed,
    float: Annotated[float, Says("give a finite number")],
    str: Text,
}


def arguments_of(factory: Callable[..., Any], skip: int = 0) -> type:
    """A record of the arguments of a factory, after its first `skip`: what can be set of a part by name.

    An argument without a default must be given; without a plain type it takes any plain value.
    """
    target: Any = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        hints = get_type_hints(target, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    names: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, given in list(signature(factory).parameters.items())[skip:]:
        if given.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        kind = hints.get(name, type(given.default))
        names[name] = _KINDS.get(kind, kind if get_origin(kind) in (Literal, Annotated) else Plain)
        if given.default is not Parameter.empty:
            values[name] = given.default
    ordered = dict(sorted(names.items(), key=lambda item: item[0] in values))
    return record(type("Arguments", (), {"__annotations__": ordered, **values}))
