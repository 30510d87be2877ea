from dataclasses import replace

import pytest

from multimdm.data.options import PrepareOptions


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"sources": ()}, "either as sources or with --mix"),
        ({"mix": ("1:a.txt",)}, "either as sources or with --mix"),
        ({"repeat": True}, "--repeat is for --mix only"),
        ({"sources": (), "mix": ("a.txt",)}, "--mix a.txt: expected WEIGHT:SOURCE"),
        ({"tokenizer": "bpe:3"}, "--tokenizer bpe:3: SIZE"),
        ({"length": 2}, "--length must be at least 3 with --ends both; got 2"),
        ({"length": 0, "ends": "none"}, "--length must be at least 1 with --ends none; got 0"),
        ({"drop_last": True, "layout": "padded"}, "--drop-last is for --layout packed only"),
        ({"separator": ""}, "--separator must be the text of one line"),
        ({"max_documents": 0}, "--max-documents must be at least 1; got 0"),
        ({"valid_last": 0}, "--valid-last must be at least 1; got 0"),
        ({"valid_fraction": -0.1}, "--valid-fraction must be between 0 and 1; got -0.1"),
        ({"valid_fraction": 1.0}, "--valid-fraction must be between 0 and 1; got 1.0"),
        ({"valid_fraction": float("nan")}, "--valid-fraction must be between 0 and 1; got nan"),
        ({"valid_fraction": 0.1, "valid_last": 3}, "give only one of --valid, --valid-fraction and --valid-last"),
    ],
)
def test_bad_options(others, message):
    good = PrepareOptions(sources=("a.txt",))
    good.check()
    with pytest.raises(ValueError, match="^.*" + message.replace(".", r"\.")):
        replace(good, **others).check()
