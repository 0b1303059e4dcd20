"""What a report's body, and the form it was filed with, say about its kind. See `title_features`."""

from __future__ import annotations

from formica.rules.title_features import Feature

__all__ = ["BODY_FEATURES"]

BODY_FEATURES: tuple[Feature, ...] = (
    Feature(
        "declared_bug",
        "declared",
        r"^bug|^regression|^crash|^defect|^fehler|^erro\b",
        (0.6, -0.4, -0.2),
        "its form says bug",
    ),
    Feature(
        "declared_feature",
        "declared",
        r"^feature|^enhancement|^improvement|^proposal|^feat\b",
        (-0.9, 1.4, -0.5),
        "its form says feature",
    ),
    Feature(
        "declared_question",
        "declared",
        r"^support|^question|^help|^usage|^performance|^others?\b|^documentation",
        (-0.7, -0.4, 1.1),
        "its form says question",
    ),
    Feature(
        "heading_expected",
        "prose",
        r"\b(?:expected|desired|actual|current)[ -](?:behaviou?r|results?|output|state)\b|"
        r"\bwhat (?:did you expect|happened|actually happens|you expected)|(?:comportamento|"
        r"comportamiento|resultado) (?:esperado|atual|actual|real)|erwartete\w*|tats[äa]chlich\w*|"
        r"comportement (?:attendu|actuel|observ[ée])|预期|期望结果|实际结果|实际行为",
        (0.2, -0.1, -0.1),
        "expected and actual behaviour are compared",
    ),
    Feature(
        "heading_steps",
        "prose",
        r"\b(?:steps? to reproduce|to reproduce|repro(?:duction)? steps|how to reproduce|reproducible|"
        r"minimal (?:repro\w*|example)|mwe|passos para|pasos para|schritte|[ée]tapes)\b|复现|重现",
        (0.3, -0.3, 0.0),
        "there are steps to reproduce",
    ),
    Feature(
        "heading_feature",
        "prose",
        r"describe the (?:feature|solution|enhancement|motivation)|feature (?:request|description)|"
        r"please describe the feature|is your feature (?:request )?related|"
        r"^[^\w\n]{0,10}(?:motivation|use[ -]?cases?|proposal|proposed (?:solution|change)|"
        r"alternatives(?: considered)?|additional context|rationale|benefits?)[^\w\n]{0,10}$|"
        r"who will benefit|change the current api",
        (-0.8, 0.9, -0.1),
        "it follows a feature request's template",
    ),
    Feature(
        "pull_request_text",
        "prose",
        r"pull request readiness|this (?:pr|pull request|patch|change)\b|^[ \t]{0,8}(?:fixes|closes|"
        r"resolves|fix)\W{1,3}(?:#\d|https?://)|proposed to the proper branch",
        (0.3, 0.3, -0.6),
        "it is worded as a change",
    ),
    Feature(
        "pull_request_fixes",
        "prose",
        r"^[ \t]{0,8}(?:fixes|closes|resolves|fix)\b\W{1,3}(?:#\d|https?://)",
        (0.4, -0.1, -0.3),
        "it says what it fixes",
    ),
    Feature(
        "stack_trace",
        "full",
        r"traceback \(most recent call last\)|^[ \t]{0,12}at .{2,200}[(:]\S{0,200}:\d|"
        r"^[ \t]{0,8}#\d{1,3} {1,4}0x|panicked at|goroutine \d+ \[|"
        r"^[ \t]{0,8}File \".{1,200}\", line \d|caused by:|core dumped|addresssanitizer|sigsegv|"
        r"sigabrt|exception in thread",
        (0.5, -0.2, -0.3),
        "there is a stack trace",
    ),
    Feature(
        "error_text",
        "full",
        r"error\b|exception\b\s?:|assertion|fatal\b|undefined reference|failed",
        (0.1, -0.2, 0.2),
        "an error is quoted",
    ),
    Feature(
        "wrong_result",
        "prose",
        r"\b(?:returns?|gives?|prints?|yields?|shows?|outputs?|writes?|got|becomes?|is)\b[^\n]{0,60}"
        r"\b(?:instead of|rather than|but (?:expected|should))\b|"
        r"\bexpect(?:ed|s)?\b[^\n]{0,60}\b(?:but|got|actual(?:ly)?)\b|"
        r"em vez de|en lugar de|en vez de|anstatt|statt\b|au lieu d|而不是|应该是",
        (0.7, -0.4, -0.3),
        "another result than the expected one is described",
    ),
    Feature(
        "regression",
        "prose",
        r"\bregress\w*|\b(?:used to work|worked (?:in|with|fine|before)|works? (?:in|with|"
        r"on) (?:version |v)?\d|introduced (?:in|by)|since (?:version|v?\d|commit|updat|the (?:last|"
        r"latest))|git bisect|bisect\w*|no longer|anymore|after (?:updat|upgrad)\w*)|regress[ãa]o|"
        r"depois de atualizar|despu[ée]s de actualizar|nach dem update|depuis la mise",
        (0.5, -0.2, -0.3),
        "it worked before",
    ),
    Feature(
        "fault_prose",
        "prose",
        r"\b(?:crash\w*|segfault\w*|panics?|deadlock\w*|corrupt\w*|undefined behaviou?r|data loss|"
        r"race condition|memory leak|infinite loop|incorrect(?:ly)?|wrong(?:ly)?|unexpected(?:ly)?|"
        r"broken|hangs?|freezes?|stuck|flaky|intermittent\w*|sporadic\w*)\b|falha|trava\b|quebrad[oa]|"
        r"se cuelga|st[üu]rzt ab|plante|崩溃|卡死",
        (0.1, -0.3, 0.2),
        "a fault is described",
    ),
    Feature(
        "bug_word",
        "prose",
        r"\bbug\b|\b(?:the|a|this|same|possible) (?:defect|regression)\b|缺陷",
        (0.2, -0.3, 0.1),
        "its author calls it a bug",
    ),
    Feature(
        "fail_prose",
        "prose",
        r"\b(?:fails?|failed|failing|does not|doesn't|cannot|couldn't|isn't|won't|not found|raises?|"
        r"throws?|crashes)\b|n[ãa]o funciona|no funciona|funktioniert nicht|ne (?:fonctionne|"
        r"marche) pas|无法|失败|不能|报错",
        (0.1, -0.1, 0.0),
        "something is said to fail",
    ),
    Feature(
        "got_error",
        "prose",
        r"\b(?:i (?:get|got|am getting|receive)|getting|results? in|gives?|an error|the error|"
        r"error message|error is)\b|recebo|obtengo|bekomme|j'obtiens|得到",
        (0.2, -0.4, 0.1),
        "an error was met",
    ),
    Feature(
        "observed",
        "prose",
        r"\b(?:found|noticed|discovered|observed|seen|spotted|testing|appears?)\b",
        (0.2, -0.1, -0.1),
        "something was observed",
    ),
    Feature(
        "latest",
        "prose",
        r"\b(?:latest|nightly|current (?:master|main)|master|main branch|insiders?)\b",
        (0.2, 0.0, -0.1),
        "it was tried on the latest state",
    ),
    Feature(
        "would_be_nice",
        "prose",
        r"\b(?:would|it'd|that'd|might|could) (?:also )?(?:be|make) (?:\w{1,20} )?(?:nice|great|good|"
        r"useful|helpful|cool|awesome|better|beneficial|ideal|easier|handy|sense|worth)|"
        r"\bnice to have|seria (?:bom|[óo]timo|[úu]til|interessante|legal)|ser[íi]a (?:bueno|[úu]til|"
        r"genial|ideal|interesante)|w[äa]re (?:sch[öo]n|toll|n[üu]tzlich|hilfreich|gut)|(?:serait|"
        r"ce serait) (?:bien|utile|pratique|g[ée]nial|cool|sympa)|希望|建议|最好能|能否|可否",
        (-0.5, 0.7, -0.2),
        "it says what would be nice",
    ),
    Feature(
        "feature_word",
        "prose",
        r"\b(?:feature(?: request)?s?|enhancement|improvement|functionality|new (?:option|feature|api|"
        r"flag|setting|parameter|command|mode))\b|funcionalidade|funcionalidad|funktionalit[äa]t|"
        r"fonctionnalit[ée]|功能",
        (-0.5, 0.6, -0.1),
        "it speaks of a feature",
    ),
    Feature(
        "propose",
        "prose",
        r"\b(?:propos(?:e|al|ed|ing)|suggest\w*|rfc|i (?:would|'d) (?:like|love) (?:to (?:see|have|"
        r"be able)|it)|i wish|we (?:should|could|can|need to|might)|let's|consider|how about|"
        r"should (?:be|also|have|support|allow|provide))\b|sugiro|proponho|propongo|sugiero|vorschlag|"
        r"ich schlage|je propose|gostaria|me gustar[íi]a|ich h[äa]tte gern|ich w[üu]nsche|j'aimerais",
        (-0.3, 0.5, -0.1),
        "it proposes something",
    ),
    Feature(
        "allow_users",
        "prose",
        r"\b(?:allow(?:s|ing)?|enables?|ability to|let users|a way to|an option|option to|support for|"
        r"in order to|so that)\b|permitir|opci[óo]n|op[çc][ãa]o|m[öo]glichkeit|"
        r"possibilit[ée]|permettre|支持|允许",
        (-0.3, 0.4, -0.1),
        "it asks for a possibility",
    ),
    Feature(
        "currently",
        "prose",
        r"\b(?:currently|at the moment|right now|as of now|today|existing)\b|atualmente|actualmente|"
        r"derzeit|aktuell|actuellement|目前|现在",
        (-0.2, 0.2, 0.0),
        "it starts from the present state",
    ),
    Feature("would", "prose", r"\b(?:would|could|should)\b", (0.0, 0.2, -0.1), "it is conditional"),
    Feature(
        "code_permalink",
        "prose",
        r"github\.com/[\w.-]{1,60}/[\w.-]{1,60}/(?:blob|tree|commit|pull|issues)/",
        (0.1, 0.1, -0.2),
        "it links to code",
    ),
    Feature(
        "how_do_i",
        "prose",
        r"\bhow (?:do|can|could|should|would|to)\b|\bis (?:it|there) (?:\w{1,20} )?(?:possible|a way|"
        r"any(?: way)?|an)\b|\bcan (?:i|someone|anybody|anyone|you|we)\b|\bcould (?:you|someone|"
        r"anyone)\b|como (?:fa[çc]o|posso|usar)|c[óo]mo (?:puedo|hago|se)|wie (?:kann|mache|geht)|"
        r"comment (?:puis|faire|je)|如何|怎么|怎样|请问|为什么",
        (-0.5, 0.0, 0.5),
        "it asks how",
    ),
    Feature(
        "why_what",
        "prose",
        r"\b(?:why (?:is|does|do|did|are|not|can'?t)|what (?:is|are|does|do|am i|should|could|can)|"
        r"where (?:is|can|do)|which (?:one|is))\b|por que\b|por qu[ée]|warum|pourquoi",
        (-0.4, 0.1, 0.3),
        "it asks why or what",
    ),
    Feature(
        "question_marks",
        "prose",
        r"(?:[?？][^?？]{0,4000}){3}",
        (-0.3, 0.2, 0.1),
        "it has several question marks",
    ),
    Feature("ends_question", "prose", r"[?？]\W{0,20}\Z", (-0.4, 0.0, 0.3), "it ends with a question"),
    Feature(
        "help_thanks",
        "prose",
        r"\b(?:please help|help me|any (?:help|ideas?|suggestions?|advice)|need help|"
        r"thanks?(?: you)?(?: in advance)?|thx|appreciat\w*|kindly|urgent|someone help|advise|"
        r"guide me|pls|plz)\b|ajuda|obrigad[oa]|ayuda|gracias|danke|hilfe|\bmerci\b|aidez|谢谢|求助|帮忙",
        (-0.2, -0.1, 0.4),
        "it asks for help",
    ),
    Feature(
        "greeting",
        "prose",
        r"^[^\w\n]{0,10}(?:hi|hello|hey|dear|good (?:morning|day)|greetings|ol[áa]|hola|hallo|"
        r"bonjour)\b|^[^\w\n]{0,10}(?:你好|您好|大家好)",
        (-0.2, -0.1, 0.3),
        "it greets",
    ),
    Feature(
        "i_tried",
        "prose",
        r"\bi (?:have |'ve |also )?(?:tried|try|need|want|followed|run|ran|use|used|installed|"
        r"download\w*|don't (?:know|understand)|do not (?:know|understand)|cannot|can't|couldn't|"
        r"am (?:trying|using|new|not able|unable|facing|having|getting|working))\b|\bi'm (?:trying|"
        r"using|new|not sure|facing|having|getting|working|unable|wondering)\b|estou tentando|tentei|"
        r"estoy intentando|intent[ée]|ich versuche|habe versucht|j'essaie|j'ai essay[ée]|我想|我在|我试",
        (-0.4, -0.2, 0.6),
        "its author says what they tried",
    ),
    Feature(
        "wonder",
        "prose",
        r"\b(?:wonder(?:ing|ed)?|curious|clarif\w*|explain|explanation|confus\w*|understand\w*|"
        r"question|am i (?:missing|doing|wrong)|doing (?:something )?wrong|what's wrong|correct way|"
        r"best (?:way|practice)|recommended|documentation|docs|tutorial|guide|example)\b|d[úu]vida|"
        r"pregunta|frage\b|不明白|不理解|疑问",
        (-0.1, 0.0, 0.1),
        "it wants to understand",
    ),
    Feature(
        "my_machine",
        "prose",
        r"\bmy (?:computer|laptop|pc|machine|mac|project|app|application|code|system|program|model|"
        r"wallet|phone|account|raspberry)\b",
        (-0.2, 0.0, 0.3),
        "it is about its author's own set-up",
    ),
    Feature(
        "numbered_steps",
        "prose",
        r"^[ \t]{0,8}1[.)] (?s:.{0,600}?)^[ \t]{0,8}2[.)] ",
        (0.2, -0.2, 0.0),
        "there are numbered steps",
    ),
)
