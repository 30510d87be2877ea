"""Teachers of quantile noise against plain loops over all texts of a tiny vocabulary, and Tales against itself."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from multimdm.data.tokenizer import Tokenizer
from multimdm.evaluation.language_models import LanguageModel
from multimdm.evaluation.teachers import (
    AutoregressiveTeacher,
    CausalLMTeacher,
    QuantileTeacher,
    TalesTeacher,
    find_teacher,
)
from multimdm.evaluation.teachers.base import cells_of_text, order_of
from multimdm.models import DiT
from multimdm.pipeline import load
from multimdm.process import Streams
from multimdm.process.quantile import Cells, Order, bucket_law, cells, in_order
from support.statistics import MUTANT, REJECT, p_of_draws
from support.tiny_judges import END, hugging_face_tokenizer, save_tiny_gpt2
from support.tiny_models import TALES, causal_tales_model, tales_model, word_model, word_tokenizer

WORDS = ["a", "b", "c", "d"]
READER = word_tokenizer(WORDS, end=END, pad="[UNK]")
"""The tokens that `hugging_face_tokenizer` has."""
V, L, M = 6, 3, 4
START = 4
"""Of the causal language model: its end of text."""
CPU = torch.device("cpu")
TEXTS = torch.tensor(list(itertools.product(range(V), repeat=L)))
PLACES = torch.tensor([V * V, V, 1])
"""(text * PLACES).sum() is the number of a text."""
KINDS = pytest.mark.parametrize("kind", ["ours", "hugging face"])
ORDERS = pytest.mark.parametrize("order", ["id", "probable", "similar"])


class Subject(NamedTuple):
    """A teacher in float64, and q(. | prefix) of it, from one call for each prefix."""

    teacher: QuantileTeacher
    law: Callable[[tuple[int, ...]], Tensor]


def subject(kind: str, folder: Path, seed: int = 0) -> Subject:
    torch.manual_seed(seed)
    if kind == "ours":
        model = word_model(READER, L, causal=True, seed=seed)
        model.network.double()
        ours = AutoregressiveTeacher("ours", "1", model, L)
        return Subject(ours, lambda prefix: model.network(torch.tensor([[V, *prefix]]), None)[0, -1].softmax(-1))
    network = gpt2(folder / f"gpt2-{seed}", seed)
    theirs = CausalLMTeacher("gpt2", "1", LanguageModel(network, hugging_face_tokenizer(WORDS)), READER, L)
    return Subject(theirs, lambda prefix: network(torch.tensor([[START, *prefix]])).logits[0, -1].softmax(-1))


def gpt2(folder: Path, seed: int = 0) -> Any:
    network = save_tiny_gpt2(folder, WORDS).double()
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.5 * seed * torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed))
    return network


@torch.no_grad()
def conditionals(law: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """q(a | x^{<l}) for all texts, prefix by prefix: [texts, L, V]."""
    known = {prefix: law(prefix) for l in range(L) for prefix in itertools.product(range(V), repeat=l)}  # noqa: E741
    return torch.stack([torch.stack([known[tuple(text[:l])] for l in range(L)]) for text in TEXTS.tolist()])  # noqa: E741


def text_law(probs: Tensor) -> Tensor:
    """q of all texts."""
    return probs.gather(-1, TEXTS[..., None])[..., 0].prod(-1)


def begun(ids: Tensor, kind: str) -> Tensor:
    """Texts that begin with the symbol that stands before texts: their first token is given."""
    return (ids[:, 0] == START) & (kind == "hugging face")


# --------------------------------------------------------------------- laws


@KINDS
@ORDERS
def test_cells_are_those_of_the_full_softmax(kind, order, tmp_path):
    teacher, law = subject(kind, tmp_path)
    order = order_of(teacher, order)
    probs, found = conditionals(law), teacher.cells(TEXTS, order)
    for row, text in enumerate(TEXTS.tolist()):
        if begun(TEXTS[row : row + 1], kind):
            continue
        for place, token in enumerate(text):
            line = in_order(probs[row, place], order).tokens.tolist()
            before = sum(float(probs[row, place, other]) for other in line[: line.index(token)])
            assert float(found.lower[row, place]) == pytest.approx(before, abs=1e-12)
            assert float(found.width[row, place]) == pytest.approx(float(probs[row, place, token]), rel=1e-9)
    shifted = teacher.cells(TEXTS.roll(1, dims=1), order)  # a mutant: tokens at other places
    assert not torch.allclose(shifted.width.roll(-1, dims=1), found.width, atol=1e-3)


@KINDS
def test_the_product_of_the_widths_is_the_likelihood(kind, tmp_path):
    teacher, law = subject(kind, tmp_path)
    q, found, given = text_law(conditionals(law)), teacher.cells(TEXTS).width.prod(-1), begun(TEXTS, kind)
    assert torch.allclose(found[~given], q[~given], rtol=1e-9)
    start = float(law(()).detach()[START]) if kind == "hugging face" else 0.0
    assert float(found[~given].sum()) == pytest.approx(1 - start, abs=1e-9)
    if kind == "hugging face":  # given that they begin so, they are a law of their own
        assert float(found[given].sum()) == pytest.approx(1.0, abs=1e-9)
    assert float(q.max() / q.min()) > 100, "the law must be far from uniform"


@KINDS
@ORDERS
def test_what_numbers_draw_has_cells_that_contain_them(kind, order, tmp_path):
    teacher, _ = subject(kind, tmp_path)
    order = order_of(teacher, order)
    u = Streams.spawn(1, 400).uniform((400, L))
    ids = teacher.write(u, order)
    kept = ~begun(ids, kind)
    assert float(kept.double().mean()) > 0.5
    own = teacher.cells(ids, order)
    inside = (own.lower - 1e-9 <= u) & (u <= own.lower + own.width + 1e-9)
    assert bool(inside[kept].all())
    other = teacher.cells(ids, "probable" if isinstance(order, str) and order == "id" else "id")
    assert not bool(((other.lower <= u) & (u <= other.lower + other.width))[kept].all())


@KINDS
def test_uniform_numbers_draw_texts_of_the_models_law(kind, tmp_path):
    teacher, law = subject(kind, tmp_path)
    drawn = (teacher.write(Streams.spawn(2, 8000).uniform((8000, L))) * PLACES).sum(1)
    assert p_of_draws(drawn, text_law(conditionals(law))) > REJECT
    assert p_of_draws(drawn, text_law(conditionals(subject(kind, tmp_path, seed=1).law))) < MUTANT


@KINDS
def test_noise_of_the_models_own_texts_is_uniform(kind, tmp_path):
    """Summed over all texts and all strings of buckets; of texts whose first token is drawn, or given, not both."""
    strings = torch.tensor(list(itertools.product(range(M), repeat=L)))

    def string_law(teacher: QuantileTeacher, q: Tensor) -> Tensor:
        given_text = bucket_law(teacher.cells(TEXTS), M)
        each = torch.stack([given_text[:, place, strings[:, place]] for place in range(L)]).prod(0)
        return q @ each

    (teacher, law), other = subject(kind, tmp_path), subject(kind, tmp_path, seed=1).teacher
    if kind == "hugging face":
        q = torch.where(begun(TEXTS, kind), teacher.cells(TEXTS).width.prod(-1), 0.0)
    else:
        q = text_law(conditionals(law))
    uniform = torch.full((len(strings),), 1 / len(strings), dtype=torch.float64)
    assert torch.allclose(string_law(teacher, q), uniform, rtol=1e-9)
    assert float((string_law(other, q) - uniform).abs().sum()) > 0.1


# -------------------------------------------------- causal language models


def test_with_memory_the_same_is_written_as_without(tmp_path):
    teacher, law = subject("hugging face", tmp_path)
    u = Streams.spawn(3, 60).uniform((60, L))
    for row, found in zip(u, teacher.write(u).tolist(), strict=True):
        text: tuple[int, ...] = ()
        for number in row:
            text += (int((law(text).cumsum(0) <= number).sum()),)
        assert list(text) == found


def test_a_text_that_begins_with_the_start_symbol_has_it_for_nothing(tmp_path):
    teacher, _ = subject("hugging face", tmp_path)
    framed = TEXTS[TEXTS[:, 0] == START]
    found = teacher.cells(framed)
    assert torch.equal(found.lower[:, 0], torch.zeros(len(framed), dtype=torch.float64))
    assert torch.equal(found.width[:, 0], torch.ones(len(framed), dtype=torch.float64))
    # Behind it stand the cells of the text without it, whose last token is any.
    plain = torch.cat([framed[:, 1:], torch.zeros_like(framed[:, :1])], dim=1)
    plain = plain[(plain[:, 0] != START)]
    behind = found.lower[framed[:, 1] != START, 1:], found.width[framed[:, 1] != START, 1:]
    alone = teacher.cells(plain)
    torch.testing.assert_close(behind[0], alone.lower[:, :-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(behind[1], alone.width[:, :-1], rtol=1e-9, atol=0)


def test_where_all_texts_begin_with_the_start_symbol_it_writes_it_first(tmp_path):
    """And the rest as it would without: the first number draws nothing."""
    network = gpt2(tmp_path / "gpt2")
    teacher, plain = (
        CausalLMTeacher("gpt2", "1", LanguageModel(network, hugging_face_tokenizer(WORDS)), READER, L, begins)
        for begins in (START, None)
    )
    u = Streams.spawn(4, 4000).uniform((4000, L))
    ids = teacher.write(u)
    assert bool((ids[:, 0] == START).all())
    assert torch.equal(ids[:, 1:], plain.write(u.roll(-1, dims=1))[:, :-1])
    own = teacher.cells(ids)
    assert bool(((own.lower - 1e-9 <= u) & (u <= own.lower + own.width + 1e-9)).all())
    law = torch.where(TEXTS[:, 0] == START, teacher.cells(TEXTS).width.prod(-1), 0.0)
    assert p_of_draws((ids * PLACES).sum(1), law) > REJECT
    other = CausalLMTeacher("gpt2", "1", LanguageModel(network, hugging_face_tokenizer(WORDS)), READER, L, begins=0)
    assert torch.equal(other.write(u), plain.write(u))


def test_texts_with_and_without_the_start_symbol_go_together(tmp_path):
    """In one batch, in several, alone."""
    teacher, _ = subject("hugging face", tmp_path)
    shuffled = TEXTS[torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(0))]
    together = teacher.cells(shuffled)
    for row in range(0, len(TEXTS), 17):
        alone = teacher.cells(shuffled[row : row + 1])
        torch.testing.assert_close(alone.lower[0], together.lower[row], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.width[0], together.width[row], rtol=1e-9, atol=0)


def test_rows_that_stand_for_no_token_are_left_out(tmp_path):
    """Tables are often padded to a round number of rows."""
    network = save_tiny_gpt2(tmp_path / "gpt2", [*WORDS, "x", "y", "z"]).double()
    tokenizer = hugging_face_tokenizer(WORDS)
    teacher = CausalLMTeacher("gpt2", "1", LanguageModel(network, tokenizer), READER, L)
    first = teacher.cells(torch.arange(V)[:, None]).width[torch.arange(V) != START, 0]
    with torch.no_grad():
        probs = network(torch.tensor([[START]])).logits[0, 0, :V].softmax(-1)
    torch.testing.assert_close(first, probs[torch.arange(V) != START])
    assert teacher.embeddings().shape == (V, 16)
    assert int(teacher.write(torch.full((1, L), 1 - 1e-12, dtype=torch.float64)).max()) < V


# -------------------------------------------------------------------- tales


@pytest.fixture(scope="module")
def tales() -> TalesTeacher:
    return TalesTeacher(TALES)


def test_tales_has_the_cells_of_its_exact_conditionals(tales):
    ids = TALES.sample(12, Streams.spawn(0, 12))
    for order in ("id", "probable"):
        found = tales.cells(ids, order)
        for place, probs in enumerate(TALES.conditionals(ids)):
            own = cells(probs, ids[:, place], order)
            assert torch.equal(found.lower[:, place], own.lower)
            assert torch.equal(found.width[:, place], own.width)
    torch.testing.assert_close(tales.cells(ids).width.log().sum(1), TALES.log_prob(ids, epsilon=0.0))


def test_tales_writes_stories_whose_cells_contain_the_numbers(tales):
    u = Streams.spawn(1, 12).uniform((12, 48))
    ids = tales.write(u)
    own = tales.cells(ids)
    assert bool(((own.lower - 1e-12 <= u) & (u <= own.lower + own.width + 1e-12)).all())
    assert bool(TALES.valid(ids).all())
    assert not torch.equal(tales.write(u, "probable"), ids)


def test_neighbours_in_the_order_of_tales_occur_alike(tales):
    """Names stand beside names: much nearer to the next in line than to any other token."""
    order = order_of(tales, "similar")
    assert isinstance(order, Tensor)
    line, vectors = order.argsort(), tales.embeddings()
    assert sorted(order.tolist()) == list(range(TALES.vocab_size))
    apart = (vectors[line].diff(dim=0) ** 2).sum(1).mean()
    by_id = (vectors.diff(dim=0) ** 2).sum(1).mean()
    shuffled = (vectors[torch.randperm(len(line), generator=torch.Generator().manual_seed(0))].diff(dim=0) ** 2).sum(1)
    assert float(apart) < float(by_id)
    assert float(apart) < 0.5 * float(shuffled.mean())
    u = Streams.spawn(1, 3).uniform((3, 48))
    own = tales.cells(tales.write(u, order), order)
    assert bool(((own.lower - 1e-12 <= u) & (u <= own.lower + own.width + 1e-12)).all())


def test_what_is_no_story_has_no_cells(tales):
    ids = TALES.sample(2, Streams.spawn(0, 2))
    ids[1, 5] = ids[1, 4]
    with pytest.raises(ValueError, match="5"):
        tales.cells(ids)


# ------------------------------------------------------------------ padding


def test_padding_is_not_drawn(tmp_path):
    teacher, _ = subject("ours", tmp_path)
    ids, valid = TEXTS[:40], torch.arange(L) < torch.arange(40)[:, None] % L + 1
    own, found = teacher.cells(ids), cells_of_text(teacher, ids, valid)
    assert torch.equal(found.lower, torch.where(valid, own.lower, 0.0))
    assert torch.equal(found.width, torch.where(valid, own.width, 1.0))
    assert torch.equal(cells_of_text(teacher, ids, None).width, own.width)


def test_a_token_that_the_teacher_never_writes_is_named_unless_it_is_padding():
    model = word_model(READER, L, causal=True)
    assert isinstance(model.network, DiT)
    with torch.no_grad():
        model.network.output_layer.linear.bias[5] = -1e5
    teacher = AutoregressiveTeacher("mute", "1", model, L)
    ids = torch.tensor([[0, 1, 2], [3, 1, 5]])
    message = r"teacher 'mute' gives the token at position 2 of sequence 1 probability 0, .*\(1 such tokens in 6\)"
    with pytest.raises(ValueError, match=message):
        cells_of_text(teacher, ids, None)
    cells_of_text(teacher, ids, torch.tensor([[True, True, True], [True, True, False]]))


# ------------------------------------------------------------------ finding


def test_teachers_are_found_by_name(tmp_path):
    word_model(READER, L, causal=True).save(tmp_path / "ar")
    save_tiny_gpt2(tmp_path / "gpt2", WORDS)
    for name, kind in (("ar", AutoregressiveTeacher), ("gpt2", CausalLMTeacher)):
        one, again = (find_teacher(str(tmp_path / name), READER, L, CPU) for _ in range(2))
        assert isinstance(one, kind)
        assert isinstance(one, QuantileTeacher)
        assert (one.name, one.vocab_size) == (name, V)
        assert one.fingerprint == again.fingerprint
        assert torch.equal(one.cells(TEXTS).width, again.cells(TEXTS).width)
    found = find_teacher("tales", load_tales_tokenizer(), 48, CPU)
    assert isinstance(found, TalesTeacher)
    assert isinstance(found, QuantileTeacher)
    word_model(READER, L, causal=True, seed=1).save(tmp_path / "other")
    ours, other = (find_teacher(str(tmp_path / name), READER, L, CPU) for name in ("ar", "other"))
    assert ours.fingerprint != other.fingerprint


def load_tales_tokenizer() -> Tokenizer:
    tokenizer = causal_tales_model().tokenizer
    assert tokenizer is not None
    return tokenizer


def test_cells_do_not_depend_on_who_else_is_asked_for(tmp_path):
    """As far as arithmetic goes: a checkpoint is float32."""
    word_model(READER, L, causal=True).save(tmp_path / "ar")
    teacher = find_teacher(str(tmp_path / "ar"), READER, L, CPU)
    together, parts = teacher.cells(TEXTS), [teacher.cells(part) for part in TEXTS.split(64)]
    assert torch.equal(together.width, torch.cat([part.width for part in parts]))
    torch.testing.assert_close(teacher.cells(TEXTS[7:8]).width[0], together.width[7], rtol=1e-5, atol=0)
    model = load(tmp_path / "ar")
    assert isinstance(together, Cells)
    probs = model.network(torch.cat([torch.full((len(TEXTS), 1), V), TEXTS[:, :-1]], dim=1), None).softmax(-1)
    torch.testing.assert_close(together.width.float(), probs.gather(-1, TEXTS[..., None])[..., 0].detach())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "c", "b", "d"], "id 1 is 'c' to the teacher and 'b' in 'words'"),
        (["a", "b", "c"], rf"id 3 is '{END.replace('|', '.')}' to the teacher and 'd' in 'words'"),
    ],
)
def test_a_language_model_with_other_tokens_is_refused(words, message, tmp_path):
    save_tiny_gpt2(tmp_path / "gpt2", words)
    with pytest.raises(ValueError, match=f"teacher 'gpt2' must have the tokenizer of the texts; {message}"):
        find_teacher(str(tmp_path / "gpt2"), READER, L, CPU)


def test_a_language_model_with_fewer_tokens_is_refused(tmp_path):
    longer = word_tokenizer([*WORDS, END, "[UNK]", "e"], "longer", end="f", pad="g")
    save_tiny_gpt2(tmp_path / "gpt2", WORDS)
    with pytest.raises(ValueError, match="id 6 is None to the teacher and 'e' in 'longer'"):
        find_teacher(str(tmp_path / "gpt2"), longer, L, CPU)
    network = save_tiny_gpt2(tmp_path / "few", WORDS[:-1])
    with pytest.raises(ValueError, match="teacher 'few' predicts 5 tokens; the texts have 6"):
        CausalLMTeacher("few", "1", LanguageModel(network, hugging_face_tokenizer(WORDS)), READER, L)


def test_a_language_model_without_a_start_symbol_is_refused(tmp_path):
    tokenizer = hugging_face_tokenizer(WORDS)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="teacher 'gpt2' has neither BOS nor EOS to stand before a text"):
        CausalLMTeacher("gpt2", "1", LanguageModel(save_tiny_gpt2(tmp_path, WORDS), tokenizer), READER, L)


def test_teachers_that_do_not_fit_are_refused(tmp_path):
    word_model(READER, L, causal=True).save(tmp_path / "ar")
    save_tiny_gpt2(tmp_path / "gpt2", WORDS, positions=8)
    with pytest.raises(ValueError, match="teacher 'ar' was made for 3 tokens at most; the texts have 4"):
        find_teacher(str(tmp_path / "ar"), READER, 4, CPU)
    find_teacher(str(tmp_path / "gpt2"), READER, 8, CPU)
    with pytest.raises(ValueError, match="teacher 'gpt2' can look at 8 tokens at most; the texts have 9"):
        find_teacher(str(tmp_path / "gpt2"), READER, 9, CPU)
    tales_model().save(tmp_path / "diffusion")
    with pytest.raises(
        ValueError, match=r"teacher 'diffusion' must be autoregressive \(system: ar\); it is a diffusion"
    ):
        find_teacher(str(tmp_path / "diffusion"), load_tales_tokenizer(), 48, CPU)
    with pytest.raises(ValueError, match=r"must have the tokenizer of the texts; it has Tokenizer\('words'.*'tales'"):
        find_teacher(str(tmp_path / "ar"), load_tales_tokenizer(), L, CPU)
    with pytest.raises(
        ValueError, match="teacher 'tales' is for stories of Tales; the texts have the tokenizer 'words'"
    ):
        find_teacher("tales", READER, 48, CPU)
    mute = word_model(READER, L, causal=True)
    mute.tokenizer = None
    mute.save(tmp_path / "mute")
    with pytest.raises(ValueError, match="must have the tokenizer of the texts; it has None"):
        find_teacher(str(tmp_path / "mute"), READER, L, CPU)


def test_a_teacher_without_embeddings_has_no_similar_tokens(tales):
    class Blind(TalesTeacher):
        def embeddings(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return None

    with pytest.raises(ValueError, match=r"quantile\.order must not be similar: teacher 'tales' has no embeddings"):
        order_of(Blind(TALES), "similar")
    names: tuple[Literal["id", "probable"], ...] = ("id", "probable")
    assert [order_of(tales, name) for name in names] == ["id", "probable"]


def test_neighbours_are_found_in_texts(tales):
    """The same stories give the same line, whoever the teacher is; without texts it is said what else there is."""
    stories = TALES.sample(20_000, torch.Generator().manual_seed(0))
    found, similar = order_of(tales, "neighbours", lambda: stories), order_of(tales, "similar")
    assert isinstance(found, Tensor)
    assert isinstance(similar, Tensor)
    assert torch.equal(found, similar)  # the exact teacher's vectors are those of such stories
    with pytest.raises(ValueError, match=r"quantile\.order must be similar, id or probable: there are no texts"):
        order_of(tales, "neighbours")


def test_what_cannot_be_found_is_called_a_teacher(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"teacher '\./nowhere/at all' cannot be found: there is no such file"):
        find_teacher("./nowhere/at all", READER, L, CPU)
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(ValueError, match=r"teacher '.*text\.txt' is a file, but not a \.gguf file"):
        find_teacher(str(tmp_path / "text.txt"), READER, L, CPU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"teacher: .*config\.json is missing"):
        find_teacher(str(tmp_path / "empty"), READER, L, CPU)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ValueError, match=r"teacher '.*broken' cannot be loaded as a causal language model"):
        find_teacher(str(tmp_path / "broken"), READER, L, CPU)
    monkeypatch.setattr("multimdm.data.foreign_tokenizers.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="teacher 'smollm2' is not installed"):
        find_teacher("smollm2", READER, L, CPU)

    def fail(name: str, file: str, local_files_only: bool) -> str:
        raise OSError(f"no {file} of {name}")

    monkeypatch.setattr("multimdm.evaluation.language_models.hub_silence", lambda name: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    with pytest.raises(ValueError, match=r"teacher 'gpt3' cannot be found.*no config\.json of gpt3"):
        find_teacher("gpt3", READER, L, CPU)


def test_every_order_is_one_of_all_tokens(tmp_path):
    for kind in ("ours", "hugging face"):
        order: Order = order_of(subject(kind, tmp_path).teacher, "similar")
        assert isinstance(order, Tensor)
        assert sorted(order.tolist()) == list(range(V))
