/* Records what a process writes and flushes below one folder, in order, so that a test can say what a power cut leaves.

   FILE_LAYER_ROOT  the folder
   FILE_LAYER_LOG   where the record goes: for each operation one byte for its kind, then path length, data length
                    (32 bits each) and offset (64 bits), all little-endian, then path and data
   FILE_LAYER_FAIL  the flush of a file "-wal" that fails with EIO, counted from 1; 0 or unset: none

   Kinds: w write, t truncate (to the offset), s flush, f flush that failed, u unlink, o a line on standard output.
   Build: cc -shared -fPIC -O1 -o file_layer.so file_layer.c; use with LD_PRELOAD. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static int log_fd = -1, flushes, fail_at;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FILE_LAYER_LOG"), *fail = getenv("FILE_LAYER_FAIL");
    root = getenv("FILE_LAYER_ROOT");
    fail_at = fail ? atoi(fail) : 0;
    if (path && root) log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int below(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && path[length] == '/';
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


static ssize_t written(int fd, const void *data, size_t size, off_t offset, int here) {
    char path[4096];
    int known = place(fd, path, sizeof path);
    pthread_mutex_lock(&lock);
    if (known && here) offset = fd == 1 ? 0 : lseek(fd, 0, SEEK_CUR);
    if (known && fd == 1) record('o', path, 0, data, (uint32_t)size);
    ssize_t done = here ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, offset);
    int error = errno;
    if (known && fd != 1 && done > 0) record('w', path, (uint64_t)offset, data, (uint32_t)done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, 0, 1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return written(fd, data, size, offset, 0); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return written(fd, data, size, offset, 0); }

static int flushed(int fd, long call) {
    char path[4096];
    int known = place(fd, path, sizeof path) && fd != 1;
    pthread_mutex_lock(&lock);
    size_t length = known ? strlen(path) : 0;
    if (length > 4 && strcmp(path + length - 4, "-wal") == 0 && ++flushes == fail_at) {
        record('f', path, 0, "", 0);
        pthread_mutex_unlock(&lock);
        errno = EIO;
        return -1;
    }
    int done = (int)syscall(call, fd), error = errno;
    if (known && done == 0) record('s', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int fsync(int fd) { return flushed(fd, SYS_fsync); }
int fdatasync(int fd) { return flushed(fd, SYS_fdatasync); }

static int truncated(int fd, off_t size) {
    char path[4096];
    int known = place(fd, path, sizeof path) && fd != 1;
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_ftruncate, fd, size), error = errno;
    if (known && done == 0) record('t', path, (uint64_t)size, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off_t size) { return truncated(fd, size); }

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), error = errno;
    if (log_fd >= 0 && done == 0 && below(path)) record('u', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
