"""Tables as Markdown."""

from multimdm.report.markdown import markdown_table


def test_a_table_has_a_line_for_every_row_and_bars_do_not_end_cells():
    lines = [*markdown_table(["model", "K = 1"], [["p(x | y)", "3"], ["b", "–"]])]
    assert lines == ["| model | K = 1 |", "|---|---|", "| p(x \\| y) | 3 |", "| b | – |"]
