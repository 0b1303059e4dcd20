"""Redaction: what is taken out, what stays, and that no text can make it raise, loop or drag.

Every secret here is made up and put together at run time, so that no scanner takes this file for a leak.
"""

import random
import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool_server.contract.redaction import ALL_KINDS, CREDENTIAL_KINDS, Finding, Redactor, find, normalise

BASE62 = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def made(size: int, alphabet: str = BASE62, seed: int = 7) -> str:
    """`size` characters as a token generator would draw them, the same on every run."""
    return "".join(random.Random(f"{seed}{size}{alphabet}").choices(alphabet, k=size))


def redact(text: str) -> str:
    return Redactor().text(text)


def kinds(text: str) -> list[str]:
    return [finding.kind for finding in find(text)]


PROVIDER_TOKENS = [
    ("TOKEN", "gh" + "p_" + made(36)),
    ("TOKEN", "gh" + "o_" + made(36)),
    ("TOKEN", "gh" + "s_" + made(36)),
    ("TOKEN", "github" + "_pat_" + made(22) + "_" + made(59)),
    ("TOKEN", "gl" + "pat-" + made(20)),
    ("TOKEN", "gl" + "rt-" + made(20)),
    ("TOKEN", "xo" + "xb-" + made(12, "123456789") + "-" + made(12, "987654321") + "-" + made(24)),
    ("TOKEN", "xa" + "pp-1-A" + made(10, "ABCDEF0123") + "-" + made(13, "123456789") + "-" + made(64, HEX)),
    ("TOKEN", "hooks.slack" + ".com/services/T" + made(8) + "/B" + made(10) + "/" + made(24)),
    ("KEY", "sk" + "-ant-api03-" + made(93) + "AA"),
    ("KEY", "sk" + "-proj-" + made(74)),
    ("KEY", "sk" + "-" + made(48)),
    ("KEY", "AK" + "IA" + made(16, "ABCDEFGHJKLMNPQRSTUVWXYZ234567")),
    ("KEY", "AS" + "IA" + made(16, "ABCDEFGHJKLMNPQRSTUVWXYZ234567")),
    ("KEY", "AI" + "za" + made(35)),
    ("TOKEN", "np" + "m_" + made(36)),
    ("TOKEN", "py" + "pi-AgEIcHlwaS5vcmc" + made(90)),
    ("TOKEN", "S" + "G." + made(22) + "." + made(43)),
    ("KEY", "sk" + "_live_" + made(24)),
    ("KEY", "rk" + "_test_" + made(24)),
    ("TOKEN", "hf" + "_" + made(34, string.ascii_letters)),
    ("TOKEN", "dop" + "_v1_" + made(64, HEX)),
    ("TOKEN", "8" + made(9, "123456789") + ":A" + "A" + made(33)),
    ("TOKEN", "ey" + "J" + made(33) + ".ey" + "J" + made(60) + "." + made(43)),
    ("TOKEN", "hv" + "s." + made(92)),
    ("KEY", "fk" + "_" + made(32)),
    ("TOKEN", "gt" + "_" + made(32)),
    ("KEY", "wh" + "sec_" + made(32)),
]


@pytest.mark.parametrize(("kind", "token"), PROVIDER_TOKENS, ids=lambda value: value[:9])
@pytest.mark.parametrize(
    "around", ["{}", "see {} here", 'x = "{}";', "a\n{}\nb", "<p>{}</p>", "({})", "k={}&b=1"]
)
def test_a_token_of_a_known_shape_goes_wherever_it_stands(kind: str, token: str, around: str) -> None:
    """A provider's token is taken out whole, whatever stands around it."""
    out = redact(around.format(token))
    assert out in {around.format(f"<{each}:1>") for each in ("TOKEN", "KEY")}
    assert find(token)[0].kind == kind


ASSIGNED = [
    "password = '{}'",
    "DB_PASSWORD={}",
    "passwd: {}",
    '"password": "{}"',
    "my_password_secure := `{}`",
    "--api-key {}",
    "API_KEY={}",
    "aws_secret_access_key = {}",
    '{{"client_secret":"{}"}}',
    "X-Api-Key: {}",
    "var accessToken string = '{}'",
    'System.setProperty("SERVICE_TOKEN", "{}")',
    "service token - '{}'",
    "<password>{}</password>",
    "Authorization: Bearer {}",
    "Authorization: Token {}",
    "curl -H 'Authorization: token {}' https://api.corp.net",
    'if (auth_token == "{}") {{',
    'if ("{}" == auth_token) {{',
    "- name: DB_PASSWORD\n  value: {}",
    '{{"name":"API_TOKEN","value":"{}"}}',
    "Server=db1;User ID=sa;Password={};Encrypt=true",
    "https://api.corp.net/v1?access_token={}&page=2",
    '{{\\"token\\": \\"{}\\"}}',
    '{{"config.ini": "SERVICE_TOKEN={}\\nDEBUG=true"}}',
]


@pytest.mark.parametrize("shape", ASSIGNED)
@pytest.mark.parametrize("value", [made(32, string.ascii_lowercase + string.digits), made(40), made(40, HEX)])
def test_a_value_goes_when_its_name_says_it_is_a_credential(shape: str, value: str) -> None:
    """What a credential's name introduces is taken out; the name and its punctuation stay."""
    out = redact(shape.format(value))
    assert re.fullmatch(re.escape(shape.format("\0")).replace("\0", "<(?:TOKEN|KEY|PASSWORD):1>"), out)


@pytest.mark.parametrize("password", ["hunter2", "Tr0ub4dor&3", "p@ss-w0rd!x", "correct9horse"])
def test_a_password_need_not_look_random(password: str) -> None:
    """An ordinary password goes too."""
    assert redact(f'password: "{password}"') == 'password: "<PASSWORD:1>"'


def test_other_credentials_go() -> None:
    """Private keys, users in URLs, and curl's users are taken out; what surrounds them stays."""
    key = "\n".join(made(64, seed=line) for line in range(4))
    pem = "-----BEGIN RSA PRIVATE " + f"KEY-----\n{key}\n-----END RSA PRIVATE " + "KEY-----"
    assert redact(f"a\n{pem}\nb").split("\n") == [
        "a",
        "-----BEGIN RSA PRIVATE KEY-----",
        "<KEY:1>",
        "-----END RSA PRIVATE KEY-----",
        "b",
    ]
    encrypted = pem.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC\n\n", 1)
    assert redact(encrypted) == redact(pem)
    assert made(64, seed=0) not in redact(pem.partition("-----END")[0])
    assert (
        redact("postgres://app:" + "s3cr3t-9" + "@db.corp.net/x")
        == "postgres://<URL_CREDENTIAL:1>@db.corp.net/x"
    )
    assert redact("redis://:" + "s3cr3t-9" + "@cache/0") == "redis://<URL_CREDENTIAL:1>@cache/0"
    assert (
        redact("https://" + made(40, HEX) + "@github.com/a/b") == "https://<URL_CREDENTIAL:1>@github.com/a/b"
    )
    assert redact("curl -u bob:" + "s3cr3t-9" + " https://x.net") == "curl -u bob:<PASSWORD:1> https://x.net"


def test_personal_data_goes() -> None:
    """Addresses, numbers and home directories are replaced by what they are."""
    cases = {
        "mail ann.smith@corp.io now": "mail <EMAIL:1> now",
        "josé@correo.es, <bob@web.de>": "<EMAIL:1>, <<EMAIL:2>>",
        "call +49 30 1234567": "call <PHONE:1>",
        "(415) 555-0132 or 415-555-0132": "<PHONE:1> or <PHONE:2>",
        "Phone: 032 288 79 44": "Phone: <PHONE:1>",
        "from 93.184.216.34:443": "from <IP:1>:443",
        "at [2606:2800:220:1:248:1893:25c8:1946]": "at [<IP:1>]",
        "card 4012 8888 8888 1881.": "card <CARD:1>.",
        "paid with 4012888888881881": "paid with <CARD:1>",
        'File "/home/ann/src/x.py"': 'File "~/src/x.py"',
        "/Users/ann/x": "~/x",
        "<path>/home/ann/x</path> /c/Users/ann/y /mnt/c/Users/ann": "<path>~/x</path> ~/y ~",
        "C:\\Users\\ann\\x": "~\\x",
        "C:\\Users\\Ann Smith\\x": "~\\x",
        "C:/Users/ann/x": "~/x",
        '"C:\\\\Users\\\\ann\\\\x"': '"~\\\\x"',
    }
    assert {text: redact(text) for text in cases} == cases


EVIDENCE = [
    f"fails since {made(40, HEX)}, worked at {made(7, HEX)}",
    f"sha256:{made(64, HEX)}",
    f'"integrity": "sha512-{made(86)}=="',
    "request 3f2b8c1e-9d5a-4c7b-8e1f-2a3b4c5d6e7f",
    f"entity ent_{made(24, HEX)} and unit ku_{made(32, HEX)}",
    "2025-06-18T08:45:11.123Z took 1718700311123 ms",
    "1.2.3 v2.0.0-rc.1 typing-extensions>=3.10.0.0 zlib@1.2.13.1 Chrome/120.0.6099.109",
    "opencv-contrib-python   4.5.5.64",
    "git@github.com:org/repo.git ssh://git@host.net/x debug@0.8.1 @octokit/core@5.0.0 logo@2x.png",
    "127.0.0.1 10.0.0.12 192.168.1.1 169.254.1.1 224.0.0.1 255.255.255.255 192.0.2.7 198.51.100.7 203.0.113.7",
    "::1 fe80::1 fd00::1 ff02::1 2001:db8::1 std::vector MyClass::method 12:34:56 aa:bb:cc:dd:ee:ff",
    "ann@example.com bob@mail.example.org x@foo.test y@bar.invalid root@localhost z@a.localhost",
    "12345+ann@users.noreply.github.com noreply@github.com",
    "https://user:pass@host.net postgres://postgres:postgres@localhost:5432 http://${USER}:${PASS}@h",
    "password: ${DB_PASSWORD} token=$TOKEN api_key: <your key> Authorization: Bearer <token>",
    'api_key="YOUR_API_KEY" secret: "changeme" password=xxxxxxxx token = "..." key: {{ key }}',
    'api_key=os.environ["OPENAI_API_KEY"] token: process.env.TOKEN, password = getpass.getpass()',
    "secrets.GITHUB_TOKEN ${{ secrets.NPM_TOKEN }} passwordVariable: 'PASSWORD' credentialsId: 'deploy-bot'",
    "AKIA" + "IOSFODNN7EXAMPLE ghp_" + "x" * 36 + " xoxb-your-bot-token sk-your-api-key",
    "KeyError: 'session_token' raised; the API key is required. Personal access token (classic)",
    f"cache key: {made(40, HEX)}, primaryKey=abc, public_key = {made(43)}, keyboard: layout",
    "max_tokens: 4096, next_page_token: 'CAUQAA', author = Jane, monkey: banana",
    'the password must be longer than 8 characters; "password": "123"',
    "Microsoft Office 16.0.17126.20132 on a mobile device, cell 12345678, order 4012888888881882, id 1234567890123456, 1,234,567.89, 2024-01-15 10:20:30, +12 -34",
    "GET /Users/42 and https://site.net/home/about and ~/x and /home/ and /usr/local/home",
    "<EMAIL:1> <TOKEN:3> password=<PASSWORD:1> https://<URL_CREDENTIAL:1>@host",
]


@pytest.mark.parametrize("text", EVIDENCE)
def test_evidence_stays(text: str) -> None:
    """Hashes, versions, placeholders and addresses that point at nobody come through unchanged."""
    assert find(text) == []
    assert redact(text) == text


def test_equal_values_share_a_number_across_texts() -> None:
    """One submission numbers each kind from 1 and gives equal values equal numbers."""
    redactor = Redactor()
    assert redactor.text("a@web.de b@web.de a@web.de 9.9.9.9") == "<EMAIL:1> <EMAIL:2> <EMAIL:1> <IP:1>"
    assert redactor.text("b@web.de c@web.de") == "<EMAIL:2> <EMAIL:3>"
    assert redactor.counts() == [{"kind": "EMAIL", "count": 5}, {"kind": "IP", "count": 1}]


def test_numbers_in_use_are_skipped() -> None:
    """A new value never takes the number of a placeholder that was there before."""
    assert redact("<EMAIL:1> a@web.de <EMAIL:3> b@web.de") == "<EMAIL:1> <EMAIL:2> <EMAIL:3> <EMAIL:4>"


def test_a_credential_goes_again_where_nothing_names_it() -> None:
    """A value recognised once is taken out everywhere, also in the texts that follow."""
    value = made(24)
    redactor = Redactor()
    assert redactor.text(f"token={value} then {value}") == "token=<TOKEN:1> then <TOKEN:1>"
    assert redactor.text(f"again {value}") == "again <TOKEN:1>"


def test_only_the_wanted_kinds_go() -> None:
    """Operator writes are searched for credentials alone."""
    text = f"a@web.de /home/ann {'gh' + 'p_' + made(36)}"
    assert [finding.kind for finding in find(text, CREDENTIAL_KINDS)] == ["TOKEN"]
    assert Redactor(CREDENTIAL_KINDS).text(text) == "a@web.de /home/ann <TOKEN:1>"


def test_values_are_redacted_through_their_structure() -> None:
    """Nested texts and keys are redacted; a key that names a credential gives its value away."""
    secret = made(24)
    value = {
        "password": "hunter2x",
        "a@web.de": [1, None, True, {"token": secret, "x": "/home/ann"}],
        "n": 1.5,
    }
    redactor = Redactor()
    assert redactor.value(value) == {
        "password": "<PASSWORD:1>",
        "<EMAIL:1>": [1, None, True, {"token": "<TOKEN:1>", "x": "~"}],
        "n": 1.5,
    }
    assert {"kind": "PASSWORD", "count": 1} in redactor.counts()


def test_hidden_characters_are_removed_and_counted() -> None:
    """What a reader cannot see goes; joiners that spell something stay."""
    hidden = "a\u202eb\u200bc" + "".join(chr(0xE0000 + ord(char)) for char in "run") + "\ufeff"
    assert normalise(hidden) == ("abc", {"BIDI_CONTROL": 1, "ZERO_WIDTH": 2, "TAG_CHARACTER": 3})
    kept = [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200d",
    ]
    assert [normalise(text) for text in kept] == [(text, {}) for text in kept]
    redactor = Redactor()
    assert redactor.text("ann@\u200bweb.de") == "<EMAIL:1>"
    assert redactor.counts() == [{"kind": "EMAIL", "count": 1}, {"kind": "ZERO_WIDTH", "count": 1}]


def test_a_code_block_keeps_its_shape() -> None:
    """Line breaks, indentation and everything that is not private stand where they stood."""
    block = "```py\n\tx = 1\r\n\tapi_key = '{}'\n\n\topen('{}/y')\n```\n"
    assert redact(block.format(made(32), "/home/ann")) == block.format("<KEY:1>", "~")


# --- properties -------------------------------------------------------------------------------------------------

FRAGMENTS = [
    "password", "token", "api_key", "key", "Authorization", "Bearer", "secret", "://", "user", ":", "@", "=", '"', "'",
    " ", "\n", "\t", "|", ",", ".", "-", "+", "/", "\\", "<", ">", "(", ")", "{", "}", "$", "/home/ann", "C:\\Users\\ann",
    "ann@web.de", "9.9.9.9", "2606:4700::1111", "+49 30 1234567", "4012888888881881", "phone", "card", "<EMAIL:1>", "~",
    "gh" + "p_" + made(36), "sk" + "-" + made(40), "ey" + "J" + made(20) + ".", made(20), made(40, HEX), "1234567",
    "-----BEGIN PRIVATE " + "KEY-----", "-----END PRIVATE " + "KEY-----", "\u200b", "\u202e", "\U0001f468", "\u200d", "é",
    "\ud800", "\x00", "hunter2", "curl -u ", "value", "EXAMPLE", "</", "İ",
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(), max_size=300),
    st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join),
)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_redaction_is_idempotent(text: str) -> None:
    """Redacted text has nothing left to redact."""
    once = redact(text)
    assert redact(once) == once


@settings(max_examples=400, deadline=None)
@given(texts)
def test_spans_are_ordered_apart_and_inside(text: str) -> None:
    """Findings lie within the text, in order, without overlap, and text without findings is unchanged."""
    found = find(text)
    edges = [edge for finding in found for edge in (finding.start, finding.end)]
    assert edges == sorted(edges)
    assert all(
        0 <= finding.start < finding.end <= len(text) and finding.kind in ALL_KINDS for finding in found
    )
    if not found and not normalise(text)[1]:
        assert redact(text) == text


@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        texts | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(texts, inner)
    )
)
def test_any_value_keeps_its_structure(value: object) -> None:
    """Nothing raises, and a list has as many items as before."""
    out = Redactor().value(value)  # type: ignore[arg-type]
    assert type(out) is type(value)
    if isinstance(value, list):
        assert isinstance(out, list)
        assert len(out) == len(value)


@settings(max_examples=100, deadline=None)
@given(texts)
def test_normalising_is_idempotent(text: str) -> None:
    """Normalised text hides nothing more."""
    once, _ = normalise(text)
    assert normalise(once) == (once, {})


PUMPS = [
    "a", "@", "a@a.a", "a@b.co ", "eyJ", "eyJa.", "token=", "key:", 'key="', "password='", "password: Zx9", "keykey", "key\n",
    "://a:", "://a:b@", "1", "1-", "1 ", "1.", "(", "(1", ") (", "+1", "::", ":a:", "/home/a", "C:\\Users\\a ", "C:/Users/a ",
    "-----BEGIN PRIVATE " + "KEY-----", "sk-", "xoxb-1-", "AKIA", "\u200b", "<EMAIL:1> a@b.co ", ">key>a", "curl -u a:b ",
    "4111111111111111 ", "Authorization: ", "key,\n value", "\ud800", "\x00", "İkey=", "?sig=" + "a" * 40, "M" + "a" * 24 + ".",
]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pump", PUMPS)
def test_a_quarter_mebibyte_of_anything_is_handled(pump: str) -> None:
    """Time grows with size, not with its square: the largest body of any repeated text comes back at once."""
    text = pump * (262_144 // len(pump))
    assert isinstance(redact(text), str)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=2, max_size=6).map("".join))
def test_a_quarter_mebibyte_of_fragments_is_handled(pump: str) -> None:
    """Nor does any mixture of what the detectors look for drag."""
    text = pump * (262_144 // max(1, len(pump)))
    assert isinstance(redact(text), str)


def test_findings_are_values() -> None:
    """A finding compares by what it says."""
    assert find("x a@web.de") == [Finding("EMAIL", 2, 10)]
    assert kinds("9.9.9.9 a@web.de") == ["IP", "EMAIL"]


@pytest.mark.timeout(60)
def test_a_run_of_any_character_is_handled() -> None:
    """A line of one character, of whichever, is read once."""
    for char in string.printable:
        assert isinstance(redact(char * 65_536), str)


TOKEN = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
# Default_Ignorable_Code_Point, the interlinear marks and the blanks that are no spaces (Unicode 16).
NOTHING_SHOWN = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFEFF, 0xFFA0),
    *(*range(0x180B, 0x1810), *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)),
    *(*range(0xFE00, 0xFE10), *range(0xFFF0, 0xFFFC), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)),
    *range(0xE0000, 0xE1000, 16),
]


@pytest.mark.parametrize("code", NOTHING_SHOWN, ids=hex)
def test_a_character_that_shows_nothing_hides_no_token(code: int) -> None:
    """Alone, doubled and beside another one."""
    for hidden in (chr(code), chr(code) * 3, chr(code) + "\u2800", "\ufe0f" + chr(code)):
        redactor = Redactor()
        assert redactor.text(TOKEN[:9] + hidden + TOKEN[9:]) == "<TOKEN:1>"
        assert sum(int(each["count"]) for each in redactor.counts()) == 1 + len(hidden)


@pytest.mark.parametrize(
    "text",
    [
        "❤️ ok ⚠️ warn ✔️ ©️ ☎︎", "1️⃣ #️⃣", "👩‍👩‍👧", "葛󠄀城", "⠋⠙⠹ ⡀⠀⠀⢀", "می‌خواهم", "क्‍ष", "ᠠ᠋ᠨ", "ᅟᅡ",
    ],
)  # fmt: skip
def test_spelling_stays(text: str) -> None:
    """Emoji, variants of ideographs, joined scripts, old Korean, plots in Braille."""
    assert normalise(text) == (text, {})


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ({"password": ["hunter2Secret!"]}, {"password": "<PASSWORD:1>"}),
        ({"secret": {"value": "hunter2Secret!"}}, {"secret": "<TOKEN:1>"}),
        ({"secret": {"a": [{"b": "hunter2Secret!"}]}}, {"secret": "<TOKEN:1>"}),
        ({"db_password": 48151623}, {"db_password": "<PASSWORD:1>"}),
        ({"api_key": 12345678901234567890}, {"api_key": "<KEY:1>"}),
        ({"credentials": [12345678901234567890]}, {"credentials": "<TOKEN:1>"}),
        ({"token": 50256, "password_length": 1234567}, {"token": 50256, "password_length": 1234567}),
        ({"auth": {"type": "basic", "retries": 3}}, {"auth": {"type": "basic", "retries": 3}}),
        ({"password": True, "secrets": ["GITHUB_TOKEN"]}, {"password": True, "secrets": ["GITHUB_TOKEN"]}),
    ],
)
def test_what_a_secrets_name_holds_is_taken_whole(fields: Any, stored: Any) -> None:
    """Lists, objects and numbers; a type, a count or a name of a variable is none."""
    assert Redactor().value(fields) == stored


@pytest.mark.parametrize(
    "text",
    [
        '{"password": ["hunter2Secret!"]}', '{"secret": {"value": "hunter2Secret!"}}', "password: ['hunter2Secret!']",
        '{\n  "password": [\n    "hunter2Secret!"\n  ]\n}', r'{\"password\": [\"hunter2Secret!\"]}',
    ],
)  # fmt: skip
def test_lists_and_objects_in_a_text(text: str) -> None:
    """A report quotes configuration as text."""
    assert "hunter2" not in Redactor().text(text)
