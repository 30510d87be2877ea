"""The words of Tales as a tokenizer, so that a model of Tales is saved and used like any other."""

from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import END, PAD
from multimdm.data.tokenizer import Tokenizer


def tales_tokenizer(tales: Tales) -> Tokenizer:
    """One token per word or stop; ids are those of `tales.vocabulary`."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.WordLevel({word: number for number, word in enumerate(tales.vocabulary)}))
    words_and_stops = pre_tokenizers.Split(Regex(r"[.,!?]"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words_and_stops])
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)  # words with spaces between, none before a stop
    backend.add_special_tokens([PAD, END])
    return Tokenizer(backend.to_str(), {"pad": PAD, "eos": END}, "tales", sentence_case=True)
