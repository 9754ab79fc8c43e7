"""Words of texts in scripts without blanks between words."""

from unidex.features.single_text import words_in


def test_every_chinese_and_japanese_character_is_a_word():
    """Their words stand without blanks; a run of them would be one word that hardly comes again."""
    assert words_in("北京大学图书馆, 2nd ed.") == [*"北京大学图书馆", "2nd", "ed"]
    assert words_in("データベースのabc漢") == ["デ", "ー", "タ", "ベ", "ー", "ス", "の", "abc", "漢"]
    # Scripts with blanks between words keep them, with their vowel signs.
    assert words_in("한국어 पुस्तकालय المكتبة kirjasto") == ["한국어", "पुस्तकालय", "المكتبة", "kirjasto"]
