"""What speaks against a vulnerability: words of security in reports about something else. See `security_signs`."""

from __future__ import annotations

from formica.rules.security_signs import Sign

__all__ = ["LOOKALIKES"]

LOOKALIKES: tuple[Sign, ...] = (
    Sign(
        "a scanner's finding about a dependency",
        -3.0,
        r"\b(?:dependabot|snyk|trivy|grype|npm audit|pip-audit|safety check|renovate|whitesource|"
        r"mend|black ?duck|sonar\w{0,5}|audit) (?:\w{1,10} ){0,3}(?:report\w{0,2}|flag\w{0,3}|"
        r"warn\w{0,4}|complain\w{0,2}|alert\w{0,2}|says?|finding\w{0,1}|noise|shows?|lists?)|"
        r"\bfalse[- ]positives?\b|\bscanner(?:'s|s)? (?:noise|report\w{0,2}|flag\w{0,4}|"
        r"complain\w{0,2})",
    ),
    Sign(
        "an upgrade of a dependency",
        -2.5,
        r"\b(?:bump|upgrade|update|pin|move to|newer version of)\b.{0,60}\b(?:dependenc\w{1,3}|"
        r"package|version|lock ?file|transitive|to v?\d)|\b(?:dependenc\w{1,3}|"
        r"transitive)\b.{0,80}\b(?:bump|upgrade|update|outdated)\w{0,2}\b",
    ),
    Sign(
        "about documentation or policy",
        -2.0,
        r"\b(?:docs?|documentation|readme|tutorial|guide|page|wiki|faq|changelog|"
        r"example)\b.{0,60}\b(?:security|auth\w{0,11}|tokens?|headers?|csp|vulnerab\w{1,8}|"
        r"attack\w{0,3})|\b(?:security|auth\w{0,11}|tokens?|headers?|csp|"
        r"vulnerab\w{1,8}) (?:\w{1,12} ){0,2}(?:docs?|documentation|guide|page|section|policy|"
        r"chapter)\b|\bSECURITY\.md\b|\btypo\b",
    ),
    Sign(
        "a wish for a protection",
        -1.5,
        r"\b(?:add|support|implement|introduce|provide|offer|option (?:to|for)|would like|"
        r"feature request|request(?:ing)?|integrate|enable)\b.{0,40}\b(?:2fa|mfa|totp|webauthn|"
        r"passkeys?|oauth\w{0,1}|sso|saml|csp|security headers?|rate limit\w{0,3}|captcha|hsts|"
        r"audit log\w{0,4}|encryption|rbac)\b",
    ),
    Sign(
        "a login that fails",
        -1.0,
        r"\b(?:401|403)\b|\bpermission denied|\b(?:authentication|login|authorization) (?:error|"
        r"fail\w{0,4}|problem|required)|\binvalid (?:token|credentials|password|api key|"
        r"signature)|\bcannot (?:log ?in|sign in|authenticate)|\bcertificate (?:verify failed|"
        r"has expired|expired)",
    ),
    Sign(
        "said not to be one",
        -2.0,
        r"\b(?:not|no|isn't|is not|without) (?:a |an |any )?(?:known )?(?:security (?:issue|"
        r"problem|bug|vulnerability|impact|risk|concern|relevan\w{1,2})|vulnerab\w{1,8})|"
        r"\bno (?:attacker|credentials?|secrets?|tokens?) (?:is|are|was|were)? ?(?:involved|"
        r"leaked|exposed)",
    ),
    Sign(
        "words of other trades",
        -2.0,
        r"\badversarial (?:training|examples?|networks?|loss|robustness|regularization)|"
        r"\bgenerative adversarial|\bexploit(?:s|ing|ed)? (?:the )?(?:sparsity|parallelism|"
        r"symmetry|structure|locality|fact|cache|vectori[sz]ation|hardware)|"
        r"\battack surface of (?:the )?game|\bspoof(?:ing|ed)? (?:user[- ]agent|clock|time)|"
        r"\bmemory safety\b|\bthread[- ]?unsafe|\bunsafe (?:block|fn|code|impl|keyword)|"
        r"\bcookie (?:banner|consent)|\btokens? (?:limit|count|usage|per|ids?|embedding\w{0,1}|"
        r"classification|budget)|\btokeni[sz]er|\binjection (?:point|mo[lu]\w{1,8}|"
        r"attack detection)|dependency injection",
    ),
)
