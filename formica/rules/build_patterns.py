"""How people name the build they ran: versions, shas, branches, packages, forks, changes of their own.

Patterns only; `reported_build` says what follows from them. Each is bounded, so that a hostile body costs
no more than its length.
"""

from __future__ import annotations

import re

__all__ = [
    "ACTION",
    "ANY_VERSION",
    "BETWEEN_RELEASES",
    "BINARY",
    "BUILD_HASH",
    "CHANNEL",
    "CI",
    "CLONE",
    "CURRENT",
    "DATED",
    "DESCRIBE",
    "DEVELOPMENT",
    "DIRTY",
    "EMPTY_VALUE",
    "FORK",
    "FORK_NOT_RUN",
    "HEADING",
    "HISTORY",
    "HISTORY_AFTER",
    "IMAGE",
    "JSON_FIELD",
    "LABELLED",
    "LATEST_RELEASE",
    "LOCAL_SHA",
    "LOCKED_SHA",
    "LONE",
    "NAMED",
    "NOT_RUN",
    "ON_BRANCH",
    "PATCHED",
    "PRE",
    "QUOTED",
    "RAN",
    "SHA_AFTER",
    "SHA_RUN",
    "SOURCE",
    "SUFFIX_SHA",
    "SURROUNDING_NAME",
    "TAG_CHECKOUT",
    "USED",
    "VERSION_WORD",
]

_VERSION = (
    r"(?:v\.?)?\d{1,4}(?:\.\d{1,5}){1,3}(?:(?:a|b|rc)\d{1,3}|[-+.](?=[0-9a-z.+_-]{0,40}[a-z])[0-9a-z][0-9a-z.+_-]{0,60}|"
    r"-\d{1,6}-g[0-9a-f]{7,40})?(?!\.?\w|/)"
)
PRE = re.compile(
    r"(?:^|[-.\d])(?:a|b|rc|alpha|beta|pre|preview|canary|next|insiders?|nightly|experimental)[-.]?\d*",
    re.IGNORECASE,
)
DESCRIBE = re.compile(
    r"\b(v?\d{1,4}(?:\.\d{1,5}){1,3}[\w.]{0,16}?(?:-[a-z]+\.?\d*)?)-(\d{1,6})-g([0-9a-f]{7,40})(-dirty)?",
    re.IGNORECASE,
)
LOCAL_SHA = re.compile(
    r"(?:\+|\.|-)(?:\d{1,6}\.)?(?:g|ng|git\.?|sha\.?|commit\.?)([0-9a-f]{7,40})(?![0-9a-f])|"
    r"\.99(?:\.\d+)?-([0-9a-f]{7,40})\b|\+([0-9a-f]{7,40})(?![0-9a-z])",
    re.IGNORECASE,
)
DATED = re.compile(r"dev\.?20\d{6}|nightly|20\d\d-?\d\d-?\d\d", re.IGNORECASE)
DEVELOPMENT = re.compile(
    r"-dev\b|[-.]dev\d{0,4}\b|\.99(?:\.\d+)?\b|-snapshot\b|[-+](?:local|dirty|custom|patched|modified)\b|-?git\b|-master\b",
    re.IGNORECASE,
)
DIRTY = re.compile(r"[-+.](?:dirty|local|modified|custom|patched)\b", re.IGNORECASE)

_SURROUNDINGS = (
    r"(?:python|py|node(?:\.?js)?|npm|yarn|pnpm|pip|os|operating system|platform|kernel|linux|ubuntu|debian|fedora|centos|"
    r"arch|manjaro|windows(?:_nt)?|win|macos|mac os(?: x)?|osx|os x|darwin|ios|android|wsl\d?|gcc|g\+\+|clang|llvm|msvc|"
    r"visual studio|vs ?\d{0,4}|valgrind|remote|compiler|glibc|libc|cmake|make|autoconf|automake|bazel|bazelisk|gradle|maven|cuda|cudnn|cuda/cudnn|"
    r"gpu|driver|nvidia\w{0,10}|opencl|opengl|vulkan|directx|tensorrt|browser|chrome|chromium|firefox|safari|edge|opera|"
    r"webkit|applewebkit|mozilla|gecko|electron|v8|java|jdk|jre|openjdk|kotlin|swift|xcode|go|golang|rustc?|cargo|ruby|php|"
    r"perl|dotnet|\.net|mono|typescript|docker engine|kubernetes|boost|berkeley ?db|bdb|libdb\S{0,8}|qt\d?|libevent|zeromq|"
    r"openssl|sqlite|postgres\w{0,4}|mysql|redis|protobuf|numpy|opset|bios|cpu|model|device|hardware|extension host|boostlib|"
    r"brew|homebrew|conda|anaconda|chromeos|remote os|powershell|bash|zsh|terminal|shell|language|schema|api|protocol|http|"
    r"tls|license|apache|at least|at most|than|ip|port|mobile device)"
)
SURROUNDING_NAME = re.compile(rf"^[^\w]{{0,6}}(?:my |the )?{_SURROUNDINGS}(?![\w.-])", re.IGNORECASE)
"""A name of something around the product, never of the product."""
LABELLED = re.compile(
    r"^[^\w\n]{0,8}(?P<name>[^\n:=]{0,130}?)[ \t]{0,4}(?:\*\*)?[ \t]{0,4}(?:[:=]>?|：|=>|\|)[ \t]{0,8}(?P<rest>[^\n]{0,160})$",
    re.MULTILINE,
)
HEADING = re.compile(
    r"^#{1,6}[ \t]{0,8}(?P<name>[^\n]{0,60}version[^\n]{0,30})\n\s{0,4}(?P<rest>[^\n]{0,160})$",
    re.MULTILINE | re.IGNORECASE,
)
NAMED = re.compile(
    rf"(?P<name>[@\w][\w.+/-]{{0,30}}(?: [\w+-]{{1,16}})?)[\s]?(?:==|[ (@=-]|\sversion\s|\sv)[ (]?(?P<version>{_VERSION})",
    re.IGNORECASE,
)
VERSION_WORD = re.compile(
    rf"\b(?:version|release|tag|versão|versión|ausgabe|版本)\W{{0,3}}(?:is |of |was )?[`'\"(]?(?P<version>{_VERSION}|v\d{{1,4}}\b)",
    re.IGNORECASE,
)
LONE = re.compile(r"(?<![\w./@:-])(?P<version>v\d{1,4}(?:\.\d{1,5}){1,3}[\w.+-]{0,30})", re.IGNORECASE)
QUOTED = re.compile(r"`(?P<version>v?\d{1,4}\.\d{1,5}\.\d{1,5}[\w.+-]{0,40})`")
USED = re.compile(
    rf"\b(?:using|running|use|run|on|tried|tested|version|versions)\s?[`'\x22(]?(?P<version>{_VERSION})",
    re.IGNORECASE,
)
JSON_FIELD = re.compile(
    r"\x22(?:sub|app|build)?_?version\x22\s?:\s?\x22[^\x22\n]{0,30}?(?P<version>\d{1,4}(?:\.\d{1,5}){1,3}[\w.+-]{0,30})",
    re.IGNORECASE,
)
LOCKED_SHA = re.compile(
    r"\bgit\+\S{4,200}?[@#](?P<a>[0-9a-f]{7,40})(?![0-9a-z])|\bv\d{1,3}\.\d{1,3}\.\d{1,3}-(?:[\w.]{1,12}\.)?20\d{12}-(?P<b>[0-9a-f]{12})\b|"
    r"\bresolved_reference\s?=\s?\x22(?P<c>[0-9a-f]{7,40})\x22",
    re.IGNORECASE,
)
"""The commit in a lock file's entry or a pseudo-version."""
HISTORY_AFTER = re.compile(
    r"^[`)\]'\x22]{0,2}\W{1,3}(?:which |that |has |have |probably |seems to have )*(?:broke\w*|introduc\w*|caus\w*|chang\w*|fix\w*|remov\w*|"
    r"add\w*|regress\w*|revert\w*|is the (?:first|culprit))\b",
    re.IGNORECASE,
)
BETWEEN_RELEASES = re.compile(r"\b\d{1,3}\.\d{1,3}(?:\.\d{1,3})?-dev\b(?![.\d-])|\b\d{1,3}\.99\.\d{1,3}\b")
ACTION = re.compile(r"(?<![\w/.:-])[\w.-]{1,40}/[\w.-]{1,60}(?:/|@)(?P<version>v\d{1,3}(?:\.\d+){0,2})\b")
ANY_VERSION = re.compile(rf"(?<![\w.]){_VERSION}", re.IGNORECASE)
NOT_RUN = re.compile(
    r"(?:deprecated|removed|introduced|added|planned|support(?:s|ed)?(?: for)?|migrat\w+|upgrad\w+|port\w* to|release notes|"
    r"available|work(?:s|ed|ing)?(?: fine| well| ok\w*)?(?: (?:on|in|with|until|till))?|requires?|needs?|at least|compatible with|similar to|since|until|before|after|than|for)(?: in| to| by| the)?\s*"
    r"(?:[\w.-]{1,20}\s)?$",
    re.IGNORECASE,
)
EMPTY_VALUE = re.compile(
    r"^[\W_]{0,8}(?:n/?a|none|no response|unknown|not sure|grey_question|\?+|-+|tbd|any)?[\W_]{0,8}$",
    re.IGNORECASE,
)

_SHA = r"(?<![0-9a-z/#.=@-])(?P<sha>(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40})(?![0-9a-z])"
SHA_RUN = re.compile(
    r"(?:\b(?:commit|sha1?|revision|rev(?:-parse)?(?: --short)?(?: head)?|head|hash|build(?:ing)?(?: commit)?|checkout|checked out(?: at)?|"
    r"based on(?: the)?(?: commit)?|(?:current|latest|recent|on|from|at|of|using)? ?`?(?:master|main|trunk|develop|dev)`?(?: branch)?|"
    r"at commit|tip|source at|version)\b)[^\w\n]{0,6}(?:(?:is|at|of|id|hash|sha|commit|as of|currently|the)[^\w\n]{1,4}){0,3}"
    r"\s{0,3}" + _SHA,
    re.IGNORECASE,
)
SHA_AFTER = re.compile(
    _SHA + r"[^\w\n]{1,4}(?:on|of|from|in)? ?(?:current |the )?`?(?:master|main|trunk|develop|head)\b",
    re.IGNORECASE,
)
HISTORY = re.compile(
    r"(?:introduc\w*|broke\w*|broken|regress\w*|caused|bisect\w*|fix(?:ed|es)?|added|removed|changed|revert\w*|since|after|before|see|"
    r"for example|e\.g\.|until|from|in|by|first bad|culprit|merged|refers?|refer\w* to|mention\w*|this|that|the following|"
    r"pick\w*)\W{0,3}(?:in |by |the |at |with |to |of )*(?:for example |this |that )?[`(\[]*(?:commit|revision|hash|sha)?[`\s(\[:]*$",
    re.IGNORECASE,
)
BUILD_HASH = re.compile(
    rf"(?<![\w/.])(?P<version>{_VERSION})[^\w\n]{{1,4}}(?:build |commit |rev(?:ision)? |git )?[(\[]?(?P<sha>[0-9a-f]{{7,40}})\b|"
    rf"version\W{{1,4}}[^\n]{{0,30}}?(?P<version2>{_VERSION})[^\n]{{0,20}}\n[^\w\n]{{0,6}}commit\W{{1,4}}(?P<sha2>[0-9a-f]{{7,40}})\b",
    re.IGNORECASE,
)
SUFFIX_SHA = re.compile(
    r"(?<![\w/.-])(?P<version>\d{1,3}\.\d{1,3}\.\d{1,3})-(?P<sha>(?=[0-9a-f]*[a-f])[0-9a-f]{8,12})\b"
)

_MAIN_BRANCH = r"(?:master|main|trunk|develop|mainline)"
_BRANCH = r"(?:master|main|trunk|develop|mainline|nightly branch|\d{1,3}\.(?:x|\d{1,2}x)|release[/-]\d[\w.]*|v\d+[._-]?(?:x|dev(?:elop)?))"
ON_BRANCH = re.compile(
    rf"\b(?:current|latest|recent|newest|today'?s|tip of|top of|head of|fresh|clean|up[- ]to[- ]date|git)\s(?:the\s)?[`'\"*]?(?P<a>{_BRANCH}|head)\b"
    rf"|\b(?:on|from|against|with|using|off|at|in|build|built|compiled)\s(?:the\s)?(?:current\s|latest\s|git\s)?[`'\"*]?(?P<b>{_MAIN_BRANCH})[`'\"*]?"
    r"(?!\s(?:thread|window|function|menu|page|process|loop|screen|file|module|method|class|view|node|key|password|branch of))(?=[\s.,;:)\]!?]|$)"
    rf"|\b(?P<c>{_BRANCH})[`'\"*]?[\s_-](?:git[\s_-])?branch\b|\bbranch\W{{1,4}}(?P<d>{_BRANCH})\b|git:\((?P<e>[\w./-]{{1,40}})\)"
    r"|[\w]-(?P<f>master|main)[/\\]|\b(?:no|na|en la|em|auf(?: dem)?|sur(?: la)?|in der)\s(?:branch\s|rama\s|branche\s)?[`'\"]?(?P<g>main|master)\b"
    r"|\b(?:on|from|in|using|of|my)\s(?:the\s|my\s|our\s)?(?:\w{1,20}\s)?branch\s?[:`'\x22]{1,2}\s?(?P<i>[\w./-]{2,60})"
    r"|\bbranch[\s:`'\x22]{1,3}(?P<j>[\w.-]{2,30}/[\w./-]{2,50})|(?:最新的?|当前)\s?[`']?(?P<h>main|master)",
    re.IGNORECASE | re.MULTILINE,
)
CURRENT = re.compile(
    r"\b(?:fresh|latest|current|recent|newest)\s(?:sources?|checkout|git|clone|repo\w*|code)(?:\s(?:from|of)\s(?:git|the repo\w*|github))?\b|"
    r"\bpip3? install (?:-\S+ )*[\"']?git\+(?!\S*@v?\d)|\bcargo install --git\b|\bgo install \S+@(?:main|master)\b|"
    r"\bsources? from git\b|\bbrew install --HEAD\b",
    re.IGNORECASE,
)
CLONE = re.compile(r"\bgit clone\b(?P<rest>[^\n]{0,200})", re.IGNORECASE)
TAG_CHECKOUT = re.compile(
    r"git checkout\s(?:tags/)?v?\d|--branch[ =]v?\d|-b v?\d|\btags?/v?\d", re.IGNORECASE
)
SOURCE = re.compile(
    r"(?<!or )(?<!if )\b(?:built|build|building|compil\w+|self-?built|installed) (?:\w+ ){0,4}?(?:from|with) (?:the )?(?:source|sources|git|scratch)\b|"
    r"(?<!built )(?<!build )\bfrom source\b|\bself[- ]compiled\b|\bmy own build\b|\blocal(?:ly)?[- ]buil[dt]\b|compilad[oa] (?:a partir|do|del?) |"
    r"aus (?:den )?quellen|aus dem quellcode|depuis les sources|从源码|源码编译|自己编译",
    re.IGNORECASE,
)
CI = re.compile(
    r"\b(?:fail(?:s|ed|ing|ure)?|flaky|error|broken|breaks?|crash\w*)\b[^\n]{0,40}\b(?:on|in) (?:the |our )?CI\b|\bCI (?:run|job|task|build|failure|log)\b|"
    r"\b(?:build|ci)[\w-]{0,20} CI task|cirrus-ci\.com/task|/actions/runs/\d|\bCI (?:example|output)\b|\bCI:",
    re.IGNORECASE,
)
BINARY = re.compile(
    r"\b(?:pip3?|uv(?: tool| pip)?|pipx|conda|cargo|gem) install (?:-\S{1,40} )*(?!-|git|\.)[\w\x22'\[@]|"
    r"\b(?:npm|yarn|pnpm) (?:install|add|i) (?:-\S{1,40} )*[@a-z]|"
    r"\binstalled (?:from|via|with|using) (?:\w+ ){0,2}(?:pip|npm|brew|conda|apt|pypi|the (?:store|market\w*|release))|"
    r"^#{0,6}[ \t]*(?:source|installed from)[^\n]{0,40}\n{1,3}[ \t]*(?:binary|pip|pypi)\b|\(source or binary\)\W{0,4}binary|pre-?built (?:binar|package)|"
    r"\btf-nightly\b|\b(?:nightly|insiders?|canary|official) (?:binar\w+|build|wheel|release|package|image)\b|\breleases?/(?:tag|download)/|"
    r"\b(?:official|release[d]?|prebuilt|downloaded) binar\w+|bin/[\w.-]{1,40}\d\.\d",
    re.IGNORECASE | re.MULTILINE,
)
IMAGE = re.compile(
    r"\b(?:[\w.-]{1,40}/){0,3}[a-z][\w.-]{1,40}:(?P<tag>v?\d{1,4}(?:\.\d{1,5}){1,3}[\w.-]{0,30}|latest|nightly|edge|stable)(?![\w/:])"
)
CHANNEL = re.compile(
    r"\b(nightly|canary|insiders?|edge|beta|alpha|snapshot)\b(?= (?:build|version|release|channel|image|binary)|\W{0,3}\d)|\btf-(nightly)\b",
    re.IGNORECASE,
)
LATEST_RELEASE = re.compile(
    r"\b(?:latest|newest|most recent|current|last)(?: stable| released| published)? (?:version|release)\b|última versão|última versión|neueste version|"
    r"dernière version|最新版",
    re.IGNORECASE,
)
FORK = re.compile(
    r"\b(?:my|our|a|the|own|private|internal|company'?s?) (?:\w+ )?fork(?:ed)?\b(?! (?:bomb|of this sandbox))|\bforked (?:version|repo\w*|from)\b|\bmeu fork\b|\bmi fork\b|"
    r"\bmeinem fork\b|\bmon fork\b|我的\s?fork",
    re.IGNORECASE,
)
FORK_NOT_RUN = re.compile(
    r"codesandbox|stackblitz|jsfiddle|codepen|repl\.it|see my fork|\bpull request\b|create a fork",
    re.IGNORECASE,
)
PATCHED = re.compile(
    r"\b(?:i|we)(?:'ve| have)? (?:locally )?(?:patched|modified|changed|edited|hacked|tweaked|customi[sz]ed|altered|applied (?:a|the|my|this|our) patch)\b[^\n.]{0,60}"
    r"\b(?:source|code|locally|local|files?|implementation|build|library|lib|core|module|function|patch|\w+\.\w{1,4})\b|"
    r"\b(?:local|own|custom|uncommitted|my) (?:modifications?|patch(?:es)?|changes)\b|\bwith (?:a|my|the following|this) (?:local )?patch\b|"
    r"\bpatched (?:version|build|copy)\b|\bmodified (?:version|build|copy|source)\b|\bchanged (?:the )?source code\b|"
    r"alterei (?:o c[óo]digo|localmente)|modifiqu[ée] (?:el c[óo]digo|localmente)|lokal (?:ge[äa]ndert|gepatcht)|modifi[ée] (?:le code|localement)|本地修改|改了源码|修改了源",
    re.IGNORECASE,
)
RAN = re.compile(
    r"\b(?:based on|building|built|compiled|running|tested|checked out|rev-parse|current|latest|recent)\b",
    re.IGNORECASE,
)
