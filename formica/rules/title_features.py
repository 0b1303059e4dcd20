"""What a report's title says about its kind: a table of patterns with weights in log-odds.

The signs were set by hand; the sizes were pulled towards labelled reports of five projects and rounded
to a tenth, so that they hold on projects never seen. Patterns are bounded: none backtracks over a whole
text. `body_features` is the other half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["TITLE_FEATURES", "Feature"]


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    part: Literal["title", "prose", "full", "declared"]
    """The part of `ReportText` that is searched."""
    pattern: str
    """Case is ignored; ``^`` and ``$`` are line ends."""
    weights: tuple[float, float, float]
    """For bug, enhancement, question."""
    reason: str
    """As people read it."""


TITLE_FEATURES: tuple[Feature, ...] = (
    Feature(
        "title_bug_tag",
        "title",
        r"^\W{0,6}(?:\w+\W{1,3})?(?:bug|regression|defect|crash|erro|error|fehler|bogue|"
        r"fallo)\b[\]):]|^\W{0,4}bug\b|\[(?:\w+ )?bug\]|缺陷",
        (1.0, -0.5, -0.5),
        "the title is tagged as a bug",
    ),
    Feature(
        "title_feature_tag",
        "title",
        r"^\W{0,6}(?:\w+\W{1,3})?(?:feat(?:ure)?|enhancement|proposal|rfc|idea|suggestion|"
        r"wish(?:list)?|epic)\b\W|feature.?request|\[feat|功能请求|sugest[ãa]o|sugerencia|vorschlag",
        (-1.0, 1.6, -0.6),
        "the title is tagged as a request",
    ),
    Feature(
        "title_question_tag",
        "title",
        r"^\W{0,6}(?:question|help|support|q|d[úu]vida|pregunta|frage)\s?[:\])]|\b(?:question|help me|"
        r"please help|need help)\b|求助|请问|疑问|\bajuda\b|\bayuda\b|\bhilfe\b",
        (-0.5, -0.5, 1.1),
        "the title is tagged as a question",
    ),
    Feature(
        "title_fault",
        "title",
        r"\b(?:crash\w*|seg(?:mentation )?fault|segfault\w*|panic\w*|deadlock\w*|hangs?|hung|freez\w*|"
        r"corrupt\w*|leaks?|leaking|race condition|\w*overflow|assert\w*|broken|breaks?|incorrect\w*|"
        r"wrong\w*|flak[ye]\w*|intermittent\w*|sporadic\w*|failures?|regression|inconsisten\w*|"
        r"missing|duplicat\w*|unexpected\w*|undefined behavio\w*|infinite|invalid|loses?|lost|stuck|"
        r"ignor(?:es|ed)|typo)\b|falha\w*|quebra\w*|trava\w*|falla\w*|bloquea\b|cuelga|st[üu]rzt|"
        r"absturz|kaputt|falsch\w*|plante\w*|incorrecte?|崩溃|卡死|失败|异常|死锁|丢失",
        (0.7, -0.4, -0.3),
        "the title names a fault",
    ),
    Feature(
        "title_fails",
        "title",
        r"\b(?:fail(?:s|ed|ing)?|cannot|could not|couldn't|does(?: not|n't)|is(?: not|n't)|do(?: not|"
        r"n't)|are not|no longer|won't|raises?|throws?|not found|already)\b|n[ãa]o funciona|"
        r"no funciona|ne (?:fonctionne|marche) pas|funktioniert nicht|geht nicht|无法|不能|不工作|无效",
        (0.3, -0.3, 0.0),
        "the title says that something fails",
    ),
    Feature(
        "title_not_working",
        "title",
        r"\b(?:not working|unable to|can'?t|can not|doesn'?t work|problem|trouble|issue)\b",
        (-0.1, -0.2, 0.3),
        "the title says that something does not work for its author",
    ),
    Feature(
        "title_error",
        "title",
        r"\berrors?\b|\b\w{1,60}(?:Error|Exception)\b|\berro\b|erreur|fehler|报错|错误",
        (0.1, -0.3, 0.2),
        "the title names an error",
    ),
    Feature(
        "title_imperative",
        "title",
        r"^\W{0,6}(?:\w{1,20}\W{1,2})?(?:add|allow|support|implement|introduce|provide|enable|make|"
        r"improve|extend|expose|consider|remove|replace|refactor|migrate|update|upgrade|rename|drop|"
        r"move|create|optimi[sz]e|show|include|let|reduce|convert|document|deprecate|use|enhance|"
        r"adicionar|permitir|suportar|agregar|a[ñn]adir|soportar|ajouter|permettre|hinzuf[üu]gen|"
        r"erm[öo]glichen)\b|^\W{0,6}(?:支持|增加|添加|希望|建议)",
        (-0.3, 0.9, -0.5),
        "the title asks for a change",
    ),
    Feature(
        "title_support",
        "title",
        r"\b(?:support(?: for)?|add(?:ed|ing)?|allow\w*|ability|option(?:al|s)?|custom\w*|improv\w*|"
        r"optimi[sz]\w*|better|more|new)\b|suporte|soporte|unterst[üu]tz\w*|prise en charge|支持",
        (-0.5, 0.7, -0.2),
        "the title speaks of something new",
    ),
    Feature(
        "title_question_word",
        "title",
        r"^\W{0,6}(?:how|why|what|where|when (?:will|do|does|is|should)|which|who|is there|is it|"
        r"can (?:i|we|you|someone|anyone)|could (?:i|you|someone)|does|do|did|are|am i|should i|como|"
        r"por ?qu[eé]|cómo|wie|warum|wieso|comment|pourquoi)\b|¿|\bhow (?:to|do|can|does)\b|如何|怎么|为什么",
        (-0.6, 0.0, 0.7),
        "the title asks",
    ),
    Feature(
        "title_ends_question",
        "title",
        r"[?？]\s{0,4}$",
        (-0.4, -0.1, 0.5),
        "the title ends with a question mark",
    ),
    Feature(
        "title_when",
        "title",
        r"\b(?:when|after|while|if|on|with|in|since|during|quando|cuando|wenn|quand|lorsque)\b",
        (0.2, -0.1, -0.1),
        "the title gives a circumstance",
    ),
    Feature("title_short", "title", r"^.{0,24}$", (-0.2, -0.1, 0.3), "the title is short"),
    Feature("title_code", "title", r"`|\w\(\)|\w::\w|\w_\w", (0.2, 0.0, -0.1), "the title names code"),
)
