import pytest

from multimdm.data.detokenize import DETOKENIZERS, detokenize_lm1b, detokenize_ptb, detokenize_wikitext


@pytest.mark.parametrize(
    ("tokenised", "text"),
    [
        ("They do n't know , he said .", "They do n't know, he said."),
        ("They 've seen John 's dog .", "They've seen John's dog."),
        ("Well , yes : now ; or never ?", "Well, yes: now; or never?"),
        ("Stop ! Now !", "Stop! Now!"),
        ('He said , " come in , " and left .', 'He said, "come in," and left.'),
        ("It cost $ 5 ( or £ 4 ) then .", "It cost $5 (or £4) then."),
        ("and / or [ sic ]", "and/or [sic]"),
        ("See http : / / example.org now .", "See http://example.org now."),
        ("See https : / / example.org .", "See https://example.org ."),
        ("The ' best ' one .", "The 'best' one."),
        ("One . Two . Three .", "One . Two. Three."),
        ("it was 5.5 .", "it was 5.5 ."),
        ("a well-known .", "a well-known ."),
        ("a , , b", "a, , b"),
        ("already fine, isn't it?", "already fine, isn't it?"),
    ],
)
def test_lm1b(tokenised, text):
    assert detokenize_lm1b(tokenised) == text


@pytest.mark.parametrize(
    ("tokenised", "text"),
    [
        ("the 1 @,@ 000 @.@ 5 well @-@ known men", "the 1,000.5 well-known men"),
        ("The boys ' house , in fact ; it is .", "The boys' house, in fact; it is ."),
        ("Yes . No ! What ? So : it is .", "Yes. No! What? So: it is ."),
        ('He ( the man ) said " stop here " [ sic ] .', 'He (the man) said "stop here" [sic] .'),
        ("= = Title = =", "== Title =="),
        ("= = = Title = = =", "=== Title ==="),
        ("the ' best ' ones ' end", "the 'best' ones' end"),
        ("40 ° N", "40°N"),
        ("one \n two", "one\ntwo"),
    ],
)
def test_wikitext(tokenised, text):
    assert detokenize_wikitext(tokenised) == text


@pytest.mark.parametrize(
    ("tokenised", "text"),
    [
        ("it 's the firms ' view it did n't grow", "it's the firms' view it didn't grow"),
        ("rose N N N points", "rose 1 1 1 points"),
        ("paid $ N million and # N more", "paid $1 million and #1 more"),
        ("either\\/or <unk> said", "either/or ? said"),
    ],
)
def test_ptb(tokenised, text):
    assert detokenize_ptb(tokenised) == text


def test_names():
    assert sorted(DETOKENIZERS) == ["lm1b", "ptb", "wikitext"]
