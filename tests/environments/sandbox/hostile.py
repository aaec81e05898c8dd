"""Programs that try to get out of a sandbox, or to use more than they may, and a main that runs them.

Each is written so that it succeeds without a sandbox: it then prints ESCAPED. Facts about the host, such as the path of
a file that is open to everybody, come as JSON in the first argument. Run by tests as root and as an ordinary user:

    python hostile.py '{"backend": "bubblewrap", "facts": {...}, "programs": ["tcp", ...]}'

prints one JSON object: the outcome by program.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict

from velodrome.environments.sandbox import Limits, SandboxEnded, Sandboxes

START = "import ctypes, json, os, signal, socket, struct, sys, time\nfacts = json.loads(sys.argv[1])\n"
END = "\nprint('tried')\n"


def attempt(code: str) -> str:
    """A program that survives the refusal of what it attempts."""
    body = "".join(f"    {line}\n" for line in code.strip().splitlines())
    return f"{START}try:\n{body}except OSError as error:\n    print('refused', file=sys.stderr){END}"


def reach(code: str) -> str:
    """A program that has escaped if nothing that it attempts is refused."""
    return attempt(f"{code}\nprint('ESCAPED')")


ATTEMPTS = {  # what must not work; harmless outside, so a run without a sandbox shows that each of them can succeed
    "tcp": reach('socket.create_connection(("127.0.0.1", facts["tcp"]), 5).recv(5)'),
    "udp": reach("""
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.connect(("127.0.0.1", facts["udp"]))
link.send(b"hello")
link.recv(5)"""),
    "unix": reach('socket.socket(socket.AF_UNIX).connect(facts["unix"])'),
    "abstract": reach('socket.socket(socket.AF_UNIX).connect("\\0" + facts["abstract"])'),
    "netlink": reach("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    "host_file": reach('open(facts["secret"]).read()'),
    "host_folder": reach('os.listdir(os.path.dirname(facts["secret"]))'),
    "host_write": reach('open(os.path.join(facts["open_folder"], facts["backend"] + str(os.getuid())), "w").close()'),
    "passwords": reach('open("/etc/passwd").read(10)'),
    "signal": reach('os.kill(facts["sleeper"], 0)'),
    "shared_memory": reach('open(facts["shm"]).read()'),
    "hard_link": reach('os.link(facts["secret"], "hard")\nopen("hard").read()'),
    "symlink": reach('os.symlink(facts["secret"], "soft")\nopen("soft").read()'),
    "memory_file": reach('os.memfd_create("x")'),
    "environment": attempt("""
if "SANDBOX_TEST_SECRET" in os.environ:
    print("ESCAPED")
for name in os.listdir("/proc"):
    try:
        if name.isdigit() and b"SANDBOX_TEST_SECRET" in open(f"/proc/{name}/environ", "rb").read():
            print("ESCAPED", name)
            break
    except OSError:
        pass"""),
    "processes_of_the_host": attempt("""
if b"sleep" in open(f"/proc/{facts['sleeper']}/cmdline", "rb").read():
    print("ESCAPED")"""),
    "ptrace": attempt("""
child = os.fork()
if not child:
    time.sleep(1000)
if ctypes.CDLL(None, use_errno=True).ptrace(16, child, None, None) == 0:
    print("ESCAPED")
os.kill(child, 9)"""),
    "other_memory": attempt("""
text, copy = ctypes.create_string_buffer(b"abc"), ctypes.create_string_buffer(3)
here, there = (struct.pack("PN", ctypes.addressof(place), 3) for place in (copy, text))
libc = ctypes.CDLL(None, use_errno=True)
if libc.process_vm_readv(os.getpid(), here, 1, there, 1, 0) == 3:
    print("ESCAPED")"""),
    "io_uring": attempt("""
if ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) >= 0:
    print("ESCAPED")"""),
    "user_namespace": attempt("""
if ctypes.CDLL(None).unshare(0x10000000) == 0:
    print("ESCAPED")"""),
    "user_namespace_by_clone": attempt("""
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
child = ctypes.CDLL(None).syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
if child > 0:
    print("ESCAPED")"""),
    "sysv_memory": attempt("""
segment = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
if segment >= 0:
    ctypes.CDLL(None).shmctl(segment, 0, None)
    print("ESCAPED")"""),
    "descriptors": attempt("""
for number in range(3, 256):
    try:
        os.fstat(number)
        print("ESCAPED", number)
    except OSError:
        pass"""),
    "rights": attempt("""
for line in open("/proc/self/status"):
    if line.startswith(("CapInh", "CapPrm", "CapEff", "CapAmb")) and int(line.split()[1], 16):
        print("ESCAPED", line)"""),
    "supervisor": attempt("""
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
    try:
        os.kill(os.getppid(), number)
    except PermissionError:
        pass
print(open(f"/proc/{os.getppid()}/mem", "r+b", 0).write(b""), "ESCAPED")"""),
}

SMALL = Limits(wall_s=60, cpu_s=60, memory_mb=256, processes=20, disk_mb=8)
EXCESSES = {  # what uses too much: the program, its limits, the limit that must stop it
    "fork_bomb": ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", SMALL, "processes"),
    "threads": (
        "import threading, time\nthreading.stack_size(1 << 16)\nwhile True:\n"
        "  try: threading.Thread(target=time.sleep, args=(99,)).start()\n  except RuntimeError: pass",
        SMALL,
        "processes",
    ),
    "ten_gigabytes": ("b = []\nfor _ in range(10240): b.append(b'x' * (1 << 20))", SMALL, "memory"),
    "ten_gigabytes_at_once": ("b = bytearray(10 << 30)\nprint(len(b))", SMALL, "memory"),
    "shared_mapping": (
        "import mmap, os, time\nfor _ in range(8):\n  if not os.fork():\n    m = mmap.mmap(-1, 100 << 20)\n"
        "    m.write(b'x' * (100 << 20)); time.sleep(99)\ntime.sleep(99)",
        SMALL,
        "memory",
    ),
    "output": ("while True: print('x' * 1000)", SMALL, "output"),
    "error_output": ("import sys\nwhile True: print('x' * 1000, file=sys.stderr)", SMALL, "output"),
    "cpu": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        Limits(wall_s=60, cpu_s=0.5),
        "cpu",
    ),
    "cpu_of_many": (
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        Limits(wall_s=60, cpu_s=2),
        "cpu",
    ),
    "cpu_of_children_that_have_ended": (
        "import os, time\nwhile True:\n  if not os.fork():\n    while time.process_time() < 0.1: pass\n"
        "    os._exit(0)\n  os.wait()",
        Limits(wall_s=60, cpu_s=1),
        "cpu",
    ),
    "time": (
        "import signal, time\nfor n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n"
        "  except (OSError, ValueError): pass\nwhile True: time.sleep(9)",
        Limits(wall_s=0.5),
        "time",
    ),
    "disk": (
        "import itertools\nfor n in itertools.count():\n  with open(f'f{n}', 'wb') as f: f.write(b'x' * (1 << 20))",
        SMALL,
        "disk",
    ),
    "empty_files": ("for n in range(10 ** 6): open(f'f{n}', 'w').close()", SMALL, "disk"),
    "one_large_file": ("open('f', 'wb').write(b'x' * (32 << 20))", SMALL, "disk"),
}


async def outcomes(backend: str, facts: dict[str, object], names: list[str]) -> dict[str, object]:
    """Run each program in a box of its own."""
    results: dict[str, object] = {}
    boxes: dict[Limits, Sandboxes] = {}
    for name in names:
        code, limits = (ATTEMPTS[name], SMALL) if name in ATTEMPTS else EXCESSES[name][:2]
        kind = boxes.setdefault(limits, Sandboxes(limits, warm=0, backend=backend, allow_unsafe=backend == "unsafe"))
        async with await kind.open({"main.py": code}) as box:
            ran = await box.run(["python3", "main.py", json.dumps(facts | {"backend": backend})])
            try:
                after = (await box.run(["true"])).exit_code
            except SandboxEnded:
                after = None
            results[name] = asdict(ran) | {"stderr": ran.stderr[-300:], "stdout": ran.stdout[:300], "after": after}
    for kind in boxes.values():
        await kind.aclose()
    return results


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(outcomes(request["backend"], request["facts"], request["programs"]))))
