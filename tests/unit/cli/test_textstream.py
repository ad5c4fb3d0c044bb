import io

import numpy as np

from specfit.cli.textstream import TextDisplay
from specfit.core.backend import Prefill

EURO = "€".encode()


def decode(tokens):
    return bytes(tokens).decode("utf-8", errors="replace")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Record:
    def __init__(self, *committed):
        self.outcome = self
        self.committed = committed


def prefill(token):
    return Prefill(token, np.zeros((1, 1, 1), np.int16), (1,), 0.0)


def test_a_character_appears_when_it_is_whole():
    shown = Terminal()
    display = TextDisplay(decode, shown)
    display.on_start(None, prefill(ord("a")))
    display.on_cycle(Record(EURO[0], EURO[1]))
    assert shown.getvalue() == "a"
    display.on_cycle(Record(EURO[2], ord("b")))
    assert shown.getvalue() == "a€b"
    display.on_end((), "stop")
    assert shown.getvalue() == "a€b\n"


def test_bytes_that_never_become_a_character_are_shown_at_the_end():
    shown = Terminal()
    display = TextDisplay(decode, shown)
    display.on_start(None, prefill(EURO[0]))
    display.on_end((), "length")
    assert shown.getvalue() == "\ufffd\n"


def test_without_a_terminal_the_text_comes_in_one_piece():
    shown = io.StringIO()
    display = TextDisplay(decode, shown)
    display.on_start(None, prefill(ord("a")))
    display.on_cycle(Record(ord("b")))
    assert shown.getvalue() == ""
    display.on_end((), "length")
    assert shown.getvalue() == "ab\n"
    assert display.num_tokens == 2
