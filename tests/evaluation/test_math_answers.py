"""Answers of competition problems: equal in whatever form, and not equal to others."""

import itertools
import json
import time
from pathlib import Path

import pytest

from multimdm.evaluation.math_answers import final_answer, same_answer

MATH = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "math" / "math500_test.json"

SAME = [
    (r"\frac12", "0.5"),
    (r"\dfrac{1}{2}", r"\tfrac12"),
    ("x^2 + 2x", "2x + x^2"),
    ("(x+1)^2", "x^2+2x+1"),
    ("1,000", "1000"),
    (r"10,\!080", "10080"),
    (r"5\text{ cm}", "5"),
    (r"15\mbox{ cm}^2", "15"),
    ("x = 3", "3"),
    (r"x \in [1,2)", r"[1, 2)"),
    ("3, -2", "-2,3"),
    (r"\{1,2\}", r"\left\{2, 1\right\}"),
    (r"\sqrt{8}", r"2\sqrt2"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt 3}"),
    (r"\sqrt[3]{8}", "2"),
    (r"90^\circ", "90"),
    (r"10\%", "10"),
    (r"\$36", "36"),
    (r"\text{(B)}", "B"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
    (r"(5, \infty)", r"(5,\infty)"),
    ("4.0", "4"),
    (".5", r"\frac{1}{2}"),
    (r"3\frac{1}{2}", "3.5"),
    ("2^{10}", "1024"),
    (r"\text{even}", r"\textbf{even}"),
    (r"\sin x", r"\sin(x)"),
    (r"\binom{5}{2}", "10"),
    ("5!", "120"),
    (r"\log_2 8", "3"),
    (r"\begin{pmatrix}1/2\\2\end{pmatrix}", r"\begin{pmatrix} \frac12 \\ 2 \end{pmatrix}"),
    (r"(-\infty,3)\cup(5,\infty)", r"(5,\infty)\cup(-\infty,3)"),
    ("x<3", "3>x"),
    ("2x-y+3=0", "y=2x+3"),
    (r"\pm 3", "3,-3"),
    (r"7\text{ square inches}", "7"),
    (r"1\times 10^{-3}", "0.001"),
    ("$[2,5)$", "[2,5)"),
]
DIFFERENT = [
    ("(1,2]", "[1,2]"),
    ("(3,2)", "(2,3)"),
    ("-2", "2"),
    ("12", "1,2"),
    ("x+y", "x-y"),
    (r"\text{even}", r"\text{odd}"),
    (r"3\frac{1}{2}", r"\frac{3}{2}"),
    ("0.333", r"\frac13"),
    ("", "0"),
    ("(1,2,3)", "(1,2)"),
    ("1/0", "2/0"),
    (r"\infty", r"-\infty"),
    (r"\sqrt{x^2}", "x"),
    ("3.0000001", "3"),
    ("0.333333", r"\frac13"),
    (r"\pi", "3.14159"),
    ("1, 2, 3", "1, 2"),
    (r"11_2", "3"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_ways_of_writing(one, other):
    assert same_answer(one, other)
    assert same_answer(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_answers(one, other):
    assert not same_answer(one, other)
    assert not same_answer(other, one)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $\boxed{\frac{1}{2}}$ and then $\boxed{\{3, 4\}}$.", r"\{3, 4\}"),
        (r"it is $\boxed 5$ of them", "5"),
        (r"hence \fbox{7}", "7"),
        ("The final answer is $[2,5)$. I hope it is correct.", "$[2,5)$"),
        ("First the final answer is 3.\nNo: the final answer is 4.", "4"),
        (r"cut off in the \boxed{1 + 2", None),
        ("I do not know", None),
    ],
)
def test_where_the_answer_is(solution, answer):
    assert final_answer(solution) == answer


@pytest.mark.parametrize(
    "text", ["", "1+", "(1", r"\frac{1}", "2^{9999}", "1;2", "(" * 500, "1/0", "}{", "\0", r"\boxed"]
)
def test_what_has_no_value_or_another(text):
    assert not same_answer(text, "3")
    assert not same_answer("3", text)


@pytest.mark.parametrize("text", ["9^{9^{9^{9}}}", "x^{" * 100 + "2" + "}" * 100, "1+" * 3000 + "1"])
def test_work_without_end_is_given_up(text):
    begun = time.perf_counter()
    assert not same_answer(text, "3")
    assert time.perf_counter() - begun < 12
    assert same_answer(text, text)


@pytest.mark.skipif(not MATH.exists(), reason="the benchmark's items are not here")
def test_all_references_of_math500():
    items = json.loads(MATH.read_text())
    for item in items:
        answer = final_answer(item["solution"])
        assert answer is not None
        assert same_answer(answer, item["answer"]), item["answer"]
    answers = sorted({item["answer"] for item in items})[::8]
    same = [pair for pair in itertools.combinations(answers, 2) if same_answer(*pair)]
    assert len(same) < 5  # degrees, units and the like


@pytest.mark.parametrize(
    "answer",
    [
        "open({path!r}, 'w')",
        "1 + open({path!r}, 'w')",
        "(lambda: open({path!r}, 'w'))()",
        "x = open({path!r}, 'w')",
        r"\text{{open({path!r}, 'w')}}",
        r"1}} The final answer is open({path!r}, 'w'). \boxed{{2",
        "__import__('pathlib').Path({path!r}).touch()",
    ],
)
def test_answers_are_not_run(answer, tmp_path):
    """Models write them, and sympy's own parser runs Python."""
    path = tmp_path / "written"
    assert not same_answer(answer.format(path=str(path)), "7")
    assert not path.exists()
