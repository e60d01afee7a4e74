/* Makes reads of one file fail with EIO, as a bad sector does: from an offset on, so many times.

   cc -shared -fPIC -O1 -o failing.so failing_reads.c -ldl
   LD_PRELOAD=failing.so FAIL_FILE=/data/db.sqlite FAIL_FROM=8192 FAIL_TIMES=1 python … */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long left = -1;

static int fails(int fd, long offset, size_t count) {
    const char *file = getenv("FAIL_FILE");
    char link[64], path[4096];
    if (left < 0) left = atol(getenv("FAIL_TIMES"));
    if (file == NULL || left == 0 || offset + (long)count <= atol(getenv("FAIL_FROM"))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strcmp(path, file) != 0) return 0;
    left--;
    errno = EIO;
    return 1;
}

ssize_t pread64(int fd, void *buffer, size_t count, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "pread64");
    return fails(fd, offset, count) ? -1 : real(fd, buffer, count, offset);
}

ssize_t pread(int fd, void *buffer, size_t count, off_t offset) {
    return pread64(fd, buffer, count, offset);
}

ssize_t read(int fd, void *buffer, size_t count) {
    static ssize_t (*real)(int, void *, size_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "read");
    long offset = lseek(fd, 0, SEEK_CUR);
    return offset >= 0 && fails(fd, offset, count) ? -1 : real(fd, buffer, count);
}
