#!/usr/bin/env python3
"""Prints vectors.txt: IP datagrams whose ICRC is scapy's (Debian: python3-scapy; 2.5.0).

    /usr/bin/python3 roce-core/vectors/make.py > roce-core/vectors/vectors.txt

scapy knows the ICRC over IPv4 only. Over IPv6 its layers build the datagram, and the mask of the
specification's annex A17 is applied here, with zlib's CRC.
"""
import struct
import zlib

from scapy.contrib.roce import BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw


def ipv4(name, bth, payload=b"", sport=4791, **ip):
    packet = IP(src="10.1.2.3", dst="192.168.4.5", **ip) / UDP(sport=sport, dport=4791) / bth
    print(name, bytes(packet / Raw(payload) if payload else packet).hex())


def ipv6(name, bth, payload, **ip):
    bth.icrc = 0  # which stands at the end, and goes
    packet = bytes(bth / Raw(payload))[:-4]
    header = IPv6(src="2001:db8::1", dst="fd00::2:3", plen=len(packet) + 12, nh=17, **ip)
    udp = UDP(sport=49152, dport=4791, len=len(packet) + 12, chksum=0x1234)
    datagram = bytes(header) + bytes(udp) + packet
    masked = bytearray(b"\xff" * 8 + datagram)
    masked[8] |= 0x0F
    for at in (9, 10, 11, 15, 48 + 6, 48 + 7, 56 + 4):
        masked[at] = 0xFF
    print(name, (datagram + struct.pack("<I", zlib.crc32(masked))).hex())


reth = struct.pack(">QII", 0x7F00_1122_3344_5566, 0x0102_0304, 12)
imm = struct.pack(">I", 0xDEAD_BEEF)
deth = struct.pack(">II", 0x1111_1111, 0x33_0044)
atomic = struct.pack(">QIQQ", 0x7F00_0000_0000_1000, 0x0506_0708, 1, 0)

ipv4("rc-send-only", BTH(opcode=0x04, migreq=1, padcount=3, dqpn=17, psn=0xFFFFFF, ackreq=1),
     b"hello\0\0\0", flags="DF")
ipv4("rc-ack", BTH(opcode=0x11, dqpn=0xABCDEF, psn=5), struct.pack(">I", 0x1F00_0006),
     flags="DF", id=0x1234, tos=0x6A, ttl=3)
ipv4("rc-write-only-imm", BTH(opcode=0x0B, solicited=1, pkey=0x8001, dqpn=18, psn=6),
     reth + imm + b"twelve bytes", id=0xFFFE)
ipv4("rc-fetch-add", BTH(opcode=0x14, dqpn=18, psn=7, ackreq=1), atomic, flags="DF", id=1)
ipv4("ud-send-only-imm", BTH(opcode=0x65, padcount=1, fecn=1, becn=1, dqpn=1, psn=8),
     deth + imm + b"abc\0", flags="DF", sport=50001)
ipv4("cnp", cnp(0x112233), flags="DF", id=99)
ipv6("uc-send-only-6", BTH(opcode=0x24, padcount=2, dqpn=17, psn=9), b"six\0 1\0\0", tc=0x2A,
     fl=0xBEEF5, hlim=7)
ipv6("rc-read-request-6", BTH(opcode=0x0C, dqpn=17, psn=10, becn=1), reth)
