"""What a file is that was taken for text in UTF-8, and what to do about it."""

_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Byte-order marks, longer ones first."""
_LOOKED_AT = 4096
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x1b")


def other_than_text(data: bytes) -> str | None:
    """Advice, if the bytes are UTF-16 or UTF-32, or no text; None if they may be text in some 8-bit encoding."""
    head = data[:_LOOKED_AT]
    found = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if found is None:
        # In UTF-16 every other byte of Latin text is NUL: the second of a pair, or the first.
        halves = {"UTF-16LE": (head[0::2], head[1::2]), "UTF-16BE": (head[1::2], head[0::2])}
        for name, (text, nul) in halves.items():
            if nul.count(0) > 0.7 * len(nul) and text.count(0) < 0.1 * len(text):
                found = name
    if found is not None:
        return f"the file is text in {found}: convert it with iconv -f {found} -t UTF-8"
    strange = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    if strange > 0.01 * len(head):
        return "it is a binary file, not text: give text, JSON lines or Parquet"
    return None
