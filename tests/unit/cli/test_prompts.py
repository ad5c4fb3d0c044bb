import pytest

from specfit.cli.prompts import prompts_from, read_prompts
from specfit.core.errors import InvalidInputError


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_text_file_has_one_prompt_a_line_and_blank_lines_are_none(tmp_path):
    path = write(tmp_path / "p.txt", "\ufeffFirst one\r\n\n  Second one \n")
    assert [(p.id, p.text) for p in read_prompts(path)] == [
        ("1", "First one"),
        ("3", "  Second one "),
    ]


def test_a_json_prompt_keeps_its_line_breaks_and_its_id(tmp_path):
    path = write(tmp_path / "p.jsonl", '{"id": "a", "prompt": "x\\ny"}\n{"text": "z"}\n')
    assert [(p.id, p.text) for p in read_prompts(path)] == [("a", "x\ny"), ("2", "z")]


def test_unicode_line_separators_do_not_split_a_prompt(tmp_path):
    path = write(tmp_path / "p.txt", "one\u2028still one\x0b\n")
    assert [p.text for p in read_prompts(path)] == ["one\u2028still one\x0b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", b"", "holds no prompt"),
        ("p.txt", b"\n  \n", "holds no prompt"),
        ("p.txt", b"ab\xff", "must be UTF-8; byte 2 is not"),
        ("p.csv", b"a", r"must be .txt .* or .jsonl"),
        ("p.jsonl", b"{", "line 1 is not JSON"),
        (
            "p.jsonl",
            b'{"question": "x"}',
            "must have a text under 'prompt' or 'text'; got question",
        ),
        ("p.jsonl", b'{"prompt": ""}', "a text under 'prompt' or 'text'; got ''"),
        ("p.jsonl", b'{"prompt": 3}', "a text under 'prompt' or 'text'; got 3"),
        ("p.jsonl", b"[1]", "must have a text under 'prompt' or 'text'; got list"),
    ],
)
def test_a_bad_file_is_named_with_what_to_do(tmp_path, name, content, message):
    with pytest.raises(InvalidInputError, match=message):
        read_prompts(write(tmp_path / name, content))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="there is no prompt file"):
        read_prompts(tmp_path / "none.txt")


@pytest.mark.parametrize("text", [None, ""])
def test_a_prompt_must_be_given(text):
    with pytest.raises(InvalidInputError, match="--prompt"):
        prompts_from(text, None)


def test_text_and_file_exclude_each_other(tmp_path):
    with pytest.raises(InvalidInputError, match="not both"):
        prompts_from("x", tmp_path / "p.txt")
