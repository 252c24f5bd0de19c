"""Checks the ICRC of every RoCE v2 packet over IPv4 in a capture by scapy's implementation, and that it
refuses each eighth one with a bit flipped. Prints how many were checked; ends with 1 if any is wrong."""

import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import RawPcapReader

HEADERS = 14 + 20 + 8
BTH_BYTES, ICRC_BYTES = 12, 4


def is_right(frame):
    """Whether the last bytes are the ICRC of those before them."""
    packet = Ether(frame)
    body = frame[HEADERS + BTH_BYTES:-ICRC_BYTES]
    packet[BTH].remove_payload()
    packet[BTH].add_payload(Raw(body))
    return packet[BTH].compute_icrc(None) == frame[-ICRC_BYTES:]


def flipped(frame, bit):
    """The frame with another bit of its payload, or of its BTH if it has no payload."""
    length = len(frame) - HEADERS - ICRC_BYTES
    at = HEADERS + bit // 8 % length
    # Bits that switches may change are not covered: the first byte of the destination's word.
    at += at == HEADERS + 4
    return frame[:at] + bytes([frame[at] ^ 1 << bit % 8]) + frame[at + 1:]


checked = wrong = damaged = accepted = 0
for frame, _ in RawPcapReader(sys.argv[1]):
    if frame[12:14] != b"\x08\x00" or frame[36:38] != (4791).to_bytes(2, "big"):
        continue
    frame = frame[:14 + IP(frame[14:34]).len]
    checked += 1
    wrong += not is_right(frame)
    if checked % 8 == 1:
        damaged += 1
        accepted += is_right(flipped(frame, 7919 * checked))
print(f"{checked} packets, {wrong} with a wrong ICRC; {accepted} of {damaged} damaged ones accepted")
sys.exit(checked == 0 or wrong + accepted > 0)
