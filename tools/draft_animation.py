"""A story being drafted in two network calls, as an animated picture for the top of the README.

    python tools/draft_animation.py

The picture is SVG with styles alone: no script, light and dark by what the reader prefers, at rest for who wants no
motion. Its text is that of the built-in model (or of --checkpoint), as it was drawn.
"""

import argparse
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from multimdm import load
from multimdm._files import write_text
from multimdm.builtin import USUAL
from multimdm.data.tales import Tales
from multimdm.data.tales_grammar import END, PAD, STOP

_WIDTH, _LINE, _FONT, _GAP = 860, 38, 17, 6
_LETTER = 0.56 * _FONT
"""About the width of a letter: fonts of readers differ, so every word has a box of its own."""
_SECONDS = 9.0
_MASK = "▒▒▒"
_STYLE = f"""
text {{ font: {_FONT}px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #1d2329; }}
.soft {{ fill: #5c6670; font-size: 14px; }}
.noise {{ fill: #cfe3fb; }} .draft {{ fill: #ffe3b8; }} .done {{ fill: #d9f5f1; }}
.hidden {{ fill: #6b8fb8; font-size: 12px; }}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #e4e8eb; }} .soft {{ fill: #9aa5af; }} .noise {{ fill: #28466b; }} .draft {{ fill: #6b4a14; }}
  .done {{ fill: #17403d; }} .hidden {{ fill: #9dbde0; }}
}}
g.frame {{ opacity: 0; animation-duration: {_SECONDS}s; animation-iteration-count: infinite; }}
"""


@dataclass(frozen=True)
class Frame:
    """A state of the text."""

    title: str
    words: Sequence[str | None]
    """None where nothing is decided."""
    settled: Sequence[bool]
    """Whether a word is the final one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default=USUAL)
    parser.add_argument("--seed", type=int, default=0, help="of the stories that it is chosen from")
    parser.add_argument("--out", type=Path, default=Path("docs/images/draft.svg"))
    options = parser.parse_args(arguments)
    write_text(options.out, animation(frames(options.checkpoint, options.seed)))
    print(f"wrote {options.out}")


def frames(checkpoint: str, seed: int = 0, tries: int = 256) -> list[Frame]:
    """Noise, what the first call reveals, and the story: the first valid one of so many, else the least wrong."""
    model, tales = load(checkpoint), Tales()
    samples = model.sample(num=tries, steps=2, seed=seed, trace=True)
    chosen = int(tales.wrong(samples.ids).sum(1).argmin())
    assert samples.trace is not None
    final = samples.ids[chosen].tolist()
    kept = [position for position, token in enumerate(final) if tales.vocabulary[token] not in (END, PAD)]

    def frame(title: str, state: Sequence[int]) -> Frame:
        words = [tales.vocabulary[state[place]] if state[place] < tales.vocab_size else None for place in kept]
        capital = [number == 0 or tales.vocabulary[final[kept[number - 1]]] == STOP for number in range(len(kept))]
        told = [w[0].upper() + w[1:] if w and first else w for w, first in zip(words, capital, strict=True)]
        return Frame(title, told, [state[place] == final[place] for place in kept])

    states = samples.trace.states[:, chosen].tolist()
    titles = ["Noise", "After one call", "After two calls"]
    return [frame(title, state) for title, state in zip(titles, states, strict=True)]


def animation(shown: Sequence[Frame]) -> str:
    """The picture: frames one after the other, the last one longest."""
    boxes, height = _places(shown[-1].words)
    shares = [0.18] * (len(shown) - 1)
    starts = [sum(shares[:number]) for number in range(len(shown))]
    ends = [*starts[1:], 1.0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="A story drafted in {len(shown) - 1} network calls">',
        f"<style>{_STYLE}{_timing(starts, ends)}</style>",
    ]
    for number, frame in enumerate(shown):
        parts.append(f'<g class="frame f{number}"><text class="soft" x="8" y="20">{html.escape(frame.title)}</text>')
        parts += _words(frame, boxes)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _timing(starts: Sequence[float], ends: Sequence[float]) -> str:
    """When each frame is seen; the last one alone for who wants no motion."""
    lines = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        first, last = 100 * start, 100 * end
        before = f"0%, {first - 0.01:.2f}% {{ opacity: 0; }} " if start > 0 else ""
        after = f" {last + 0.01:.2f}%, 100% {{ opacity: 0; }}" if end < 1 else ""
        lines.append(f"@keyframes k{number} {{ {before}{first:.2f}%, {last:.2f}% {{ opacity: 1; }}{after} }}")
        lines.append(f".f{number} {{ animation-name: k{number}; }}")
    final = len(starts) - 1
    still = f"g.frame {{ animation: none; }} g.f{final} {{ opacity: 1; }}"
    return "\n".join([*lines, f"@media (prefers-reduced-motion: reduce) {{ {still} }}"]) + "\n"


def _places(words: Sequence[str | None]) -> tuple[list[tuple[float, float, float]], int]:
    """x, y and width of the box of every word, line by line; and the height of all."""
    x, y, boxes = 8.0, 36.0, []
    for word in words:
        width = max(3, len(word or _MASK)) * _LETTER + 12
        if x + width > _WIDTH - 8:
            x, y = 8.0, y + _LINE
        boxes.append((x, y, width))
        x += width + _GAP
    return boxes, round(y + _LINE + 6)


def _words(frame: Frame, boxes: Sequence[tuple[float, float, float]]) -> Iterator[str]:
    for word, settled, (x, y, width) in zip(frame.words, frame.settled, boxes, strict=True):
        kind = "noise" if word is None else "done" if settled else "draft"
        text = _MASK if word is None else html.escape(word)
        name = ' class="hidden"' if word is None else ""
        yield f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_LINE - 8}" rx="6"/>'
        yield f'<text{name} x="{x + width / 2:.0f}" y="{y + 21:.0f}" text-anchor="middle">{text}</text>'


if __name__ == "__main__":
    main()
