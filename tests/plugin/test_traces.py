"""Traces: the calls derived from a family's chunking, and every way a file of them can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.errors import SpecError
from conformance.traces import TracedCall, chunks, load_trace

HEAD = 'source = ["https://example.org/chunking"]\nabout = "a codec"\n'
CHUNKING = HEAD + "[chunking]\nframes_axis = 'frames'\nfirst = [4]\nsteady = 10\nleft_context = 6\nrequests = [27]\n"
CALL = HEAD + "[[calls]]\nsizes = {batch = 1, frames = 7}\ncount = 2\n"


def write(folder: Path, text: str) -> Path:
    (folder / "trace.toml").write_text(text)
    return folder / "spec.py"


@pytest.mark.parametrize(
    ("request_frames", "first", "steady", "context", "expected"),
    [
        (27, [4], 10, 6, [4, 4 + 10, 6 + 10, 6 + 3]),
        (20, [], 10, 0, [10, 10]),
        (21, [], 10, 0, [10, 10, 1]),
        (3, [4], 10, 6, [3]),
        (33, [], None, 5, [33]),
        (9, [1, 2], 4, 100, [1, 3, 7, 9]),
    ],
)
def test_chunks_bring_the_left_context_there_is(request_frames, first, steady, context, expected) -> None:
    assert list(chunks(request_frames, first, steady, context)) == expected


def test_every_frame_is_new_once() -> None:
    for frames in range(1, 60):
        assert sum(chunks(frames, [1, 3], 7, 0)) == frames


def test_rows_weigh_the_calls(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, CHUNKING + "rows_axis = 'batch'\nrows = {1 = 3, 4 = 1}\n"))
    assert TracedCall({"batch": 1, "frames": 16}, 3) in trace.calls
    assert TracedCall({"batch": 4, "frames": 16}, 1) in trace.calls
    assert trace.total == 4 * 4
    assert trace.source == ("https://example.org/chunking",)


def test_calls_written_out_add_to_those_derived(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, CHUNKING + "[[calls]]\nsizes = {frames = 4}\ncount = 5\n"))
    assert TracedCall({"frames": 4}, 6) in trace.calls


def test_a_written_size_may_be_0_for_an_input_that_the_call_has_nothing_for(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, CALL.replace("frames = 7", "frames = 7, cached = 0")))
    assert [call.sizes["cached"] for call in trace.calls] == [0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "expected [chunking] with `requests`, or [[calls]]; found no call"),
        (HEAD + "calls = []", "found no call"),
        ("source = [", "trace.toml: "),
        (CALL.replace("https://", "ftp://"), "`source` must list the public URLs"),
        (CALL.replace("source", "sauce"), "unknown field sauce"),
        (CALL.replace('about = "a codec"', ""), "missing 'about'"),
        (CALL.replace("count = 2", "count = 0"), "positive whole numbers, found 0"),
        (CALL.replace("frames = 7", "frames = 'many'"), "positive whole numbers, found 'many'"),
        (CALL.replace("count = 2", "often = 2"), "unknown field calls.often"),
        (CHUNKING.replace("steady", "stead"), "unknown field chunking.stead"),
        (CHUNKING.replace("steady = 10", "steady = 0"), "positive whole numbers, found 0"),
        (CHUNKING.replace("requests = [27]", ""), "missing 'requests'"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_trace(write(tmp_path, text))
    assert words in str(caught.value)
    assert str(tmp_path / "trace.toml") in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        load_trace(tmp_path / "spec.py")
