"""When a request is there, however it is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from web.slow_clients import missing_bytes

HEADERS = st.lists(
    st.sampled_from(
        [b"Host: a", b"X-Content-Length: 9", b"Accept: */*", b"Cookie: content-length: 7"]
    )
)


@given(headers=HEADERS, body=st.binary(max_size=2000), data=st.data())
def test_a_request_is_there_with_its_last_byte(
    headers: list[bytes], body: bytes, data: st.DataObject
) -> None:
    length = b"content-LENGTH:  %d" % len(body)
    lines = [b"POST / HTTP/1.1", *headers, *([length] if body else [])]
    text = b"\r\n".join([*lines, b"", body])
    cut = data.draw(st.integers(0, len(text) - 1))
    missing = missing_bytes(text[:cut])
    assert missing is not None
    assert 0 < missing <= len(text) - cut
    assert missing_bytes(text) == 0
    assert missing_bytes(text + b"GET / HTTP/1.1\r\n") == 0


@given(st.binary(max_size=300))
def test_any_bytes_are_waited_for_or_handed_on(text: bytes) -> None:
    missing = missing_bytes(text)
    assert missing is None or missing >= 0
