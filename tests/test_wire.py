"""Frames from strangers: arbitrary bytes, and honest frames that are damaged, cut or lengthened."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedbandit.agent.core.board import Version
from fedbandit.agent.core.bulletin import LARGE_BODY
from fedbandit.agent.gossip import frames
from fedbandit.agent.gossip.frames import Bulletin, Certificate, FrameError, Have, Refusal, decode, encode, place_in
from fedbandit.agent.gossip.listener import is_whole, server_name_in
from fedbandit.agent.gossip.tls import means, spoken_to
from links_network import BoardSite, terms
from strangers import client_hello

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z][a-z0-9]{0,20})?", fullmatch=True).filter(
    lambda it: not it.split(".")[-1].isdigit()
)
PLACES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
VERSIONS = st.builds(Version, PLACES, st.binary(min_size=16, max_size=16), st.none() | PLACES)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
FRAMES = st.one_of(
    st.builds(Have, NAMES, DIGESTS, st.integers(0, 2**64 - 1), st.dictionaries(NAMES, VERSIONS, max_size=5)),
    st.builds(
        Bulletin, st.sampled_from((b"", bytes(32))), st.binary(max_size=frames.MAX_SIGNATURE), st.binary(max_size=200)
    ),
    st.builds(Certificate, st.binary(max_size=200)),
    st.builds(Refusal, st.text(st.characters(codec="utf-8"), max_size=100), st.binary(max_size=200)),
)


@given(FRAMES)
def test_a_frame_comes_back_as_it_was(frame):
    assert decode(encode(frame)) == frame


@given(st.binary(max_size=300))
@example(b"")
@example(b"\1\0")
@example(b"\2\0\0\0\0")
@example(b"\4\xff\xff")
def test_arbitrary_bytes_are_a_frame_or_refused(data):
    try:
        frame = decode(data)
        if isinstance(frame, Refusal):
            frames.terms_in(frame, 1000)
        if isinstance(frame, Bulletin):
            place_in(frame.body)
    except FrameError:
        pass


@given(FRAMES, st.data())
def test_damaged_cut_and_lengthened_frames_are_frames_or_refused(frame, data):
    sent = bytearray(encode(frame))
    match data.draw(st.sampled_from(("flip", "cut", "longer"))):
        case "flip":
            sent[data.draw(st.integers(0, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
        case "cut":
            del sent[data.draw(st.integers(0, len(sent) - 1)) :]
        case "longer":
            sent += data.draw(st.binary(min_size=1, max_size=20))
    try:
        again = decode(bytes(sent))
    except FrameError:
        return
    assert decode(encode(again)) == again


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encode(Certificate(bytes(frames.MAX_CHAIN + 1))), "16384 are the most"),
        (b"\2\0\0\0\0" + bytes(LARGE_BODY + 1), f"{LARGE_BODY} are the most"),
        (b"\2\0\5abcde", "a bulletin's signer has 5 bytes"),
        (b"\1\5EAST!" + bytes(40), "a name that no site can have"),
        (b"\7", "unknown kind, 7"),
        (
            encode(Have("east", "00" * 32, 1, {}))
            + encode(Have("b", "00" * 32, 1, {"b": Version((1, 1), bytes(16))}))[43:] * 2,
            "twice",
        ),
    ],
)
def test_what_is_refused(data, words):
    with pytest.raises(FrameError, match=words):
        decode(data)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"[]", "terms must be a JSON object"),
        (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
        (b"\xff", "terms must be JSON"),
        (b"[" * 500, "terms must be JSON"),
        (b" " * 1001, "terms must have at most 1000 bytes, not 1001"),
    ],
)
def test_terms_that_are_none(said, words):
    with pytest.raises(FrameError, match=words):
        frames.terms_in(Refusal("", said), 1000)


def test_the_head_of_a_bulletin_says_what_the_whole_says():
    site = BoardSite("north", terms())
    for number in (1, 2, 10**12):
        body = site.body(number=number)
        assert place_in(body) == ("north", (site.incarnation, number))
        assert site.board._read(_signed(body), 0.0).place == (site.incarnation, number)
    for wrong in (b"", b"{}", body[1:], body.replace(b'"site":"north"', b'"site":"NORTH"'), b" " + body):
        with pytest.raises(FrameError, match="does not begin as one does"):
            place_in(wrong)


def _signed(body):
    from fedbandit.agent.core.bulletin import Signed

    return Signed(body, b"", b"")


class TestFirstMessage:
    """What a listener reads of a TLS handshake before it answers."""

    @pytest.mark.parametrize("name", ["north", "a.b.example", spoken_to("north", 32 * "a"), None])
    def test_the_name_of_a_real_one(self, name):
        hello = client_hello(name)
        assert is_whole(hello)
        assert not any(is_whole(hello[:count]) for count in range(1, len(hello)))
        assert server_name_in(hello) == (name or "")

    @given(st.binary(max_size=400))
    def test_arbitrary_bytes(self, data):
        is_whole(data)
        server_name_in(data)

    @given(st.integers(0, 10_000), st.integers(1, 255))
    def test_a_damaged_one(self, at, flip):
        hello = bytearray(client_hello("north"))
        hello[at % len(hello)] ^= flip
        server_name_in(bytes(hello))

    def test_the_word(self):
        word = 32 * "f"
        assert means(spoken_to("north", word)) == (word, "north")
        assert means("north") == ("", "north")
        assert means("m-short.north") == ("", "m-short.north")
        long = ".".join(["a" * 60] * 4)
        assert spoken_to(long, word) == long, "a name that leaves no room for it"
