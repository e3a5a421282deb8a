"""The lengths of real requests, for runs without a trace file.

Every 303rd request of the Azure LLM inference trace 2023 (conversation), CC-BY 4.0, Azure Public
Dataset; Patel et al., "Splitwise: Efficient generative LLM inference using phase splitting",
ISCA 2024.
"""

CREDIT = "lengths sampled from the Azure LLM inference trace 2023 (CC-BY 4.0; Splitwise, ISCA 2024)"

# (prompt tokens, output tokens) of each request
# fmt: off
LENGTHS: tuple[tuple[int, int], ...] = (
    (374, 44), (990, 468), (2278, 45), (394, 93), (931, 92), (1160, 400), (1313, 135),
    (243, 14), (1307, 501), (1027, 390), (2000, 71), (782, 84), (1093, 398), (23, 134),
    (1110, 658), (997, 388), (1110, 527), (69, 162), (398, 113), (1115, 365), (1313, 203),
    (1106, 414), (4077, 37), (4075, 28), (388, 100), (383, 38), (411, 163), (393, 103),
    (380, 81), (897, 429), (4075, 72), (4086, 60), (1152, 49), (399, 83), (393, 104),
    (4090, 53), (4077, 37), (1359, 115), (423, 103), (453, 111), (2007, 98), (1337, 38),
    (507, 111), (206, 134), (181, 107), (242, 14), (1024, 375), (28, 157), (197, 67),
    (1088, 90), (403, 107), (1317, 178), (1083, 446), (308, 18), (987, 396), (2831, 96),
    (1137, 450), (1091, 439), (1317, 233), (173, 163), (1054, 429), (1043, 399), (389, 81),
    (400, 111),
)
# fmt: on
