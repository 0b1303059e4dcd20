"""Which addresses a webhook may reach. Pure; names are resolved elsewhere. Source: contract, section 5."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_METADATA = ipaddress.ip_address("169.254.169.254")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def refuse_reason(address: str, *, loopback_allowed: bool, private_allowed: bool) -> str | None:
    """Why a delivery to ``address`` (an IP in text, as resolved) is refused, or None.

    An address embedded in an IPv6 form (mapped, 6to4, Teredo, NAT64) is judged as the one it stands for.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "not an IP address"
    parsed = _embedded(parsed)
    if parsed.is_loopback:
        return None if loopback_allowed or private_allowed else "a loopback address"
    if parsed.is_unspecified or parsed.is_multicast or parsed == _METADATA:
        return "not a unicast host address"
    if parsed.is_link_local:
        return None if private_allowed else "a link-local address"
    if not parsed.is_global or parsed.is_reserved or not _allocated(parsed):
        return None if private_allowed else "not a public address"
    return None


def _allocated(address: _Address) -> bool:
    """Whether the Internet routes it at all: of IPv6 only 2000::/3, so that what was once given another meaning
    (site-local addresses) and what will be are no public ones."""
    return isinstance(address, ipaddress.IPv4Address) or int(address) >> 125 == 1


def names_loopback(url: str) -> bool:
    """Whether a target is loopback by its very name: a name that merely resolves there can be pointed there by
    whoever owns it, after it was looked at."""
    host, _ = split_target(url)
    name = host.rstrip(".").casefold()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return _embedded(_literal(name.partition("%")[0])).is_loopback
    except ValueError:
        return False


def _literal(name: str) -> _Address:
    """An address written out, in the short, octal and hexadecimal forms that resolvers take too."""
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return ipaddress.ip_address(name)
    *leading, last = (int(part, 16 if part[:2] == "0x" else 8 if part[0] == "0" else 10) for part in parts)
    value = last + sum(number << 8 * (3 - place) for place, number in enumerate(leading))
    return ipaddress.IPv4Address(value)


def _embedded(address: _Address) -> _Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if 1 < int(address) < 2**32:
        return ipaddress.IPv4Address(int(address))
    return address


def split_target(url: str) -> tuple[str, int]:
    """Host and port of a webhook URL.

    Raises:
        ValueError: in words, when it is not a plain http(s) URL with a host and without credentials.
    """
    if any(character <= " " or character == "\\" or character == "\x7f" for character in url):
        raise ValueError("must not contain spaces, control characters or backslashes")
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("must be an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain credentials")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as malformed:
        raise ValueError("has a malformed host or port") from malformed
    if not host or port == 0:
        raise ValueError("must name a host")
    return host, port or (443 if parts.scheme.lower() == "https" else 80)
