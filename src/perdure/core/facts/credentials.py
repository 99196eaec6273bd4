"""Credentials in texts: recognised by their form, and replaced, for no fact may hold one."""

from __future__ import annotations

import re

HIDDEN = "[credential: keep it with `perdure secret`]"

_FORMS = re.compile(
    r"""-----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}
    | \b(?:gh[pousr]|glpat|xox[abprs]|hf|npm|pypi|dop_v1|shpat|AIza|ya29)[-_.]?[A-Za-z0-9_-]{16,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | \b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@""",
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(
    r"""(?i:\b(?:password|passphrase|passcode|passwd|pwd|api[\s_-]?key|access[\s_-]?token|secret(?:[\s_-]?key)?
        |private[\s_-]?key|auth[\s_-]?token|token|pin)\b|密码|口令|密钥|令牌)
    (?P<gap>\s*(?:for\s+[\w\s.-]{1,40}?\s*)?(?:is|was|=|:|：|是|为)\s*["'“]?)(?P<value>[^\s"'”,，。;；]{4,})""",
    re.VERBOSE,
)


def holds_credential(text: str) -> bool:
    """Return whether a text holds something that looks like a password, a key or a token."""
    return _FORMS.search(text) is not None or _NAMED.search(text) is not None


def without_credentials(text: str) -> str:
    """Return the text with a note in place of each credential."""
    text = _NAMED.sub(lambda match: match[0][: match.start("value") - match.start()] + HIDDEN, text)
    return _FORMS.sub(HIDDEN, text)
