/* Loaded before libc: counts what a process changes below one folder, and kills it at a given change.
 *
 * A change is a call that alters what is on disk: a file opened for writing, a write, a truncation, a new folder, a
 * rename, a link, a removal. Every change stands in a log before it is made. Whatever library makes it is seen: Python,
 * LMDB, Arrow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static long kill_at, count;
static int torn, log_file = -1;
static pid_t armed;

/* From now on changes of this process below `folder` count. At change `at` (from 1; 0: none) it is killed: before
 * it, or, where it is a write and `half` is set, after half of it. */
void kill_at_arm(const char *folder, long at, int half, int log) {
    snprintf(root, sizeof root, "%s/", folder);
    kill_at = at, torn = half, log_file = log, count = 0, armed = getpid();
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void full_path(int directory, const char *path, char *out) {
    char link[64];
    if (path != NULL && path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    if (directory == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    length = length < 0 ? 0 : length;
    out[length] = 0;
    if (path != NULL) snprintf(out + length, PATH_MAX - length, "/%s", path);
}

/* Note a change, and die before it if its time has come; true where half of it is to be made first. */
static int change(const char *what, int directory, const char *path, size_t bytes) {
    char full[PATH_MAX], line[PATH_MAX + 64];
    if (armed == 0 || armed != getpid()) return 0;
    full_path(directory, path, full);
    if (strncmp(full, root, strlen(root)) != 0) return 0;
    int length = snprintf(line, sizeof line, "%s %zu %s\n", what, bytes, full + strlen(root));
    if (syscall(SYS_write, log_file, line, length) != length) _exit(99);
    if (++count != kill_at) return 0;
    if (torn && bytes > 1) return 1;
    die();
    return 0;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define OPEN(name, parameters, directory, ...) \
    int name parameters { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) change("open", directory, path, 0); \
        return real(__VA_ARGS__, mode); \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, path, flags)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, path, flags)
OPEN(openat, (int directory, const char *path, int flags, ...), directory, directory, path, flags)
OPEN(openat64, (int directory, const char *path, int flags, ...), directory, directory, path, flags)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        if (mode[0] != 'r' || strchr(mode, '+')) change("open", AT_FDCWD, path, 0); \
        return real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void *data, size_t bytes) {
    if (change("write", file, NULL, bytes)) {
        syscall(SYS_write, file, data, bytes / 2);
        die();
    }
    REAL(write);
    return real(file, data, bytes);
}

#define PWRITE(name, offset) \
    ssize_t name(int file, const void *data, size_t bytes, offset at) { \
        if (change("write", file, NULL, bytes)) { \
            syscall(SYS_pwrite64, file, data, bytes / 2, at); \
            die(); \
        } \
        REAL(name); \
        return real(file, data, bytes, at); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

/* Of several pieces the first half is written. */
ssize_t writev(int file, const struct iovec *pieces, int number) {
    if (change("write", file, NULL, number)) {
        syscall(SYS_writev, file, pieces, number / 2);
        die();
    }
    REAL(writev);
    return real(file, pieces, number);
}

#define CHANGE(type, name, parameters, what, directory, path, ...) \
    type name parameters { \
        REAL(name); \
        change(what, directory, path, 0); \
        return real(__VA_ARGS__); \
    }
CHANGE(int, truncate64, (const char *p, off64_t n), "truncate", AT_FDCWD, p, p, n)
CHANGE(int, ftruncate, (int f, off_t n), "truncate", f, NULL, f, n)
CHANGE(int, ftruncate64, (int f, off64_t n), "truncate", f, NULL, f, n)
CHANGE(int, rename, (const char *a, const char *b), "rename", AT_FDCWD, b, a, b)
CHANGE(int, renameat, (int d, const char *a, int e, const char *b), "rename", e, b, d, a, e, b)
CHANGE(int, renameat2, (int d, const char *a, int e, const char *b, unsigned f), "rename", e, b, d, a, e, b, f)
CHANGE(int, link, (const char *a, const char *b), "link", AT_FDCWD, b, a, b)
CHANGE(int, linkat, (int d, const char *a, int e, const char *b, int f), "link", e, b, d, a, e, b, f)
CHANGE(int, symlink, (const char *a, const char *b), "link", AT_FDCWD, b, a, b)
CHANGE(int, symlinkat, (const char *a, int e, const char *b), "link", e, b, a, e, b)
CHANGE(int, mkdir, (const char *p, mode_t m), "mkdir", AT_FDCWD, p, p, m)
CHANGE(int, mkdirat, (int d, const char *p, mode_t m), "mkdir", d, p, d, p, m)
CHANGE(int, unlink, (const char *p), "unlink", AT_FDCWD, p, p)
CHANGE(int, unlinkat, (int d, const char *p, int f), f &AT_REMOVEDIR ? "rmdir" : "unlink", d, p, d, p, f)
CHANGE(int, rmdir, (const char *p), "rmdir", AT_FDCWD, p, p)
