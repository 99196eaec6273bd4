"""Credentials in texts: what is replaced, and what only looks like one."""

from __future__ import annotations

import time

import pytest

from perdure.core.facts.credentials import HIDDEN, holds_credential, without_credentials

# text -> what must not be left of it
CREDENTIALS = {
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
}

PLAIN = (
    "The password is a secret that I forgot.",
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
)


@pytest.mark.parametrize(("text", "secret"), CREDENTIALS.items())
def test_a_credential_is_replaced_by_a_reference(text: str, secret: str) -> None:
    hidden = without_credentials(text)

    assert holds_credential(text)
    assert secret not in hidden
    assert HIDDEN in hidden
    assert without_credentials(hidden) == hidden


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_speaks_of_credentials_stays(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    "unit", ["sk-a-", "a.", "a-", "eyJ-", "eyJaaaaaaaa.", "a://", "Bearer a-", "1 ", "password is "]
)
def test_the_time_grows_with_the_length(unit: str) -> None:
    """Ten times the length takes less than forty times the time: its square would be a hundred times."""
    spent = []
    for count in (1_000, 10_000):
        begin = time.process_time()
        for _ in range(3):
            without_credentials(unit * count)
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * max(spent[0], 0.001)
