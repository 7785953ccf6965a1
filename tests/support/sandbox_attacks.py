"""Attacks on a sandbox: what is tried, and what may come of it.

Each attack is one command in a workspace. ``said`` is a pattern for the whole of what it prints,
``status`` what it ends with. ``{...}`` in a script is filled in by the test: ``secret_file``,
``secret``, ``port`` and ``abstract`` (a listener and an abstract socket outside), ``pid`` (of the
caller), ``source`` (a file of the caller's), ``prefix`` (of the interpreter).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ATTACKS", "Attack"]

_PRELUDE = """
import ctypes, errno, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(step):
    try:
        print("ALLOWED", step())
    except OSError as error:
        print(errno.errorcode.get(error.errno, error.errno))
    except ValueError as error:
        print("EPERM" if "not allowed" in str(error) else error)
def _check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
"""


@dataclass(frozen=True)
class Attack:
    name: str
    script: str
    said: str = ""
    status: str = "ok"
    shell: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    deadline: str | None = None

    def argv(self, facts: dict[str, Any]) -> list[str]:
        script = self.script
        for name, value in facts.items():
            script = script.replace("{" + name + "}", str(value))
        if self.shell:
            return ["/bin/sh", "-c", script]
        return ["python3", "-S", "-c", _PRELUDE + script]


def _py(name: str, script: str, said: str = "", status: str = "ok", **kwargs: Any) -> Attack:
    return Attack(name, script, said, status, **kwargs)


def _sh(name: str, script: str, said: str = "", status: str = "ok", **kwargs: Any) -> Attack:
    return Attack(name, script, said, status, shell=True, **kwargs)


_FILES = [
    _py("secret file outside", "attempt(lambda: open('{secret_file}').read())", "ENOENT"),
    _py("the caller's source", "attempt(lambda: open('{source}').read())", "ENOENT"),
    _py("secret through ..", "attempt(lambda: open('../../..' + '{secret_file}'))", "ENOENT"),
    _py("shadow passwords", "attempt(lambda: open('/etc/shadow').read())", "ENOENT"),
    _py("machine id", "attempt(lambda: open('/etc/machine-id').read())", "ENOENT"),
    _py("host names", "print(open('/etc/hosts').read().split()[0])", r"127\.0\.0\.1"),
    _py("homes", "print(os.path.exists('/home'))", "False"),
    _py("sysfs", "print(os.path.exists('/sys/kernel'))", "False"),
    _py(
        "devices",
        "print(sorted(set(os.listdir('/dev')) - {'null', 'zero', 'full', 'random', 'urandom',"
        "'tty', 'shm', 'pts', 'fd', 'stdin', 'stdout', 'stderr', 'ptmx', 'core', 'console'}))",
        r"\[\]",
    ),
    _py("a device of one's own", "attempt(lambda: os.mknod('d', 0o20666, os.makedev(1, 1)))",
        "EPERM"),
    _py("write to /usr", "attempt(lambda: open('/usr/bin/evil', 'w'))", "EROFS|EACCES"),
    _py("write to /etc", "attempt(lambda: open('/etc/ld.so.preload', 'w'))", "EROFS|EACCES"),
    _py("change /etc/passwd", "attempt(lambda: open('/etc/passwd', 'a'))", "EROFS|EACCES"),
    _py("write to /", "attempt(lambda: open('/evil', 'w'))", "EROFS|EACCES"),
    _py("fill /dev", "attempt(lambda: open('/dev/evil', 'wb').write(bytes(1 << 25)))",
        "EROFS|EACCES|ENOSPC"),
    _py("write to the interpreter", "attempt(lambda: open('{prefix}/evil', 'w'))",
        "EROFS|EACCES|ENOENT"),
    _py("make /usr writable", "attempt(lambda: os.chmod('/usr', 0o777))", "EROFS|EPERM"),
    _py("hard link to /etc", "attempt(lambda: os.link('/etc/passwd', 'x'))", "EXDEV|EPERM|EROFS"),
    _py("hard link to /usr", "attempt(lambda: os.link('/usr/bin/env', 'x'))", "EXDEV|EPERM|EROFS"),
    _py("give a file away", "open('f', 'w'); attempt(lambda: os.chown('f', 0, 0))", "EPERM|EINVAL"),
    _py("root of process 1", "attempt(lambda: os.listdir('/proc/1/root/proc/1'))",
        "EACCES|EPERM|ENOENT"),
    _py("descriptors of process 1", "attempt(lambda: os.listdir('/proc/1/fd'))", "EACCES|EPERM"),
    _py("memory of process 1", "attempt(lambda: open('/proc/1/mem', 'rb+'))", "EACCES|EPERM"),
    _py("environment of process 1", "attempt(lambda: open('/proc/1/environ').read())",
        "EACCES|EPERM"),
    _py("kernel memory", "attempt(lambda: open('/proc/kcore', 'rb').read(1))",
        "EACCES|EPERM|ENOENT"),
    _py("kernel setting", "attempt(lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|x'))",
        "EACCES|EROFS|EPERM"),
    _py("sysrq", "attempt(lambda: open('/proc/sysrq-trigger', 'w').write('b'))",
        "EACCES|EROFS|EPERM|ENOENT"),
    _py("secrets in environments",
        "import glob\nfound = '{secret}' in str(dict(os.environ))\n"
        "for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try:\n        found |= b'{secret}' in open(path, 'rb').read() and path == '/proc/1'\n"
        "    except OSError:\n        continue\nprint(found)", "False"),
    _py("other processes", "print(len([p for p in os.listdir('/proc') if p.isdigit()]) <= 4)",
        "True"),
]  # fmt: skip

_PRIVILEGES = [
    _py("become root", "attempt(lambda: os.setuid(0))", "EPERM|EINVAL"),
    _py("become another", "attempt(lambda: os.setuid(1))", "EPERM|EINVAL"),
    _py("other groups", "attempt(lambda: os.setgroups([0]))", "EPERM|EINVAL"),
    _py("setuid programs", "import subprocess\nprint(subprocess.run(['su', '-c', 'id'],"
        "capture_output=True, stdin=subprocess.DEVNULL).returncode != 0)", "True"),
    _py("capabilities",
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')])",
        r"\['0{16}', '0{16}', '0{16}', '0{16}', '0{16}'\]"),
    _py("raise a limit", "import resource\nattempt(lambda: resource.prlimit(0,"
        "resource.RLIMIT_NPROC, (100000, 100000)))", "EPERM"),
    _py("outrank others", "attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))",
        "EACCES|EPERM"),
    _py("a user namespace", "attempt(lambda: _check(libc.unshare(0x10000000)))", "EPERM"),
    _py("chroot", "attempt(lambda: os.chroot('/tmp'))", "EPERM"),
    _py("mount", "attempt(lambda: _check(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)))", "EPERM"),
    _py("unmount", "attempt(lambda: _check(libc.umount2(b'/proc', 2)))", "EPERM"),
    _py("enter a namespace",
        "fd = os.open('/proc/self/ns/net', os.O_RDONLY)\n"
        "attempt(lambda: _check(libc.setns(fd, 0)))", "EPERM"),
    _py("rename the machine", "attempt(lambda: socket.sethostname('evil'))", "EPERM"),
    _py("set the clock", "attempt(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))", "EPERM"),
    _py("trace a child",
        "pid = os.fork()\nif pid == 0:\n    time.sleep(5); os._exit(0)\n"
        "attempt(lambda: _check(libc.ptrace(16, pid, 0, 0)))\nos.kill(pid, 9)", "EPERM"),
    _py("type into a terminal",
        "import fcntl, pty\n"
        "def push():\n    master, slave = pty.openpty()\n    fcntl.ioctl(slave, 0x5412, b'x')\n"
        "attempt(push)", "EPERM"),
]  # fmt: skip

_NETWORK = [
    _py("the internet",
        "s = socket.socket(); s.settimeout(3)\nattempt(lambda: s.connect(('198.51.100.1', 80)))",
        "ENETUNREACH"),
    _py("names", "attempt(lambda: socket.getaddrinfo('example.com', 80))", "-?[0-9]+|EAI.*"),
    _py("the caller's loopback",
        "s = socket.socket(); s.settimeout(3)\nattempt(lambda: s.connect(('127.0.0.1', {port})))",
        "ECONNREFUSED|ENETUNREACH"),
    _py("the caller's abstract socket",
        "s = socket.socket(socket.AF_UNIX)\nattempt(lambda: s.connect('\\0{abstract}'))",
        "ECONNREFUSED"),
    _py("raw packets", "attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
        "EAFNOSUPPORT|EPERM"),
    _py("raw sockets", "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))",
        "EPERM"),
    _py("the hypervisor", "attempt(lambda: socket.socket(40, socket.SOCK_STREAM))", "EAFNOSUPPORT"),
    _py("kernel cryptography", "attempt(lambda: socket.socket(38, socket.SOCK_SEQPACKET))",
        "EAFNOSUPPORT"),
    _py("interfaces", "print(sorted(name for _, name in socket.if_nameindex()))", r"\['lo'\]"),
]  # fmt: skip

_PROCESSES = [
    _sh("fork bomb", ":(){ :|:& };:; sleep 0.3; echo alive", "(?s).*", limits={"seconds": 3.0},
        status="ok|error|timeout|killed"),
    _py("fork bomb that leaves its group",
        "def bomb():\n    while True:\n        try:\n            if os.fork() == 0:\n"
        "                os.setsid()\n        except OSError:\n            "
        "time.sleep(0.01)\nbomb()",
        "(?s).*", "timeout", limits={"seconds": 1.0}, deadline="command"),
    _py("thread bomb",
        "import threading\nstop = threading.Event()\n"
        "try:\n    for count in range(500):\n"
        "        threading.Thread(target=stop.wait, args=(5,), daemon=True).start()\n"
        "except RuntimeError:\n    print('stopped', count < 64, flush=True)\nos._exit(0)",
        "stopped True"),
    _sh("kill all", "kill -9 -1; sleep 1", "", "killed|error|ok"),
    _py("kill the caller", "attempt(lambda: os.kill({pid}, 9))", "ESRCH|EPERM"),
    _py("kill process 1", "os.kill(1, 9); time.sleep(0.1); print('here', os.getppid())",
        "here 1|here [0-9]+"),
    _py("deaf to signals",
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): continue\ntime.sleep(60)",
        "", "timeout", limits={"seconds": 0.5}, deadline="command"),
    _py("stop oneself", "os.kill(os.getpid(), 19); time.sleep(60)", "", "timeout",
        limits={"seconds": 0.5}, deadline="command"),
    _sh("grandchild that holds the pipe", "(sleep 60 &) ; exit 0", ""),
    _py("daemon that outlives its deadline",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n"
        "    os._exit(0)\ntime.sleep(60)", "", "timeout", limits={"seconds": 0.5},
        deadline="command"),
    _py("many dead children",
        "for _ in range(30):\n    if os.fork() == 0: os._exit(0)\nprint('done')", "done"),
    _py("abort", "os.abort()", "", "killed"),
    _py("crash", "ctypes.string_at(0)", "", "killed"),
]  # fmt: skip

_RESOURCES = [
    _py("memory", "x = bytearray(1 << 40)", "", "memory"),
    _py("memory step by step", "x = []\nwhile True: x.append(bytearray(1 << 24))", "", "memory"),
    _py("memory in many processes",
        "import signal\nfor _ in range(6):\n    if os.fork() == 0: break\n"
        "x = bytearray(60 << 20)\ntime.sleep(100)", "", "memory|killed",
        limits={"seconds": 120.0, "memory": 192 << 20, "address_space": 0}),
    _py("memory of those who hide",
        "libc.prctl(4, 0, 0, 0, 0)\nfor _ in range(6):\n    if os.fork() == 0: break\n"
        "x = bytearray(60 << 20)\ntime.sleep(100)", "", "memory|killed",
        limits={"seconds": 120.0, "memory": 192 << 20, "address_space": 0}),
    _py("memory that is shared",
        "import mmap\nfor _ in range(6):\n    if os.fork() == 0: break\n"
        "x = mmap.mmap(-1, 60 << 20)\nfor at in range(0, 60 << 20, 4096): x[at] = 1\n"
        "time.sleep(100)", "", "memory|killed",
        limits={"seconds": 120.0, "memory": 192 << 20, "address_space": 0}),
    _py("segments of memory that nobody holds",
        "attempt(lambda: _check(libc.shmget(0, 1 << 20, 0o1600)))", "EPERM"),
    _py("queues in the kernel", "attempt(lambda: _check(libc.msgget(0, 0o1600)))", "EPERM"),
    _py("semaphores in the kernel", "attempt(lambda: _check(libc.semget(0, 30000, 0o1600)))",
        "EPERM"),
    _py("files without a place", "attempt(lambda: os.memfd_create('x'))", "EPERM"),
    _py("files without a name",
        "held = []\nfor n in range(40):\n    held.append(open('u', 'wb')); os.unlink('u')\n"
        "    for _ in range(4): held[-1].write(bytes(1 << 20))\n    held[-1].flush()\n"
        "time.sleep(100)", "", "disk", limits={"seconds": 120.0, "disk": 48 << 20}),
    _py("files without content",
        "for n in range(10**9): open(f'/tmp/n{n}', 'w').close()", "", "disk|error",
        limits={"seconds": 120.0}),
    _sh("empty /tmp", "find /tmp -mindepth 1 -delete && echo done", "done",
        limits={"seconds": 120.0}),
    _py("what is below deep folders",
        "for _ in range(150):\n    os.mkdir('d'); os.chdir('d')\ntime.sleep(100)", "", "disk",
        limits={"seconds": 120.0}),
    _py("one large file", "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))",
        "", "error|disk"),
    _sh("one large file, shell", "head -c 900M /dev/zero > big2", "", "disk|killed|error"),
    _py("a sparse file",
        "f = os.open('s', os.O_RDWR | os.O_CREAT)\nattempt(lambda: os.truncate(f, 1 << 40))",
        "EFBIG"),
    _sh("many files", "i=0; while true; do head -c 8M /dev/zero > m$i; i=$((i+1)); done", "",
        "disk", limits={"seconds": 120.0, "disk": 48 << 20}),
    _py("many small files", "for i in range(10**9): open(f'n{i}', 'w').close()", "", "disk",
        limits={"seconds": 120.0, "files": 500}),
    _py("deep folders", "while True:\n    os.mkdir('d'); os.chdir('d')", "", "disk|error",
        limits={"seconds": 20.0}),
    _sh("fill /tmp", "head -c 900M /dev/zero > /tmp/big; rm /tmp/big; echo done", "done"),
    _sh("fill /dev/shm", "head -c 900M /dev/zero > /dev/shm/b; rm /dev/shm/b; echo done", "done"),
    _py("descriptors",
        "fds = []\ntry:\n    while True: fds.append(os.dup(0))\n"
        "except OSError as e: print(errno.errorcode[e.errno], len(fds) < 600)", "EMFILE True"),
    _py("processor", "while True: continue", "", "timeout", limits={"seconds": 0.7},
        deadline="command"),
    _py("processor, counted", "while True: continue", "", "timeout",
        limits={"seconds": 500.0, "cpu_seconds": 1}, deadline="cpu"),
    _sh("flood of output", "yes", "(?s).*left out.*", "output", limits={"flood": 2 << 20}),
    _sh("flood of errors", "yes >&2", "", "output", limits={"flood": 2 << 20}),
    _py("one long line", "print('x' * 300_000)", "(?s)x+\n.*left out.*x+"),
]  # fmt: skip

_DECEIT = [
    _py("terminal sequences", "print('\\x1b]0;evil\\x07\\x1b[2J')", r"\\x1b\]0;evil\\x07\\x1b\[2J"),
    _py("reversed text", "print('\\u202eevil')", r"\\u202eevil"),
    _py("bytes that are no text", "os.write(1, bytes(range(128, 256)))", "(?s).*"),
    _py("the report where none is asked for", "attempt(lambda: os.write(3, b'passed'))", "EBADF"),
    _py("any other descriptor",
        "for fd in range(3, 500):\n    try: os.write(fd, b'\\0' * 64)\n"
        "    except OSError: continue\n    else: print('OPEN', fd)", ""),
    _py("the supervisor's language",
        "os.write(1, b'\\0\\0\\0\\x10' + b'\\0' * 8 + b'{\"sizes\": [0, 0]}')", "(?s).*sizes.*"),
    _sh("start files", "echo 'echo evil' | tee .profile .bashrc > .shrc; sh -c 'echo fine'",
        "fine"),
    _sh("sitecustomize", "echo 'print(\"evil\")' | tee sitecustomize.py > usercustomize.py;"
        "python3 -c 'print(\"fine\")'", "fine"),
    _sh("conftest and results", "echo 'evil' > conftest.py; echo '{}' > results.json", ""),
    _sh("names that mislead", "touch -- '-rf' \"$(printf 'a\\nb')\" \"$(printf '\\377')\"", ""),
    _sh("unreadable workspace", "chmod 000 /box", ""),
    _sh("workspace that is gone", "rm -rf /box; mv /box /tmp/box", "", "error"),
    _sh("unreadable folder", "mkdir -p u/v; touch u/v/w; chmod 000 u", ""),
]  # fmt: skip

ATTACKS = [*_FILES, *_PRIVILEGES, *_NETWORK, *_PROCESSES, *_RESOURCES, *_DECEIT]
