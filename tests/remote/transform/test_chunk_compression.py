import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.transforms import mixed_content
from tierd.remote.transform.chunk_compression import compress, decompress, is_worth_compressing
from tierd.testing import content_of

TEXT = b"a record, and another record\n" * 20_000


@given(st.binary(min_size=1, max_size=50), st.integers(1, 3000), st.integers(1, 19))
def test_compressed_content_is_decompressed_to_itself(word: bytes, times: int, level: int) -> None:
    content = word * times
    frame = compress(content, level)
    if frame is not None:
        assert len(frame) < len(content)
        assert decompress(frame, len(content)) == content


def test_the_same_content_gives_the_same_frame() -> None:
    assert compress(TEXT, 3) == compress(TEXT, 3)


def test_content_that_gains_next_to_nothing_is_not_compressed() -> None:
    assert compress(b"", 3) is None
    assert compress(content_of(1 << 20), 3) is None
    assert compress(content_of(100), 3) is None
    assert compress(content_of(100_000) + bytes(2000), 3) is None  # two per cent


def test_a_trial_of_some_windows_decides_for_large_chunks() -> None:
    assert compress(mixed_content(1 << 20), 3) is not None
    assert compress(content_of(1 << 20) + TEXT[:1000] + content_of(1 << 20), 3) is None


def test_samples_that_shrink_are_worth_compressing() -> None:
    assert is_worth_compressing([TEXT], 3)
    assert not is_worth_compressing([content_of(100_000)], 3)
    assert not is_worth_compressing([content_of(10_000)] * 5, 3)  # chunks do not know one another
    assert not is_worth_compressing([], 3)


def test_a_frame_of_another_size_is_refused_before_anything_is_allocated() -> None:
    frame = compress(TEXT, 3)
    assert frame is not None
    assert decompress(frame, len(TEXT) - 1) is None
    assert decompress(frame, len(TEXT) + 1) is None
    huge = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    assert decompress(huge, 10) is None


def test_bytes_that_are_no_frame_are_refused() -> None:
    frame = compress(TEXT, 3)
    assert frame is not None
    for damaged in (b"", b"no frame", frame[:-1], frame + b"?", frame + frame):
        assert decompress(damaged, len(TEXT)) is None
