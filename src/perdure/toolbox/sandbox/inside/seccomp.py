"""The filter of system calls: an allow-list as a BPF program for the kernel.

A call that is not on the list gets ENOSYS, as from a kernel that does not have it, so that libraries fall back to
another one. A call that is known to be dangerous gets EPERM. Some calls are allowed with certain arguments only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping

from .kernel import system_call


def _table(text: str) -> Mapping[str, int]:
    """Name -> number, from a text of `name:number` words."""
    return {name: int(number) for name, number in (entry.split(":") for entry in text.split())}


X86_64 = _table(
    """
    accept:43 accept4:288 access:21 acct:163 add_key:248 adjtimex:159 alarm:37 arch_prctl:158 bind:49 bpf:321 brk:12
    capget:125 capset:126 chdir:80 chmod:90 chown:92 chroot:161 clock_adjtime:305 clock_getres:229 clock_gettime:228
    clock_nanosleep:230 clock_settime:227 clone:56 close:3 close_range:436 connect:42 copy_file_range:326
    delete_module:176 dup:32 dup2:33 dup3:292 epoll_create:213 epoll_create1:291 epoll_ctl:233 epoll_pwait:281
    epoll_pwait2:441 epoll_wait:232 eventfd:284 eventfd2:290 execve:59 execveat:322 exit:60 exit_group:231
    faccessat:269 faccessat2:439 fadvise64:221 fallocate:285 fanotify_init:300 fanotify_mark:301 fchdir:81 fchmod:91
    fchmodat:268 fchown:93 fchownat:260 fcntl:72 fdatasync:75 fgetxattr:193 finit_module:313 flistxattr:196 flock:73
    fork:57 fsconfig:431 fsetxattr:190 fsmount:432 fsopen:430 fspick:433 fstat:5 fstatfs:138 fsync:74 ftruncate:77
    futex:202 futex_requeue:456 futex_wait:455 futex_waitv:449 futex_wake:454 futimesat:261 get_mempolicy:239
    getcpu:309 getcwd:79 getdents:78 getdents64:217 getegid:108 geteuid:107 getgid:104 getgroups:115 getitimer:36
    getpeername:52 getpgid:121 getpgrp:111 getpid:39 getppid:110 getpriority:140 getrandom:318 getresgid:120
    getresuid:118 getrlimit:97 getrusage:98 getsid:124 getsockname:51 getsockopt:55 gettid:186 gettimeofday:96
    getuid:102 getxattr:191 init_module:175 io_uring_enter:426 io_uring_register:427 io_uring_setup:425 ioctl:16
    ioperm:173 iopl:172 ioprio_set:251 kcmp:312 kexec_file_load:320 kexec_load:246 keyctl:250 kill:62
    landlock_add_rule:445 landlock_create_ruleset:444 landlock_restrict_self:446 lchown:94 lgetxattr:192 link:86
    linkat:265 listen:50 listxattr:194 llistxattr:195 lseek:8 lsetxattr:189 lstat:6 madvise:28 membarrier:324
    memfd_create:319 memfd_secret:447 mincore:27 mkdir:83 mkdirat:258 mknod:133 mknodat:259 mlock:149 mlock2:325
    mlockall:151 mmap:9 mount:165 mount_setattr:442 move_mount:429 mprotect:10 mq_open:240 mremap:25 msgget:68
    msgsnd:69 msync:26 munmap:11 name_to_handle_at:303 nanosleep:35 newfstatat:262 open:2 open_by_handle_at:304
    open_tree:428 openat:257 openat2:437 pause:34 perf_event_open:298 personality:135 pidfd_getfd:438 pipe:22
    pipe2:293 pivot_root:155 pkey_alloc:330 pkey_free:331 pkey_mprotect:329 poll:7 ppoll:271 prctl:157 pread64:17
    preadv:295 preadv2:327 prlimit64:302 process_madvise:440 process_vm_readv:310 process_vm_writev:311 pselect6:270
    ptrace:101 pwrite64:18 pwritev:296 pwritev2:328 quotactl:179 quotactl_fd:443 read:0 readahead:187 readlink:89
    readlinkat:267 readv:19 reboot:169 recvfrom:45 recvmmsg:299 recvmsg:47 rename:82 renameat:264 renameat2:316
    request_key:249 restart_syscall:219 rmdir:84 rseq:334 rt_sigaction:13 rt_sigpending:127 rt_sigprocmask:14
    rt_sigqueueinfo:129 rt_sigreturn:15 rt_sigsuspend:130 rt_sigtimedwait:128 rt_tgsigqueueinfo:297
    sched_get_priority_max:146 sched_get_priority_min:147 sched_getaffinity:204 sched_getparam:143
    sched_getscheduler:145 sched_setaffinity:203 sched_setattr:314 sched_setparam:142 sched_setscheduler:144
    sched_yield:24 seccomp:317 select:23 semctl:66 semget:64 semop:65 sendfile:40 sendmmsg:307 sendmsg:46 sendto:44
    set_robust_list:273 set_tid_address:218 setdomainname:171 setfsgid:123 setfsuid:122 setgid:106 setgroups:116
    sethostname:170 setitimer:38 setns:308 setpgid:109 setpriority:141 setregid:114 setresgid:119 setresuid:117
    setreuid:113 setrlimit:160 setsid:112 setsockopt:54 settimeofday:164 setuid:105 setxattr:188 shmat:30 shmctl:31
    shmget:29 shutdown:48 sigaltstack:131 signalfd:282 signalfd4:289 socket:41 socketpair:53 splice:275 stat:4
    statfs:137 statx:332 swapoff:168 swapon:167 symlink:88 symlinkat:266 sync_file_range:277 sysinfo:99 syslog:103
    tee:276 tgkill:234 time:201 timer_create:222 timer_delete:226 timer_getoverrun:225 timer_gettime:224
    timer_settime:223 timerfd_create:283 timerfd_gettime:287 timerfd_settime:286 times:100 tkill:200 truncate:76
    umask:95 umount2:166 uname:63 unlink:87 unlinkat:263 unshare:272 userfaultfd:323 utime:132 utimensat:280
    utimes:235 vfork:58 vhangup:153 vmsplice:278 wait4:61 waitid:247 write:1 writev:20
    """
)


AARCH64 = _table(
    """
    accept:202 accept4:242 acct:89 add_key:217 adjtimex:171 bind:200 bpf:280 brk:214 capget:90 capset:91 chdir:49
    chroot:51 clock_adjtime:266 clock_getres:114 clock_gettime:113 clock_nanosleep:115 clock_settime:112 clone:220
    close:57 close_range:436 connect:203 copy_file_range:285 delete_module:106 dup:23 dup3:24 epoll_create1:20
    epoll_ctl:21 epoll_pwait:22 epoll_pwait2:441 eventfd2:19 execve:221 execveat:281 exit:93 exit_group:94
    faccessat:48 faccessat2:439 fadvise64:223 fallocate:47 fanotify_init:262 fanotify_mark:263 fchdir:50 fchmod:52
    fchmodat:53 fchown:55 fchownat:54 fcntl:25 fdatasync:83 fgetxattr:10 finit_module:273 flistxattr:13 flock:32
    fsconfig:431 fsetxattr:7 fsmount:432 fsopen:430 fspick:433 fstat:80 fstatfs:44 fsync:82 ftruncate:46 futex:98
    futex_requeue:456 futex_wait:455 futex_waitv:449 futex_wake:454 get_mempolicy:236 getcpu:168 getcwd:17
    getdents64:61 getegid:177 geteuid:175 getgid:176 getgroups:158 getitimer:102 getpeername:205 getpgid:155
    getpid:172 getppid:173 getpriority:141 getrandom:278 getresgid:150 getresuid:148 getrlimit:163 getrusage:165
    getsid:156 getsockname:204 getsockopt:209 gettid:178 gettimeofday:169 getuid:174 getxattr:8 init_module:105
    io_uring_enter:426 io_uring_register:427 io_uring_setup:425 ioctl:29 ioprio_set:30 kcmp:272 kexec_file_load:294
    kexec_load:104 keyctl:219 kill:129 landlock_add_rule:445 landlock_create_ruleset:444 landlock_restrict_self:446
    lgetxattr:9 linkat:37 listen:201 listxattr:11 llistxattr:12 lseek:62 lsetxattr:6 madvise:233 membarrier:283
    memfd_create:279 memfd_secret:447 mincore:232 mkdirat:34 mknodat:33 mlock:228 mlock2:284 mlockall:230 mmap:222
    mount:40 mount_setattr:442 move_mount:429 mprotect:226 mq_open:180 mremap:216 msgget:186 msgsnd:189 msync:227
    munmap:215 name_to_handle_at:264 nanosleep:101 newfstatat:79 open_by_handle_at:265 open_tree:428 openat:56
    openat2:437 perf_event_open:241 personality:92 pidfd_getfd:438 pipe2:59 pivot_root:41 pkey_alloc:289
    pkey_free:290 pkey_mprotect:288 ppoll:73 prctl:167 pread64:67 preadv:69 preadv2:286 prlimit64:261
    process_madvise:440 process_vm_readv:270 process_vm_writev:271 pselect6:72 ptrace:117 pwrite64:68 pwritev:70
    pwritev2:287 quotactl:60 quotactl_fd:443 read:63 readahead:213 readlinkat:78 readv:65 reboot:142 recvfrom:207
    recvmmsg:243 recvmsg:212 renameat:38 renameat2:276 request_key:218 restart_syscall:128 rseq:293 rt_sigaction:134
    rt_sigpending:136 rt_sigprocmask:135 rt_sigqueueinfo:138 rt_sigreturn:139 rt_sigsuspend:133 rt_sigtimedwait:137
    rt_tgsigqueueinfo:240 sched_get_priority_max:125 sched_get_priority_min:126 sched_getaffinity:123
    sched_getparam:121 sched_getscheduler:120 sched_setaffinity:122 sched_setattr:274 sched_setparam:118
    sched_setscheduler:119 sched_yield:124 seccomp:277 semctl:191 semget:190 semop:193 sendfile:71 sendmmsg:269
    sendmsg:211 sendto:206 set_robust_list:99 set_tid_address:96 setdomainname:162 setfsgid:152 setfsuid:151
    setgid:144 setgroups:159 sethostname:161 setitimer:103 setns:268 setpgid:154 setpriority:140 setregid:143
    setresgid:149 setresuid:147 setreuid:145 setrlimit:164 setsid:157 setsockopt:208 settimeofday:170 setuid:146
    setxattr:5 shmat:196 shmctl:195 shmget:194 shutdown:210 sigaltstack:132 signalfd4:74 socket:198 socketpair:199
    splice:76 statfs:43 statx:291 swapoff:225 swapon:224 symlinkat:36 sync_file_range:84 sysinfo:179 syslog:116
    tee:77 tgkill:131 timer_create:107 timer_delete:111 timer_getoverrun:109 timer_gettime:108 timer_settime:110
    timerfd_create:85 timerfd_gettime:87 timerfd_settime:86 times:153 tkill:130 truncate:45 umask:166 umount2:39
    uname:160 unlinkat:35 unshare:97 userfaultfd:282 utimensat:88 vhangup:58 vmsplice:75 wait4:260 waitid:95
    write:64 writev:66
    """
)


_FILES = """
read write open openat openat2 close close_range lseek pread64 pwrite64 readv writev preadv pwritev
sendfile copy_file_range fsync fdatasync sync_file_range fallocate ftruncate fcntl dup
dup2 dup3 pipe pipe2 ioctl stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat
getdents getdents64 getcwd chdir fchdir statfs fstatfs getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat umask
"""
_FILE_METADATA = "truncate chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat"
_MEMORY = """
mmap mprotect munmap mremap madvise brk msync membarrier pkey_alloc pkey_free pkey_mprotect rseq
"""
_THREADS = """
clone exit exit_group set_tid_address set_robust_list futex futex_waitv futex_wake futex_wait futex_requeue
arch_prctl prctl sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler
sched_get_priority_max sched_get_priority_min getpriority get_mempolicy getcpu
"""
_PROCESSES = "fork vfork execve execveat wait4 waitid"
_OWN_PROCESS = """
getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid setpgid
setsid capget uname sysinfo getrusage times getrlimit setrlimit prlimit64
"""
_SIGNALS = """
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack restart_syscall
kill tkill tgkill pause signalfd signalfd4
"""
_TIME = """
time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm setitimer getitimer timer_create
timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime
"""
_WAITING = """
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
"""
_SOCKET_PAIRS = """
socketpair sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockopt setsockopt getsockname getpeername
getrandom
"""
_NETWORK = "socket connect bind listen accept accept4"

ALLOWED = frozenset(
    f"{_FILES} {_FILE_METADATA} {_MEMORY} {_THREADS} {_PROCESSES} {_OWN_PROCESS} {_SIGNALS} {_TIME}"
    f" {_WAITING} {_SOCKET_PAIRS}".split()
)
"""The system calls that code without a network may make; of some, certain arguments only."""

_DANGEROUS = """
ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp bpf perf_event_open userfaultfd
io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl mount umount2 pivot_root chroot open_tree
move_mount fsopen fsconfig fsmount fspick mount_setattr unshare setns mknod mknodat setuid setgid setreuid setregid
setresuid setresgid setfsuid setfsgid setgroups capset seccomp personality swapon swapoff reboot kexec_load
kexec_file_load init_module finit_module delete_module iopl ioperm quotactl quotactl_fd acct settimeofday
clock_settime adjtimex clock_adjtime sethostname setdomainname syslog name_to_handle_at open_by_handle_at
fanotify_init fanotify_mark setpriority ioprio_set sched_setscheduler sched_setattr sched_setparam mlock mlock2
mlockall shmget shmat shmctl semget semop semctl msgget msgsnd mq_open memfd_create memfd_secret setxattr lsetxattr
fsetxattr rt_sigqueueinfo rt_tgsigqueueinfo vhangup socket connect bind listen accept accept4 splice tee vmsplice
landlock_create_ruleset landlock_add_rule landlock_restrict_self
"""

REFUSED = frozenset(_DANGEROUS.split())
"""The system calls that get EPERM instead of ENOSYS: a clear answer, and no library tries another way."""

_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000003E, X86_64),
    "aarch64": (0xC00000B7, AARCH64),
}

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in what the kernel shows the program
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SET_MODE_FILTER = 1

_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW*: cgroup, uts, ipc, user, pid, net, mount
_CLONE_THREAD = 0x00010000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_TYPE_MASK = 1, 2, 0xF
_PROTOCOLS = (0, 6, 17)  # the usual one, TCP, UDP; asked for another, the kernel may load a module
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_PRCTLS = (3, 15, 16, 23, 0x53564D41)  # PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_CAPBSET_READ, PR_SET_VMA
_FCNTLS = (
    *(0, 1, 2, 3, 4, 9, 11),  # F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETOWN F_GETSIG
    *(5, 1030, 1032, 1034),  # F_GETLK F_DUPFD_CLOEXEC F_GETPIPE_SZ F_GET_SEALS
)
_LOCKS = (6, 7)  # F_SETLK F_SETLKW
_SOCKET_OPTIONS: Mapping[int, tuple[int, ...]] = {
    # level: options. No sizes of buffers, no programs, no marks for urgent data.
    0: (1, 2, 10, 11, 24),  # IP: TOS TTL MTU_DISCOVER RECVERR BIND_ADDRESS_NO_PORT
    1: (2, 6, 9, 13, 15, 16, 20, 21, 66, 67),  # REUSEADDR BROADCAST KEEPALIVE LINGER REUSEPORT PASSCRED, time limits
    6: (1, 2, 3, 4, 5, 6, 12, 18, 25),  # TCP: NODELAY MAXSEG CORK KEEPIDLE, -INTVL, -CNT QUICKACK USER_TIMEOUT, LOWAT
    41: (16, 23, 25, 26),  # IPv6: UNICAST_HOPS MTU_DISCOVER RECVERR V6ONLY
}
_MESSAGE_FLAGS = 0x04000001  # MSG_OOB, MSG_ZEROCOPY
_SHARED_WITHOUT_FILE, _HUGE_OR_GROWING = 0x21, 0x40100  # MAP_SHARED and MAP_ANONYMOUS; MAP_HUGETLB, MAP_GROWSDOWN
_ADVICE = (12, 20, 21)  # MADV_MERGEABLE, MADV_COLD, MADV_PAGEOUT
_MS_SYNC = 4
_CLOCKS_OF_TIMERS = (0, 1, 7)  # CLOCK_REALTIME, _MONOTONIC, _BOOTTIME; the others are of processor time, or wake
_ITIMER_REAL, _CLOCK_TAI = 0, 11
_FLAGS_OF_MESSAGES = {"sendto": 3, "recvfrom": 3, "sendmsg": 2, "recvmsg": 2, "sendmmsg": 3, "recvmmsg": 3}

_Code = list[tuple[int, int, int, int]]


def supported() -> bool:
    """Whether this processor's system call numbers are known."""
    return os.uname().machine in _MACHINES


def program(
    *, network: bool, namespaces: bool, file_metadata: bool = False, pid: int = 0, machine: str | None = None
) -> bytes:
    """The BPF program, as the kernel takes it.

    Args:
        namespaces: whether the code has processes, files and users of its own. If not, it may start no process, signal
            only itself, which is `pid`, and not change modes, times and owners of files, which Landlock does not check.
        file_metadata: whether it may change those all the same.
    """
    audit, numbers = _MACHINES[machine or os.uname().machine]
    allow, refuse = _allow(), _fail(errno.EPERM)
    actions = dict.fromkeys(REFUSED, refuse) | dict.fromkeys(ALLOWED, allow)
    if network:
        actions |= dict.fromkeys(_NETWORK.split(), allow)
    if not namespaces:
        actions |= dict.fromkeys(f"{_PROCESSES} {'' if file_metadata else _FILE_METADATA} tkill".split(), refuse)
    actions |= _rules_on_arguments(network=network, namespaces=namespaces, pid=pid)
    code: _Code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),  # 32-bit calls have other numbers
        (_LOAD, 0, 0, _NUMBER),
    ]
    for name in sorted(actions.keys() & numbers.keys()):
        code += [(_JUMP_EQUAL, 0, len(actions[name]), numbers[name]), *actions[name]]
    code += _fail(errno.ENOSYS)  # also for the numbers of x32
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(bpf: bytes) -> None:
    """Put this thread and all that it starts under the program, for good."""
    address = ctypes.cast(ctypes.c_char_p(bpf), ctypes.c_void_p).value or 0
    _, numbers = _MACHINES[os.uname().machine]
    system_call("seccomp", numbers["seccomp"], _SET_MODE_FILTER, 0, struct.pack("@HP", len(bpf) // 8, address))


def _allow() -> _Code:
    """Code that lets the call through."""
    return [(_RETURN, 0, 0, _ALLOW)]


def _fail(number: int) -> _Code:
    """Code that fails the call with an errno; 0: it succeeds without being done."""
    return [(_RETURN, 0, 0, _ERRNO | number)]


def _argument(index: int) -> tuple[int, int, int, int]:
    """The instruction that loads an argument of the call."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)  # the low half; both processors are little-endian


def _if_one_of(index: int, values: Iterable[int], *, then: _Code, other: _Code) -> _Code:
    """Code that goes on with `then` if the argument is one of the values, else with `other`."""
    return _switch(index, dict.fromkeys(values, then), other=other)


def _switch(index: int, cases: Mapping[int, _Code], *, other: _Code) -> _Code:
    """Code that goes on with the case of the argument's value, else with `other`."""
    code = [_argument(index)]
    for value, then in cases.items():
        code += [(_JUMP_EQUAL, 0, len(then), value), *then]
    return code + other


def _rules_on_arguments(*, network: bool, namespaces: bool, pid: int) -> Mapping[str, _Code]:
    """Name -> code, of the calls that are allowed with certain arguments only."""
    allow, refuse = _allow(), _fail(errno.EPERM)
    stream_pair = [
        _argument(0),
        (_JUMP_EQUAL, 1, 0, _AF_UNIX),
        *refuse,
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_JUMP_EQUAL, 0, 1, _SOCK_STREAM),  # a datagram socket could still be given an address
        *allow,
        *refuse,
    ]
    protocol = _if_one_of(2, _PROTOCOLS, then=allow, other=_fail(errno.EPROTONOSUPPORT))
    internet = [
        _argument(0),
        (_JUMP_EQUAL, 2, 0, _AF_INET),
        (_JUMP_EQUAL, 1, 0, _AF_INET6),
        *_fail(errno.EAFNOSUPPORT),
        _argument(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_JUMP_EQUAL, 1, 0, _SOCK_STREAM),
        # Landlock can't hold datagrams back, so there are none where the network is the machine's.
        (_JUMP_EQUAL, 0, len(protocol), _SOCK_DGRAM if namespaces else _SOCK_STREAM),
        *protocol,
        *refuse,
    ]
    thread_only = [] if namespaces else [(_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD), *refuse]
    clone = [_argument(0), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), *refuse, *thread_only, *allow]
    memory = [
        _argument(3),
        (_JUMP_ANY_BIT, 0, 1, _HUGE_OR_GROWING),
        *refuse,
        (_AND, 0, 0, _SHARED_WITHOUT_FILE),
        (_JUMP_EQUAL, 0, 1, _SHARED_WITHOUT_FILE),  # its pages stay when no process counts them any more
        *refuse,
        *allow,
    ]
    rules = {
        "clone": clone,
        "mmap": memory,
        # Pages merged with equal ones of other calls, or put out of a cache that others use: both can be measured.
        "madvise": _if_one_of(2, _ADVICE, then=refuse, other=allow),
        # The work folder is in memory, where this does nothing; on a library's file it would flush the machine's disk.
        **dict.fromkeys(("fsync", "fdatasync", "sync_file_range"), _fail(0)),
        "msync": [_argument(2), (_JUMP_ANY_BIT, 0, 1, _MS_SYNC), *_fail(0), *allow],
        "ioctl": _if_one_of(1, _IOCTLS, then=allow, other=_fail(errno.ENOTTY)),
        "prctl": _if_one_of(0, _PRCTLS, then=allow, other=refuse),
        # A lock on a library file would be seen by other calls, and byte ranges can be locked without end. SQLite needs
        # an answer of success, and within one process POSIX locks never keep anybody off, so they are granted unset.
        "fcntl": _switch(1, {**dict.fromkeys(_FCNTLS, allow), **dict.fromkeys(_LOCKS, _fail(0))}, other=refuse),
        "prlimit64": _if_one_of(0, (0,), then=allow, other=refuse),
        "sched_setaffinity": _if_one_of(0, (0,), then=allow, other=refuse),
        "socketpair": stream_pair,
        "setsockopt": _switch(
            1,
            {level: _if_one_of(2, names, then=allow, other=refuse) for level, names in _SOCKET_OPTIONS.items()},
            other=refuse,
        ),
        # Timers of processor time are refused: code that only they reach has had defects again and again.
        "setitimer": _if_one_of(0, (_ITIMER_REAL,), then=allow, other=refuse),
        "timer_create": _if_one_of(0, _CLOCKS_OF_TIMERS, then=allow, other=refuse),
        "clock_nanosleep": _if_one_of(0, (*_CLOCKS_OF_TIMERS, _CLOCK_TAI), then=allow, other=refuse),
    }
    for name, index in _FLAGS_OF_MESSAGES.items():
        rules[name] = [_argument(index), (_JUMP_ANY_BIT, 0, 1, _MESSAGE_FLAGS), *_fail(errno.EPERM), *_allow()]
    if network:
        rules["socket"] = internet
    if not namespaces:
        rules["kill"] = rules["tgkill"] = _if_one_of(0, (pid,), then=allow, other=refuse)
    return rules
