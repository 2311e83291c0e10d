# SPDX-License-Identifier: MIT
"""What compilers print of device code, brought to one form.

Three dialects (AMD's assembler, NVIDIA's SASS from nvdisasm, PTX) become functions of instructions that have a kind and a
scope, with the loops of their control flow. Only what the rules of check_code.py ask for is told apart.
"""

import re

# kind: load, store, atomic, acquire, release, fence (both), wait, sleep, scratch, call, other
# scope: system, narrow (a device, a block), plain (no order at all)


class Instruction:
    def __init__(self, text, kind="other", scope=None, targets=(), falls_through=True):
        self.text = text
        self.kind = kind
        self.scope = scope
        self.targets = targets
        self.falls_through = falls_through


class Function:
    def __init__(self, name, is_kernel):
        self.name = name
        self.is_kernel = is_kernel
        self.code = []
        self.labels = {}  # name -> index of the instruction that follows
        self._loops = None
        self._innermost = None

    def loops(self):
        """The natural loops that can be reached, each a set of instruction indices, smallest first."""
        if self._loops is None:
            self._loops = sorted(_natural_loops(self), key=len)
        return self._loops

    def innermost_loop(self, index):
        if self._innermost is None:
            self._innermost = {}
            for loop in reversed(self.loops()):
                for i in loop:
                    self._innermost[i] = loop
        return self._innermost.get(index)


def _blocks(function):
    code = function.code
    leaders = {0} | {i for i in function.labels.values() if i < len(code)}
    for i, instruction in enumerate(code):
        if (instruction.targets or not instruction.falls_through) and i + 1 < len(code):
            leaders.add(i + 1)
    starts = sorted(leaders)
    number = {start: b for b, start in enumerate(starts)}
    bounds = list(zip(starts, starts[1:] + [len(code)]))
    successors = []
    for _, end in bounds:
        last = code[end - 1]
        following = {number[function.labels[t]] for t in last.targets if function.labels.get(t, len(code)) < len(code)}
        if last.falls_through and end < len(code):
            following.add(number[end])
        successors.append(following)
    return bounds, successors


def _natural_loops(function):
    if not function.code:
        return []
    bounds, successors = _blocks(function)
    # Depth-first order from the entry; what is not met is dead (the traps behind the last exit).
    order, seen, stack = [], {0}, [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        for next_block in rest:
            if next_block not in seen:
                seen.add(next_block)
                stack.append((next_block, iter(successors[next_block])))
                break
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    predecessors = {b: [] for b in order}
    for block in order:
        for next_block in successors[block]:
            predecessors[next_block].append(block)
    # Dominators as bit masks.
    everything = (1 << len(bounds)) - 1
    dominators = {b: everything for b in order}
    dominators[0] = 1
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            mask = everything
            for p in predecessors[block]:
                mask &= dominators[p]
            mask |= 1 << block
            if mask != dominators[block]:
                dominators[block] = mask
                changed = True
    loops = {}
    for block in order:
        for header in successors[block]:
            if not dominators[block] >> header & 1:
                continue
            body = loops.setdefault(header, {header})
            pending = [block]
            while pending:
                b = pending.pop()
                if b not in body:
                    body.add(b)
                    pending.extend(predecessors[b])
    return [{i for b in body for i in range(*bounds[b])} for body in loops.values()]


# ---- AMD ----------------------------------------------------------------------------------------------------------------
def _amd_instruction(text, gfx942):
    opcode = text.split(None, 1)[0]
    bits = set(re.findall(r"\b(sc0|sc1|glc)\b", text))
    both = bits >= {"sc0", "sc1"}
    if re.match(r"s_cbranch_", opcode):
        return Instruction(text, targets=(text.split()[-1],))
    if opcode == "s_branch":
        return Instruction(text, targets=(text.split()[-1],), falls_through=False)
    if opcode in ("s_endpgm", "s_setpc_b64", "s_trap"):
        return Instruction(text, falls_through=opcode == "s_trap")
    if opcode == "s_swappc_b64":
        return Instruction(text, "call")
    if opcode == "s_sleep":
        return Instruction(text, "sleep")
    if opcode == "s_waitcnt":
        return Instruction(text, "wait" if "vmcnt(0)" in text else "other")
    if opcode.startswith("scratch_") or (not gfx942 and re.match(r"buffer_(load|store)_", opcode)):
        return Instruction(text, "scratch")
    if "_atomic_" in opcode:
        return Instruction(text, "atomic")
    if re.match(r"(global|flat|buffer)_load_", opcode):
        if gfx942:
            return Instruction(text, "load", "system" if both else "narrow" if bits else "plain")
        # gfx90a: a device's and the system's differ only in their fences.
        return Instruction(text, "load", "system" if "glc" in bits else "plain")
    if re.match(r"(global|flat|buffer)_store_", opcode):
        return Instruction(text, "store", ("system" if both else "narrow" if bits else "plain") if gfx942 else "system")
    if opcode == "buffer_inv":
        return Instruction(text, "acquire", "system" if both else "narrow")
    if opcode == "buffer_wbl2":
        return Instruction(text, "release", "system" if both or not gfx942 else "narrow")
    if opcode == "buffer_invl2":
        return Instruction(text, "acquire", "system")
    if opcode == "buffer_wbinvl1_vol":
        return Instruction(text, "acquire", "narrow")
    return Instruction(text)


def parse_amd(listing, target):
    kernels = set(re.findall(r"^\s*\.amdhsa_kernel (\S+)", listing, re.MULTILINE))
    functions, names, current, far = [], set(), None, None
    for line in listing.splitlines():
        text = line.split(";", 1)[0].strip()
        match = re.match(r"\.type\s+(\S+),@function", text)
        if match:
            names.add(match.group(1))
            continue
        match = re.match(r"(\S+):$", text)
        if match:
            name = match.group(1)
            if name in names:
                current = Function(name, name in kernels)
                functions.append(current)
            elif current and name.startswith(".Lfunc_end"):
                current = None
            elif current:
                current.labels[name] = len(current.code)
            continue
        if current and text and not text.startswith("."):
            instruction = _amd_instruction(text, target == "gfx942")
            # A far jump: s_getpc, s_add_u32 of (label - here), s_addc_u32, s_setpc.
            match = re.match(r"s_add_u32 .*\((\.LBB\w+)-\.Lpost_getpc", text)
            if match:
                far = match.group(1)
            elif text.startswith("s_setpc_b64") and far:
                instruction.targets, far = (far,), None
            previous = current.code[-1] if current.code else None
            if text == "buffer_wbinvl1_vol" and previous and previous.text == "buffer_invl2":
                instruction.scope = "system"
            current.code.append(instruction)
    return functions


def resources_amd(listing):
    """{kernel: {registers, ...}} from the metadata, and the waves per SIMD from the comments."""
    found = {}
    metadata = re.search(r"^\s*\.amdgpu_metadata$(.*?)^\s*\.end_amdgpu_metadata$", listing, re.MULTILINE | re.DOTALL)
    occupancy, function = {}, None
    for line in listing.splitlines():
        match = re.match(r"(\S+):\s+; @", line)
        if match:
            function = match.group(1)
        elif line.startswith("; Occupancy: "):
            occupancy[function] = int(line.rsplit(None, 1)[-1])
    for entry in re.split(r"^  - ", metadata.group(1) if metadata else "", flags=re.MULTILINE)[1:]:
        field = dict(re.findall(r"^(?:    )?\.(\w+):\s+(\S+)$", entry, re.MULTILINE))
        if "private_segment_fixed_size" not in field:
            continue
        found[field["name"]] = {
            "registers": int(field["vgpr_count"]),
            "scalar": int(field["sgpr_count"]),
            "shared": int(field["group_segment_fixed_size"]),
            "stack": int(field["private_segment_fixed_size"]),
            "spills": int(field["vgpr_spill_count"]) + int(field["sgpr_spill_count"]),
            "dynamic": field.get("uses_dynamic_stack") == "true",
            "waves": occupancy.get(field["name"], 0),
        }
    return found


# ---- NVIDIA -------------------------------------------------------------------------------------------------------------
def _sass_instruction(text):
    guard = re.match(r"@!?U?P\w+\s+", text)
    opcode = text[guard.end() :].split(None, 1)[0].rstrip(";") if guard else text.split(None, 1)[0].rstrip(";")
    parts = opcode.split(".")
    if parts[0] in ("BRA", "BRX", "JMP", "JMX", "BRXU"):
        return Instruction(text, targets=tuple(re.findall(r"\.L_x?_?\w+", text)), falls_through=bool(guard))
    if parts[0] in ("EXIT", "RET", "BPT", "KILL"):
        return Instruction(text, falls_through=bool(guard) or parts[0] == "BPT")
    if parts[0] == "CALL":
        return Instruction(text, "call")
    if parts[0] == "NANOSLEEP":
        return Instruction(text, "sleep")
    if parts[0] in ("LDL", "STL"):
        return Instruction(text, "scratch")
    if parts[0] in ("ATOM", "ATOMG", "RED", "REDG"):
        return Instruction(text, "atomic")
    if parts[0] in ("LD", "LDG", "ST", "STG"):
        scope = "plain"
        if "STRONG" in parts:
            scope = "system" if "SYS" in parts else "narrow"
        elif "CONSTANT" in parts:
            scope = "narrow"
        return Instruction(text, "load" if parts[0].startswith("L") else "store", scope)
    if parts[0] == "MEMBAR":
        return Instruction(text, "fence", "system" if "SYS" in parts else "device")
    return Instruction(text)


def parse_sass(listing):
    functions, current = [], None
    for line in listing.splitlines():
        match = re.match(r'\s*\.section\s+\.text\.([^,\s"]+)', line)
        if match:
            current = Function(match.group(1), False)
            functions.append(current)
            continue
        if re.match(r"\s*\.section\s", line):
            current = None
        if current is None:
            continue
        if "STO_CUDA_ENTRY" in line:
            current.is_kernel = True
        match = re.match(r"(\$\S+):", line)  # a kernel's own copy of a function, behind it
        if match:
            current = Function(match.group(1), False)
            functions.append(current)
            continue
        match = re.match(r"(\.L_\S+):", line)
        if match:
            current.labels[match.group(1)] = len(current.code)
            continue
        match = re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)
        if match:
            current.code.append(_sass_instruction(match.group(1)))
    return functions


def _ptx_instruction(text):
    guard = re.match(r"@!?%?p\d*\s+", text)  # the compiler's, or one of an asm of ours
    body = text[guard.end() :] if guard else text
    parts = body.split(None, 1)[0].rstrip(";").split(".")
    if parts[0] in ("bra", "brx"):
        return Instruction(text, targets=tuple(re.findall(r"\$\w+", body)), falls_through=bool(guard))
    if parts[0] in ("ret", "exit", "trap"):
        return Instruction(text, falls_through=bool(guard))
    if parts[0] == "call":
        return Instruction(text, "call")
    if parts[0] == "nanosleep":
        return Instruction(text, "sleep")
    if parts[0] in ("atom", "red"):
        return Instruction(text, "atomic")
    if parts[0] in ("ld", "st") and not {"param", "shared", "const"} & set(parts):
        if "local" in parts:
            return Instruction(text, "scratch")
        scope = "plain"
        if {"relaxed", "acquire", "release", "volatile"} & set(parts):
            scope = "system" if "sys" in parts or "volatile" in parts else "narrow"
        elif "nc" in parts:
            scope = "narrow"
        return Instruction(text, "load" if parts[0] == "ld" else "store", scope)
    if parts[0] in ("fence", "membar"):
        return Instruction(text, "fence", "system" if "sys" in parts else "device")
    return Instruction(text)


def parse_ptx(listing):
    functions, current = [], None
    for line in listing.splitlines():
        text = line.split("//", 1)[0].strip()
        match = re.search(r"\.(entry|func)\b(?:\s*\([^)]*\))?\s+(\w+)\s*\(", text)
        if match:
            current = Function(match.group(2), match.group(1) == "entry")
            functions.append(current)
            continue
        if current is None:
            continue
        match = re.match(r"(\$\w+):", text)
        if match:
            current.labels[match.group(1)] = len(current.code)
        elif re.match(r"[@a-z]", text) and (text.endswith(";") or re.match(r"(@!?%p\d+\s+)?call\b", text)):
            current.code.append(_ptx_instruction(text))  # (a call takes several lines)
    return functions


def resources_nvidia(report, target):
    """{kernel: {...}} from what ptxas -v says of target; spills are those of the kernel and of what is compiled with it."""
    found, used, part = {}, None, ""
    for line in report.splitlines():
        match = re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line)
        if match and match.group(2) != target:
            used = None
        elif match:
            used = {"registers": 0, "scalar": 0, "shared": 0, "stack": 0, "spills": 0, "dynamic": False, "waves": 0}
            used["parts"] = {}
            found[match.group(1)] = used
        if used is None:
            continue
        match = re.search(r"Function properties for (\S+)", line)
        if match:
            part = match.group(1)
        match = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if match:
            used["parts"][part] = int(match.group(2)) + int(match.group(3))
            used["stack"] = max(used["stack"], int(match.group(1)))
            used["spills"] += int(match.group(2)) + int(match.group(3))
        match = re.search(r"Used (\d+) registers", line)
        if match:
            used["registers"] = max(used["registers"], int(match.group(1)))
            shared = re.search(r"(\d+) bytes smem", line)
            used["shared"] = int(shared.group(1)) if shared else used["shared"]
    return found
