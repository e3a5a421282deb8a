"""Lanes between processes: numbered, acknowledged, healed, and closed with a word.

Nothing is lost in silence; readiness is a handshake; whoever owns a socket or a lock cleans it up.
"""

from .changes import Change, PeerDown, PeerEnded, PeerUp
from .claim import Claim
from .context import context
from .dropped import when_dropped
from .guard import ForkGuard
from .instance import ENDPOINT_VARIABLE, Instance, Reservation
from .lanes import open_receiver, open_sender
from .memory_port import MemoryLane, MemoryReceiverPort, MemorySenderPort
from .names import (
    command_lane,
    lane_name,
    output_lane,
    own_output_lane,
    report_lane,
    step_lane,
    submit_lane,
    worker_lane,
)
from .peer import Peer, Role, new_incarnation
from .port import Port, ReceiverPort, SenderPort
from .receiver import LaneReceiver
from .runtime_dir import default_base
from .sender import LaneSender
from .sweep import HEALTH_FILE, Swept, sweep
from .waiter import Waiter
from .welcome import wait_welcome
from .window import Gap
from .zmq_port import ZmqReceiverPort, ZmqSenderPort

__all__ = [
    "ENDPOINT_VARIABLE",
    "HEALTH_FILE",
    "Change",
    "Claim",
    "ForkGuard",
    "Gap",
    "Instance",
    "LaneReceiver",
    "LaneSender",
    "MemoryLane",
    "MemoryReceiverPort",
    "MemorySenderPort",
    "Peer",
    "PeerDown",
    "PeerEnded",
    "PeerUp",
    "Port",
    "ReceiverPort",
    "Reservation",
    "Role",
    "SenderPort",
    "Swept",
    "Waiter",
    "ZmqReceiverPort",
    "ZmqSenderPort",
    "command_lane",
    "context",
    "default_base",
    "lane_name",
    "new_incarnation",
    "open_receiver",
    "open_sender",
    "output_lane",
    "own_output_lane",
    "report_lane",
    "step_lane",
    "submit_lane",
    "sweep",
    "wait_welcome",
    "when_dropped",
    "worker_lane",
]
