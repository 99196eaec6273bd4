"""Bytes to text: every encoding that files are found in, and what is not text at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.features.files.converters.charset import decode
from perdure.features.files.converters.limits import FileUnreadable
from tests.support.cases import for_each

CHINESE = "今天天气很好，我们去公园散步吧。他说这个国家的人都很好，没有什么问题。"
TAIWANESE = "今天天氣很好，我們去公園散步吧。他說這個國家的人都很好，沒有什麼問題。"
JAPANESE = "今日はとても天気がいいので、公園へ散歩に行きました。東京の大学で勉強しています。"
KOREAN = "오늘은 날씨가 매우 좋아서 공원에 산책하러 갔습니다. 서울에 있는 대학교에서 공부하고 있습니다."
RUSSIAN = "Сегодня очень хорошая погода, мы пошли гулять в парк."
FRENCH = "Le garçon a mangé une pomme à la française, où était-il?"
GERMAN = "Die Straße führt über die Brücke nach München, schöne Grüße."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((CHINESE, encoding) for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030")),
        (TAIWANESE, "big5"),
        *((JAPANESE, encoding) for encoding in ("utf-8", "cp932", "euc_jp", "iso2022_jp")),
        (KOREAN, "cp949"),
        *((RUSSIAN, encoding) for encoding in ("cp1251", "koi8_r")),
        *((FRENCH, encoding) for encoding in ("cp1252", "latin-1", "utf-16")),
        *((GERMAN, encoding) for encoding in ("latin-1", "utf-16-le", "utf-16-be")),
        ("plain", "ascii"),
        ("", "ascii"),
    ],
)
def test_text_is_read_in_its_encoding(text: str, encoding: str) -> None:
    """And where it was guessed, that is said."""
    read, warning = decode(text.encode(encoding))

    assert read == text
    assert bool(warning) == (encoding not in {"ascii", "utf-8", "utf-8-sig", "utf-16", "utf-32", "iso2022_jp"})


NAMES = {
    "姓名,金额\n王芳,1200\n刘洋,850\n": ("gb18030",),
    "产品,单价,数量\n螺丝,0.5,1000\n扳手,35,20\n": ("gb18030",),
    "客户张伟的电话是 139-0000-1234。": ("gb18030",),
    "陳小姐的訂單\n": ("big5",),
    "氏名,住所\n田中太郎,東京都\n鈴木花子,大阪府\n": ("cp932",),
    "りんご,100円\nみかん,50円\n": ("cp932", "euc_jp"),
    "이름,도시\n김민수,서울\n박지영,부산\n": ("cp949",),
    "Имя;Город\nИван Петров;Москва\nАнна;Казань\n": ("cp1251", "koi8_r", "cp866"),
    "Όνομα;Πόλη\nΓιώργος;Αθήνα\nΜαρία;Θεσσαλονίκη\n": ("cp1253", "iso8859_7"),
    "שם,עיר\nדוד כהן,תל אביב\nרחל לוי,חיפה\n": ("cp1255", "iso8859_8"),
    "الاسم,المدينة\nأحمد علي,القاهرة\nفاطمة,دمشق\n": ("cp1256", "iso8859_6"),
    "ชื่อ,เมือง\nสมชาย,กรุงเทพ\nสมหญิง,เชียงใหม่\n": ("cp874",),
    "Imię;Miasto\nŁukasz Wójcik;Łódź\n": ("cp1250", "iso8859_2"),
    "Jméno;Město\nJiří Dvořák;Plzeň\nŠárka Nováková;Brno\n": ("cp1250", "iso8859_2"),
    "Ad;Şehir\nAyşe Yılmaz;İzmir\nOğuz;Eskişehir\n": ("cp1254",),
    "Ačiū, aš esu čia. Žmonės ėjo į mišką\n": ("cp1257",),
    "Köszönöm szépen, jövő héten. Győr, sűrű erdő\n": ("cp1250", "iso8859_2"),
    "name,city\nJosé,Madrid\nBob,London\n": ("cp1252", "mac_roman"),
    "Price: £5, 20°C, it’s “quoted”, 5 €\n": ("cp1252",),
    "20 °C in Köln\n": ("cp1252",),
    "Name;Preis\nMüller;3\nGroß;5\n": ("cp1252", "cp850"),
    "Név;Kor\nŐry Győző;3\nKűrthy;5\n": ("cp1250", "iso8859_2"),
    "Имя;Возраст\nИван;34\nОльга;5\n": ("cp1251", "koi8_r", "cp866"),
    "Ім'я;Вік\nЇжакевич Єва;3\nҐалаґан;5\n": ("cp1251", "koi8_u"),
    "Όνομα;Τιμή\nΓιώργος;3\n": ("cp1253", "iso8859_7"),
    "שם;מחיר\nדוד כהן;3\n": ("cp1255", "iso8859_8"),
    "الاسم;السعر\nمحمد علي;3\nفاطمة;5\n": ("cp1256", "iso8859_6"),
    "ชื่อ,ราคา\nสมชาย,3\n": ("cp874",),
    "序号,金额\n1,300\n合计,800\n": ("gb18030",),
    "王芳 12\n": ("gb18030",),
    "氏名,電話\n佐藤,5\n": ("cp932", "euc_jp"),
    "이름,전화\n김철수,010\n": ("cp949",),
}


@for_each([(text, encoding) for text in NAMES for encoding in NAMES[text]])
def test_a_short_table_of_names_is_read_in_its_encoding(text: str, encoding: str) -> None:
    """Though it has too few letters for the frequencies of a language; and it is said that this was guessed."""
    read, warning = decode(text.encode(encoding))

    assert read == text
    assert "guessed" in warning


def test_letters_far_behind_ascii_are_read() -> None:
    """Also in one line that is longer than what is looked at."""
    for text in ("abc\n" * 2_000_000 + "Größe\n", "Größe" * 40_000):
        assert decode(text.encode("cp1252"))[0] == text


def test_an_encoding_that_the_file_names_is_believed() -> None:
    """If the text can be read so, and it is one for files."""
    page = f'<meta charset="iso-8859-5"><p>{RUSSIAN}'

    assert decode(page.encode("iso-8859-5")) == (page, "")
    assert "guessed" in decode(f"# coding: idna\n{FRENCH}".encode("latin-1"))[1]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_become_line_feeds(ends: str) -> None:
    """Of every system."""
    assert decode(f"a{ends}{ends}b".encode())[0] == "a\n\nb"


def test_a_few_damaged_bytes_do_not_change_the_encoding() -> None:
    """What can't be read is marked, and said."""
    text, warning = decode((CHINESE * 10).encode() + b"\xff" + CHINESE.encode())

    assert text == f"{CHINESE * 10}\ufffd{CHINESE}"
    assert "damaged" in warning


@pytest.mark.parametrize(
    "data",
    [b"text\0text", bytes(range(256)) * 4, b"\xff\xfe\0", "a\0b".encode("utf-16"), b"\xef\xbb\xbf\xff", b"\x01" * 20],
)
def test_binary_data_is_refused(data: bytes) -> None:
    """By its NULs and control characters, or a mark that it does not keep."""
    with pytest.raises(FileUnreadable):
        decode(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    """Nothing else comes out, and the text can be stored."""
    try:
        text, _ = decode(data)
    except FileUnreadable:
        return
    text.encode()
    assert "\0" not in text
    assert "\r" not in text
