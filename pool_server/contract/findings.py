"""What a detector reports: a kind of private text and where it stands."""

from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["ALL_KINDS", "CREDENTIAL_KINDS", "KIND_ORDER", "Finding", "Kind"]

Kind = Literal["TOKEN", "KEY", "PASSWORD", "EMAIL", "PHONE", "IP", "HOME_PATH", "CARD", "URL_CREDENTIAL"]

KIND_ORDER: tuple[Kind, ...] = get_args(Kind)
ALL_KINDS: frozenset[Kind] = frozenset(KIND_ORDER)
CREDENTIAL_KINDS: frozenset[Kind] = frozenset({"TOKEN", "KEY", "PASSWORD", "URL_CREDENTIAL"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Private text at the half-open character span `start:end`."""

    kind: Kind
    start: int
    end: int
