"""Credentials in texts: what is replaced, and what only looks like one."""

from __future__ import annotations

import time

import pytest

from perdure.core.text.credentials import HIDDEN, without_credentials, without_new_credentials
from tests.support.cases import for_each

# text -> what must not be left of it
CREDENTIALS = {
    "Mein Passwort ist Sommer2026!": "Sommer2026!",
    "mot de passe : Soleil2026": "Soleil2026",
    "La contraseña es Verano2026": "Verano2026",
    "パスワードは Natsu2026 です": "Natsu2026",
    "비밀번호는 Yeoreum2026": "Yeoreum2026",
    "пароль: Leto2026": "Leto2026",
    "OpenRouter sk-or-v1-0123456789abcdef0123456789abcdef": "0123456789abcdef",
    "Anthropic sk-ant-api03-AbCd_EfGh-IjKlMnOpQrStUvWx": "IjKlMnOpQrStUvWx",
    "Groq gsk_abcdefghijklmnop0123456789": "gsk_abc",
    "xAI xai-abcdefghijklmnop0123456789": "xai-abc",
    "Google AIzaSyA-abcdefghijklmnopqrstuvwxyz01234": "AIzaSyA",
    "Perplexity pplx-0123456789abcdefghijklmnop": "pplx-0",
    "Tavily tvly-0123456789abcdefghijkl": "tvly-0",
    "Replicate r8_abcdefghijklmnopqrstuvwxyz0123456789ab": "r8_abc",
    "Stripe sk_live_51AbCdEfGhIjKlMnOp": "51AbCd",
    "Slack xoxe.xoxp-1-AbCdEfGhIjKlMnOpQr": "AbCdEfGh",
    "Discord bot MTAxMjM0NTY3ODkwMTIzNDU2.Gabcde.abcdefghijklmnopqrstuvwxyz0123": "Gabcde",
    "Telegram 123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw": "AAHdqTcv",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtn",
    "PERDURE_API_KEY=abcdEFGH1234": "abcdEFGH1234",
    "OPENAI_API_KEY=abcdEFGH1234": "abcdEFGH1234",
    "DB_PASSWORD: s3cr3tpw": "s3cr3tpw",
    "my_password=hunter2x": "hunter2x",
    "X-API-Key: abcdEFGH1234": "abcdEFGH1234",
    "apikey=abcdEFGH1234": "abcdEFGH1234",
    "The api key you need is abcdEFGH1234": "abcdEFGH1234",
    "Here is my API key, abcdEFGH1234": "abcdEFGH1234",
    "api-key abcdEFGH1234": "abcdEFGH1234",
    "hf_AbCdEfGhIjKlMnOpQrSt": "hf_AbCd",
    "glpat-AbCdEfGhIjKlMnOpQrSt": "glpat-Ab",
    "npm_AbCdEfGhIjKlMnOpQrSt0123": "npm_Ab",
    "https://api.example.com/v1?api_key=abcdEFGH1234": "abcdEFGH1234",
    "https://x.example/mcp?key=abcdEFGH1234abcd": "abcdEFGH1234abcd",
    "https://x.example/mcp?token=abcdEFGH1234abcd": "abcdEFGH1234abcd",
    '"password": "s3cr3tpw"': "s3cr3tpw",
    "export PASSWORD='s3cr3tpw'": "s3cr3tpw",
    "The password's hunter2x": "hunter2x",
    "password is: \n hunter2x": "hunter2x",
    "PASSWORD = hunter2x": "hunter2x",
    "`password`: hunter2x": "hunter2x",
    "**Password:** hunter2x": "hunter2x",
    "Password -> hunter2x": "hunter2x",
    "ssh ada@host password hunter2x": "hunter2x",
    "pass: hunter2x": "hunter2x",
    "postgres://ada:s3c/r3t@db": "s3c/r3t",
    "https://ghp_abcdefghijklmnopqrst@github.com": "ghp_abc",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC\n-----END OPENSSH PRIVATE KEY-----": "b3Blbn",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nxcLYBF\n-----END PGP PRIVATE KEY BLOCK-----": "xcLYBF",
    "密码 hunter2x": "hunter2x",
    "The admin password is hunter22x.": "hunter22x",
    "my Password: Tr0ub4dor&3": "Tr0ub4dor&3",
    "password for the router is swordfish": "swordfish",
    'the database password is "p@ss word"': "p@ss",
    "PASSWORD=letmein99": "letmein99",
    "My pin is 4821.": "4821",
    "The PIN code was 1234": "1234",
    "My wifi password was changed to blue-horse-77": "blue-horse-77",
    "api_key = 9f8e7d6c5b4a": "9f8e7d6c5b4a",
    "API key: AbCdEf123456": "AbCdEf123456",
    "access token is 0f9a8b7c6d": "0f9a8b7c6d",
    '{"client_secret": "q1w2e3r4t5"}': "q1w2e3r4t5",
    "OPENAI: sk-proj-aaaaBBBBccccDDDD1111": "aaaaBBBB",
    "use ghp_abcdefghijklmnopqrstuvwxyz0123456789": "ghp_abc",
    "github_pat_11ABCDEFG0abcdefghijklmnop": "11ABCDEFG0",
    "AKIAIOSFODNN7EXAMPLE is the key id": "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc": "eyJhbGci",
    "postgres://ada:s3cr3t@db.example/app": "s3cr3t",
    "redis://:s3cr3t@db.example": "s3cr3t",
    "Authorization: Bearer 8a7b6c5d4e3f2a1b0c9d": "8a7b6c5d",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----": "MIIEow",
    "-----BEGIN PRIVATE KEY-----\nMIIEow": "MIIEow",
    "My seed phrase is witch collapse practice feed shame open despair": "collapse",
    "the door code is 9931#": "9931#",
    "You can log in as ada with Winter2026x": "Winter2026x",
    "The security code: 774411": "774411",
    "我的密码是 hunter22x。": "hunter22x",
    "密码：abc12345": "abc12345",
    "银行卡密码为889900": "889900",
    "我的 WiFi 口令是 blue77horse": "blue77horse",
    "密码改成了 Winter2026": "Winter2026",
    "API密钥是 9f8e7d6c5b4a": "9f8e7d6c5b4a",
    "令牌: 0f9a8b7c6d": "0f9a8b7c6d",
    "验证码是 550912": "550912",
    "門的密碼是1357": "1357",
    "Dave's key: aZ9dk3LmQ0pXw7Rt5vB2yHn8": "aZ9dk3",
    "our secret aZ9dk3LmQ0pXw7Rt5vB2yHn8": "aZ9dk3",
    "the token  aZ9dk3LmQ0pXw7Rt5vB2yHn8": "aZ9dk3",
    "sk-ant-api03-AbCd_EfGhIjKlMnOpQrSt-Wx_Yz12": "Yz12",
    "curl -u bob:hunter2 https://api.example.com": "hunter2",
    "git clone https://bob:hunter2@git.example.com/shop.git": "hunter2",
    "ftp://bob:hu@nter2@files.example.com/a": "hu@nter2",
    "amqps://bob:hunter2@queue/": "hunter2",
    "mongodb+srv://bob:hunter2@cluster0.example.net": "hunter2",
    "mysql://bob:hun/ter2@db/shop": "hun/ter2",
    "The proxy is http://bob:hunter2@proxy:3128.": "hunter2",
    "See <https://:hunter2@example.com>.": "hunter2",
    "PGPASSWORD=hunter2 psql": "hunter2",
    "Login: admin / s3cret": "s3cret",
}

PLAIN = (
    "The password is a secret that I forgot.",
    "export API_KEY=... and DB_PASSWORD=$(pass show db), TOKEN=${TOKEN}, PASSWORD=$PASSWORD",
    "docker run -u 1000:1000 -p 8080:80 shop; curl -u $USER:$PASSWORD https://example.com",
    "I forgot my password.",
    "My password is too long.",
    "The password was changed yesterday.",
    "She wrote a paper on token economy.",
    "Token economy: how points motivate children.",
    "The secret is to add lemon.",
    "The secret of good bread is patience and time.",
    "His secret was never found.",
    "I collect pins. My favourite pin is the one from Rome.",
    "Ada works on public key cryptography.",
    "The key is under the mat.",
    "The model has a limit of 4,000 tokens.",
    "A token is about four characters.",
    "The safe is in the cellar.",
    "The secret ingredient is basil.",
    "Her PIN was stolen.",
    "Please log in with your account.",
    "See https://example.com/a:b for more.",
    "Meet me at 10:30 with Bob.",
    "我忘了密码。",
    "密码是很重要的。",
    "这个密码太长了。",
    "她的秘密是每天早起。",
    "我喜欢密码学。",
    "代币经济学很有意思。",
    "The bug is in fallback_to_default_handler.",
    "call false_positive_rate_limit() first",
    "npm-run-all-parallel-tests and npm_package_config_registry_url",
    "ALTER TABLE a ADD CONSTRAINT pk_user_organizationmembership",
    "r8-register-allocator-spill, hf_transformers_pipeline_loader, gsk_render_node_get_bounds",
    "xai-explainability-tools, pypi-attestations-verification, sk-learn-contrib-preprocessing",
    "xapp-conformance-requirements and sq0abc-conformance-requirements",
    "NotificationServiceManager.server.another_long_identifier_name_x",
    "The primary key organization_membership_2 is in the key user/organization/membership/2026.",
    "1| if '-----BEGIN PRIVATE KEY-----' in text:\n2|     fail()\nPASSED\nand more",
    "# -----BEGIN OPENSSH PRIVATE KEY-----\nbegins such a file\n# -----END OPENSSH PRIVATE KEY-----",
    "BEGIN = '-----BEGIN PRIVATE KEY-----'\nEND = '-----END PRIVATE KEY-----'\nnext = 1",
    '["-----BEGIN PRIVATE KEY-----",\n "password",\n "secret"]',
)

BODY = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "zA9dk3LmQ0pXw7Rt5vB2yHn8" * 3, "Qw7xZz=="]
LINES = ["-----BEGIN RSA PRIVATE KEY-----", *BODY, "-----END RSA PRIVATE KEY-----"]
HEADERS = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF", ""]
PRIVATE_KEYS = {
    "plain": "\n".join(LINES),
    "of Windows": "\r\n".join(LINES),
    "encrypted": "\n".join([LINES[0], *HEADERS, *LINES[1:]]),
    "cut off": "\n".join(LINES[:3]),
    "in JSON": '{"key": "' + "\\n".join(LINES) + '\\n", "mail": "x"}',
    "in JSON in JSON": "\\\\n".join(LINES),
    "in a program": "\n".join(f'    "{line}\\n"' for line in LINES),
    "in one line": " ".join(LINES),
    "indented": "\n".join(f"      {line}" for line in LINES),
    "quoted": "\n".join(f"> {line}" for line in LINES),
    "found by grep": "\n".join(f"deploy/key.pem:{number}:{line}" for number, line in enumerate(LINES)),
    "numbered": "\n".join(f"{number:6}\t{line}" for number, line in enumerate(LINES)),
    "of a diff": "\n".join(f"+{line}" for line in LINES),
}


@pytest.mark.parametrize("text", PRIVATE_KEYS.values(), ids=PRIVATE_KEYS)
@pytest.mark.parametrize("after", ["", "\nthe next line, and more\n"])
def test_of_a_private_key_no_line_is_left_and_of_what_is_around_it_all(text: str, after: str) -> None:
    hidden = without_credentials(f"before\n{text}{after}", named=False)

    assert hidden.startswith("before\n") and hidden.endswith(after)
    assert HIDDEN in hidden and not any(line[:8] in hidden for line in BODY if after or line != BODY[2])
    assert ('"mail": "x"' in hidden) is ('"mail": "x"' in text)


@for_each(CREDENTIALS.items())
def test_a_credential_is_replaced_by_a_reference(text: str, secret: str) -> None:
    hidden = without_credentials(text)

    assert without_credentials(text) != text
    assert secret not in hidden
    assert HIDDEN in hidden
    assert without_credentials(hidden) == hidden


@for_each(PLAIN)
def test_what_only_speaks_of_credentials_stays(text: str) -> None:
    assert without_credentials(text) == text


BEGIN = "-----BEGIN PRIVATE KEY-----"
HOSTILE = [
    *("postgres://a:", "M1", "key aaaaaaaaaaaaaaaa", "sk-" + "aB1" * 40 + "-"),
    *(BEGIN, f"{BEGIN}\n", f"{BEGIN}\nAAAAbB\n{' ' * 200}\n{' ' * 200}\n", f"{BEGIN}\n{'A: Ab: ' * 25}\n" * 9),
    *(f"{BEGIN} {'a ' * 100}{'b' * 40}!", f"{BEGIN}\\n" + "\\" * 50, f"{BEGIN}\n" + "aB " * 50),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["sk-a-", "a.", "a-", "eyJ-", "eyJaaaaaaaa.", "a://", "Bearer a-", "1 ", "password is ", *HOSTILE]
)
def test_the_time_grows_with_the_length(unit: str) -> None:
    """Ten times the length takes less than forty times the time: its square would be a hundred times."""
    spent = []
    for chars in (4_000, 40_000):
        begin = time.process_time()
        for _ in range(3):
            without_credentials(unit * (chars // len(unit) + 1))
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * max(spent[0], 0.001)


def test_what_a_person_keeps_stays_when_an_agent_edits_the_line() -> None:
    """Credentials are compared, not lines; what an edit makes one is hidden."""
    before = "Likes tea; the old router, its password is swordfish99. Key sk-proj-abcdefghij0123456789\nadmin password:"
    after = before.replace("old router", "new router")
    assert without_new_credentials(before, after) == after
    assert "hunter2xyz99" not in without_new_credentials(before, f"{before}\nhunter2xyz99")
    assert without_new_credentials(before, f"{before} PIN: 4821").startswith(before)
