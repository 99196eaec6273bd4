"""Words for relatives and others by what they are to somebody."""

from __future__ import annotations

from typing import Final

_KIN_EN = """sister brother mother father wife husband partner son daughter aunt uncle cousin grandmother grandfather
    girlfriend boyfriend friend boss colleague neighbour roommate teacher"""
KIN: Final = {
    **{word: word.upper() for word in _KIN_EN.split()},
    **{"mom": "MOTHER", "mum": "MOTHER", "dad": "FATHER", "grandma": "GRANDMOTHER", "grandpa": "GRANDFATHER"},
    **{"neighbor": "NEIGHBOUR", "coworker": "COLLEAGUE"},
    **{"姐姐": "SISTER", "妹妹": "SISTER", "哥哥": "BROTHER", "弟弟": "BROTHER", "妈妈": "MOTHER", "爸爸": "FATHER"},
    **{"老婆": "WIFE", "妻子": "WIFE", "老公": "HUSBAND", "丈夫": "HUSBAND", "儿子": "SON", "女儿": "DAUGHTER"},
    **{"奶奶": "GRANDMOTHER", "爷爷": "GRANDFATHER", "男朋友": "BOYFRIEND", "女朋友": "GIRLFRIEND"},
    **{"朋友": "FRIEND", "老板": "BOSS", "同事": "COLLEAGUE", "邻居": "NEIGHBOUR", "室友": "ROOMMATE"},
    **{"同学": "CLASSMATE", "老师": "TEACHER"},
}
"""Word -> the relation of that person to the speaker, without `_OF`."""
