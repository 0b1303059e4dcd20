"""Values that are secret because of the name they are given to.

A name is found by its credential word, read whole, and judged by the words around it; the value after it is
taken unless a variable, a word, a run or an expression explains it.
"""

import re
from collections.abc import Iterator

from .findings import Finding, Kind
from .placeholders import is_code, is_placeholder, is_published, is_worded, looks_random, looks_symbolic

__all__ = ["credential_kind", "find_assigned", "is_credential_value"]

# Lower-case; the substring that makes a name worth reading.
_KEYWORDS = ("passw", "passphrase", "pwd", "pass", "token", "secret", "auth", "credential", "bearer", "key", "contrase", "login")

_NAME_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_NAME_WINDOW = 64
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

_PASSWORD_ENDINGS = ("password", "passwd", "passphrase", "passwort", "pwd", "contraseña", "contrasena")
_SECRET_ENDINGS = ("secret", "secrete", "secrets", "credential", "credentials")
_TOKEN_ENDINGS = ("token", "bearer", "authorization", "auth", "jwt")
_KEY_ENDINGS = ("apikey", "accesskey", "secretkey", "privatekey", "authkey", "licensekey", "appkey")

_NOT_THE_VALUE = frozenset(
    "id ids name names file filename path url uri type types size length len hash event events down up press pressed "
    "code codes map board word words frame frames expires expiry expiration expire ttl count limit max min usage "
    "prefix suffix pattern regex format header headers field fields label variable var selector pair pairs ring store "
    "generator provider manager factory class version algorithm alg spec ref alias endpoint host method mode scope "
    "scopes source policy rule strength placeholder hint error message title text prompt description required enabled "
    "validator index idx arn by for digest fingerprint checksum thumbprint distance meshing bits env created updated "
    "at schema stone alias lookup left right input confirm confirmation reset changed".split()
)
_NOT_A_CREDENTIAL_KEY = frozenset(
    "public pub foreign primary sort cache partition hash row range composite natural unique schema object dict map "
    "i18n translation message hot shortcut arrow idempotency registry storage bucket group routing kms cmk lookup "
    "index idx sequence candidate surrogate dedupe dedup react element query node tree column json fn event issuer host "
    "known any no each every this".split()
)
_NOT_A_CREDENTIAL_TOKEN = frozenset("page next continuation cursor csrf pad eos bos unk stop max min xsrf public previous prev".split())
_PRETENDED = frozenset("non fake dummy mock wrong invalid bad bogus placeholder expected".split())

_SCHEME = r"(?:(?:[Bb]earer|[Bb]asic|BEARER|[Tt]oken|[Aa]pi-?[Tt]oken|[Aa]pi-?[Kk]ey|OAuth|Digest|SSWS)[ \t]{1,4})?"
_TAIL = re.compile(
    rf"""
    (?P<rest>[A-Za-z0-9_]{{0,40}}(?:[.-][A-Za-z0-9_]{{1,24}}){{0,3}})
    (?P<close>\\?["'`]\]?|\[\d{{0,5}}\]|\)?)
    (?:
      (?:[,\s]\s{{0,40}}["']?value["']?)?                         # "name": "DB_PASSWORD", "value": …
      [ \t]{{0,12}}(?:[a-z]{{2,10}}[ \t]{{1,4}}|\n\s{{1,20}}(?==))?    # var dbPassword string = …
      (?P<sep>:{{0,3}}={{1,3}}>?|[.?+!|]=|!==?|::?|->|,|\(|\|{{1,2}})
      (?:[ \t]{{0,12}}|\n\s{{0,20}}(?=["'`]))@?{_SCHEME}
      (?:\\"(?P<escaped>[^"\\\n]{{1,4096}})\\"
        |"(?P<double>[^"\n]{{1,4096}})"|'(?P<single>[^'\n]{{1,4096}})'|`(?P<back>[^`\n]{{1,4096}})`
        |(?P<bare>[^\s"'`<,;&\\]{{4,4096}}))
      |
      [ \t]{{1,4}}-?[ \t]{{0,4}}                                   # token 'v', token - 'v', --token v
      (?:"(?P<after_double>[^"\n]{{1,4096}})"|'(?P<after_single>[^'\n]{{1,4096}})'
        |(?P<word>[^\s"'`<>,;&\\=|-][^\s"'`<,;&\\]{{6,4096}}))
      |
      >\s{{0,60}}(?P<element>[^<>]{{6,4096}}?)\s{{0,60}}</          # <password>v</password>
    )
    """,
    re.VERBOSE,
)
_QUOTED = frozenset({"escaped", "double", "single", "back", "after_double", "after_single"})
_QUOTED_WORD = re.compile(r"[^\s|]{6,}")
_COMPARED = re.compile(r"""(?:"([^"\n]{4,256})"|'([^'\n]{4,256})'|`([^`\n]{4,256})`)[ \t]{0,4}[!=]={1,2}[ \t]{0,4}$""")
_CLI_USER = re.compile(
    r"""(?:-u|--user|--proxy-user)(?:=|[ \t]{1,4})(?:"([^"\s:]{0,100}):([^"\n]{3,200})"|'([^'\s:]{0,100}):([^'\n]{3,200})'|([^\s:"'$<-][^\s:"'$<]{0,100}):["']?([^\s"'<]{3,200}))"""
)
_HEX = re.compile(r"[0-9a-f]{8,}|[0-9A-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VERSION = re.compile(r"[v^~]?\d+(?:\.\d+){1,4}(?:[-+.][\w.+-]*)?")
# A value that begins as Telegram's do is judged by Telegram's shape.
_BOT_LIKE = re.compile(r"\d{5,16}:A")
_BOT = re.compile(r"\d{5,16}:A[A-Za-z0-9_-]{34}")
# The start of a value shows what it is, and bounds the work.
_JUDGED = 128
_LONGEST = 4096
# Names can stand inside a value; a value made of nothing else is not read for each of them.
_JUDGED_TWICE = 8
_TRAILING = ")]}>.:!?*"


def find_assigned(text: str, lowered: str) -> Iterator[Finding]:
    """Passwords, keys and tokens that a credential's name introduces; `lowered` is `text` in lower case."""
    judged: dict[int, int] = {}
    for keyword in _KEYWORDS:
        at = lowered.find(keyword)
        while at >= 0:
            yield from _at_keyword(text, at, at + len(keyword), judged)
            at = lowered.find(keyword, at + len(keyword))
    if "curl" in lowered:
        yield from _curl_users(text)


def _at_keyword(text: str, start: int, end: int, judged: dict[int, int]) -> Iterator[Finding]:
    match = _TAIL.match(text, end)
    window = text[max(0, start - _NAME_WINDOW) : start]
    name_start = start - (len(window) - len(window.rstrip(_NAME_CHARS)))
    if match is not None:
        yield from _judge(text, name_start, match, judged)
    if "=" in text[max(0, name_start - 4) : name_start]:
        yield from _compared(text, name_start, end)


def _judge(text: str, name_start: int, match: re.Match[str], judged: dict[int, int]) -> Iterator[Finding]:
    group = match.lastgroup or ""
    start, end = match.span(group)
    name = text[name_start : match.end("rest")]
    kind = credential_kind(name)
    if kind is None or not _separated(name, match, group) or judged.get(end, 0) >= _JUDGED_TWICE or end - start == _LONGEST:
        return
    judged[end] = judged.get(end, 0) + 1
    if group == "element":
        if any(is_credential_value(name, kind, word.strip("{}")) for word in match[group].split()):
            yield Finding(kind, start, end)
    elif group in _QUOTED and kind != "PASSWORD":
        for word in _QUOTED_WORD.finditer(text, start, end):
            if is_credential_value(name, kind, word[0]):
                yield Finding(kind, *word.span())
    else:
        if group not in _QUOTED:
            end = start + len(text[start:end].rstrip(_TRAILING))
        if is_credential_value(name, kind, text[start:end]):
            yield Finding(kind, start, end)


def _separated(name: str, match: re.Match[str], group: str) -> bool:
    """Whether what stands between name and value ties them together."""
    if group == "word":
        return name.startswith("--") or name.lower().endswith("bearer")
    if match["sep"] == "|":
        return group == "bare"
    if match["sep"] in {",", "("}:
        return group in _QUOTED and (match["sep"] == "(" or bool(match["close"]))
    return True


def _compared(text: str, name_start: int, keyword_end: int) -> Iterator[Finding]:
    match = _COMPARED.search(text[max(0, name_start - 270) : name_start])
    kind = credential_kind(text[name_start : keyword_end + 8])
    if match is None or kind is None or match.lastindex is None:
        return
    offset = max(0, name_start - 270)
    value = match.group(match.lastindex)
    if is_credential_value(text[name_start:keyword_end], kind, value):
        yield Finding(kind, offset + match.start(match.lastindex), offset + match.end(match.lastindex))


def _curl_users(text: str) -> Iterator[Finding]:
    for match in _CLI_USER.finditer(text):
        group = match.lastindex or 2
        user, password = match.group(group - 1), match.group(group)
        if not (is_placeholder(password) or is_code(password) or is_placeholder(user) or is_stock_pair(user, password)):
            yield Finding("PASSWORD", match.start(group), match.end(group))


_STOCK_WORDS = frozenset(
    "user username usr name login pass password passwd pwd secret admin root test guest foo bar baz abc xyz token key "
    "postgres mysql redis mongo rabbitmq minio minioadmin p pw u me myuser mypassword mypass passw0rd pass123 xxx yyy email".split()
)


def is_stock_pair(user: str, password: str) -> bool:
    """Whether a user and password are the words every manual uses."""
    return password.lower() in _STOCK_WORDS or (user == password and is_worded(password))


def credential_kind(name: str) -> Kind | None:
    """The kind of credential a name such as `aws_secret_access_key` announces, if any."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not _PRETENDED.isdisjoint(words):
        return None
    for index in range(len(words) - 1, -1, -1):
        kind = _word_kind(words[index])
        if kind is None:
            continue
        if any(word in _NOT_THE_VALUE for word in words[index + 1 :]):
            return None
        before = words[index - 1] if index else ""
        if kind == "KEY" and before in _NOT_A_CREDENTIAL_KEY and index == len(words) - 1:
            return None
        if kind == "TOKEN" and before in _NOT_A_CREDENTIAL_TOKEN:
            return None
        return kind
    return None


def _word_kind(word: str) -> Kind | None:
    if word == "pass" or word.endswith(_PASSWORD_ENDINGS):
        return "PASSWORD"
    if word == "auth" or word.endswith(("token", "bearer", "authorization", "secret", *_SECRET_ENDINGS)):
        return "TOKEN"
    if word == "key" or word.endswith(_KEY_ENDINGS):
        return "KEY"
    return None


def is_credential_value(name: str, kind: Kind, value: str) -> bool:
    """Whether `value`, given to `name`, can be the credential itself."""
    value = value[:_JUDGED]
    if len(value) < 6 or is_placeholder(value) or is_code(value) or _VERSION.fullmatch(value) or is_published(value):
        return False
    if kind == "PASSWORD":
        return not is_worded(value) and not value.isdigit() and " " not in value
    if " " in value or (_BOT_LIKE.match(value) and not _BOT.fullmatch(value)):
        return False
    if value.isdigit():
        return len(value) >= 15 and _is_named_key(name)
    if kind == "KEY" and _HEX.fullmatch(value) and not _is_named_key(name):
        return False
    return len(value) >= 10 and (looks_random(value) or looks_symbolic(value))


def _is_named_key(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    return len(words) > 1 or words[-1:] != ["key"]
