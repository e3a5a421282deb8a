"""Carry frames over lanes: numbered, acknowledged, sent again when lost, closed with a message.

A lane reports each loss. A lane is ready after a handshake. The receiver owns the lane's socket.
"""

from .context import context
from .memory_port import MemoryLane, MemoryReceiverPort, MemorySenderPort
from .peer import Peer, Role, new_incarnation
from .peer_events import PeerDown, PeerEnded, PeerEvent, PeerUp
from .port import Port, ReceiverPort, SenderPort
from .receiver import LaneReceiver
from .sender import LaneSender
from .waiter import Waiter
from .welcome import WelcomeWait, wait_welcome
from .window import Gap
from .zmq_lane import open_receiver, open_sender
from .zmq_port import ZmqReceiverPort, ZmqSenderPort

__all__ = [
    "Gap",
    "LaneReceiver",
    "LaneSender",
    "MemoryLane",
    "MemoryReceiverPort",
    "MemorySenderPort",
    "Peer",
    "PeerDown",
    "PeerEnded",
    "PeerEvent",
    "PeerUp",
    "Port",
    "ReceiverPort",
    "Role",
    "SenderPort",
    "Waiter",
    "WelcomeWait",
    "ZmqReceiverPort",
    "ZmqSenderPort",
    "context",
    "new_incarnation",
    "open_receiver",
    "open_sender",
    "wait_welcome",
]
