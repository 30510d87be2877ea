"""Prompts and answers, from records to what training reads."""

import json
from pathlib import Path

import numpy as np
import pytest

from multimdm.cli.main import main
from multimdm.data.options import PrepareOptions
from multimdm.data.prepared import PreparedData
from multimdm.data.preparing import Prepared, prepare
from support.tiny_llada import chat_tokenizer

SUMS = [{"prompt": f"{a}+{a}=", "answer": str(a + a)} for a in range(20)]
TURNS = [
    {"role": "system", "content": "add"},
    {"role": "user", "content": "1+1"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2+10"},
    {"role": "assistant", "content": "12"},
]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'][0] }}:{{ message['content'] }}"
    "<|eot_id|>{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


@pytest.fixture
def lines(tmp_path):
    """Writes records as JSON lines."""

    def write(*records: dict, name: str = "pairs.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def chat(tmp_path) -> str:
    """A tokenizer with a chat template."""
    directory = tmp_path / "chat"
    directory.mkdir()
    chat_tokenizer(TEMPLATE).save(directory)
    return str(directory)


def prepared(source: str, out: Path, **others) -> Prepared:
    usual = {"sources": (source,), "tokenizer": "chars", "length": 12, "layout": "pairs"}
    return prepare(PrepareOptions(**usual | others), out)


def parts(data: PreparedData, row: int) -> tuple[list[int], list[int]]:
    """What is given of a sequence, and what is learnt: training takes what fills the rest as tokens like others."""
    example = data[row].with_padding()
    assert example.given is not None
    return example.ids[example.given].tolist(), example.ids[example.counted].tolist()


def test_all_before_the_answer_is_given_and_the_rest_repeats_the_end(lines, out):
    prepared(lines(*SUMS), out)
    data = PreparedData.open(out)
    tokenizer = data.tokenizer()
    assert tokenizer.bos_id is not None
    assert data.manifest.prompts == "bos"
    assert (data.manifest.layout, data.manifest.ends) == ("pairs", "both")
    assert len(data) == data.manifest.counts.documents == len(SUMS)
    for row, pair in enumerate(SUMS):
        given, learnt = parts(data, row)
        assert given == [tokenizer.bos_id, *tokenizer.encode(pair["prompt"])]
        answer = tokenizer.encode(pair["answer"])
        assert learnt == answer + [tokenizer.eos_id] * (12 - len(given) - len(answer))
    starts, lengths = (np.fromfile(out / name, data.lengths.dtype) for name in ("starts.bin", "lengths.bin"))
    assert lengths.tolist() == [1 + len(pair["prompt"] + pair["answer"]) + 1 for pair in SUMS]
    assert starts.tolist() == [1 + len(pair["prompt"]) for pair in SUMS]


def test_without_bos(lines, out):
    prepared(lines(*SUMS), out, ends="eos")
    data = PreparedData.open(out)
    assert data.manifest.prompts == "plain"
    assert parts(data, 3)[0] == data.tokenizer().encode("3+3=")


def test_fields_have_the_names_that_are_said(lines, out):
    prepared(lines({"q": "1+1=", "a": "2", "prompt": "no", "answer": "no"}), out, prompt_field="q", answer_field="a")
    data = PreparedData.open(out)
    given, learnt = parts(data, 0)
    assert data.tokenizer().decode(given[1:]) == "1+1="
    assert data.tokenizer().decode(learnt[:1]) == "2"


def test_a_prompt_may_be_empty(lines, out):
    prepared(lines({"prompt": "", "answer": "12"}), out)
    data = PreparedData.open(out)
    assert parts(data, 0)[0] == [data.tokenizer().bos_id]


def test_of_a_conversation_the_last_turn_is_the_answer(lines, out, chat):
    """With the end of its turn; turns of the assistant before it are given."""
    prepared(lines({"messages": TURNS}, SUMS[1]), out, tokenizer=chat, length=48)
    data = PreparedData.open(out)
    tokenizer = data.tokenizer()
    assert data.manifest.prompts == "chat"
    said = "<|startoftext|>s:add<|eot_id|>u:1+1<|eot_id|>a:2<|eot_id|>u:2+10<|eot_id|>a:"
    given, learnt = parts(data, 0)
    assert given == tokenizer.encode_template(said)
    ends = [tokenizer.eos_id] * (48 - len(given) - 3)
    assert learnt == [*tokenizer.encode("12"), tokenizer.turn_ends[0], *ends]
    given, learnt = parts(data, 1)  # a plain prompt is what a user says
    assert given == tokenizer.encode_template("<|startoftext|>u:1+1=<|eot_id|>a:")
    assert learnt[:2] == [*tokenizer.encode("2"), tokenizer.turn_ends[0]]


def test_the_template_may_be_left_alone(lines, out, chat):
    prepared(lines(SUMS[1]), out, tokenizer=chat, template="plain")
    data = PreparedData.open(out)
    assert data.manifest.prompts == "bos"
    assert parts(data, 0)[0] == [data.tokenizer().bos_id, *data.tokenizer().encode("1+1=")]


def test_some_are_held_out(lines, out):
    prepared(lines(*SUMS), out, valid_last=5)
    train, valid = (PreparedData.open(out / name) for name in ("train", "valid"))
    assert (len(train), len(valid)) == (15, 5)
    tokenizer = train.tokenizer()
    assert [tokenizer.decode(parts(valid, row)[0][1:]) for row in range(5)] == [pair["prompt"] for pair in SUMS[15:]]
    assert train.manifest.prompts == valid.manifest.prompts == "bos"


def test_pairs_that_are_too_long_are_an_error_or_left_out(lines, out):
    long = {"prompt": "1+1=", "answer": "2" * 7}
    fits = {"prompt": "1+1=", "answer": "2" * 6}  # with BOS and one EOS, all of the sequence
    source = lines(SUMS[0], fits, long)
    with pytest.raises(ValueError, match=r"line 3: a prompt of 4 tokens and an answer of 7 do not fit into the 10 pos"):
        prepared(source, out)
    assert not out.exists()
    result = prepared(source, out, too_long="drop")
    counts = result.manifests["all"].counts
    assert (counts.documents, counts.sequences, counts.left_out, counts.dropped) == (3, 2, 1, 11)
    data = PreparedData.open(out)
    assert parts(data, 1)[1] == [*data.tokenizer().encode("222222"), data.tokenizer().eos_id]
    with pytest.raises(ValueError, match="all 1 pairs are too long for --length 12; raise it"):
        prepared(lines(long, name="long.jsonl"), out.with_name("none"), too_long="drop")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"prompt": "1+1="},
            "line 2: no field 'answer' for the answer, only 'prompt'; choose one with --answer",
        ),
        ({"answer": "2"}, "line 2: no field 'prompt' for the prompt, only 'answer'; choose one with --prompt-field"),
        ({"prompt": "1+1=", "answer": 2}, "line 2: field 'answer' is 2, not text"),
        ({"prompt": "1+1=", "answer": " "}, "line 2: field 'answer' is empty: there is no answer to learn"),
        ({"messages": TURNS[:1]}, "line 2: 'messages' must be a list of at least two"),
        ({"messages": TURNS[:4]}, "line 2: there is no answer: the last message must be the assistant's; it is user"),
        ({"messages": [*TURNS[:4], {"role": "robot", "content": "2"}]}, "line 2: message 5 must have a role"),
        ({"messages": TURNS}, "line 2: 'messages' need a chat template, and tokenizer '.*' has none"),
    ],
)
def test_lines_that_are_no_pairs_are_named(record, said, lines, out):
    with pytest.raises(ValueError, match=said):
        prepared(lines(SUMS[0], record), out)
    assert not out.exists()


def test_conversations_need_the_template(lines, out, chat):
    source = lines({"messages": TURNS})
    with pytest.raises(ValueError, match=r"is not to use its own \(--template plain\)"):
        prepared(source, out, tokenizer=chat, template="plain", length=48)
    with pytest.raises(ValueError, match=r"--template chat: tokenizer '.*' has no chat template"):
        prepared(lines(*SUMS), out, template="chat")


def test_an_answer_must_be_found_behind_its_prompt(lines, out, tmp_path):
    """A template that writes questions otherwise once they are answered."""
    chat_tokenizer("{{ messages | length }}{{ messages[-1]['content'] }}").save(tmp_path)
    with pytest.raises(ValueError, match=r"line 1: the chat template of tokenizer .* writes a conversation otherwise"):
        prepared(lines(SUMS[1]), out, tokenizer=str(tmp_path))


def test_no_answer_may_forge_the_end_of_its_turn(lines, out, chat):
    with pytest.raises(ValueError, match=r"line 1: a message must not contain a special token .*'<\|eot_id\|>'"):
        prepared(lines({"prompt": "1+1", "answer": "2<|eot_id|>"}), out, tokenizer=chat, length=48)


def test_text_has_no_pairs(out, tmp_path):
    (tmp_path / "book.txt").write_text("1+1=2\n")
    with pytest.raises(ValueError, match="pairs come from JSON lines"):
        prepared(str(tmp_path / "book.txt"), out)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"sources": (), "mix": ("1:a.jsonl",)}, "--mix is not for --layout pairs"),
        ({"ends": "bos"}, "--ends must be both or eos with --layout pairs: answers end by EOS; got bos"),
        ({"detokenize": "lm1b"}, "--detokenize is not for --layout pairs"),
        ({"drop_last": True}, "--drop-last is for --layout packed only"),
        ({"layout": "padded", "too_long": "drop"}, "--too-long is for --layout pairs only"),
        ({"layout": "padded", "template": "plain"}, "--template is for --layout pairs only"),
        ({"layout": "packed", "answer_field": "a"}, "--answer-field is for --layout pairs only"),
    ],
)
def test_options_that_do_not_go_together(others, said, out):
    with pytest.raises(ValueError, match=said):
        prepared("a.jsonl", out, **others)


def test_the_command_tells_what_was_left_out(lines, out, capsys):
    source = lines(*SUMS, {"prompt": "1+1=", "answer": "2" * 9})
    arguments = ["prepare", source, "--layout", "pairs", "--tokenizer", "chars", "--length", "12", "--out", str(out)]
    assert main(arguments) == 2
    assert "line 21" in capsys.readouterr().err
    assert main([*arguments, "--too-long", "drop"]) == 0
    assert "1 pairs too long" in capsys.readouterr().out
