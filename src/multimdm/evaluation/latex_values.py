"""The value of a LaTeX expression, by a small grammar: enough for the answers of competition problems, and no `eval`.

    sum     = product (("+" | "-") product)*
    product = signed (("*" | "/" | nothing) signed)*
    signed  = ("-" | "+") signed | power
    power   = atom ("^" atom)?
    atom    = number | letter | \\pi | \\frac a b | \\sqrt [n] a | "(" sum ")" | "{" sum "}"

Letters stand for fixed numbers: two expressions that agree at several of them are equal, whatever their form.
"""

import cmath
import math
import re

_TOKEN = re.compile(r"\s*(\\[a-zA-Z]+|\d+\.?\d*|\.\d+|[-+*/^(){}\[\]]|[a-zA-Z])")
_DEEPEST = 60
_LARGEST_POWER = 200.0


class NoValueError(Exception):
    """The expression is none of this grammar."""


def value_of(expression: str, point: int = 0) -> complex:
    """The value when letters have the values of this point; `NoValueError` if it has none."""
    parser = _Parser(expression, point)
    try:
        value = parser.sum()
    except (OverflowError, ZeroDivisionError, RecursionError, ValueError) as error:
        raise NoValueError(str(error)) from None
    if parser.rest or cmath.isnan(value) or cmath.isinf(value):
        raise NoValueError(expression)
    return value


class _Parser:
    def __init__(self, expression: str, point: int) -> None:
        self.rest, place = [], 0
        expression = expression.strip()
        while place < len(expression):
            match = _TOKEN.match(expression, place)
            if match is None:
                raise NoValueError(expression)
            self.rest.append(match[1])
            place = match.end()
        self.rest.reverse()  # the next token is the last: popping it is cheap
        self.point, self.depth = point, 0

    def next(self) -> str:
        return self.rest[-1] if self.rest else ""

    def take(self, token: str) -> bool:
        if self.next() == token and token:
            self.rest.pop()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise NoValueError(f"{token} is missing")

    def sum(self) -> complex:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NoValueError("nested too deeply")
        value = self.product()
        while self.next() in ("+", "-"):
            sign = 1 if self.rest.pop() == "+" else -1
            value += sign * self.product()
        self.depth -= 1
        return value

    def product(self) -> complex:
        value = self.signed()
        while True:
            if self.take("*") or self.take(r"\cdot") or self.take(r"\times"):
                value *= self.signed()
            elif self.take("/"):
                value /= self.signed()
            elif self.next() and (self.next() in ("(", "{") or self.next()[0] in "\\." or self.next()[0].isalnum()):
                value *= self.power()
            else:
                return value

    def signed(self) -> complex:
        if self.take("-"):
            return -self.signed()
        return self.signed() if self.take("+") else self.power()

    def power(self) -> complex:
        base = self.atom()
        if not self.take("^"):
            return base
        exponent = -self.atom() if self.take("-") else self.atom()
        if abs(exponent) > _LARGEST_POWER:
            raise NoValueError("too large a power")
        return complex(base) ** exponent

    def atom(self) -> complex:
        for opening, closing in (("(", ")"), ("{", "}")):
            if self.take(opening):
                value = self.sum()
                self.expect(closing)
                return value
        if self.take(r"\pi"):
            return complex(math.pi)
        if self.take(r"\frac"):
            return self._argument() / self._argument()
        if self.take(r"\sqrt"):
            return self._root()
        token = self.rest.pop() if self.rest else ""
        if re.fullmatch(r"[\d.]+", token):
            return complex(float(token))
        if len(token) == 1 and token.isalpha():
            return _letter(token, self.point)
        raise NoValueError(token or "it ends too early")

    def _argument(self) -> complex:
        """What follows \\frac or \\sqrt: a group, or one digit, as in \\frac12."""
        token = self.next()
        if len(token) > 1 and token[0].isdigit():
            self.rest[-1] = token[1:]
            return complex(float(token[0]))
        return self.atom()

    def _root(self) -> complex:
        degree = complex(2)
        if self.take("["):
            degree = self.sum()
            self.expect("]")
        return complex(self._argument()) ** (1 / degree)


def _letter(letter: str, point: int) -> complex:
    """A number without meaning, between 0.6 and 2.6."""
    return complex(0.6 + 2 * math.modf(abs(math.sin(ord(letter) * 12.9898 + point * 78.233)) * 43758.5453)[0])
