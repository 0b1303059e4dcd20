"""Signs that a report tells of a vulnerability. `security_lookalikes` holds what merely looks like one.

Recall first: a report taken for a vulnerability by mistake is private until a person looks; one that is
missed is public. Each sign has a weight; the sum decides (`security.recognise`).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEAKING", "SENSITIVE", "SIGNS", "Sign"]


@dataclass(frozen=True, slots=True)
class Sign:
    reason: str
    """As people read it."""
    weight: float
    """2.0 is enough on its own."""
    pattern: str
    """Case is ignored. ``<SECRET>`` and ``<LEAKS>`` stand for `SENSITIVE` and `LEAKING`."""


SENSITIVE = (
    r"(?:passwords?|passphrases?|credentials?|secrets?|api[ _-]?keys?|private[ _-]?keys?|"
    r"secret[ _-]?keys?|signing[ _-]?keys?|(?:access|auth|bearer|session|refresh|oauth|reset|"
    r"guest|api|csrf|deploy)[ _-]?tokens?|tokens?|jwts?|session (?:ids?|cookies?)|cookies?|"
    r"(?:authorization|auth) headers?|senhas?|credenciais|contrase[ñn]as?|credenciales|"
    r"passw[öo]rter|kennw[öo]rter|zugangsdaten|mots? de passe|identifiants|密码|密钥|凭据|凭证|令牌)"
)
LEAKING = (
    r"(?:leak(?:s|ed|ing|age)?|expos(?:e|es|ed|ing|ure)|disclos\w{1,6}|reveal\w{0,3}|(?:is|"
    r"are|was|were|gets?|get) (?:\w{1,12} )?(?:logged|printed|written|stored|sent|returned|"
    r"visible|readable|shown|committed|echoed|included)|in (?:plain ?text|clear ?text|"
    r"the clear)|unencrypted|vaza\w{0,4}|exp[oõ]e\w{0,2}|se filtran?|filtrad[oa]s?|"
    r"offengelegt|im klartext|divulgu\w{1,3}|en clair|em texto puro|en texto plano|泄露|泄漏|暴露|"
    r"明文)"
)

SIGNS: tuple[Sign, ...] = (
    Sign(
        "code of an attacker can run",
        3.0,
        r"\bremote(?:ly)? (?:arbitrary )?(?:code|command) (?:execution|injection)|\bRCE\b|"
        r"\b(?:arbitrary|untrusted|attacker[- ]controlled) (?:code|commands?|sql|script|"
        r"javascript|python|shell)\b|execu[çc][ãa]o (?:remota )?de c[óo]digo|"
        r"ejecuci[óo]n (?:remota )?de c[óo]digo|codeausf[üu]hrung|ex[ée]cution de code|远程代码执行|任意代码",
    ),
    Sign(
        "an injection",
        3.0,
        r"\b(?:sql|nosql|command|shell|os|code|ldap|template|header|crlf|log|xpath|argument|html|"
        r"script|prompt|css|csv|formula|yaml)[ -]?injections?\b|\bSQLi\b|\bSSTI\b|"
        r"\binje[cç][ãa]o de (?:sql|comando|c[óo]digo)|inyecci[óo]n (?:de )?(?:sql|comandos|"
        r"c[óo]digo)|(?:sql|befehls|code)-?(?:injektion|injection)|injection (?:sql|"
        r"de commandes?)|sql ?注入|命令注入|注入漏洞|\binject(?:s|ed|ing)? (?:arbitrary |malicious |own |"
        r"their )?(?:sql|commands?|javascript|html|scripts?|shell|code)\b",
    ),
    Sign(
        "a query or command is built from input",
        2.0,
        r"\b(?:user|untrusted|unsanitiz?s?ed|unescaped|"
        r"raw)[ -](?:controlled )?input\b.{0,80}\b(?:sql|query|queries|shell|command|subprocess|"
        r"eval|exec|os\.system|template)\b|\bshell=True\b.{0,100}\b(?:user|input|filename|name|"
        r"url|argument|branch)\b|' or '?1'?='?1|;\s?(?:rm -rf|drop table)|\b(?:eval|"
        r"exec)\(.{0,60}(?:request|input|param)",
    ),
    Sign(
        "cross-site scripting",
        3.0,
        r"\bXSS\b|cross[- ]site[- ]script|<script>\s?alert\(|onerror\s?=\s?[\x22']?alert",
    ),
    Sign(
        "a request forgery",
        3.0,
        r"\b(?:CSRF|XSRF|SSRF)\b(?! tokens? (?:missing|mismatch|invalid|expired))|"
        r"(?:cross[- ]site|server[- ]side) request forger",
    ),
    Sign(
        "external entities in XML",
        3.0,
        r"\bXXE\b|xml external entit|billion laughs",
    ),
    Sign(
        "files outside can be reached",
        3.0,
        r"\b(?:path|directory) traversal|\bzip[- ]?slip\b|(?:\.\./){2,}(?:etc|root|home|windows|"
        r"\.ssh|\.env)|%2e%2e|\b(?:upload|file ?name|path|name|archive|entry|key|parameter|"
        r"url)\b.{0,40}[`'\x22]\.\./|\blocal file inclusion|\bLFI\b|\b(?:read|write|overwrite|"
        r"delete|include|download)s? (?:arbitrary|any) (?:local )?files?\b|arbitrary file|"
        r"/etc/(?:passwd|shadow)|"
        r"(?:writ\w{1,4}|read\w{0,3}|creat\w{1,3}|extract\w{0,3}|access\w{0,3}|"
        r"files?) outside (?:of )?(?:the )?"
        r"(?:\w{1,12} )?(?:dir\w{0,6}|folder|root|target|workspace)|"
        r"(?:outside|escap\w{1,4}) (?:of )?(?:the )?(?:\w{1,12} )?(?:root|"
        r"base dir\w{0,6}|sandbox|jail|chroot|worktree|container)|travess?ia de diret[óo]rio|"
        r"recorrido de directorios|travers[ée]e de r[ée]pertoire|路径穿越|目录遍历",
    ),
    Sign(
        "a check of rights can be passed by",
        3.0,
        r"\b(?:bypass\w{0,4}|circumvent\w{0,3}|skip(?:s|ped|ping)?|evad\w{1,3}) (?:of )?(?:the |any |an? |"
        r"all )?(?:authentication|authorization|authorisation|auth|access[- ]control|permissions?|login|2fa|"
        r"mfa|otp|ownership|signature|tenant|csrf|admin)\b(?! header)|"
        r"\b(?:missing|broken|no|lacks?|without) (?:any |an? )?(?:authentication|authorization|"
        r"authorisation|access[- ]control)\b(?! (?:header|error|method))|"
        r"\b(?:missing|broken|no|lacks?|without) (?:any |an? |the )?(?:auth|permissions?|login|2fa|ownership|"
        r"signature|tenant|csrf|admin|origin) (?:checks?|validation|verification|isolation|"
        r"protection|guard)\b|"
        r"\b(?:does not|doesn't|never|not|fails to) (?:check|verify|validate|enforce)(?:ed|ing|s)? "
        r"(?:that |whether |if |the |any |for )*(?:\w{1,12} )?(?:tokens?|owner\w{0,4}|"
        r"permissions?|signatures?|"
        r"roles?|sessions?|sender|origin|passwords?|access|tenant)\b|"
        r"pr[üu]ft (?:keine|nicht)|sem verificar|sin comprobar|sans v[ée]rifier|没有(?:校验|验证)|"
        r"未(?:校验|验证)|"
        r"\bbypass (?:of|for) (?:the |a )?(?:\w{1,12} )?(?:filter|shield|sandbox|check|limit|validation|protection|policy)\b|"
        r"\b(?:auth\w{0,12}|login|password|2fa|check|"
        r"signature|paywall|filter|limit)s? (?:\w{1,10} )?(?:can|could|may|is|are|gets?) (?:be )?"
        r"(?:easily )?(?:bypassed|"
        r"circumvented|skipped|evaded)|\b(?:auth\w{0,12}|login|"
        r"permissions?|access[- ]control|2fa|mfa|signature)[- ](?:check |checks )?bypass|"
        r"contorn\w{1,4} (?:a )?autentica|(?:eludir|saltarse|omitir) (?:la )?autenticaci|"
        r"authentifizierung (?:\w{1,12} )?umg|umgeh\w{1,3} (?:der |die )?(?:authentifizierung|"
        r"anmeldung)|contourne\w{0,2} (?:l'|la )?authentification|"
        r"越权|绕过(?:认证|登录|验证|权限)|未授权访问|未经授权",
    ),
    Sign(
        "strangers may do what they should not",
        2.5,
        r"\b(?:unauthenticated|unauthori[sz]ed|anonymous|unprivileged|non-?admin|logged[- ]out|"
        r"guest|normal|regular|other|any|every) (?:[\w-]{1,14} )?(?:users?|callers?|requests?|"
        r"clients?|visitors?|attackers?|access|members?|accounts?|tenants?|person|one)?\s?(?:can|"
        r"could|may|is able to|are able to|to) (?:still |also |now )?(?:read|see|view|access|list|"
        r"delete|modify|edit|change|download|take over|reset|impersonat\w{1,2}|become|act as|"
        r"create admin|execute|call|upload|escalat\w{1,2}|obtain|enumerate)|"
        r"\banyone (?:\w{1,10} ){0,4}can (?:read|see|view|access|list|delete|modify|edit|download|"
        r"reset|log ?in as|become|execute|take over|approve|publish)|\b(?:another|other|others'?|"
        r"someone else'?s?|different) (?:users?|tenants?|customers?|accounts?|people)(?:'s|s'|"
        r"')? (?:\w{1,12} )?(?:data|records?|files?|messages?|sessions?|accounts?|invoices?|"
        r"orders?|profiles?|emails?|documents?|issues?|tokens?|threads?|passwords?|projects?)|"
        r"\bdata of (?:an)?other (?:users?|tenants?|customers?)|\bIDOR\b|insecure direct object|"
        r"(?:dados|datos|donn[ée]es|daten) (?:de|d'|anderer?|andere) ?(?:outros?|otros?|autres?|"
        r"nutzer|benutzer|kunden)|(?:其他|他人|别的)用户的|"
        r"\b(?:someone else|somebody else|anybody|anyone|somebody|other people|"
        r"another person)(?:'s|s'|') \w{3,}|"
        r"\bof (?:the )?other (?:users?|accounts?|tenants?|customers?|members?|people)\b|\bcross[- ]tenant\b|"
        r"\b(?:works?|valid|accepted) (?:on|for) (?:every|any|all|other) (?:issues?|users?|accounts?|threads?|tenants?|projects?)\b|"
        r"\bneeds? no (?:login|password|authentication|key|token)\b|\b(?:readable|downloadable|accessible|visible|"
        r"editable) (?:by|to|for) (?:anyone|everyone|everybody|anybody|the (?:public|world))\b|"
        r"\bunauthenticated\b|\bwithout (?:logging in|signing in|being logged in|any (?:key|token|password|"
        r"login|credentials))\b|ohne (?:anmeldung|login|passwort)|sem (?:login|autentica[çc][ãa]o|senha)|"
        r"sin (?:iniciar sesi[óo]n|autenticaci[óo]n|contrase[ñn]a)|"
        r"sans (?:[êe]tre connect|authentification|mot de passe)|"
        r"\b(?:qualquer (?:usu[áa]rio|pessoa|um) (?:pode|consegue)|cualquier(?:a| usuario| persona) puede|"
        r"jeder (?:benutzer |nutzer )?kann|n'importe (?:qui|quel utilisateur) peut)|"
        r"(?:任何人|任意用户|普通用户|未登录).{0,8}(?:可以|能)",
    ),
    Sign(
        "rights can be raised",
        3.0,
        r"\bprivilege[- ]escalation|\bescalat\w{1,3} (?:of )?(?:his |her |their |its |"
        r"my )?privileges?|\b(?:become|gain|get|obtain)s? (?:root|admin(?:istrator)?)(?: access|"
        r" rights| privileges| shell)?\b|escalada de privil|escala[çc][ãa]o de privil|"
        r"rechteausweitung|[ée]l[ée]vation de privil|提权|权限提升",
    ),
    Sign(
        "a secret gets out",
        2.5,
        r"<SECRET>(?:\W{1,3}\w{1,16}){0,4}?\W{0,3}<LEAKS>|"
        r"<LEAKS>(?:\W{1,3}\w{1,16}){0,4}?\W{0,3}<SECRET>|\b(?:logs?|prints?|sends?|returns?|"
        r"stores?|writes?|includes?|echo(?:es)?|commits?|ships?|caches?|saves?) (?:out )?(?:the |"
        r"my |our |your |full |raw |user |users' |all |a )*(?:\w{1,10} )?(?:passwords?|"
        r"credentials?|api[ _-]?keys?|private[ _-]?keys?|access[ _-]?tokens?|"
        r"auth(?:orization)? headers?|bearer tokens?|session tokens?|secrets?) (?:in|to|into|with|"
        r"at|over|through|unencrypted|as)\b",
    ),
    Sign(
        "a secret is where others may read it",
        2.0,
        r"<SECRET>.{0,40}\b(?:in|into|to|inside|within|through|via)\b.{0,24}\b(?:logs?|"
        r"log files?|access logs?|"
        r"urls?|query strings?|crash (?:dumps?|reports?)|stack traces?|telemetry|browser history|git history|"
        r"repo\w{0,7}|response|image|historial|hist[óo]rico|verlauf|historique)\b|"
        r"\b(?:crash (?:dumps?|reports?)|telemetry|error reports?|logs?|backups?) (?:\w{1,12} ){0,6}?"
        r"(?:includes?|contains?|holds?|shows?) (?:[\w']{1,12} ){0,4}?<SECRET>|"
        r"\b(?:prints?|logs?|shows?|echo(?:es)?|dumps?|reveals?|returns?)\b.{0,40}\b(?:with|including|and) (?:the |its |my )?"
        r"(?:password|credentials?|secret|api key|token)s?\b|"
        r"<SECRET> (?:is|are|was|were)? ?(?:still )?in (?:the |a |our )?(?:published|public|released|shipped)\b|"
        r"\b(?:private|confidential|hidden|internal) (?:[\w-]{1,14} ){1,2}(?:leaks?|(?:is|are) (?:visible|exposed|readable|"
        r"listed|shown) (?:to|for|in public))|\bpasswords? (?:can|could) be (?:decrypted|recovered|read|seen|guessed)|"
        r"\bsensitive (?:data|information) (?:in|is|are|leak\w{0,3}|expos\w{1,3})\b|"
        r"(?:日志|网址|链接).{0,12}(?:密码|密钥|令牌)|"
        r"(?:\.env|id_rsa|\.ssh|\.aws)\b.{0,40}\b(?:served|exposed|readable|returns? 200|public)",
    ),
    Sign(
        "a cookie is unprotected",
        2.0,
        r"\b(?:httponly|samesite)\b|\bsecure (?:flag|attribute)\b.{0,40}\bcookie|\bcookies?\b.{0,60}\bsecure (?:flag|attribute)",
    ),
    Sign(
        "an upload is executed",
        2.5,
        r"\bupload\w{0,3} (?:[\w.]{1,12} ){0,3}?files?\b.{0,60}\b(?:execut\w{1,3}|interpreted as code)|\b(?:got|get|gives?|spawn\w{0,2}|open\w{0,2}) (?:me )?an? "
        r"(?:\w{1,8} )?shell\b|\b(?:web|reverse) ?shell\b",
    ),
    Sign(
        "something internal is reachable",
        2.0,
        r"\b(?:debug|admin|internal|metrics|management) (?:endpoint|panel|port|console|route|interface|api|"
        r"page)s?\b.{0,60}\b(?:exposed|open|reachable|public|internet|left (?:on|enabled))\b|"
        r"\b(?:reachable|exposed|accessible) (?:from|to|on) the (?:internet|public|whole network)",
    ),
    Sign(
        "a secret is built in",
        3.0,
        r"\bhard[- ]?coded (?:\w{1,12} )?(?:passwords?|credentials?|secrets?|keys?|tokens?|salt|"
        r"iv)\b|default (?:admin )?(?:password|credentials) (?:is|are|can|work|remain)|(?:private|"
        r"signing|secret|ssh) keys? (?:\w{1,10} ){0,3}(?:in(?:side)? the "
        r"(?:docker |public |released )?(?:repo\w{0,7}|image|package|"
        r"wheel|tarball|container|git history)|published|checked in)",
    ),
    Sign(
        "a vulnerability is named",
        2.0,
        r"\bvulnerab\w{2,8}|\bsecurity (?:hole|flaw|bug|issue|vuln\w{0,12}|defect|weakness|"
        r"problem|breach|incident|advisory|report|disclosure|impact|risk)\b|vulnerabilidade|"
        r"vulnerabilidad|sicherheitsl[üu]cke|schwachstelle|\bfaille|vuln[ée]rabilit|"
        r"falha de seguran[çc]a|fallo de seguridad|漏洞|安全问题",
    ),
    Sign(
        "a vulnerability database is cited",
        2.0,
        r"\bCVE-\d{4}-\d{3,7}\b|\bCWE-\d{1,4}\b|\bCVSS\b|\bGHSA-[\w-]{10,20}",
    ),
    Sign(
        "it can be exploited",
        2.0,
        r"\bexploit(?:s|ed|able|ing|ation)?\b(?! exploration)|\b0-?day\b|\bzero-?day\b|"
        r"\bproof[- ]of[- ]concept exploit|\bweaponi[sz]",
    ),
    Sign(
        "an attacker appears",
        2.0,
        r"\battackers?\b|\bmalicious(?:ly)?\b|\badversar(?:y|ies|ial)\b|\bhackers?\b|"
        r"\bcrafted (?:\w{1,12} ){0,2}(?:input|request|file|packet|archive|payload|url|header|"
        r"image|message|title|body|name)|"
        r"\b(?:hostile|evil) (?:\w{1,12} )?(?:repo\w{0,7}|server|file|input|site|page|package|user|host)\b|"
        r"\b(?:user|attacker)[- ](?:supplied|controlled)\b|\batacante|\bangreifer|\battaquant|攻击者|恶意",
    ),
    Sign(
        "it should be kept private",
        2.0,
        r"\b(?:responsibl[ey]|coordinated)(?:ly)? disclos|\breport(?:ing|ed)? (?:this |"
        r"it )?(?:privately|in private)|\b(?:don't|do not|please not|not) (?:publish|disclose|"
        r"make (?:this|it) public)|security@|\bembargo",
    ),
    Sign(
        "sessions can be taken",
        3.0,
        r"\bsession (?:fixation|hijack\w{0,3})|\baccount takeover|\bclick-?jacking|\btab-?nabbing|"
        r"\bdns rebinding|\breplay attack|\bman[- ]in[- ]the[- ]middle|\bMITM\b|"
        r"\bimpersonat\w{1,3} (?:an)?other|\bspoof(?:s|ed|ing)?\b",
    ),
    Sign(
        "an open redirect",
        3.0,
        r"\bopen[- ]redirect|\bunvalidated redirect",
    ),
    Sign(
        "a cryptographic weakness",
        3.0,
        r"\btiming (?:attack|side[- ]channel|oracle)|\bside[- ]channel|\bpadding oracle|"
        r"\b(?:predictable|guessable|weak) (?:\w{1,12} )?(?:tokens?|ids?|secrets?|keys?|"
        r"passwords?|random\w{0,4}|seed|nonce)|\bnot constant[- ]time|"
        r"\balg(?:orithm)?\W{1,4}none\b|\bnonce reuse|\bstored (?:as )?(?:md5|sha1|"
        r"in plain ?text)|\bunsalted",
    ),
    Sign(
        "a proof is not checked",
        3.0,
        r"\b(?:signatures?|certificates?|certs?|tls|ssl|jwt|tokens?|hostname|hmac|checksums?|"
        r"webhook secret)(?: \w{1,12}){0,3} (?:is|are|isn't|aren't|never|"
        r"not) (?:\w{1,10} )?(?:verified|validated|checked|enforced)|\b(?:accepts?|trusts?|"
        r"allows?) (?:any|expired|revoked|forged|self-signed|invalid|"
        r"unsigned) (?:\w{1,12} )?(?:certificates?|signatures?|tokens?|jwts?|keys?|webhooks?)|"
        r"\bverify\s?=\s?False\b.{0,120}\b(?:production|default|shipped)|\b(?:revoked|expired|"
        r"deleted|old) (?:api |guest |access |session )?(?:keys?|tokens?|sessions?|users?|"
        r"credentials?|passwords?) (?:\w{1,8} )?(?:still|remains?|continue\w{0,1}|"
        r"keeps?) (?:to )?(?:work|valid|accept|active|usable|grant|log)\w{0,4}",
    ),
    Sign(
        "service can be denied",
        2.0,
        r"\bdenial[- ]of[- ]service|(?-i:\b(?:DDoS|DoS|ReDoS)\b)|\b(?:ddos|redos)\b|"
        r"catastrophic backtracking|"
        r"\b(?:take|bring)s? (?:the |down the )?(?:service|server|site|instance|whole \w{1,10}) down|"
        r"\bbrings? down the (?:service|server|site)|\b(?:zip|decompression|fork) bomb|"
        r"\bnega[çc][ãa]o de servi|"
        r"denegaci[óo]n de servicio|d[ée]ni de service|拒绝服务",
    ),
    Sign(
        "memory is corrupted",
        1.0,
        r"\b(?:heap|stack)?[- ]?buffer[- ]over(?:flow|read|run)|\buse[- ]after[- ]free|"
        r"\bdouble[- ]free|\bout[- ]of[- ]bounds (?:read|write)|\btype confusion|"
        r"\bmemory corruption|\bformat string",
    ),
    Sign(
        "memory is corrupted from outside",
        2.0,
        r"(?:overflow|use[- ]after[- ]free|out[- ]of[- ]bounds|double[- ]free|"
        r"memory corruption)(?s:.{0,200})\b(?:remote|network|untrusted|crafted|attacker|"
        r"malformed packet|peer)|\b(?:remote|untrusted|crafted)(?s:.{0,200})(?:overflow|"
        r"use[- ]after[- ]free|out[- ]of[- ]bounds|memory corruption)",
    ),
    Sign(
        "data is trusted that should not be",
        3.0,
        r"\b(?:insecure|unsafe|untrusted) (?:de)?seriali[sz]ation|\bprototype pollution|"
        r"\bpickle\.loads?\b.{0,80}\b(?:user|untrusted|network|request|remote)|\b(?:yaml\.load|"
        r"unserialize)\b.{0,80}\b(?:user|untrusted|request|input)|\bmass assignment|反序列化",
    ),
    Sign(
        "an isolation is left",
        3.0,
        r"\b(?:sandbox|container|vm|jail|chroot) (?:escape|breakout)|"
        r"\bescap\w{1,3} (?:from )?(?:the )?(?:sandbox|container|jail)|\bsymlink (?:attack|race|"
        r"follow)|\bTOCTOU\b",
    ),
    Sign(
        "code of a stranger was shipped",
        3.0,
        r"\bback-?door(?:ed|s)?\b|\bsupply[- ]chain (?:attack|compromise)|\btypo-?squat|"
        r"\bdependency confusion|\b(?:package|release|account|repo\w{0,7}) (?:\w{1,8} )?(?:is |"
        r"was |has been |been )?(?:compromised|hijacked)",
    ),
    Sign(
        "it is open to the world",
        2.0,
        r"\bworld[- ](?:readable|writable|writeable)|\bchmod 0?777|\bpublicly (?:accessible|"
        r"readable|exposed|writable)|\b(?:allow-origin|cors)\b.{0,60}(?:\*|wildcard|any origin)|"
        r"\bbrute[- ]?forc\w{1,3}.{0,60}\b(?:password|login|token|code|pin|otp|account)|"
        r"\b(?:password|login|token|code|pin|otp|account)s?\b.{0,60}\bbrute[- ]?forc",
    ),
    Sign(
        "something is called insecure",
        1.0,
        r"\binsecure\w{0,2}\b|\bunsafe(?:ly)?\b|\bsecurity\b|\bseguran[çc]a\b|\bseguridad\b|"
        r"\bsicherheit\b|\bs[ée]curit[ée]\b|安全",
    ),
)
