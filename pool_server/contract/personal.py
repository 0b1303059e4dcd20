"""What points at a person: addresses, telephone and card numbers, home directories, user names in URLs."""

import ipaddress
import re
from collections.abc import Iterator

import phonenumbers

from .assignments import is_stock_pair
from .findings import Finding
from .placeholders import is_code, is_placeholder, looks_random

__all__ = ["find_cards", "find_emails", "find_home_paths", "find_ips", "find_phones", "find_url_credentials"]

# --- e-mail -----------------------------------------------------------------------------------------------------

_LOCAL = re.compile(r"[\w%+'.-]{1,64}$")
_DOMAIN = re.compile(
    r"@((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,6}(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]{2,40}))(?![A-Za-z0-9_-])"
)
_USERINFO = re.compile(r"://[^\s/@\"'<>]{0,200}$")
_RESERVED_DOMAIN = re.compile(
    r"(?:.+\.)?(?:example(?:\.[a-z.]{2,6})?|test|invalid|localhost|local|internal|lan|localdomain)|users\.noreply\.github\.com",
    re.IGNORECASE,
)
_FILE_ENDINGS = re.compile(
    r"cfg|css|gif|htm|html|ico|jpeg|jpg|js|json|lock|png|svg|tgz|toml|ts|txt|webp|whl|yaml|yml"
)
_MACHINE_LOCALS = re.compile(r"git|hg|svn|no-?reply|do-?not-?reply|org-\d+")


def find_emails(text: str) -> Iterator[Finding]:
    """E-mail addresses somebody could receive mail at."""
    at = text.find("@")
    while at >= 0:
        match = _DOMAIN.match(text, at)
        if match:
            before = _LOCAL.search(text[max(0, at - 64) : at])
            local = before[0].lstrip(".'-%+") if before else ""
            start = at - len(local)
            if local and _is_mailbox(text, local, match[1], start):
                yield Finding("EMAIL", start, match.end())
        at = text.find("@", at + 1)


def _is_mailbox(text: str, local: str, domain: str, start: int) -> bool:
    if _MACHINE_LOCALS.fullmatch(local.lower()) or _RESERVED_DOMAIN.fullmatch(domain):
        return False
    if _FILE_ENDINGS.fullmatch(domain.rpartition(".")[2].lower()):
        return False
    return _USERINFO.search(text[max(0, start - 210) : start]) is None


# --- IP addresses -----------------------------------------------------------------------------------------------

_IPV4 = re.compile(r"[0-9](?<![\w.@~^_-][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?![\w]|\.[0-9]|-[A-Za-z])")
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")
_HEX_CHARS = "0123456789abcdefABCDEF:."
_HEX_RUN = re.compile(r"[0-9A-Fa-f:.]{0,46}")
# Four-part versions: after a comparison, a product's name, or in the column beside a package's name.
_VERSION_BEFORE = re.compile(
    r"(?:[<>=!~]=|(?<![/:])/|[<>^~]|\b(?:version|ver|release|build|rev|driver|cudnn|cuda|tensorrt|chrome|chromium|"
    r"electron|edge|windows|before|since|until|through)[ :=|]{0,3}v?|(?<![\w.])[A-Za-z][\w.]*-[\w.-]*(?:[ \t|]+|: ?)) ?$",
    re.IGNORECASE,
)
_VERSION_WINDOW = 48


def find_ips(text: str) -> Iterator[Finding]:
    """Addresses on the public internet."""
    for match in _IPV4.finditer(text):
        if _is_public(match[0]) and not _VERSION_BEFORE.search(
            text[max(0, match.start() - _VERSION_WINDOW) : match.start()]
        ):
            yield Finding("IP", *match.span())
    if "::" in text or text.count(":") > 4:
        yield from _ipv6(text)


def _ipv6(text: str) -> Iterator[Finding]:
    done = 0
    for match in _COLONS.finditer(text):
        if match.start() < done:
            continue
        window = text[max(done, match.start() - 40) : match.start()]
        start = match.start() - (len(window) - len(window.rstrip(_HEX_CHARS)))
        run = _HEX_RUN.match(text, start)
        done = run.end() if run else match.end()
        end = start + len(_without_full_stop(text[start:done]))
        beside = text[start - 1 : start] + text[end : end + 1]
        if not any(map(str.isalnum, beside)) and _is_public(text[start:end]):
            yield Finding("IP", start, end)


def _without_full_stop(run: str) -> str:
    return run if run.endswith("::") else run.rstrip(".:")


def _is_public(candidate: str) -> bool:
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address.sixtofour is not None:
            address = address.sixtofour
        elif int(address) >> 125 != 1:
            return False
    return address.is_global and not address.is_multicast


# --- telephone and card numbers ---------------------------------------------------------------------------------

_DIGITS = re.compile(
    r"[+(0-9](?<![\w.\-/+#@%$][+(0-9])(?:[ ().\-]{0,3}[0-9]){6,18}(?:[ ]?(?:x|ext\.?)[ ]?[0-9]{1,5})?(?![\w]|[.\-:/][0-9])"
)
_CARD_CONTEXT = re.compile(r"\b(?:card|cc|credit|debit|visa|mastercard|amex|maestro|atm)\b", re.IGNORECASE)
_PHONE_CONTEXT = re.compile(
    r"\b(?:(?:tele)?phone|tel|fax|whatsapp|sms|dial|hotline)\b|\b(?:call|reach|text|ring|phone) (?:me|us|him|her|them)\b|"
    r"\b(?:mobile|cell|desk|office|home|work|contact)[ ]?:[ ]?$|\banswering at\b|\bmessages to\b|"
    r"\bmy (?:\w+ ){1,2}number is\b|\bmy registered\b",
    re.IGNORECASE,
)
_PHONE_LABEL_AFTER = re.compile(r"[ ,(-]{0,3}(?:office|fax|mobile|cell|home|work|desk)\b", re.IGNORECASE)
_NORTH_AMERICAN = re.compile(
    r"(?:\(\d{3}\) ?\d{3}[-. ]\d{4}|\d{3}([-.])\d{3}\1\d{4})(?: ?(?:x|ext\.?) ?\d{1,5})?"
)
_DATE = re.compile(r"\d{4}[-./]\d{2}[-./]\d{2}|\d{2}[-./]\d{2}[-./]\d{4}")
_CARD_SHAPE = re.compile(
    r"[0-9](?<![\w.\-/+#@%$][0-9])(?:\d{3}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{3}([ -])\d{6}\2\d{4,5}|\d{11,18})(?![\w]|[.-]\d)"
)
_CARD_NETWORK = re.compile(
    r"4(?:\d{12}|\d{15})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|6(?:011|4[4-9]\d|5\d\d)\d{12}|"
    r"35\d{14}|(?:2131|1800)\d{11}|(?:50|5[6-9]|6\d)\d{14}|62\d{14,17}"
)


def find_cards(text: str) -> Iterator[Finding]:
    """Payment card numbers: by network and check digit, or by the word `card` and check digit."""
    for match in _CARD_SHAPE.finditer(text):
        digits = match[0].replace(" ", "").replace("-", "")
        if not _passes_luhn(digits) or (" " in match[0] and _is_inside_digits(text, match)):
            continue
        if _CARD_NETWORK.fullmatch(digits) or _CARD_CONTEXT.search(
            text[max(0, match.start() - 40) : match.start()]
        ):
            yield Finding("CARD", *match.span())


def _is_inside_digits(text: str, match: re.Match[str]) -> bool:
    before, after = text[max(0, match.start() - 2) : match.start()], text[match.end() : match.end() + 2]
    return before[:1].isdigit() and before[1:] == " " and after[:1] == " " and after[1:].isdigit()


def find_phones(text: str) -> Iterator[Finding]:
    """Telephone numbers: by international or North American format, or by the words around them."""
    for match in _DIGITS.finditer(text):
        shown = match[0]
        if 7 <= sum(map(str.isdigit, shown)) <= 16:
            before = text[max(0, match.start() - 40) : match.start()].rpartition("\n\n")[2]
            if _is_phone(shown, before, text[match.end() : match.end() + 12]):
                yield Finding("PHONE", *match.span())


def _passes_luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (1 + place % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0


def _is_phone(shown: str, before: str, after: str) -> bool:
    if _DATE.match(shown):
        return False
    if _CARD_CONTEXT.search(before):
        return False
    named = bool(_PHONE_CONTEXT.search(before) or _PHONE_LABEL_AFTER.match(after))
    if shown.startswith("+"):
        return _is_dialable(shown, None) or named
    if named:
        return len(shown) <= 24
    return bool(_NORTH_AMERICAN.fullmatch(shown)) and _is_dialable(shown, "US")


def _is_dialable(shown: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(shown, region))
    except phonenumbers.NumberParseException:
        return False


# --- home directories -------------------------------------------------------------------------------------------

_POSIX_HOME = re.compile(r"/(?:home|Users)/(?![.\d]+(?![\w.-]))[\w.-]{1,64}(?<![.-])")
_DRIVE = re.compile(r"(?:/mnt)?/[a-zA-Z]$")
_JOINED = re.compile(r"[\w~.)}\]-]")
_WINDOWS_HOME = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]:(\\{1,2}|/)[Uu]sers\1(?:[^\s\\/:*?\"<>|,;)'`%$]{1,64}(?: [^\s\\/:*?\"<>|]{1,40}){0,3}(?=[\\/])|[^\s\\/:*?\"<>|,;)'`%$]{1,64})"
)
_SHARED_HOMES = frozenset({"shared", "public", "default", "all users"})


def find_home_paths(text: str) -> Iterator[Finding]:
    """Home directories up to and including the user's name."""
    if "/home/" in text or "/Users/" in text:
        for match in _POSIX_HOME.finditer(text):
            start = match.start()
            drive = (
                _DRIVE.search(text[max(0, start - 6) : start]) if text.startswith("/Users/", start) else None
            )
            start -= len(drive[0]) if drive else 0
            inside = _JOINED.match(text, start - 1) if start else None
            if not inside and match[0].rpartition("/")[2].lower() not in _SHARED_HOMES:
                yield Finding("HOME_PATH", start, match.end())
    if ":" in text and ("\\Users" in text or "\\users" in text or ":/Users" in text or ":/users" in text):
        for match in _WINDOWS_HOME.finditer(text):
            if re.split(r"[\\/]", match[0])[-1].lower() not in _SHARED_HOMES:
                yield Finding("HOME_PATH", *match.span())


# --- user names and passwords in URLs ---------------------------------------------------------------------------

_URL_USERINFO = re.compile(
    r"://(?P<user>[^\s:/@\"'<>?#\\]{0,128})(?::(?P<password>[^\s/\"'<>?#\\]{1,256}))?@(?=[\w\[.-])"
)


def find_url_credentials(text: str) -> Iterator[Finding]:
    """`user:password` in front of a URL's host, or a token that stands there alone."""
    if "@" not in text or "://" not in text:
        return
    for match in _URL_USERINFO.finditer(text):
        user, password = match["user"], match["password"]
        if password and not _is_documented(user, password):
            yield Finding("URL_CREDENTIAL", match.start("user"), match.end("password"))
        elif len(user) >= 16 and looks_random(user) and not is_placeholder(user):
            yield Finding("URL_CREDENTIAL", *match.span("user"))


def _is_documented(user: str, password: str) -> bool:
    stand_in = is_placeholder(password) or is_placeholder(user) or is_code(password)
    return stand_in or is_stock_pair(user, password)
