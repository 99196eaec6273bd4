"""Credentials in texts: recognised by their form or by what names them, and replaced, for no fact may hold one, nor any
other memory that an agent writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

HIDDEN = "[credential: keep it with `perdure secret`]"

# What repeats is bounded or gives nothing back (`*+`): a text is masked while others wait to write, in time linear in
# its length. No pattern with a count is an f-string, where `{1,3}` is a value.
_BREAK = r"(?:\n|\r|\\+[rn])(?:[\s\"'>|]|\\+[rnt\"])*+"
"""The end of a line, also as JSON and programs write it, and what stands before the next one's text."""
_END = r"-----END\ [A-Z ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----"
PRIVATE_KEY = re.compile(
    r"""-----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----["'+,;)\ ]{0,6}
    (?:BREAK(?>[^\n\r\\]{0,200}?[A-Z][A-Za-z-]{2,20}:\ [^\n\r\\]{0,200})){0,9}+
    (?:(?:BREAK(?=[A-Za-z0-9+/]{0,30}?(?:[a-z][A-Z]|[A-Z]{2}[a-z]|[A-Za-z]\d[A-Za-z]))[A-Za-z0-9+/=]++
         |(?:BREAK)?[^\n\r\\]{0,200}?(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{32,}+)
       [ \t"'+,;)\\]{0,6}(?=[\n\r]|\\+[rn]|\Z|-----END|(?<=\ )[A-Za-z0-9+/=]{1,80}(?:\ |-----END))
    )++
    (?:[^\n\r\\]{0,200}?(?:BREAK[^\n\r\\]{0,200}?){0,2}END)?""".replace("BREAK", _BREAK).replace("END)?", f"{_END})?"),
    re.VERBOSE,
)
"""A private key as PEM, OpenSSH and OpenPGP write it: its first line, headers, lines of letters and digits, also behind
line numbers or names of files, and its last line; a text that only names the first line is none."""
_PREFIXED = r"""\b(?:(?:sk|pk|rk|whsec)[-_]|(?:hf|npm|gsk|r8|lsv2|dop_v1|shpat)_
        |(?:pypi|xai|pplx|tvly|nvapi|fal|xapp|xox[abeprs]|sq0[a-z]{3})-)
      (?:[A-Za-z0-9]{1,99}[-_]){0,9}
      (?=[A-Za-z0-9]*?(?:[A-Za-z]\d|\d[A-Za-z]|[a-z][A-Z]+[a-z]?[A-Z]))[A-Za-z0-9]{16,}[A-Za-z0-9_-]*
    | \b(?:gh[pousr]_[A-Za-z0-9]{16,}|(?:github_pat_|glpat-|AIza|ya29\.)[A-Za-z0-9_-]{16,})"""
"""Keys that begin with what their maker's all begin with; those letters also begin names in programs, which have no
digit in a long word, and no letters large and small in turn."""
_FORMS = re.compile(
    rf"{PRIVATE_KEY.pattern} | {_PREFIXED}"
    r"""
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    | \beyJ[A-Za-z0-9_-]{8,600}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*
    | \b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]*:[^\s/@]+@
    | \b(?:postgres(?:ql)?|mysql|redis|mongodb(?:\+srv)?|amqps?)://[^\s:@]{0,200}:[^\s@]{1,400}@
    | \b\d{8,10}:AA[A-Za-z0-9_-]{30,}
    | \b[MNO](?=[A-Za-z0-9_-]{0,27}\d)[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{25,}
    | (?i:\bAuthorization["']?:\s?["']?Basic)\s+[A-Za-z0-9+/]{8,}=*
    | (?i:\b(?:Bearer|Basic))\s+(?=[A-Za-z0-9+/_.~-]*\d)[A-Za-z0-9+/_.~-]{16,}=*
    | \b(?:\d[ -]?){15}\d\b(?=.{0,40}\b(?i:cvv|cvc)\b)""",
    re.VERBOSE | re.DOTALL,
)
# Names of credentials. What follows a weak one is a credential only with a digit: "the secret is patience".
_STRONG = r"""(?:passwort|kennwort|mot\s+de\s+passe|contrase[ñn]a|senha|hasło|wachtwoord|lösenord|şifre|пароль
    |pass[\s_-]?word|pass[\s_-]?phrase|pass[\s_-]?code|passwd|pwd
    |(?:api|access|private|secret|encryption|ssh|license|signing)[\s_-]?key
    |(?:client|api|app)[\s_-]?secret|(?:access|auth|api|bearer|refresh|secret)[\s_-]?token)s?"""
_WEAK = r"""(?:token|secret|pin(?:[\s_-]?code)?|cvv|cvc|otp
    |(?:log-?in|recovery|security|verification|2fa|unlock|door|gate|alarm|safe)[\s_-]?(?:code|key))s?"""
_ZH = r"(?:密码|密碼|口令|密钥|密鑰|私钥|令牌|验证码|驗證碼|助记词|助記詞|授权码|激活码|(?i:api\s*key|token|pin\s*码?))"
# What stands after the name of a credential, and is none: "the password is a secret that I forgot".
_PLAIN = r"""(?!(?i:(?:a|an|the|my|his|her|our|your|their|not|no|never|now|too|very|so|in|on|at|with|for|of|to|that|this
    |what|which|still|also|always|already|again|only|just|necessary|wrong|right|correct|incorrect|invalid|valid|missing
    |empty|blank|unknown|secret|safe|secure|weak|strong|long|short|old|new|different|reset|kept|written|sent|set|lost
    |forgotten|stolen|hidden|hard|easy|about|because|how|when|where|why|me|it|something|been|due|there|here|under
    |inside|important|public|private|\w+(?:ed|ing|ly))\b(?![-_@\#$%\d])))"""
_OPEN = r"(?!\$[({]|\$[A-Z_][A-Z0-9_]*\b|<[A-Za-z][\w -]{0,40}>|\{\{|\.\.\.|…)"
"""No credential either: a variable of a shell, or what stands for a value."""


# What stands before a name in the name of a variable or a header: OPENAI_API_KEY, X-API-Key.
_BEFORE = r"(?<![\w-])(?:[A-Za-z][A-Za-z0-9]{0,30}[_-]){0,5}"
_MIXED = r"(?=[^\s,;]*\d)(?=[^\s,;]*[A-Za-z])[^\s,;]{8}"


def _sentence_pattern(names: str, sign: str) -> re.Pattern[str]:
    """Return the pattern of "the password for the router is ..."; the pattern `names` matches the names of credentials,
    `sign` must match at the beginning of the value."""
    return re.compile(
        rf"""(?i:{names})
        (?:(?i:\s+(?:(?:for|of|to|on|at)\s+[\w'.@/ -]{{1,40}}?|(?:that\s+)?(?:you|we|I)\s+[a-z]{{2,12}}))?
           (?i:\s+(?:(?:is|was|are|will\s+be|(?:has|have)\s+been)\s+)?(?:changed|set|reset)\s+to
              |\s+(?:is|was|are|will\s+be|ist|lautet|est|es|é|jest|это|is:)|'s)
           (?i:\s+now)?\s*[:=]?\s* | [*_`"']{{0,3}}\s*(?:=>|->|[=:：])\s*[*_`"']{{0,3}}\s*)
        ["'“‘`(]?{_OPEN}{_PLAIN}(?P<value>(?={sign})[^\s"'”’`,，。;；)]{{3,}})""",
        re.VERBOSE,
    )


_PHRASE = re.compile(
    r"""(?i:(?:seed|recovery|secret)[\s_-]phrase|mnemonic|pass[\s_-]?phrase)s?(?P<gap>\s+(?i:is)\s*|\s*[:=]\s*)["'“]?
        (?P<value>(?:[a-z-]+[ ]){3,23}[a-z-]+)""",
    re.VERBOSE,
)
_USE = re.compile(
    r"""(?i:log\s?in|sign\s?in|authenticate|ssh|unlock\w*|connect)\b[^.\n]{0,60}?\b(?i:with|using|by|as)\s+["'“]?
        (?P<value>(?=[^\s"'”,;]*\d)(?=[^\s"'”,;]*[A-Za-z])[^\s"'”,;]{6,}[^\s"'”,;.])""",
    re.VERBOSE,
)
_NAMED_ZH = re.compile(
    rf"""{_ZH}(?P<gap>\s*(?:现在|已经|就|都)?\s*(?:改成了?|改为|设成了?|设为|换成了?|变成了?|是|为|=|:|：)\s*["'“「]?)
        {_OPEN}(?P<value>(?:(?![，。；、！？”」"'\s])[\x21-\x7e\u00c0-\u024f]){{3,}}|[一二三四五六七八九零〇\d]{{4,}})""",
    re.VERBOSE,
)

_BARE = re.compile(
    rf"""(?:(?i:{_BEFORE}{_STRONG})[\s,*`]{{1,4}} | (?i:(?<![\w-])pass)\s*[:=]\s* | {_ZH}\s+
        | (?:パスワード|暗証番号|비밀번호)\s*(?:[はが는은:：=]\s*)?
        | (?i:\b(?:secret|token|key))["']?[\s:=]{{1,3}}(?=["']?[A-Za-z0-9]{{16}})
        | [?&;\#](?i:(?:api|access|auth)?[_-]?(?:key|token)|secret|sig(?:nature)?|password|pwd)=)
        ["'“「]?(?P<value>(?=[\x21-\x7e]*\d)(?=[\x21-\x7e]*[A-Za-z])[^\s"'”」,，。;；&]{{6,}})""",
    re.VERBOSE,
)
"""The name of a credential, and a value of letters and digits with nothing between that says so: "api-key Ab12Cd"."""
_ARGUMENT = re.compile(
    r"""(?=[A-Za-z-])(?:(?<![\w-])(?:curl|wget|https?|xh)\s(?:[^\n|;&]{0,200}?\s)?
            (?:-[uaU]\s?|--(?:user|proxy-user|auth)[ =])["']?[^\s:"'$<{%*/]{1,60}:
        | (?<![\w-])(?:mysql|mysqldump|mysqladmin|mariadb)\s(?:[^\n|;&]{0,200}?\s)?-p(?=\S)
        | (?<![\w-])(?:sshpass\s-p|(?:redis-cli|\w{1,20}\slogin)\s(?:[^\n|;&]{0,100}?\s)?-[ap])\s{1,3}
        | (?<![\w-])--?pass(?:word|wd|phrase)?(?:=|\s(?=[^\s]{0,100}\d))
        | (?<![A-Za-z])[A-Z][A-Z0-9]{0,20}(?:PASSWORD|PASSWD)=)
        ["']?(?!\$|<|\{|%|\*|\.\.|[A-Z_]+\b|secret:)(?P<value>[^\s"'|;&`]{3,})""",
    re.VERBOSE,
)
"""A password as an argument of a command: `curl -u ada:...`."""
_PAIR = re.compile(
    r"""(?=[lLsScCuU登账帐凭用])(?:(?:(?i:(?<![\w-])(?:log-?\s?in(?:\s+(?:as|with|using))?|sign\s?in\s+(?:as|with)|credentials?|creds?))
              (?:\s{0,2}[:=：]\s{0,2}|\s(?:is|are)\s|\s) | (?:登录|登入|账号|帐号|凭据)\s?[:：是用]?\s? | 用\s?)
           ["'`]?(?:[\w.@-]{2,40}\s/\s|[\w.@-]{2,40}:|(?:admin|administrator|root|user|guest|demo|test|sa)/)
        | (?i:(?<![\w-])user(?:name)?\s?[:=]?\s?[\w.@-]{2,40}[\s,;/]{1,3}(?:and\s)?pass\s?[:=]?\s))
        ["'`]?(?P<value>(?=[^\s,;/，。]{0,100}\d)(?=[^\s,;/，。]{0,100}[A-Za-z])[^\s,;/，。"'`)]{4,})""",
    re.VERBOSE,
)
"""A name and its password side by side: "Login: ada / ..."."""

_NAMED = (
    _PHRASE,
    _sentence_pattern(_BEFORE + _STRONG, "."),
    _sentence_pattern(rf"(?<![\w-]){_WEAK}", r"[^\s,;]*\d"),
    *(_sentence_pattern(_BEFORE + _WEAK, _MIXED), _NAMED_ZH, _USE, _BARE, _ARGUMENT, _PAIR),
)

_NAME_PARTS = (
    "pass pwd pin key secret token code otp cvv cvc phrase mnemonic wort woord mot contrase senha hasło lösenord şifre"
    " пароль log sig authenticate ssh unlock connect 密 口令 私钥 令牌 验证码 驗證碼 助记词 助記詞 授权码 激活码"
    " パスワード 暗証番号 비밀번호 curl wget xh mysql mariadb redis-cli cred 登 账号 帐号"
)
_IN_NAMES = (*_NAME_PARTS.split(), "http -", "https -")
"""One of these is in each name of a credential: most texts have none, and need no closer look."""
_FORM_CHARS, _IN_FORMS = 16, ("://", "private key", "cvv", "cvc")
"""A credential of a known form is at least so long without a space, or has one of these in or beside it."""


def without_credentials(text: str, *, named: bool = True) -> str:
    """Return the text with a note in place of each password, key or token; `named`: also of values that only a word
    beside them, such as "password", gives away."""
    return _hide(text, (), named=named)[0]


def value_without_credentials(value: Any) -> Any:
    """Return a value of JSON with a note in place of each credential in its texts; names of members stay."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        return {name: value_without_credentials(one) for name, one in value.items()}
    return [value_without_credentials(one) for one in value] if isinstance(value, list | tuple) else value


def without_new_credentials(before: str, after: str) -> str:
    """Return `after`, a text's new value, with a note for each credential that `before` lacks; older ones stay."""
    hidden = _hide(after, ())[1]
    return _hide(after, _hide(before, ())[1])[0] if hidden else after


def _hide(text: str, kept: Collection[str], *, named: bool = True) -> tuple[str, Collection[str]]:
    """Return (the text with a note in place of each credential that is not in `kept`, the credentials replaced)."""
    hidden = dict[str, None]()

    def note(match: re.Match[str]) -> str:
        """The match with a note in place of its value, unless the value is to be kept or is such a note."""
        start, end = match.span("value" if "value" in match.re.groupindex else 0)
        value = match.string[start:end]
        if value in kept or value.startswith(HIDDEN[:12]):
            return match[0]
        hidden[value] = None
        return match.string[match.start() : start] + HIDDEN + match.string[end : match.end()]

    # As `re` folds them: ı and İ are an i for it.
    folded = text.casefold().replace("ı", "i").replace("\u0307", "")
    for pattern in _NAMED if named and any(map(folded.__contains__, _IN_NAMES)) else ():
        text = pattern.sub(note, text)
    if max(map(len, text.split()), default=0) >= _FORM_CHARS or any(map(folded.__contains__, _IN_FORMS)):
        text = _FORMS.sub(note, text)
    return text, hidden
