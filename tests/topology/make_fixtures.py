#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the graphs of machines that the tests look at. Speeds are those of the data sheets, each way.

    make_fixtures.py DIR          write all
    make_fixtures.py --check DIR  compare instead; exit status 1 if a file differs
"""

import os
import sys

GEN4_X16 = 31507692308
GEN5_X16 = 63015384615
XGMI = 64000000000
NVLINK = 450000000000  # 18 links of 25 GB/s
GBIT = 125000000
GIB = 1 << 30


class Graph:
    def __init__(self, cpus, n_numa, memory):
        self.lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<railmux-topology version="1" cpus="{cpus}">']
        self.counts = {}
        for _ in range(n_numa):
            self.node("numa", name=f"numa{self.counts.get('numa', 0)}", cpus=cpus // n_numa, memory=memory)
        for b in range(1, n_numa):
            for a in range(b):
                self.link(f"numa{a}", f"numa{b}", "numa")

    def element(self, name, attributes):
        text = "".join(f' {k}="{v}"' for k, v in attributes.items() if v not in (None, ""))
        self.lines.append(f"  <{name}{text}/>")

    def node(self, kind, **attributes):
        index = self.counts.get(kind, 0)
        self.counts[kind] = index + 1
        self.element(kind, {"index": index, **attributes})
        return f"{kind}{index}"

    def link(self, a, b, kind, speed=None, **attributes):
        self.element("link", {"a": a, "b": b, "kind": kind, "bytes_per_second": speed, **attributes})

    def pci(self, a, b, speed=GEN5_X16, generation=5):
        self.link(a, b, "pci", speed, width=16, generation=generation)

    def gpu(self, numa, vendor, pci, memory):
        return self.node("gpu", numa=numa, name=pci, pci=pci, vendor=vendor, memory=memory)

    def mesh(self, kind, speed, gpus, **attributes):
        for b in range(1, len(gpus)):
            for a in range(b):
                self.link(gpus[a], gpus[b], kind, speed, **attributes)

    def text(self):
        return "\n".join(self.lines + ["</railmux-topology>", ""])


def server(vendor, memory, mesh, gpus_per_switch, nics_per_switch, nic_vendor="1dd8", rdma="ionic_", netdev="enp"):
    """Two sockets, eight GPUs behind PCI switches, with NICs for each switch."""
    g = Graph(192, 2, 768 * GIB)
    gpus, nics = [], []
    for s in range(8 // gpus_per_switch):
        numa = s * gpus_per_switch // 4
        bus = 0x10 + 0x18 * s
        address = f"0000:{bus:02x}:00.0"
        switch = g.node("switch", numa=numa, name=address, pci=address, vendor="1000")
        g.pci(f"numa{numa}", switch)
        for k in range(gpus_per_switch):
            gpus.append(g.gpu(numa, vendor, f"0000:{bus + 2 + k:02x}:00.0", memory))
            g.pci(switch, gpus[-1])
        for k in range(nics_per_switch):
            n = len(nics)
            address = f"0000:{bus + 10 + k:02x}:00.0"
            nics.append(g.node("nic", numa=numa, name=f"{rdma}{n}", pci=address, vendor=nic_vendor,
                               netdev=f"{netdev}{bus + 10 + k}s0", rdma=f"{rdma}{n}"))
            g.pci(switch, nics[-1])
    if nics:
        g.node("network", name="network")
    for nic in nics:
        g.link(nic, "network0", "port", 400 * GBIT)
    kind, speed, attributes = mesh
    g.mesh(kind, speed, gpus, **attributes)
    return g.text()


def soft_roce():
    """A test machine: GPUs on two sockets, two RDMA devices on virtual Ethernet."""
    g = Graph(64, 2, 256 * GIB)
    gpus = []
    for i in range(8):
        gpus.append(g.gpu(i // 4, "1002", f"0000:{0x10 + 0x10 * i:02x}:00.0", 192 * GIB))
        g.pci(f"numa{i // 4}", gpus[-1])
    for i in range(2):
        g.node("nic", name=f"rxe{i}", netdev=f"a{i}", rdma=f"rxe{i}")
    g.node("network", name="network")
    for i in range(2):
        g.link(f"nic{i}", "network0", "port")
    g.mesh("xgmi", XGMI, gpus)
    return g.text()


def more_nics():
    """Four GPUs and eight NICs on one socket each side, and a slow NIC for management."""
    g = Graph(128, 2, 512 * GIB)
    g.node("nic", numa=0, name="eno1", pci="0000:01:00.0", netdev="eno1", vendor="8086")
    g.link("numa0", "nic0", "pci", 1969230769, width=1, generation=4)
    gpus = []
    for s in range(2):
        switch = g.node("switch", numa=s, name=f"0000:{0x10 + 0x40 * s:02x}:00.0", pci=f"0000:{0x10 + 0x40 * s:02x}:00.0")
        g.pci(f"numa{s}", switch)
        for k in range(2):
            gpus.append(g.gpu(s, "1002", f"0000:{0x12 + 0x40 * s + k:02x}:00.0", 192 * GIB))
            g.pci(switch, gpus[-1])
        for k in range(4):
            n = g.counts["nic"]
            nic = g.node("nic", numa=s, name=f"mlx5_{n}", pci=f"0000:{0x20 + 0x40 * s + k:02x}:00.0", vendor="15b3",
                         netdev=f"eth{n}", rdma=f"mlx5_{n}")
            g.pci(switch, nic)
    g.node("network", name="network")
    for i in range(9):
        g.link(f"nic{i}", "network0", "port", (200 if i else 1) * GBIT)
    g.mesh("xgmi", XGMI, gpus)
    return g.text()


def pci_fabric(uplinks_per_box, domains):
    """
    Two boxes of eight GPUs with a mesh each, cabled to switches of PCI. A box has a card for each cable, and its GPUs
    are spread over the cards. domains: for each switch (or part of one), the cables (box, card) that end there; each
    has a root port of the host.
    """
    g = Graph(128, 1, 1024 * GIB)
    boxes = [[], []]
    for d, cables in enumerate(domains):
        switch = g.node("switch", numa=0, name=f"domain{d}")
        g.pci("numa0", switch, GEN4_X16, 4)
        for box, card in cables:
            name = g.node("switch", numa=0, name=f"box{box}.card{card}")
            g.pci(switch, name, GEN4_X16, 4)
            for k in range(8 // uplinks_per_box):
                i = g.counts.get("gpu", 0)
                boxes[box].append(g.gpu(0, "1002", f"0000:{0x10 + 8 * i:02x}:00.0", 192 * GIB))
                g.pci(name, boxes[box][-1], GEN4_X16, 4)
    for gpus in boxes:
        g.mesh("xgmi", XGMI, sorted(gpus, key=lambda gpu: int(gpu[3:])))
    return g.text()


AMD = ("1002", 192 * GIB, ("xgmi", XGMI, {}))
FILES = {
    "mi300x-8x8.xml": server(*AMD, 2, 2),
    "mi300x-8x4.xml": server(*AMD, 2, 1),
    "mi300x-8x0.xml": server(*AMD, 2, 0),
    "h200-8x8.xml": server("10de", 141 * GIB, ("nvlink", NVLINK, {"width": 18}), 1, 1, "15b3", "mlx5_", "ibp"),
    "soft-roce.xml": soft_roce(),
    "more-nics.xml": more_nics(),
    "pci-1s-1rp-std-cascade.xml": pci_fabric(2, [[(0, 0), (0, 1), (1, 0), (1, 1)]]),
    "pci-1s-2rp-std-cascade.xml": pci_fabric(2, [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]),
    "pci-2s-2rp-split-flat.xml": pci_fabric(4, [[(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 2), (0, 3), (1, 2), (1, 3)]]),
}


def main(argv):
    check = argv[1:2] == ["--check"]
    if len(argv) != 2 + check:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = 0
    for name, text in FILES.items():
        path = os.path.join(argv[-1], name)
        if not check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                print(f"{path} is not what this program writes")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
