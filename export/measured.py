"""Microseconds of each form, by (runtime, version, dtype, formula, rank of the input).

Of a 512 -> 2048 -> 512 block on one thread, the geometric mean over batches of 1, 8 and 128 rows. Made by
``python benchmarks/forms.py --write``; not to be edited by hand.
"""

from __future__ import annotations

MEASURED: dict[tuple[str, str, str, str, int], dict[str, float]] = {
    ("onnxruntime", "1.17", "float32", "none", 2): {
        "native": 612, "fusable": 601, "contrib": 598, "function": 595, "primitive": 1041,
    },
    ("onnxruntime", "1.17", "float32", "none", 3): {
        "native": 622, "fusable": 605, "contrib": 602, "function": 605, "primitive": 1085,
    },
    ("onnxruntime", "1.17", "float32", "tanh", 2): {
        "native": 665, "fusable": 602, "contrib": 610, "function": 618, "primitive": 848,
    },
    ("onnxruntime", "1.17", "float32", "tanh", 3): {
        "native": 661, "fusable": 615, "contrib": 606, "function": 618, "primitive": 861,
    },
    ("onnxruntime", "1.17", "float32", "quick", 2): {
        "fusable": 582, "contrib": 587, "function": 586, "primitive": 774,
    },
    ("onnxruntime", "1.17", "float32", "quick", 3): {
        "fusable": 588, "contrib": 588, "function": 588, "primitive": 772,
    },
    ("onnxruntime", "1.17", "float16", "none", 2): {
        "native": 3598, "fusable": 3547, "contrib": 3581, "function": 3591, "primitive": 3939,
    },
    ("onnxruntime", "1.17", "float16", "none", 3): {
        "native": 3678, "fusable": 3658, "contrib": 3647, "function": 3652, "primitive": 3942,
    },
    ("onnxruntime", "1.17", "float16", "tanh", 2): {
        "native": 3798, "fusable": 3739, "contrib": 3788, "function": 3803, "primitive": 3820,
    },
    ("onnxruntime", "1.17", "float16", "tanh", 3): {
        "native": 3934, "fusable": 3750, "contrib": 3787, "function": 3854, "primitive": 3910,
    },
    ("onnxruntime", "1.17", "float16", "quick", 2): {
        "fusable": 3713, "contrib": 3770, "function": 3721, "primitive": 3797,
    },
    ("onnxruntime", "1.17", "float16", "quick", 3): {
        "fusable": 3910, "contrib": 3904, "function": 3895, "primitive": 3902,
    },
    ("onnxruntime", "1.17", "float64", "none", 2): {
        "primitive": 4733,
    },
    ("onnxruntime", "1.17", "float64", "none", 3): {
        "primitive": 5249,
    },
    ("onnxruntime", "1.17", "float64", "tanh", 2): {
        "primitive": 4131,
    },
    ("onnxruntime", "1.17", "float64", "tanh", 3): {
        "primitive": 4905,
    },
    ("onnxruntime", "1.17", "float64", "quick", 2): {
        "primitive": 4195,
    },
    ("onnxruntime", "1.17", "float64", "quick", 3): {
        "primitive": 5442,
    },
    ("onnxruntime", "1.20", "float32", "none", 2): {
        "native": 600, "fusable": 620, "contrib": 598, "function": 606, "primitive": 1122,
    },
    ("onnxruntime", "1.20", "float32", "none", 3): {
        "native": 603, "fusable": 606, "contrib": 603, "function": 604, "primitive": 1111,
    },
    ("onnxruntime", "1.20", "float32", "tanh", 2): {
        "native": 586, "fusable": 586, "contrib": 588, "function": 588, "primitive": 822,
    },
    ("onnxruntime", "1.20", "float32", "tanh", 3): {
        "native": 594, "fusable": 594, "contrib": 597, "function": 595, "primitive": 830,
    },
    ("onnxruntime", "1.20", "float32", "quick", 2): {
        "fusable": 588, "contrib": 594, "function": 593, "primitive": 795,
    },
    ("onnxruntime", "1.20", "float32", "quick", 3): {
        "fusable": 596, "contrib": 599, "function": 597, "primitive": 798,
    },
    ("onnxruntime", "1.20", "float16", "none", 2): {
        "native": 1322, "fusable": 1272, "contrib": 1281, "function": 1256, "primitive": 1552,
    },
    ("onnxruntime", "1.20", "float16", "none", 3): {
        "native": 1331, "fusable": 1293, "contrib": 1317, "function": 1332, "primitive": 1498,
    },
    ("onnxruntime", "1.20", "float16", "tanh", 2): {
        "native": 1356, "fusable": 1301, "contrib": 1308, "function": 1351, "primitive": 1414,
    },
    ("onnxruntime", "1.20", "float16", "tanh", 3): {
        "native": 1277, "fusable": 1416, "contrib": 1269, "function": 1283, "primitive": 1312,
    },
    ("onnxruntime", "1.20", "float16", "quick", 2): {
        "fusable": 1232, "contrib": 1244, "function": 1236, "primitive": 1304,
    },
    ("onnxruntime", "1.20", "float16", "quick", 3): {
        "fusable": 1273, "contrib": 1266, "function": 1274, "primitive": 1329,
    },
    ("onnxruntime", "1.20", "float64", "none", 2): {
        "primitive": 5285,
    },
    ("onnxruntime", "1.20", "float64", "none", 3): {
        "primitive": 5047,
    },
    ("onnxruntime", "1.20", "float64", "tanh", 2): {
        "primitive": 4412,
    },
    ("onnxruntime", "1.20", "float64", "tanh", 3): {
        "primitive": 4462,
    },
    ("onnxruntime", "1.20", "float64", "quick", 2): {
        "primitive": 4280,
    },
    ("onnxruntime", "1.20", "float64", "quick", 3): {
        "primitive": 4601,
    },
    ("onnxruntime", "1.32", "float32", "none", 2): {
        "native": 608, "fusable": 609, "contrib": 609, "function": 610, "primitive": 1094,
    },
    ("onnxruntime", "1.32", "float32", "none", 3): {
        "native": 671, "fusable": 683, "contrib": 722, "function": 744, "primitive": 1365,
    },
    ("onnxruntime", "1.32", "float32", "tanh", 2): {
        "native": 608, "fusable": 604, "contrib": 611, "function": 608, "primitive": 818,
    },
    ("onnxruntime", "1.32", "float32", "tanh", 3): {
        "native": 608, "fusable": 608, "contrib": 605, "function": 603, "primitive": 817,
    },
    ("onnxruntime", "1.32", "float32", "quick", 2): {
        "fusable": 607, "contrib": 606, "function": 607, "primitive": 793,
    },
    ("onnxruntime", "1.32", "float32", "quick", 3): {
        "fusable": 614, "contrib": 617, "function": 614, "primitive": 807,
    },
    ("onnxruntime", "1.32", "float16", "none", 2): {
        "native": 658, "fusable": 673, "contrib": 644, "function": 695, "primitive": 883,
    },
    ("onnxruntime", "1.32", "float16", "none", 3): {
        "native": 632, "fusable": 659, "contrib": 646, "function": 648, "primitive": 933,
    },
    ("onnxruntime", "1.32", "float16", "tanh", 2): {
        "native": 624, "fusable": 630, "contrib": 622, "function": 631, "primitive": 688,
    },
    ("onnxruntime", "1.32", "float16", "tanh", 3): {
        "native": 631, "fusable": 636, "contrib": 625, "function": 642, "primitive": 693,
    },
    ("onnxruntime", "1.32", "float16", "quick", 2): {
        "fusable": 598, "contrib": 597, "function": 599, "primitive": 636,
    },
    ("onnxruntime", "1.32", "float16", "quick", 3): {
        "fusable": 611, "contrib": 607, "function": 609, "primitive": 645,
    },
    ("onnxruntime", "1.32", "float64", "none", 2): {
        "primitive": 5164,
    },
    ("onnxruntime", "1.32", "float64", "none", 3): {
        "primitive": 5087,
    },
    ("onnxruntime", "1.32", "float64", "tanh", 2): {
        "primitive": 5518,
    },
    ("onnxruntime", "1.32", "float64", "tanh", 3): {
        "primitive": 5166,
    },
    ("onnxruntime", "1.32", "float64", "quick", 2): {
        "primitive": 4517,
    },
    ("onnxruntime", "1.32", "float64", "quick", 3): {
        "primitive": 4637,
    },
}
