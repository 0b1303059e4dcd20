"""Tokens whose shape gives them away: one table of providers.

The first rows are detect-secrets' own patterns; the rest begins where that library ends. A row is tried only on
texts that contain one of its anchors, so a text without secrets costs one substring search a row.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from .findings import Finding, Kind
from .placeholders import is_placeholder, is_published, is_worded, spells_words

__all__ = ["find_provider_tokens"]


@dataclass(frozen=True, slots=True)
class Detector:
    """One shape: where its anchor occurs, `pattern` is searched; `group` is the secret part."""

    kind: Kind
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int = 0


def _library(kind: Kind, plugin: Any, *anchors: str) -> list[Detector]:
    return [Detector(kind, anchors, pattern) for pattern in plugin.denylist]


def _token(prefix: str, body: str, *, kind: Kind = "TOKEN", apart: bool = True) -> Detector:
    """A row for `prefix` + `body`; `apart` asks that no name runs into the prefix."""
    literal = re.escape(prefix)
    edge = rf"(?:(?<![A-Za-z0-9_-]{literal})|(?<=\\[nrt]{literal}))" if apart else ""
    return Detector(kind, (prefix,), re.compile(f"{literal}{edge}{body}"))


def _shape(kind: Kind, anchor: str, pattern: str, *, group: int = 0) -> Detector:
    """A row for a token that its anchor does not begin."""
    return Detector(kind, (anchor,), re.compile(pattern), group)


_END = r"(?![A-Za-z0-9])"

_LIBRARY_ROWS: list[Detector] = [
    *_library("KEY", AWSKeyDetector, "AKIA", "ASIA", "ABIA", "ACCA", "A3T")[:1],
    *_library("TOKEN", GitHubTokenDetector, "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *_library(
        "TOKEN",
        GitLabTokenDetector,
        "glpat-",
        "gldt-",
        "glft-",
        "glsoat-",
        "glrt-",
        "GR1348941",
        "glcbt-",
        "glimt-",
        "glptt-",
        "glagent-",
        "gloas-",
    ),
    *_library("TOKEN", SlackDetector, "xox", "XOX", "hooks.slack.com"),
    *_library("TOKEN", SendGridDetector, "SG."),
    *_library("KEY", StripeDetector, "k_live_"),
    *_library("KEY", SquareOAuthDetector, "sq0csp-"),
    *_library("KEY", AzureStorageKeyDetector, "AccountKey="),
    *_library("KEY", ArtifactoryDetector, "AKC")[:1],
    *_library("KEY", TwilioKeyDetector, "SK", "AC"),
]

_OWN_ROWS: list[Detector] = [
    # this server's own: pool keys, guest tokens, webhook secrets
    _token("fk_", r"[A-Za-z0-9_-]{16,128}", kind="KEY"),
    _token("gt_", r"[A-Za-z0-9_-]{16,128}"),
    _token("whsec_", r"[A-Za-z0-9+/=_-]{16,128}", kind="KEY", apart=False),
    # version control and package registries
    _token("github_pat_", r"[A-Za-z0-9_]{22,255}", apart=False),
    _token("ghs_", r"[A-Za-z0-9_]{36,255}", apart=False),
    _token("glpat-", r"[A-Za-z0-9_-]{27,300}\.[0-9a-z]{9}", apart=False),
    _token("glrt-t", r"\d_[A-Za-z0-9_-]{27,300}\.[0-9a-z]{9}", apart=False),
    _token("glcbt-", r"[0-9a-zA-Z]{1,5}_[A-Za-z0-9_-]{20,64}", apart=False),
    _token("glffct-", r"[A-Za-z0-9_-]{20,64}", apart=False),
    _token("_gitlab_session=", r"[0-9a-z]{32}", apart=False),
    _token("npm_", r"[A-Za-z0-9]{36}" + _END, apart=False),
    _token("pypi-Ag", r"[A-Za-z0-9_-]{50,1000}", apart=False),
    _token("rubygems_", r"[a-f0-9]{48}", apart=False),
    _token("CLOJARS_", r"[A-Za-z0-9]{60}", apart=False),
    _token("oy2", r"[a-z0-9]{43}" + _END, kind="KEY"),
    _token("dckr_pat_", r"[A-Za-z0-9_-]{20,64}", apart=False),
    _token("cio", r"[A-Za-z0-9]{32}" + _END),
    _token("sgp_", r"(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}", apart=False),
    # models
    _token("sk-", r"(?:ant|proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{20,400}", kind="KEY"),
    _token("sk-", r"[A-Za-z0-9]{32,128}" + _END, kind="KEY"),
    _token("sk-", r"[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}", kind="KEY", apart=False),
    _token("hf_", r"[A-Za-z0-9]{34}(?![A-Za-z0-9_])"),
    _token("api_org_", r"[A-Za-z0-9]{34}(?![A-Za-z0-9_])"),
    _token("gsk_", r"[A-Za-z0-9]{40,64}" + _END, kind="KEY"),
    _token("xai-", r"[A-Za-z0-9]{70,90}" + _END, kind="KEY"),
    _token("pplx-", r"[A-Za-z0-9]{40,64}" + _END, kind="KEY"),
    _token("r8_", r"[A-Za-z0-9]{37,40}" + _END),
    _token("nvapi-", r"[A-Za-z0-9_-]{60,80}", kind="KEY"),
    _token("AIza", r"[A-Za-z0-9_-]{35}" + _END, kind="KEY"),
    _token("tvly-", r"[A-Za-z0-9_-]{20,64}", kind="KEY"),
    # clouds
    _token("ABSK", r"[A-Za-z0-9+/]{100,280}={0,2}", kind="KEY"),
    _token("bedrock-api-key-", r"[A-Za-z0-9+/=_-]{20,2000}", kind="KEY"),
    _token("LTAI", r"[A-Za-z0-9]{16,24}" + _END, kind="KEY"),
    _token("GOCSPX-", r"[A-Za-z0-9_-]{20,40}", kind="KEY"),
    _token("ya29.", r"[A-Za-z0-9_-]{20,1000}"),
    _token("1//0", r"[A-Za-z0-9_-]{30,200}"),
    _token("AQVN", r"[A-Za-z0-9_-]{35,38}", kind="KEY"),
    _token("YCO", r"[A-Za-z0-9_-]{36,38}", kind="KEY"),
    _token("YCAJ", r"[A-Za-z0-9_-]{20,40}", kind="KEY"),
    _token("t1.", r"[A-Z0-9a-z_-]{20,400}={0,2}\.[A-Z0-9a-z_-]{60,90}={0,2}"),
    _token("doo_v1_", r"[a-f0-9]{64}", apart=False),
    _token("dop_v1_", r"[a-f0-9]{64}", apart=False),
    _token("dor_v1_", r"[a-f0-9]{64}", apart=False),
    _token("HRKU-", r"[A-Za-z0-9_-]{36,80}", kind="KEY"),
    _token("tk-us-", r"[A-Za-z0-9_-]{48}", kind="KEY"),
    _token("fo1_", r"[A-Za-z0-9_-]{43}"),
    _token("fm2_", r"[A-Za-z0-9+/]{90,1000}={0,3}"),
    _token("fm1", r"[ar]_[A-Za-z0-9+/]{90,1000}={0,3}"),
    _token("sbp_", r"[a-f0-9]{40}"),
    _token("pscale_", r"(?:tkn|oauth|pw)_[A-Za-z0-9_=.-]{32,64}", apart=False),
    _token("pul-", r"[a-f0-9]{40}" + _END),
    _token("dapi", r"[a-f0-9]{32}(?:-\d)?" + _END),
    _token("dt0c01.", r"[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}", apart=False),
    _token("dt0s", r"\d{2}\.[A-Za-z0-9]{8,24}\.[A-Za-z0-9]{64}"),
    _token("tskey-", r"[a-z]{2,12}-[A-Za-z0-9]{8,32}(?:-[A-Za-z0-9]{8,64})?"),
    _token("sha256~", r"[A-Za-z0-9_-]{43}" + _END),
    _token("hvs.", r"[A-Za-z0-9_-]{24,180}"),
    _token("hvb.", r"[A-Za-z0-9_-]{100,400}"),
    _token("hvr.", r"[A-Za-z0-9_-]{24,180}"),
    _token("s.", r"[A-Za-z0-9]{24}(?![A-Za-z0-9_.(])"),
    _token("pnu_", r"[A-Za-z0-9]{36}" + _END),
    _token("ico-", r"[A-Za-z0-9]{32}" + _END),
    _token("lin_api_", r"[A-Za-z0-9]{40}", apart=False),
    _token("lin_oauth_", r"[A-Za-z0-9]{40,64}", apart=False),
    _token("ops_eyJ", r"[A-Za-z0-9+/]{200,2000}={0,3}", apart=False),
    _token(
        "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}" + _END, kind="KEY"
    ),
    _token("AGE-SECRET-KEY-1", r"[A-Z0-9]{58}", kind="KEY", apart=False),
    # messages, mail, payments, observability
    _token("xapp-", r"\d-[A-Z0-9]{5,40}-\d{5,40}-[A-Za-z0-9]{20,100}"),
    _token("xox", r"(?:[abeposr]-|e-\d-|e\.xox[bp]-\d-)(?:\d{1,14}-){0,4}[A-Za-z0-9-]{10,200}"),
    _token("hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,200}", apart=False),
    _token("SG.", r"[A-Za-z0-9_=-]{16,64}\.[A-Za-z0-9_=.-]{30,80}"),
    _token("SK", r"[0-9a-fA-F]{32}" + _END, kind="KEY"),
    _token("AC", r"[0-9a-f]{32}" + _END, kind="KEY"),
    _token("xkeysib-", r"[a-f0-9]{64}-[A-Za-z0-9]{16}", kind="KEY", apart=False),
    _token("key-", r"[0-9a-f]{32}" + _END, kind="KEY"),
    _token("EZAK", r"[A-Za-z0-9]{54}" + _END, kind="KEY"),
    _token("EZTK", r"[A-Za-z0-9]{54}" + _END, kind="KEY"),
    _token("shippo_", r"(?:live|test)_[a-fA-F0-9]{40}", apart=False),
    _token("duffel_", r"(?:live|test)_[A-Za-z0-9_=-]{43}", apart=False),
    _token("sk_", r"(?:live|test|prod)_[A-Za-z0-9]{10,200}", kind="KEY"),
    _token("rk_", r"(?:live|test|prod)_[A-Za-z0-9]{10,200}", kind="KEY"),
    _token("sk_", r"[A-Za-z0-9]{32,64}" + _END, kind="KEY"),
    _token("sq0atp-", r"[A-Za-z0-9_-]{22,60}", apart=False),
    _token("EAAA", r"[A-Za-z0-9_-]{40,80}" + _END),
    _token("EAA", r"[A-Za-z0-9]{100,400}"),
    _token("FLWSECK_TEST-", r"[A-Za-z0-9]{12,32}(?:-X)?", kind="KEY", apart=False),
    _token("FLWSECK-", r"[A-Za-z0-9]{12,40}(?:-X)?", kind="KEY", apart=False),
    _token("FLWPUBK_TEST-", r"[A-Za-z0-9]{32}-X", kind="KEY", apart=False),
    _token("shp", r"(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _token("glsa_", r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}", apart=False),
    _token("glc_", r"[A-Za-z0-9+/]{32,400}={0,3}"),
    _token("eyJrIjoi", r"[A-Za-z0-9+/]{60,400}={0,3}"),
    _token("sntrys_eyJ", r"[A-Za-z0-9+/=_]{60,500}"),
    _token("sntryu_", r"[a-f0-9]{64}"),
    _token("NRAK-", r"[A-Z0-9]{27}" + _END, kind="KEY"),
    _token("NRJS-", r"[a-f0-9]{19}" + _END, kind="KEY"),
    _token("NRII-", r"[A-Za-z0-9-]{32}", kind="KEY"),
    _token("NRAL-", r"[A-Za-z0-9-]{27,40}", kind="KEY"),
    _token("phx_", r"[A-Za-z0-9]{40,60}" + _END),
    _token("phc_", r"[A-Za-z0-9]{40,60}" + _END),
    # products with a prefix of their own
    _token("PMAK-", r"[a-fA-F0-9]{24}-[a-fA-F0-9]{34}", kind="KEY", apart=False),
    _token("secret_", r"[A-Za-z0-9]{43}" + _END),
    _token("ntn_", r"\d{11}[A-Za-z0-9]{35}" + _END),
    _token("figd_", r"[A-Za-z0-9_-]{40,60}"),
    _token("ATATT3", r"[A-Za-z0-9_=-]{100,250}", apart=False),
    _token("ATBB", r"[A-Za-z0-9]{28,40}" + _END),
    _token("dp.", r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40,80}"),
    _token("fio-u-", r"[A-Za-z0-9_=-]{64}"),
    _token("rdme_", r"[a-z0-9]{70}", apart=False),
    _token("tfp_", r"[A-Za-z0-9_.=-]{40,80}"),
    _token("API-", r"[A-Z0-9]{26}" + _END, kind="KEY"),
    _token("sm_", r"(?:aat|pat|sat)_[A-Za-z0-9]{16}" + _END),
    _token("p8e-", r"[A-Za-z0-9]{32}" + _END, kind="KEY"),
    _token("s-s4t2", r"(?:ud|af)-[a-f0-9]{64}", kind="KEY"),
    _token("4b1d", r"[A-Za-z0-9]{38}" + _END, kind="KEY"),
    _token("AKCp", r"[A-Za-z0-9]{60,80}" + _END, kind="KEY"),
    _token("cmVmd", r"[A-Za-z0-9]{59}" + _END),
    _token("pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    _token("pat.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    _token("sat.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    _token("v1.0-", r"[a-f0-9]{24}-[a-f0-9]{146}"),
    _token("apify_api_", r"[A-Za-z0-9]{30,40}", apart=False),
    _token("rnd_", r"[A-Za-z0-9]{28,40}" + _END),
    _token("re_", r"[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,32}" + _END, kind="KEY"),
    _token("da2-", r"[a-z0-9]{26}" + _END, kind="KEY"),
    _token("alcht_", r"[A-Za-z0-9]{30}" + _END, kind="KEY"),
    _token("ptr_", r"[A-Za-z0-9+/=_-]{40,64}"),
    # shapes without a fixed beginning: the anchor stands inside
    _shape(
        "TOKEN",
        "eyJ",
        r"eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=\\[nrt]eyJ))[A-Za-z0-9_-]{15,4000}={0,2}\.[A-Za-z0-9_-]{16,6000}={0,2}"
        r"(?:\.[A-Za-z0-9_-]{10,2000}={0,2}){0,3}",
    ),
    _shape("TOKEN", "ZXlK", r"ZXlK(?<![A-Za-z0-9+/]ZXlK)[A-Za-z0-9+/]{80,6000}={0,2}"),
    _shape(
        "TOKEN",
        ".",
        r"(?:[MNO](?<![A-Za-z0-9_-][MNO])[A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38})",
    ),
    _shape("TOKEN", ":A", r"\d(?<![\w-]\d)\d{4,15}:A[A-Za-z0-9_-]{34}(?![A-Za-z0-9_-])"),
    _shape(
        "TOKEN",
        ".atlasv1.",
        r"[A-Za-z0-9](?<![A-Za-z0-9_-][A-Za-z0-9])[A-Za-z0-9]{13}\.atlasv1\.[A-Za-z0-9_=-]{60,70}",
    ),
    _shape(
        "KEY",
        "Q~",
        r"[A-Za-z0-9_~.](?<![A-Za-z0-9_~.-][A-Za-z0-9_~.])[A-Za-z0-9_~.]{2}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])",
    ),
    _shape("KEY", "_mmk", r"[A-Za-z0-9](?<![A-Za-z0-9_][A-Za-z0-9])[A-Za-z0-9]{5}_[A-Za-z0-9]{29}_mmk"),
    _shape("KEY", "-us", r"[0-9a-f](?<![A-Za-z0-9_-][0-9a-f])[0-9a-f]{31}-us\d{1,2}(?!\w)"),
    _shape("TOKEN", "|", r"\d(?<!\w\d)\d{14,15}\|[A-Za-z0-9_-]{27,40}"),
    _shape("KEY", "sig=", r"[?&]sig=([A-Za-z0-9%/+_-]{30,120}={0,2})", group=1),
    _shape(
        "TOKEN", "webhook.office.com", r"webhook\.office\.com/webhookb2/([A-Za-z0-9@/-]{60,300})", group=1
    ),
    _shape(
        "TOKEN", "discord", r"discord(?:app)?\.com/api/webhooks/(\d{10,22}/[A-Za-z0-9_-]{40,100})", group=1
    ),
    _shape("KEY", "softlayer.com/soap/", r"softlayer\.com/soap/v3(?:\.1)?/([a-z0-9]{64})", group=1),
]

_TABLE: tuple[Detector, ...] = (*_LIBRARY_ROWS, *_OWN_ROWS)
# A token without slashes stands within one part of a path or URL, which leaves less to search.
_WHOLE = tuple(
    dict.fromkeys(anchor for row in _TABLE if "/" in row.pattern.pattern for anchor in row.anchors)
)
_PARTS = tuple(
    dict.fromkeys(anchor for row in _TABLE if "/" not in row.pattern.pattern for anchor in row.anchors)
)
_SHORTEST = 16
_CUT_SHORT = re.compile(r"[-_.]?(?:\.\.\.|…|\*\*\*|###|xxx|XXX)")

_KEY_HEADER = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_FOOTER = re.compile(r"-----(?:END|BEGIN) ")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_LONGEST_KEY = 20_000
_SHORTEST_KEY = 12


def find_provider_tokens(text: str, beside: str = "") -> Iterator[Finding]:
    """Tokens and private keys recognised by their shape alone; `beside` asks for words with one of its characters."""
    long_words = _long(text.split(), beside)
    words = "\n".join(long_words)
    parts = "\n".join(_long([part for word in long_words for part in word.split("/")], beside))
    anchors = {anchor for anchor in _WHOLE if anchor in words}
    anchors.update([anchor for anchor in _PARTS if anchor in parts])
    for row in _TABLE if anchors else ():
        if anchors.isdisjoint(row.anchors) or row.pattern.search(words) is None:
            continue
        for match in row.pattern.finditer(text):
            start, end = match.span(row.group)
            if _is_token(match[row.group]) and not _CUT_SHORT.match(text, end):
                yield Finding(row.kind, start, end)
    if "PRIVATE KEY" in text:
        yield from _private_keys(text)


def _long(words: list[str], beside: str) -> list[str]:
    long_words = [word for word in words if len(word) >= _SHORTEST]
    return [word for word in long_words if any(char in word for char in beside)] if beside else long_words


def _is_token(value: str) -> bool:
    return not (is_placeholder(value) or is_worded(value) or spells_words(value) or is_published(value))


def _private_keys(text: str) -> Iterator[Finding]:
    for header in _KEY_HEADER.finditer(text):
        start = header.end()
        # Without a last line it is an excerpt, and all up to a blank line can be key material.
        end = _KEY_FOOTER.search(text, start, start + _LONGEST_KEY) or _BLANK_LINE.search(text, start)
        body = text[start : end.start() if end else start + _LONGEST_KEY]
        start += len(body) - len(body.lstrip())
        if len(body.strip()) >= _SHORTEST_KEY:
            yield Finding("KEY", start, start + len(body.strip()))
