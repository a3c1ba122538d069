"""The system calls of the default seccomp profile: for every container, by capability, and by machine.

Absent on purpose: io_uring, keys, modules, namespaces, mounts, clocks, and whatever looks into other processes. The
profile has rules for some arguments of `socket`, `clone` and `personality`.
"""

from __future__ import annotations

_FILES = """
access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate
ftruncate64 futimesat getcwd getdents getdents64 getxattr getxattrat inotify_add_watch inotify_init inotify_init1
inotify_rm_watch ioctl lchown lchown32 lgetxattr link linkat listxattr listxattrat llistxattr _llseek lremovexattr
lseek lsetxattr lstat lstat64 mkdir mkdirat mknod mknodat newfstatat open openat openat2 pipe pipe2 pread64 preadv
preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat
renameat2 rmdir sendfile sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statx symlink symlinkat
sync sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat utimensat_time64 utimes
vmsplice write writev cachestat listmount statmount
"""
_EVENTS = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit _newselect poll ppoll
ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4
"""
_SOCKETS = """
accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 recvmsg
send sendmmsg sendmsg sendto setsockopt shutdown socketpair
"""
_MEMORY = """
brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect
mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease remap_file_pages
"""
_TIME = """
adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime
timerfd_gettime64 timerfd_settime timerfd_settime64 times
"""
_PROCESSES = """
capget capset execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
getcpu getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit get_robust_list getrusage getsid
get_thread_area gettid getuid getuid32 ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
landlock_restrict_self lsm_get_self_attr lsm_list_modules lsm_set_self_attr pause pidfd_open pidfd_send_signal prctl
prlimit64 ptrace restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam
sched_get_priority_max sched_get_priority_min sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp setfsgid setfsgid32 setfsuid
setfsuid32 setgid setgid32 setgroups setgroups32 setpgid setpriority setregid setregid32 setresgid setresgid32
setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list setsid set_thread_area set_tid_address setuid
setuid32 sigaltstack sigprocmask sigreturn sysinfo tgkill tkill ugetrlimit uname vfork wait4 waitid waitpid
"""
_QUEUES = """
ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink
msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
"""
CALLS = tuple(f"{_FILES}{_EVENTS}{_SOCKETS}{_MEMORY}{_TIME}{_PROCESSES}{_QUEUES}".split())

_ADMIN = """
bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount
name_to_handle_at open_tree perf_event_open pivot_root quotactl quotactl_fd setdomainname sethostname setns syslog
umount umount2 unshare
"""
_CALLS_OF_CAPABILITIES = {
    "SYS_ADMIN": _ADMIN,
    "DAC_READ_SEARCH": "open_by_handle_at",
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module finit_module init_module",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev",
    "SYS_RAWIO": "ioperm iopl",
    "SYS_TIME": "clock_settime clock_settime64 settimeofday stime",
    "SYS_TTY_CONFIG": "vhangup",
    "SYSLOG": "syslog",
    "BPF": "bpf",
    "PERFMON": "perf_event_open",
}
CALLS_OF_CAPABILITIES = {name: tuple(text.split()) for name, text in _CALLS_OF_CAPABILITIES.items()}
CALLS_OF_MACHINES = {
    "x86_64": ("arch_prctl", "modify_ldt"),
    "aarch64": ("arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"),
}
NEWEST_CALLS = {
    **{"cachestat": 451, "fchmodat2": 452, "map_shadow_stack": 453, "futex_wake": 454, "futex_wait": 455},
    **{"futex_requeue": 456, "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460},
    **{"lsm_list_modules": 461, "mseal": 462, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465},
    **{"removexattrat": 466},
}
"""The numbers of calls that a library may not know yet: they are the same on every machine."""
