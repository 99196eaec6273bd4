/* Records what a process writes and flushes below one folder, in order, so that a test can say what a power cut leaves.

   FILE_LAYER_ROOT  the folder
   FILE_LAYER_LOG   where the record goes: for each operation one byte for its kind, then path length, data length
                    (32 bits each) and offset (64 bits), all little-endian, then path and data
   FILE_LAYER_DISK  a file that says what the disk of the folder is just now: "full" (what grows or writes a file fails
                    with ENOSPC) or "readonly" (so does what opens a file for writing, with EROFS); else it is well
   FILE_LAYER_FAIL  the flush of a file "-wal" that fails with EIO, counted from 1; 0 or unset: none

   Only what is recorded waits for the lock. Python writes a byte to a socket in its signal handler, which may interrupt
   a write of the same thread: a lock around all writes would then never be free again. That handler may run on a stack of
   8 KB, which Python has on its heap: only a write to a file takes room for paths.

   Kinds: w write, t truncate (to the offset), s flush, f flush that failed, u unlink, o a line on standard output.
   Build: cc -shared -fPIC -O1 -o file_layer.so file_layer.c; use with LD_PRELOAD. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root, *disk;
static int log_fd = -1, flushes, fail_at;
static int armed, writes, write_error, stays;

/* Have the n-th write below the root from now on fail with this error, and with `lasts` all later ones, too; 0: none.
   Return how many there were since the last call. A test calls it by ctypes. */
int file_layer_arm(int n, int error, int lasts) {
    pthread_mutex_lock(&lock);
    int before = writes;
    armed = n, write_error = error, stays = lasts, writes = 0;
    pthread_mutex_unlock(&lock);
    return before;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FILE_LAYER_LOG"), *fail = getenv("FILE_LAYER_FAIL");
    root = getenv("FILE_LAYER_ROOT");
    disk = getenv("FILE_LAYER_DISK");
    fail_at = fail ? atoi(fail) : 0;
    if (path && root) log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int below(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && path[length] == '/';
}

/* What a write fails with now; 0: it does not. */
static int trouble(void) {
    char said = 0;
    int fd = disk ? (int)syscall(SYS_openat, AT_FDCWD, disk, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    if (syscall(SYS_read, fd, &said, 1) < 0) said = 0;
    syscall(SYS_close, fd);
    return said == 'f' ? ENOSPC : said == 'r' ? EROFS : 0;
}

static int place(int fd, char *path, size_t size) {
    char link[40];
    if (log_fd < 0 || fd == log_fd) return 0;
    if (fd == 1) return snprintf(path, size, "out") > 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, size - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below(path);
}

static void record(char kind, const char *path, uint64_t offset, const void *data, uint32_t size) {
    uint32_t length = (uint32_t)strlen(path);
    char head[17];
    head[0] = kind;
    memcpy(head + 1, &length, 4);
    memcpy(head + 5, &size, 4);
    memcpy(head + 9, &offset, 8);
    struct iovec parts[3] = {{head, sizeof head}, {(void *)path, length}, {(void *)data, size}};
    if (syscall(SYS_writev, log_fd, parts, 3) < 0) abort();
}


static ssize_t plainly_written(int fd, const void *data, size_t size, off_t offset, int here) {
    return here ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, offset);
}

__attribute__((noinline)) static ssize_t written_to_file(int fd, const void *data, size_t size, off_t offset, int here) {
    char path[4096];
    if (!place(fd, path, sizeof path)) return plainly_written(fd, data, size, offset, here);
    int failure = fd != 1 ? trouble() : 0;
    if (failure) {
        errno = failure;
        return -1;
    }
    pthread_mutex_lock(&lock);
    if (fd != 1) writes++;
    if (fd != 1 && armed && (writes == armed || (stays && writes > armed))) {
        pthread_mutex_unlock(&lock);
        errno = write_error;
        return -1;
    }
    if (here) offset = fd == 1 ? 0 : lseek(fd, 0, SEEK_CUR);
    if (fd == 1) record('o', path, 0, data, (uint32_t)size);
    ssize_t done = plainly_written(fd, data, size, offset, here);
    int error = errno;
    if (fd != 1 && done > 0) record('w', path, (uint64_t)offset, data, (uint32_t)done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

static ssize_t written(int fd, const void *data, size_t size, off_t offset, int here) {
    struct stat status;
    if (fd != 1 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)))
        return plainly_written(fd, data, size, offset, here);
    return written_to_file(fd, data, size, offset, here);
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, 0, 1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return written(fd, data, size, offset, 0); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return written(fd, data, size, offset, 0); }

static int flushed(int fd, long call) {
    char path[4096];
    if (fd == 1 || !place(fd, path, sizeof path)) return (int)syscall(call, fd);
    pthread_mutex_lock(&lock);
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, "-wal") == 0 && ++flushes == fail_at) {
        record('f', path, 0, "", 0);
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return -1;
    }
    int done = (int)syscall(call, fd), error = errno;
    if (done == 0) record('s', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char whole[4096];
    int wants = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (root && wants && realpath(path, whole) == NULL) snprintf(whole, sizeof whole, "%s", path);
    if (root && wants && below(whole) && trouble() == EROFS) {
        errno = EROFS;
        return -1;
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN(name)                                   \
    int name(const char *path, int flags, ...) {     \
        va_list more;                                \
        va_start(more, flags);                       \
        mode_t mode = va_arg(more, mode_t);          \
        va_end(more);                                \
        return opened(AT_FDCWD, path, flags, mode);  \
    }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
    if (root && (below(path) || strcmp(path, root) == 0) && trouble() == EROFS) {
        errno = EROFS;
        return -1;
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int fsync(int fd) { return flushed(fd, SYS_fsync); }
int fdatasync(int fd) { return flushed(fd, SYS_fdatasync); }

static int truncated(int fd, off_t size) {
    char path[4096];
    if (fd == 1 || !place(fd, path, sizeof path)) return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_ftruncate, fd, size), error = errno;
    if (done == 0) record('t', path, (uint64_t)size, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off_t size) { return truncated(fd, size); }

int unlink(const char *path) {
    if (log_fd < 0 || !below(path)) return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), error = errno;
    if (done == 0) record('u', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
