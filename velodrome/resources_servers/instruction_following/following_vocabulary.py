"""The words that reference answers are written with: any, as long as constraints can choose among them."""

from __future__ import annotations

ENGLISH = """
 amber bright calm early field garden harbour island joyful kind lantern morning narrow open path quiet river silver
 tower under valley warm yellow zest apple bird cloud dark evening forest gentle hill ink jump keep light moon north old
 pond quick rain stone tall uncle vivid wind young zinc ant book cold dust east fish gold hand ice jolly king long mist
 nut owl pink quilt road sand town urn vast wood yard zoo ask big cat dog egg far gift hot ivy jam kit low map now oak
 pin run sun tin up van wax yes zip album brown coast drift echo flute grain house idea juice knot leaf metal night
 ocean paint quest roof storm trail unit voice water yarn zone about build chart dance earth frost glass heart inner
 judge knee lemon music noble orbit plant queue round shore train upper visit world youth zebra across bridge candle
 distant elder fabric golden hidden ivory jacket kettle ladder marble needle orange pillow quartz ribbon saddle timber
 useful velvet walnut yonder zigzag after below carry dream every fresh grand happy image joint known large mild never
 often proud
"""
OTHER_SCRIPTS = {
    "cyrillic": "утро река поле лес ветер дом свет гора море снег птица сад луна дорога камень зима лето город ночь",
    "greek": "ήλιος θάλασσα βουνό δρόμος σπίτι νερό φως νύχτα πουλί δέντρο ουρανός πέτρα άνεμος κήπος πόλη",
    "arabic": "شمس بحر جبل طريق بيت ماء نور ليل طائر شجرة سماء حجر ريح حديقة مدينة",
    "hebrew": "שמש ים הר דרך בית מים אור לילה ציפור עץ שמים אבן רוח גן עיר",
    "devanagari": "सूरज पानी घर रात पेड़ आकाश नदी शहर फूल गाँव",
    "hangul": "해 바다 산 길 집 물 빛 밤 새 나무 하늘 돌 바람 정원 도시",
    "han": "太阳 大海 高山 道路 房子 河水 月光 夜晚 小鸟 树木 天空 石头 清风 花园 城市",
    "kana": "そら うみ やま みち いえ みず ひかり よる とり はな かぜ まち",
}
PALINDROMES = "level noon radar civic kayak madam refer rotor stats tenet eye pop wow mum dad"
