#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at what compilers make of the device code, for every architecture whose compiler is there.

Everything that orders accesses between GPUs goes through gpu/device/order.h, and whether that is right shows only in the
instructions: a load at the wrong scope is a perfectly good load until two chiplets disagree. So every device source is
compiled for every architecture, and this holds for each kernel:

  scope      no load, store or fence at the scope of a device or a block. On AMD a poll at device scope may never see what
             another chiplet wrote; on NVIDIA only fences may be of device scope.
  sleeping   a loop that sleeps loads at system scope, or calls what does: it waits for somebody else.
  waited     AMD: after a release, and before the next store, the write-back is waited for.
  scratch    no stack, no spilled registers, except what exceptions.txt allows with a reason.
  listed     it stands in kernels.txt, which says what else must be true of it:

  polls      it has a loop with a load at system scope
  sleeps     each of its loops with a load at system scope sleeps
  naps       a loop that looks at memory at system scope, or calls what does, sleeps
  acquires   an acquire of system scope comes after a load of system scope, and a load or the end after it
  takes      the same with an acquire of the own GPU's scope, where what was released comes from there
  releases   a store of system scope comes after a release of system scope
  unfenced   it has no fence at all (the flag is in the data)
  delays     it sleeps for the sake of time (a test's kernel): "sleeping" is not asked of it

With "amd:" or "nvidia:" before it, a property is asked there only.

A report of registers, shared memory, stack and spills is written beside the listings. NVIDIA's code is looked at as SASS
where there is nvdisasm, else as PTX together with what ptxas says of stack and spills.

What the build has compiled (--built: lines of source, cuda or hip, folder, separated by tabs) is not compiled again: the
folder has what the compilers made on the way to the object.

    check_code.py --root ROOT --out DIR [--nvcc NVCC --nvcc-host CXX] [--hipcxx CLANG --hip-include DIR] [--flags FLAGS]
                  [--built FILE] [--without KERNEL...]     (that this build leaves out)
    check_code.py ... --mutants FOLDER    each mutant there must be rejected, for the reason that mutants.txt names
    check_code.py --root ROOT --sources   only the sources: nobody but order.h and target.h spells an ordered access
"""

import argparse
import concurrent.futures
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys

import listing

AMD_TARGETS = ("gfx90a", "gfx942")
NVIDIA_TARGET = "sm_90"
SKIPPED_FOLDERS = {"build", "mutants", "__pycache__"}

# Who may spell an ordered access, and what counts as one. (Fences of the wrong scope show in the code.)
ORDER_FILES = {"gpu/device/order.h", "gpu/device/target.h"}
HOST_FILES = {"gpu/device/hip_on_cuda.h"}
ORDERED = re.compile(
    r"\b(?:__hip_atomic_\w+|__atomic_\w+|__scoped_atomic_\w+|__threadfence\w*|atomic[A-Z]\w+|__ldg|__ldc[agsv]"
    r"|__st(?:cg|cs|wb|wt)|__builtin_nontemporal_\w+)\b"
    r"|\b(?:asm|__asm__)\b[^;]*?\"[^\"]*\b(?:ld|st|atom|red|fence|membar|global_|flat_|buffer_|s_waitcnt|s_sleep)[._\w]*"
)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class Kernel:
    """One kernel on one target."""

    def __init__(self, name, target, source, function, reached, resources):
        self.name = name
        self.target = target
        self.source = source
        self.function = function
        self.functions = [function] + reached  # and the functions of the same file that it may call
        self.resources = resources


def plain_name(mangled):
    """probe, call_kernel<true>: what a person calls it."""
    if not mangled.startswith("_Z"):
        return mangled
    try:
        full = subprocess.run(["c++filt", mangled], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return mangled
    full = re.sub(r"\(anonymous namespace\)::|_INTERNAL_\w+::", "", full).split("(", 1)[0]
    return re.sub(r"^(?:\w+ )+(?=\w)", "", full).replace(" ", "")  # without the type that it returns


# ---- compiling ----------------------------------------------------------------------------------------------------------
def run(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def kernels_of(functions, resources, target, source):
    helpers = [f for f in functions if not f.is_kernel]
    found = []
    for function in functions:
        if function.is_kernel:
            calls = any(i.kind == "call" for i in function.code)
            reached = [h for h in helpers if h.name[0] != "$" or h.name.startswith(f"${function.name}$")] if calls else []
            found.append(
                Kernel(plain_name(function.name), target, source, function, reached, resources.get(function.name))
            )
    return found


def read_built(path):
    """{(source, cuda or hip): the folder of the first target that has it}"""
    built = {}
    with open(path, encoding="utf-8") as file:
        for row in file.read().splitlines():
            source, variant, folder = row.split("\t")
            built.setdefault((source, variant), folder)
    return built


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def built_file(folder, *patterns):
    """The file that the build left, under the first name that fits."""
    for pattern in patterns:
        found = glob.glob(os.path.join(glob.escape(folder), pattern))
        if len(found) == 1 and os.path.exists(os.path.join(folder, "object.o")):
            return found[0]
    raise RuntimeError(f"{folder} has no {patterns[0]}: build everything first")


def compile_amd(options, source, target):
    output = os.path.join(options.out, source.replace("/", "_")) + f".{target}.s"
    run(
        [options.hipcxx, "-x", "hip", f"--offload-arch={target}", "-nogpuinc", "-nogpulib", "--cuda-device-only", "-S"]
        + options.flags
        + ["-D__HIP_PLATFORM_AMD__=1", "-DRAILMUX_HIP=1", "-isystem", options.hip_include]
        + ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", os.path.join(options.root, source), "-o", output]
    )
    return output


def look_at_amd(options, source, target):
    folder = options.built.get((source, "hip"))
    text = text_of(built_file(folder, f"*-{target}.s") if folder else compile_amd(options, source, target))
    return kernels_of(listing.parse_amd(text, target), listing.resources_amd(text), target, source)


def compile_nvidia(options, source, target):
    """The cubin, a function that makes the PTX and returns where it is, and ptxas's report."""
    stem = os.path.join(options.out, source.replace("/", "_")) + f".{target}"
    common = [options.nvcc, "-x", "cu", "-ccbin", options.nvcc_host, "-DRAILMUX_CUDA=1", "--diag-suppress=177,186"]
    common += ["-Werror", "all-warnings"] + options.flags
    path = os.path.join(options.root, source)

    def ptx():
        run(common + ["-gencode", "arch=compute_90,code=compute_90", "-ptx", path, "-o", f"{stem}.ptx"])
        return f"{stem}.ptx"

    report = run(
        common + ["-gencode", "arch=compute_90,code=sm_90", "-Xptxas", "-v", "-cubin", path, "-o", f"{stem}.cubin"]
    )
    return f"{stem}.cubin", ptx, report


def look_at_nvidia(options, source, target):
    folder = options.built.get((source, "cuda"))
    if folder:
        # nvcc names the architecture where there are several.
        cubin = built_file(folder, "*.compute_90.cubin", "*.cubin")
        report = text_of(built_file(folder, "report.txt"))

        def ptx():
            return built_file(folder, "*.compute_90.ptx", "*.ptx")

    else:
        cubin, ptx, report = compile_nvidia(options, source, target)
    if options.nvdisasm:
        text = run([options.nvdisasm, "-c", cubin])
        with open(os.path.join(options.out, source.replace("/", "_")) + f".{target}.sass", "w", encoding="utf-8") as file:
            file.write(text)
        functions = listing.parse_sass(text)
    else:
        functions = listing.parse_ptx(text_of(ptx()))
    return kernels_of(functions, listing.resources_nvidia(report, target), target, source)


def compile_all(options, sources):
    """{source: {target: kernels or the compiler's words}}"""
    jobs = {}
    results = {source: {} for source in sources}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for source in sources:
            if options.hipcxx:
                for target in AMD_TARGETS:
                    jobs[pool.submit(look_at_amd, options, source, target)] = (source, target)
            if options.nvcc:
                jobs[pool.submit(look_at_nvidia, options, source, NVIDIA_TARGET)] = (source, NVIDIA_TARGET)
        for job in concurrent.futures.as_completed(jobs):
            source, target = jobs[job]
            try:
                results[source][target] = job.result()
            except RuntimeError as error:
                results[source][target] = str(error)
    return results


# ---- rules --------------------------------------------------------------------------------------------------------------
def is_release(instruction):
    return instruction.kind in ("release", "fence") and instruction.scope == "system"


def is_system(instruction, kind):
    return instruction.kind == kind and instruction.scope == "system"


def check_scope(kernel, function):
    for instruction in function.code:
        if instruction.scope == "narrow":
            yield f"`{instruction.text}` does not reach beyond the device or block"


def sleeping_loops(function):
    """Of each loop that sleeps: does it look at memory of the system, here or in a function that it calls?"""
    for index, instruction in enumerate(function.code):
        loop = function.innermost_loop(index) if instruction.kind == "sleep" else None
        if loop is not None:
            yield any(is_system(function.code[i], "load") or function.code[i].kind == "call" for i in loop)


def check_sleeping(kernel, function):
    if not all(sleeping_loops(function)):
        yield "a loop sleeps and never loads at system scope"


def check_waited(kernel, function):
    if kernel.target not in AMD_TARGETS:
        return
    pending = None
    for instruction in function.code:
        if instruction.kind == "release":
            pending = instruction
        elif instruction.kind == "wait":
            pending = None
        elif instruction.kind in ("store", "atomic") and pending:
            yield f"`{instruction.text}` does not wait for `{pending.text}`"
            pending = None


def polling_loops(kernel):
    """Of each innermost loop with a load at system scope: does it sleep?"""
    for function in kernel.functions:
        seen = set()
        for index, instruction in enumerate(function.code):
            loop = function.innermost_loop(index) if is_system(instruction, "load") else None
            if loop is not None and id(loop) not in seen:
                seen.add(id(loop))
                yield any(function.code[i].kind == "sleep" for i in loop)


def property_polls(kernel):
    return any(True for _ in polling_loops(kernel))


def property_sleeps(kernel):
    return all(polling_loops(kernel))


def property_naps(kernel):
    return any(asleep for f in kernel.functions for asleep in sleeping_loops(f))


def property_delays(kernel):
    return any(True for f in kernel.functions for _ in sleeping_loops(f))


def property_acquires(kernel, scopes=("system",)):
    for function in kernel.functions:
        seen = False
        for instruction in function.code:
            seen = seen or is_system(instruction, "load")
            if seen and instruction.kind in ("acquire", "fence") and instruction.scope in scopes:
                return True
    return False


def property_takes(kernel):
    return property_acquires(kernel, ("system", "device"))


def property_releases(kernel):
    for function in kernel.functions:
        seen = False
        for instruction in function.code:
            seen = seen or is_release(instruction)
            if seen and is_system(instruction, "store"):
                return True
    return False


def property_unfenced(kernel):
    return not any(i.kind in ("acquire", "release", "fence") for f in kernel.functions for i in f.code)


RULES = {"scope": check_scope, "sleeping": check_sleeping, "waited": check_waited}
PROPERTIES = {
    "polls": property_polls,
    "sleeps": property_sleeps,
    "naps": property_naps,
    "acquires": property_acquires,
    "takes": property_takes,
    "releases": property_releases,
    "unfenced": property_unfenced,
    "delays": property_delays,
}


def exception_keys(kernel):
    """Exceptions are for one kernel, or for all that are made of one template."""
    return [(kernel.name, kernel.target), (kernel.name.split("<", 1)[0], kernel.target)]


def check_scratch(kernel, exceptions):
    used = kernel.resources
    if used is None:
        yield "the compiler says nothing of its registers"
        return
    allowed = next((exceptions[key] for key in exception_keys(kernel) if key in exceptions), 0)
    if used["dynamic"]:
        yield "uses a stack of unknown size"
    if used["stack"] > allowed or used["spills"] > allowed:
        yield f"{used['stack']} bytes of stack, {used['spills']} spilled; allowed is {allowed}"
    if not allowed and any(i.kind == "scratch" for f in kernel.functions for i in f.code):
        yield "touches its stack"


def properties_on(target, properties):
    vendor = "amd" if target in AMD_TARGETS else "nvidia"
    split = [p.rpartition(":") for p in properties]
    return [name for where, _, name in split if where in ("", vendor)]


def check_kernel(kernel, properties, exceptions):
    """List of (rule, sentence)."""
    found = []
    asked = properties_on(kernel.target, properties or [])
    for rule, check in RULES.items():
        if rule == "sleeping" and "delays" in asked:
            continue
        for function in kernel.functions:
            found += [(rule, sentence) for sentence in check(kernel, function)]
    found += [("scratch", sentence) for sentence in check_scratch(kernel, exceptions)]
    if properties is None:
        return found + [("listed", "stands not in kernels.txt")]
    for name in asked:
        if not PROPERTIES[name](kernel):
            found.append((name, "is not true of it"))
    return found


# ---- lists --------------------------------------------------------------------------------------------------------------
def rows(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.split("#", 1)[0].strip()
            if text:
                yield text


def read_kernels(path):
    expected = {}
    for row in rows(path):
        name, *properties = row.split()
        unknown = [p for p in properties if not re.fullmatch(r"(amd:|nvidia:)?(" + "|".join(PROPERTIES) + ")|-", p)]
        if unknown or name in expected:
            raise SystemExit(f"{path}: {row}: unknown property or listed twice")
        expected[name] = [p for p in properties if p != "-"]
    return expected


def read_exceptions(path):
    allowed = {}
    for row in rows(path):
        fields = row.split(None, 3)
        if len(fields) != 4:
            raise SystemExit(f"{path}: {row}: an exception needs a kernel, a target, a number and a reason")
        allowed[(fields[0], fields[1])] = int(fields[2])
    return allowed


def device_sources(root):
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        found += [os.path.relpath(os.path.join(folder, f), root) for f in sorted(files) if f.endswith(".hip")]
    return found


# ---- the three uses -----------------------------------------------------------------------------------------------------
def where_it_spills(kernel):
    """Bytes moved by spills (NVIDIA) or accesses to the stack (AMD), by function, most first."""
    parts = (kernel.resources or {}).get("parts")
    if parts is None:
        parts = {f.name: sum(i.kind == "scratch" for i in f.code) for f in kernel.functions}
    return sorted(((n, plain_name(name)) for name, n in parts.items() if n), reverse=True)


def check_tree(options):
    here = os.path.dirname(os.path.abspath(__file__))
    expected = read_kernels(os.path.join(here, "kernels.txt"))
    exceptions = read_exceptions(os.path.join(here, "exceptions.txt"))
    sources = device_sources(options.root)
    results = compile_all(options, sources)
    problems, seen, used, lines = [], set(), set(), []
    for source in sources:
        for target, kernels in sorted(results[source].items()):
            if isinstance(kernels, str):
                problems.append(f"{source}: {target}: does not compile:\n{kernels}")
                continue
            for kernel in sorted(kernels, key=lambda k: k.name):
                family = kernel.name.split("<", 1)[0]
                seen.add(family)
                r = kernel.resources or {}
                lines.append(
                    f"{target:7} {kernel.name:40} {r.get('registers', 0):9} {r.get('scalar', 0):6} {r.get('shared', 0):6} "
                    f"{r.get('stack', 0):6} {r.get('spills', 0):6} {r.get('waves', 0) or '-':>5}"
                )
                if r.get("stack") or r.get("spills"):
                    used.update(exception_keys(kernel))
                    lines[-1] += "".join(f"\n        {n:6} {what}" for n, what in where_it_spills(kernel))
                problems += [
                    f"{source}: {target}: {kernel.name}: {rule}: {sentence}"
                    for rule, sentence in check_kernel(kernel, expected.get(family), exceptions)
                ]
    targets = {t for r in results.values() for t in r}
    if {NVIDIA_TARGET, *AMD_TARGETS} <= targets:
        problems += [f"kernels.txt: {name}: there is no such kernel" for name in sorted(set(expected) - seen - set(options.without))]
    problems += [
        f"exceptions.txt: {name} {target}: needs no exception any more"
        for name, target in sorted(set(exceptions) - used)
        if target in targets and name.split("<", 1)[0] not in options.without
    ]
    report = os.path.join(options.out, "resources.txt")
    with open(report, "w", encoding="utf-8") as file:
        file.write(f"{'target':7} {'kernel':40} registers scalar shared  stack spills waves\n")
        file.write("\n".join(sorted(lines)) + "\n")
    with open(report, encoding="utf-8") as file:
        print(file.read())
    for problem in problems:
        print(problem)
    print(f"{len(sources)} device sources, {len(lines)} kernels on {', '.join(sorted(targets))}, {len(problems)} problems")
    return 1 if problems or not lines else 0


def check_mutants(options):
    folder = options.mutants
    sources = [os.path.relpath(os.path.join(folder, f), options.root) for f in sorted(os.listdir(folder)) if f.endswith(".hip")]
    results = compile_all(options, sources)
    wanted = {}
    for row in rows(os.path.join(folder, "mutants.txt")):
        name, *rest = row.split()
        properties, reasons = rest[:-3], rest[-3:]
        wanted[name] = ([p for p in properties if p != "-"], dict(zip(AMD_TARGETS + (NVIDIA_TARGET,), reasons)))
    problems, n = [], 0
    for source in sources:
        name = os.path.basename(source)[: -len(".hip")]
        if name not in wanted:
            problems.append(f"{source}: stands not in mutants.txt")
            continue
        properties, reasons = wanted.pop(name)
        for target, kernels in sorted(results[source].items()):
            if isinstance(kernels, str) or len(kernels) != 1:
                problems.append(f"{source}: {target}: does not compile to one kernel: {kernels}")
                continue
            found = {rule for rule, _ in check_kernel(kernels[0], properties, {})}
            reason = reasons[target]
            n += 1
            if reason == "same" and found:
                problems.append(f"{source}: {target}: rejected for {sorted(found)}, though it is the same code")
            elif reason != "same" and reason not in found:
                problems.append(f"{source}: {target}: not rejected for {reason}, only for {sorted(found)}")
    problems += [f"mutants.txt: {name}: there is no such mutant" for name in sorted(wanted)]
    for problem in problems:
        print(problem)
    print(f"{n} mutants, {len(problems)} problems")
    return 1 if problems or n == 0 else 0


PLANTED = (
    "x = __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
    "__atomic_store_n(p, 1, __ATOMIC_RELAXED);",
    "__threadfence_system();",
    "atomicAdd(p, 1);",
    "x = __ldg(p);",
    'asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(x) : "l"(p));',
    'asm volatile(\n"fence.acq_rel.gpu;" ::: "memory");',
    'asm volatile("global_load_dword %0, %1, off sc1" : "=v"(x) : "v"(p));',
)
INNOCENT = ('asm("add.rn.f32 %0,%1,%2;" : "=f"(x) : "f"(a), "f"(b));', "word_load(p);", "x = restore(y); /* atomicAdd */")


def check_sources(root):
    problems, n = [], 0
    problems += [f"not noticed: {text}" for text in PLANTED if not ORDERED.search(COMMENT.sub("", text))]
    problems += [f"false alarm: {text}" for text in INNOCENT if ORDERED.search(COMMENT.sub("", text))]
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), root)
            is_device = name.endswith(".hip") or (path.startswith("gpu/device/") and name.endswith((".h", ".inc")))
            is_device = is_device and not path.startswith("examples/")  # programs have their own ways
            if not is_device or path in ORDER_FILES | HOST_FILES:
                continue
            n += 1
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
            code = COMMENT.sub(lambda m: "".join(c if c == "\n" else " " for c in m.group()), text)
            for match in ORDERED.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                word = re.match(r"\w+", match.group()).group()
                problems.append(f"{path}:{line}: {word}: ordered accesses belong into gpu/device/order.h")
    for problem in problems:
        print(problem)
    print(f"{n} device sources, {len(problems)} problems")
    return 1 if problems or n == 0 else 0


def main():
    parser = argparse.ArgumentParser(description="checks device code")
    parser.add_argument("--root", required=True)
    parser.add_argument("--out", default="device-code")
    parser.add_argument("--nvcc")
    parser.add_argument("--nvcc-host", default="g++")
    parser.add_argument("--nvdisasm")
    parser.add_argument("--hipcxx")
    parser.add_argument("--hip-include", default="/opt/rocm/include")
    parser.add_argument("--flags", type=shlex.split, default=[])
    parser.add_argument("--built", type=read_built, default={})
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--mutants")
    parser.add_argument("--sources", action="store_true")
    options = parser.parse_args()
    if options.sources:
        return check_sources(options.root)
    if not options.nvcc and not options.hipcxx:
        parser.error("no compiler given")
    if not options.nvdisasm:
        options.nvdisasm = shutil.which("nvdisasm")
    os.makedirs(options.out, exist_ok=True)
    return check_mutants(options) if options.mutants else check_tree(options)


if __name__ == "__main__":
    sys.exit(main())
