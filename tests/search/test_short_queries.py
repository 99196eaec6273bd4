"""Short queries in languages that are written without spaces, in a history and an archive of all sorts of texts."""

from __future__ import annotations

import random

import pytest

from perdure.engine.search.search import Search
from perdure.testing import FakeClock, InlineStore
from tests.contracts.base import Contract

units = Contract()

CHINESE = {
    "猫": "我家的猫昨天生了三只小猫",
    "茶": "她每天下午喝绿茶",
    "杭州": "他去年搬到杭州工作了",
    "钢琴": "女儿正在学钢琴",
    "生日": "爸爸的生日是三月五号",
    "咖啡": "楼下新开了一家咖啡店",
    "地铁": "我坐地铁上班要四十分钟",
    "过敏": "他对花生过敏",
    "火锅": "周末我们去吃火锅吧",
    "密码": "路由器的密码写在盒子背面",
    "医院": "奶奶住在人民医院三楼",
    "护照": "我的护照明年六月到期",
    "马拉松": "他报名参加了上海马拉松",
    "图书馆": "图书馆星期一不开门",
    "自行车": "我的自行车在学校被偷了",
    "数据库": "数据库的备份每晚两点开始",
    "充电器": "充电器忘在宾馆里了",
    "会议室": "会议室改到五楼了",
    "牛肉面": "这家牛肉面很便宜",
    "太极拳": "爷爷早上打太极拳",
    "机器学习": "她的论文是关于机器学习的",
    "高速公路": "高速公路因为大雪关闭",
    "圣诞礼物": "我给他买了圣诞礼物",
    "红烧排骨": "妈妈做的红烧排骨最好吃",
    "日本旅行": "我们计划四月去日本旅行",
    "狗": "邻居的狗整晚叫个不停",
    "雪": "北京昨晚下雪了",
    "云": "照片上传到云端了",
    "鱼汤": "他感冒了想喝鱼汤",
    "雨伞": "别忘了带雨伞",
}

JAPANESE = {
    "猫": "うちの猫は魚が好きです",
    "東京": "来月東京に引っ越します",
    "電車": "電車が遅れています",
    "寿司": "昨日は寿司を食べました",
    "すし": "すし屋を予約しました",
    "カメラ": "新しいカメラを買いました",
    "コーヒー": "コーヒーは砂糖なしで飲みます",
    "誕生日": "妹の誕生日は七月です",
    "病院": "明日は病院に行きます",
    "さくら": "さくらが咲きました",
    "パスポー": "パスポートを更新する",
    "会議": "会議は三時からです",
    "温泉": "週末は温泉に行こう",
    "犬": "犬を散歩させる時間だ",
    "ラーメン": "ラーメンを作る",
}

KOREAN = {
    "고양이": "우리 고양이는 생선을 좋아해요",
    "서울": "다음 달에 서울로 이사가요",
    "김치": "어머니가 김치를 담그셨어요",
    "생일": "동생 생일은 칠월이에요",
    "커피": "커피는 설탕 없이 마셔요",
    "병원": "내일 병원에 가야 해요",
    "지하철": "지하철이 늦었어요",
    "비": "내일은 비가 온대요",
    "여권": "여권을 갱신해야 해요",
    "자전거": "자전거를 도둑맞았어요",
}

NOISE = (
    (
        "今天天气很好，我们出去走走吧",
        "他说明天再讨论这个问题",
        "这本书我已经看完了",
        "我觉得这个方案不错",
        "房租又涨了",
    ),
    ("今日はとても暑いですね", "昨日の映画は面白かった", "仕事が終わったら連絡します", "明日は早く起きます"),
    ("오늘 날씨가 좋네요", "어제 영화가 재미있었어요", "일이 끝나면 연락할게요"),
    ("The train to Genoa leaves at nine.", "I bought a new laptop yesterday.", "My cat sleeps all day."),
)
SHOWN = 3


@pytest.mark.parametrize("wanted", [CHINESE, JAPANESE, KOREAN], ids=["chinese", "japanese", "korean"])
async def test_a_word_of_one_to_four_characters_finds_its_text(wanted: dict[str, str]) -> None:
    """Among the first three of hundreds of texts in four languages, in a history as in an archive."""
    store, rng = InlineStore(), random.Random(7)
    texts = [*CHINESE.values(), *JAPANESE.values(), *KOREAN.values()]
    texts += [" ".join(rng.choices(rng.choice(NOISE), k=2)) + f" {number}" for number in range(200)]
    rng.shuffle(texts)
    agent = await store.write(units.add_agent)
    archive = await store.write(lambda tx: units.add_archive(tx, agent_id=agent.id))
    await store.write(units.say, agent.id, *texts)
    await store.write(lambda tx: [units.add_passage(tx, archive.id, text) for text in texts])
    search = Search(store, FakeClock())

    missed = []
    for query, text in wanted.items():
        assert 1 <= len(query) <= 4
        messages = await search.messages(agent.id, query, limit=SHOWN)
        passages = await search.passages(agent.id, query, limit=SHOWN)
        told, kept = [hit.message.text for hit in messages], [hit.passage.text for hit in passages]
        if text not in told or text not in kept:
            missed.append(query)
    assert missed == []
    await store.close()
