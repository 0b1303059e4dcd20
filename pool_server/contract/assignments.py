"""Values that are secret because of the name they are given to.

A name is found by its credential word, read whole, and judged by the words around it; the value after it is
taken unless a variable, a word, a run or an expression explains it.
"""

import re
from collections.abc import Iterator

from .findings import Finding, Kind
from .placeholders import is_code, is_placeholder, is_published, is_worded, looks_random, looks_symbolic

__all__ = [
    "credential_kind",
    "find_assigned",
    "is_credential_number",
    "is_credential_value",
    "names_value",
]

# Lower-case: what makes a name worth reading.
_KEYWORDS = ("pass", "pwd", "token", "secret", "auth", "credential", "bearer", "key", "contrase")

_NAME_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.ñ"
_NAME_WINDOW = 64
_WORDS = re.compile(r"[A-Z]?[a-zñ]+|[A-Z]+(?![a-z])|\d+")

_ENDINGS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    ("PASSWORD", ("password", "passwd", "passphrase", "passwort", "pwd", "contraseña", "contrasena")),
    (
        "TOKEN",
        ("token", "bearer", "authorization", "secret", "secrete", "secrets", "credential", "credentials"),
    ),
    ("KEY", ("apikey", "accesskey", "secretkey", "privatekey", "authkey", "licensekey", "appkey")),
)
_WHOLE_WORDS: dict[str, Kind] = {"pass": "PASSWORD", "auth": "TOKEN", "key": "KEY"}

_NOT_THE_VALUE = re.compile(
    r"alg|algorithm|alias|arn|at|bits|board|by|changed|checksum|class|code|codes|confirm|confirmation|"
    r"count|created|description|digest|distance|down|enabled|endpoint|env|error|event|events|"
    r"expiration|expire|expires|expiry|factory|field|fields|file|filename|fingerprint|for|format|"
    r"frame|frames|generator|hash|header|headers|hint|host|id|ids|idx|index|input|label|left|len|"
    r"length|limit|lookup|manager|map|max|meshing|message|method|min|mode|name|names|pair|pairs|path|"
    r"pattern|placeholder|policy|prefix|press|pressed|prompt|provider|ref|regex|required|reset|right|"
    r"ring|rule|schema|scope|scopes|selector|size|source|spec|stone|store|strength|suffix|text|"
    r"thumbprint|title|ttl|type|types|up|updated|uri|url|usage|validator|var|variable|version|word|"
    r"words"
)
_NOT_A_CREDENTIAL_KEY = re.compile(
    r"any|arrow|bucket|cache|candidate|cmk|column|composite|dedup|dedupe|dict|each|element|event|"
    r"every|fn|foreign|group|hash|host|hot|i18n|idempotency|idx|index|issuer|json|kms|known|lookup|"
    r"map|message|natural|no|node|object|partition|primary|pub|public|query|range|react|registry|"
    r"routing|row|schema|sequence|shortcut|sort|storage|surrogate|this|translation|tree|unique"
)
_NOT_A_CREDENTIAL_TOKEN = re.compile(
    r"bos|continuation|csrf|cursor|eos|max|min|next|pad|page|prev|previous|public|stop|unk|xsrf"
)
_PRETENDED = re.compile(
    r"bad|bogus|dummy|encrypted|expected|fake|hashed|invalid|masked|mock|non|placeholder|redacted|wrong"
)

_SCHEME = (
    r"(?:(?:[Bb]earer|[Bb]asic|BEARER|[Tt]oken|[Aa]pi-?[Tt]oken|[Aa]pi-?[Kk]ey|OAuth|Digest|SSWS)[ \t]{1,4})?"
)
_HOLDER = "[Vv]alue|[Ss]ecret|[Kk]ey|[Tt]oken|[Pp]assword|[Pp]lain|[Tt]ext|[Dd]ata|[Rr]aw"
_TAIL = re.compile(
    rf"""
    (?P<rest>[A-Za-z0-9_ñ]{{0,40}}+(?:[.-][A-Za-z0-9_]{{1,24}}+){{0,3}}+)
    (?P<close>\\?["'`]\]?|\[\d{{0,5}}\]|\)?)
    (?:
      (?:[,\s]\s{{0,40}}["']?value["']?)?                         # "name": "DB_PASSWORD", "value": …
      [ \t]{{0,12}}(?:[a-z]{{2,10}}[ \t]{{1,4}}|\n\s{{1,20}}(?==))?    # var dbPassword string = …
      (?P<sep>:{{0,3}}={{1,3}}>?|[.?+!|]=|!==?|::?|->|,|\(|\|{{1,2}})
      (?:[ \t]{{0,12}}|\n\s{{0,20}}(?=["'`]))@?{_SCHEME}
      (?:\[\s{{0,40}}(?=\\?["'])                                   # ["v"] or an object with a "value": "v"
        |\{{\s{{0,40}}\\?["'](?:{_HOLDER})\\?["']\s{{0,12}}:\s{{0,12}}(?=\\?["']))?
      (?:\\"(?P<escaped>[^"\\\n]{{1,4096}})\\"
        |"(?P<double>[^"\n]{{1,4096}})"|'(?P<single>[^'\n]{{1,4096}})'|`(?P<back>[^`\n]{{1,4096}})`
        |(?P<bare>[^\s"'`<,;&\\]{{4,256}}))
      |
      [ \t]{{1,4}}-?[ \t]{{0,4}}                                   # token 'v', token - 'v', --token v
      (?:"(?P<after_double>[^"\n]{{1,4096}})"|'(?P<after_single>[^'\n]{{1,4096}})'
        |(?P<word>[^\s"'`<>,;&\\=|-][^\s"'`<,;&\\]{{6,256}}))
      |
      >\s{{0,60}}(?P<element>[^<>]{{6,4096}}?)\s{{0,60}}</          # <password>v</password>
    )
    """,
    re.VERBOSE,
)
_QUOTED = frozenset({"escaped", "double", "single", "back", "after_double", "after_single"})
_UNQUOTED = frozenset({"bare", "word"})
_BARE_REST = re.compile(r"[^\s\"'`<,;&\\]{0,4096}")
_QUOTED_WORD = re.compile(r"(?<!ssh-rsa )(?<!ssh-ed25519 )(?<![^\s|\"'`])[^\s|\"'`]{6,}")
_COMPARED = re.compile(
    r"""(?:"([^"\n]{4,256})"|'([^'\n]{4,256})'|`([^`\n]{4,256})`)[ \t]{0,4}[!=]={1,2}[ \t]{0,4}$"""
)
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
# From here on a bare number is a secret and no count.
_PASSWORD_DIGITS, _KEY_DIGITS = 6, 15
_TRAILING = ")]}>.:!?*"


# How many names that stand inside one unquoted value are read; a value made of names is no credential.
_CROWD = 8


def find_assigned(text: str, lowered: str) -> Iterator[Finding]:
    """Passwords, keys and tokens that a credential's name introduces; `lowered` is `text` in lower case."""
    crowd = reach = 0
    for start, end in sorted(_keywords(lowered)):
        match = _TAIL.match(text, end)
        window = text[max(0, start - _NAME_WINDOW) : start]
        name_start = start - (len(window) - len(window.rstrip(_NAME_CHARS)))
        if match is not None:
            crowd = crowd + 1 if start < reach else 0
            if crowd < _CROWD:
                reach = match.end() if match.lastgroup in _UNQUOTED else reach
                yield from _judge(text, text[name_start : match.end("rest")], match)
        if "=" in text[max(0, name_start - 4) : name_start]:
            yield from _compared(text, name_start, end)
    if "curl" in lowered:
        yield from _curl_users(text)


def _keywords(lowered: str) -> Iterator[tuple[int, int]]:
    for keyword in _KEYWORDS:
        at = lowered.find(keyword)
        while at >= 0:
            yield at, at + len(keyword)
            at = lowered.find(keyword, at + len(keyword))


def _judge(text: str, name: str, match: re.Match[str]) -> Iterator[Finding]:
    group = match.lastgroup or ""
    start, end = match.span(group)
    kind = credential_kind(name)
    if kind is None or not _separated(name, match, group):
        return
    if group == "element":
        if any(is_credential_value(name, kind, word.strip("{}")) for word in match[group].split()):
            yield Finding(kind, start, end)
    elif group in _QUOTED and kind != "PASSWORD":
        for word in _QUOTED_WORD.finditer(text, start, end):
            if is_credential_value(name, kind, word[0]):
                yield Finding(kind, *word.span())
    elif group in _QUOTED:
        if is_credential_value(name, kind, match[group]):
            yield Finding(kind, start, end)
    elif is_credential_value(name, kind, match[group].rstrip(_TRAILING)):
        rest = _BARE_REST.match(text, end)
        end = rest.end() if rest else end
        yield Finding(kind, start, start + len(text[start:end].rstrip(_TRAILING)))


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
        if not (
            is_placeholder(password)
            or is_code(password)
            or is_placeholder(user)
            or is_stock_pair(user, password)
        ):
            yield Finding("PASSWORD", match.start(group), match.end(group))


_STOCK_WORDS = re.compile(
    r"abc|admin|bar|baz|email|foo|guest|key|login|me|minio|minioadmin|mongo|mypass|mypassword|mysql|"
    r"myuser|name|p|pass|pass123|passw0rd|passwd|password|postgres|pw|pwd|rabbitmq|redis|root|secret|"
    r"test|token|u|user|username|usr|xxx|xyz|yyy"
)


def is_stock_pair(user: str, password: str) -> bool:
    """Whether a user and password are the words every manual uses."""
    return _STOCK_WORDS.fullmatch(password.lower()) is not None or (user == password and is_worded(password))


def credential_kind(name: str) -> Kind | None:
    """The kind of credential a name such as `aws_secret_access_key` announces, if any."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if any(map(_PRETENDED.fullmatch, words)):
        return None
    for index in range(len(words) - 1, -1, -1):
        kind = _word_kind(words[index])
        if kind is None:
            continue
        if any(map(_NOT_THE_VALUE.fullmatch, words[index + 1 :])):
            return None
        before = words[index - 1] if index else ""
        if kind == "KEY" and _NOT_A_CREDENTIAL_KEY.fullmatch(before) and index == len(words) - 1:
            return None
        if kind == "TOKEN" and _NOT_A_CREDENTIAL_TOKEN.fullmatch(before):
            return None
        return kind
    return None


def _word_kind(word: str) -> Kind | None:
    if word in _WHOLE_WORDS:
        return _WHOLE_WORDS[word]
    return next((kind for kind, endings in _ENDINGS if word.endswith(endings)), None)


def is_credential_value(name: str, kind: Kind, value: str) -> bool:
    """Whether `value`, given to `name`, can be the credential itself."""
    value = value[:_JUDGED]
    if (
        len(value) < 6
        or is_placeholder(value)
        or is_code(value)
        or _VERSION.fullmatch(value)
        or is_published(value)
    ):
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


def is_credential_number(kind: Kind, value: float) -> bool:
    """Whether a JSON number, given to a credential's name, can be the credential: counts and flags are short."""
    return len(str(value)) >= (_PASSWORD_DIGITS if kind == "PASSWORD" else _KEY_DIGITS)


def names_value(name: str) -> bool:
    """Whether a member of a secret's object can hold the secret, rather than its type, length or expiry."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return not any(word != "value" and _NOT_THE_VALUE.fullmatch(word) for word in words[-1:])


def _is_named_key(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    return len(words) > 1 or words[-1:] != ["key"]
