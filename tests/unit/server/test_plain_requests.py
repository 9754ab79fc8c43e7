"""Which heads of requests are plain: those that uvicorn and every proxy read in one way."""

import pytest

from unidex.server.plain_requests import body_length

FIRST = b"POST /v1/predict HTTP/1.1\r\n"
HOST, LENGTH = b"Host: here\r\n", b"Content-Length: 12\r\n"


@pytest.mark.parametrize(
    "head",
    [
        FIRST + HOST + LENGTH,
        FIRST + b"content-length:12\r\nHOST: [::1]:80\r\n",
        FIRST + HOST + LENGTH + b"Connection: Keep-Alive\r\nContent-Type: application/json\r\nX-Request-Id: 7\r\n",
    ],
)
def test_plain_heads(head):
    assert body_length(head) == 12


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/predict HTTP/1.0\r\n" + HOST + LENGTH,
        b"POST /v1/predict?k=3 HTTP/1.1\r\n" + HOST + LENGTH,
        b"POST  /v1/predict HTTP/1.1\r\n" + HOST + LENGTH,
        b"PUT /v1/predict HTTP/1.1\r\n" + HOST + LENGTH,
        FIRST + HOST,
        FIRST + LENGTH,
        FIRST + HOST + HOST + LENGTH,
        FIRST + HOST + LENGTH + LENGTH,
        FIRST + HOST + LENGTH + b"content-length: 12\r\n",
        FIRST + HOST + b"Content-Length: +12\r\n",
        FIRST + HOST + b"Content-Length: 12, 12\r\n",
        FIRST + HOST + b"Content-Length : 12\r\n",
        FIRST + HOST + b"Content-Length: \xb212\r\n",
        FIRST + HOST + b"Content-Length: 1234567890\r\n",
        FIRST + HOST + b"Content-Length:\t12\r\n",
        FIRST + HOST + LENGTH + b"Transfer-Encoding: chunked\r\n",
        FIRST + HOST + LENGTH + b"Expect: 100-continue\r\n",
        FIRST + HOST + LENGTH + b"Upgrade: websocket\r\n",
        FIRST + HOST + LENGTH + b"Connection: close\r\n",
        FIRST + HOST + LENGTH + b"Connection: upgrade\r\n",
        FIRST + HOST + LENGTH + b"Accept: a\nTransfer-Encoding: chunked\r\n",
        FIRST + HOST + LENGTH + b"Accept: a\rb\r\n",
        FIRST + HOST + LENGTH + b"Accept: a\r\n b\r\n",
        FIRST + HOST + LENGTH + b"Accept: \x00\r\n",
        FIRST + HOST + LENGTH + b"Authorization: Bearer token\r\n",
        b"\r\n" + FIRST + HOST + LENGTH,
    ],
)
def test_other_heads_take_the_whole_way(head):
    assert body_length(head) == -1
