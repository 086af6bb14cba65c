"""What a neighbour sends: whatever the bytes are, they give a legal message or a clear refusal."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedbandit.agent.core.messages import MAX_COUNT, Offer, Reply
from fedbandit.agent.core.standings import Standing
from fedbandit.agent.gossip import exchange_pb2 as pb
from fedbandit.agent.gossip import wire
from fedbandit.agent.gossip.wire import MAX_BYTES, WIRE, WireError, decode_offer, decode_reply, decode_terms

ROOT = Path(__file__).parent.parent

NAMES = st.sampled_from(["north", "east"])
NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)


@st.composite
def offers(draw):
    columns = 2 * draw(st.integers(2, 5))
    rows = st.lists(NUMBERS, min_size=columns, max_size=columns).map(tuple)
    version = draw(st.integers(0, 10**9))
    return Offer(
        sender="north",
        receiver="east",
        incarnation=draw(st.integers(1, 2**41)),
        to_incarnation=draw(st.integers(0, 2**41)),
        federation=draw(st.text(alphabet="0123456789abcdef", min_size=64, max_size=64)),
        flow=draw(rows),
        stamp=(version, draw(NAMES) if version else ""),
        gossiped=draw(rows),
    )


def an_offer(**changes):
    fields = {
        "sender": "north",
        "receiver": "east",
        "incarnation": 5,
        "to_incarnation": 0,
        "federation": "ab",
        "flow": (0.25, -0.5, 1.0, 0.0),
        "stamp": (3, "east"),
        "gossiped": (0.5, 0.5, 1.0, 1.0),
    }
    return Offer(**{**fields, **changes})


class TestRoundTrip:
    @given(offers())
    def test_an_offer_comes_out_as_it_went_in(self, offer):
        assert decode_offer(wire.encode(offer)) == offer

    @given(offers())
    def test_an_answer_comes_out_as_it_went_in(self, offer):
        answer = Reply(
            *(
                offer.sender,
                offer.receiver,
                offer.incarnation,
                offer.to_incarnation,
                offer.federation,
                offer.flow,
                offer.stamp,
            ),
        )
        assert decode_reply(wire.encode(answer)) == answer

    def test_terms_come_out_as_they_went_in(self):
        terms = {"name": "häuser", "arms": ["A", "B"], "low": 0.1, "policy": {"epsilon": 1.0}}
        assert decode_terms(wire.encode_terms(terms)) == terms

    def test_the_largest_federation_fits(self):
        row = tuple(1.0 / 3.0 for _ in range(20_000))
        data = wire.encode(
            an_offer(flow=row, gossiped=row, standings=(Standing("north", 5, 1, 1.0, (10**12,) * 10_000),))
        )
        assert len(data) < MAX_BYTES
        assert decode_offer(data).flow == row


class TestFuzz:
    """Random bytes, legal messages with bytes changed, cut, repeated or added."""

    @given(st.binary(max_size=300))
    @settings(max_examples=500)
    def test_any_bytes_are_a_legal_message_or_refused(self, data):
        for decode in (decode_offer, decode_reply, decode_terms):
            self.check(decode, data)

    @given(offers(), st.data())
    @settings(max_examples=300)
    def test_damaged_messages_are_legal_or_refused(self, offer, data):
        whole = bytearray(wire.encode(offer))
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        self.check(decode_offer, bytes(whole))
        self.check(decode_reply, bytes(whole))

    @given(offers())
    @settings(max_examples=50)
    def test_a_message_cut_anywhere_has_whole_rows_or_is_refused(self, offer):
        whole = wire.encode(offer)
        for length in range(len(whole)):
            try:
                decoded = decode_offer(whole[:length])
            except WireError:
                continue
            # protobuf has no end mark: cut before the last field, the rest is a message
            assert decoded == offer

    @given(st.binary(max_size=40))
    @example(b"[" * 40)
    def test_terms_may_hold_anything(self, text):
        self.check(decode_terms, pb.Terms(wire=WIRE, terms=text.decode("latin-1")).SerializeToString())

    def test_nested_json_is_refused(self):
        self.check(decode_terms, pb.Terms(wire=WIRE, terms="[" * 200_000).SerializeToString())

    @staticmethod
    def check(decode, data):
        try:
            message = decode(data)
        except WireError:
            return
        if not isinstance(message, dict):  # then it can be sent on, and is legal there, too
            assert decode(wire.encode(message)) == message


class TestRefusals:
    @pytest.mark.parametrize("size", [MAX_BYTES + 1, 100_000_000])
    def test_a_huge_message_is_refused_before_it_is_read(self, size):
        with pytest.raises(WireError, match=f"at most {MAX_BYTES} bytes, not {size}"):
            decode_offer(bytes(size))

    def test_another_version_is_refused_with_both_numbers(self):
        form = pb.Offer.FromString(wire.encode(an_offer()))
        form.wire = 7
        with pytest.raises(WireError, match="wire must be 2, the version that this agent speaks, not 7"):
            decode_offer(form.SerializeToString())

    def test_fields_of_a_later_version_are_skipped(self):
        unknown = b"\xfa\x3e\x03abc"  # field 1007, three bytes
        assert decode_offer(wire.encode(an_offer()) + unknown) == an_offer()

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e13])
    def test_a_number_that_no_site_sends_is_refused(self, value):
        form = pb.Offer.FromString(wire.encode(an_offer()))
        form.link.flow[2] = value
        with pytest.raises(WireError, match=r"flow\[2\]"):
            decode_offer(form.SerializeToString())

    def test_a_count_beyond_all_time_is_refused(self):
        form = pb.Offer.FromString(wire.encode(an_offer()))
        form.incarnation = MAX_COUNT + 1
        with pytest.raises(WireError, match="incarnation"):
            decode_offer(form.SerializeToString())

    def test_rows_of_different_length_are_refused(self):
        form = pb.Offer.FromString(wire.encode(an_offer()))
        form.gossiped.append(1.0)
        with pytest.raises(WireError, match="gossiped must be 4 columns"):
            decode_offer(form.SerializeToString())


def test_the_generated_code_fits_the_proto_file(tmp_path):
    subprocess.run(
        [ROOT / "scripts" / "protocol", tmp_path], check=True, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    )
    for name in ("exchange_pb2.py", "exchange_pb2.pyi"):
        written = (tmp_path / "fedbandit" / "agent" / "gossip" / name).read_text()
        assert written == (ROOT / "src" / "fedbandit" / "agent" / "gossip" / name).read_text(), (
            f"run scripts/protocol: {name} is old"
        )
