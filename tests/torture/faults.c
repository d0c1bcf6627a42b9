/* Loaded with LD_PRELOAD: records, fails or ends a process at calls that change files in a folder.
 *
 * faults_arm(folder, log, mode, at): from now on, calls that change a file below `folder` are
 * counted. mode 0: only record them in the file `log`; 1: SIGKILL before call number `at`, half of
 * the data of a write is written; 2: calls from number `at` on fail, the disk is full; 3: only call
 * number `at` fails. faults_mark() records a mark. faults_count() returns the number of calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static size_t folder_length;
static int armed, mode, log_fd = -1;
static long at, calls;

typedef struct {
    char kind;
    char pad[7];
    uint64_t inode;
    int64_t offset;
    uint64_t first, second; /* lengths of what follows */
} record_t;

static void put(char kind, uint64_t inode, int64_t offset, const void *first, size_t n,
                const void *second, size_t m)
{
    if (log_fd < 0)
        return;
    record_t record = {kind, {0}, inode, offset, n, m};
    syscall(SYS_write, log_fd, &record, sizeof record);
    if (n)
        syscall(SYS_write, log_fd, first, n);
    if (m)
        syscall(SYS_write, log_fd, second, m);
}

void faults_arm(const char *where, const char *log, int how, long number)
{
    folder_length = strlen(where);
    memcpy(folder, where, folder_length + 1);
    mode = how;
    at = number;
    calls = 0;
    if (log_fd >= 0)
        syscall(SYS_close, log_fd);
    log_fd = log[0] ? (int)syscall(SYS_openat, AT_FDCWD, log, O_CREAT | O_TRUNC | O_WRONLY, 0644)
                    : -1;
    armed = 1;
}

void faults_disarm(void) { armed = 0; }
void faults_mark(void) { put('A', 0, 0, NULL, 0, NULL, 0); }
long faults_count(void) { return calls; }

static int below(const char *path)
{
    return armed && strncmp(path, folder, folder_length) == 0;
}

static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    path[n < 0 ? 0 : n] = 0;
    return armed && n > 0 && below(path);
}

/* Count a call. Returns 1 if it must fail. */
static int counted(int fd, const void *data, size_t size)
{
    long number = calls++;
    if (mode == 1 && number == at) {
        if (fd >= 0 && size > 1)
            syscall(SYS_write, fd, data, size / 2);
        syscall(SYS_kill, getpid(), SIGKILL);
    }
    if ((mode == 2 && number >= at) || (mode == 3 && number == at)) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

#define REAL(type, name, ...)                                                                     \
    static type (*real)(__VA_ARGS__);                                                             \
    if (!real)                                                                                    \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static uint64_t inode_of(int fd)
{
    struct stat s;
    return fstat(fd, &s) ? 0 : s.st_ino;
}

static int open_any(int (*real)(const char *, int, ...), const char *path, int flags, int bits)
{
    if (!below(path) || !(flags & (O_CREAT | O_TRUNC)))
        return real(path, flags, bits);
    int existed = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
    if (!existed && counted(-1, NULL, 0))
        return -1;
    int fd = real(path, flags, bits);
    if (fd >= 0 && !existed)
        put('C', inode_of(fd), 0, path, strlen(path), NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC))
        put('T', inode_of(fd), 0, path, strlen(path), NULL, 0);
    return fd;
}

#define OPEN(name)                                                                                \
    int name(const char *path, int flags, ...)                                                    \
    {                                                                                             \
        va_list list;                                                                             \
        va_start(list, flags);                                                                    \
        int bits = va_arg(list, int);                                                             \
        va_end(list);                                                                             \
        REAL(int, name, const char *, int, ...);                                                  \
        return open_any(real, path, flags, bits);                                                 \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                              \
    int name(int base, const char *path, int flags, ...)                                          \
    {                                                                                             \
        va_list list;                                                                             \
        va_start(list, flags);                                                                    \
        int bits = va_arg(list, int);                                                             \
        va_end(list);                                                                             \
        REAL(int, name, int, const char *, int, ...);                                             \
        if (path[0] == '/')                                                                       \
            return open64(path, flags, bits);                                                     \
        return real(base, path, flags, bits);                                                     \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size)
{
    char path[4096];
    REAL(ssize_t, write, int, const void *, size_t);
    if (!armed || !path_of(fd, path))
        return real(fd, data, size);
    if (counted(fd, data, size))
        return -1;
    int64_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t n = real(fd, data, size);
    if (n > 0)
        put('W', inode_of(fd), offset, path, strlen(path), data, (size_t)n);
    return n;
}

#define PWRITE(name)                                                                              \
    ssize_t name(int fd, const void *data, size_t size, off_t offset)                             \
    {                                                                                             \
        char path[4096];                                                                          \
        REAL(ssize_t, name, int, const void *, size_t, off_t);                                    \
        if (!armed || !path_of(fd, path))                                                         \
            return real(fd, data, size, offset);                                                  \
        if (counted(-1, data, size))                                                              \
            return -1;                                                                            \
        ssize_t n = real(fd, data, size, offset);                                                 \
        if (n > 0)                                                                                \
            put('W', inode_of(fd), offset, path, strlen(path), data, (size_t)n);                  \
        return n;                                                                                 \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name)                                                                            \
    int name(int fd, off_t length)                                                                \
    {                                                                                             \
        char path[4096];                                                                          \
        REAL(int, name, int, off_t);                                                              \
        if (!armed || !path_of(fd, path))                                                         \
            return real(fd, length);                                                              \
        if (counted(-1, NULL, 0))                                                                 \
            return -1;                                                                            \
        int failed = real(fd, length);                                                            \
        if (!failed)                                                                              \
            put('T', inode_of(fd), length, path, strlen(path), NULL, 0);                          \
        return failed;                                                                            \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(name)                                                                                \
    int name(int fd)                                                                              \
    {                                                                                             \
        char path[4096];                                                                          \
        struct stat s;                                                                            \
        REAL(int, name, int);                                                                     \
        if (!armed || !path_of(fd, path))                                                         \
            return real(fd);                                                                      \
        if (counted(-1, NULL, 0))                                                                 \
            return -1;                                                                            \
        fstat(fd, &s);                                                                            \
        put(S_ISDIR(s.st_mode) ? 'D' : 'S', s.st_ino, 0, path, strlen(path), NULL, 0);            \
        return 0; /* the disk is slow, and only the order matters */                              \
    }
SYNC(fsync)
SYNC(fdatasync)

static int rename_any(int (*real)(const char *, const char *), const char *old, const char *new)
{
    if (!below(new))
        return real(old, new);
    if (counted(-1, NULL, 0))
        return -1;
    int failed = real(old, new);
    if (!failed)
        put('R', 0, 0, old, strlen(old), new, strlen(new));
    return failed;
}

int rename(const char *old, const char *new)
{
    REAL(int, rename, const char *, const char *);
    return rename_any(real, old, new);
}

int renameat(int a, const char *old, int b, const char *new)
{
    REAL(int, renameat, int, const char *, int, const char *);
    return old[0] == '/' && new[0] == '/' ? rename(old, new) : real(a, old, b, new);
}

#define REMOVE(name, kind)                                                                        \
    int name(const char *path)                                                                    \
    {                                                                                             \
        REAL(int, name, const char *);                                                            \
        if (!below(path))                                                                         \
            return real(path);                                                                    \
        if (mode == 1)                                                                            \
            counted(-1, NULL, 0);                                                                 \
        int failed = real(path);                                                                  \
        if (!failed)                                                                              \
            put(kind, 0, 0, path, strlen(path), NULL, 0);                                         \
        return failed;                                                                            \
    }
REMOVE(unlink, 'U')
REMOVE(rmdir, 'X')

/* shutil.rmtree removes names relative to an open folder. */
int unlinkat(int base, const char *name, int flags)
{
    REAL(int, unlinkat, int, const char *, int);
    char path[4096 + 1 + 256];
    if (name[0] == '/' || base == AT_FDCWD || !path_of(base, path) || strlen(name) > 255)
        return real(base, name, flags);
    strcat(strcat(path, "/"), name);
    if (mode == 1)
        counted(-1, NULL, 0);
    int failed = real(base, name, flags);
    if (!failed)
        put(flags & AT_REMOVEDIR ? 'X' : 'U', 0, 0, path, strlen(path), NULL, 0);
    return failed;
}

int mkdir(const char *path, mode_t bits)
{
    REAL(int, mkdir, const char *, mode_t);
    if (!below(path))
        return real(path, bits);
    if (counted(-1, NULL, 0))
        return -1;
    int failed = real(path, bits);
    if (!failed)
        put('M', 0, 0, path, strlen(path), NULL, 0);
    return failed;
}
