/* Records what a process does to the files of one directory, in order, as the kernel is asked for it.

   cc -shared -fPIC -O1 -o recorder.so syscall_recorder.c -lpthread
   LD_PRELOAD=recorder.so RECORD_DIR=/data RECORD_LOG=/log RECORD_SYNC_MS=3 python …

   A record is a line "KIND INODE OFFSET LENGTH PATH", followed by LENGTH bytes:
     C  a name was given to a file          W  bytes were written          T  the file was cut to OFFSET
     R  a name (the bytes) became PATH      U  a name was removed
     S  a sync began, with the number OFFSET                               E  that sync has ended
     A  bytes are about to be written to standard output
   What takes effect is recorded after it has, except A: so a cut of the log is a moment that may have been. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int log_fd = -1;
static char home[PATH_MAX];
static size_t home_length;
static long sync_ms;
static long long syncs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
  const char *log = getenv("RECORD_LOG"), *directory = getenv("RECORD_DIR"), *ms = getenv("RECORD_SYNC_MS");
  if (!log || !directory) return;
  home_length = strlen(directory);
  memcpy(home, directory, home_length + 1);
  sync_ms = ms ? atol(ms) : 0;
  log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void record(char kind, unsigned long long inode, long long offset, const char *path, const void *bytes,
                   size_t length) {
  char head[PATH_MAX + 100];
  int size = snprintf(head, sizeof head, "%c %llu %lld %zu %s\n", kind, inode, offset, length, path);
  struct iovec parts[2] = {{head, (size_t)size}, {(void *)bytes, length}};
  int kept = errno;
  pthread_mutex_lock(&lock);
  if (syscall(SYS_writev, log_fd, parts, 2) != (long)(size + length)) abort();
  pthread_mutex_unlock(&lock);
  errno = kept;
}

/* The path below the directory, or NULL. */
static const char *inside(const char *path) {
  if (log_fd < 0 || strncmp(path, home, home_length) != 0) return NULL;
  if (path[home_length] == '\0') return "";
  return path[home_length] == '/' ? path + home_length + 1 : NULL;
}

/* The inode of an open file of the directory, or 0; `name` gets its path. */
static unsigned long long inode_of(int fd, char *name) {
  char link[40], path[PATH_MAX];
  struct stat found;
  int kept = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = log_fd < 0 ? -1 : readlink(link, path, sizeof path - 1);
  if (length < 0 || fstat(fd, &found) != 0) {
    errno = kept;
    return 0;
  }
  path[length] = '\0';
  errno = kept;
  const char *below = inside(path);
  if (!below) return 0;
  strcpy(name, below);
  return found.st_ino;
}

static int opened(int fd, int flags) {
  char name[PATH_MAX];
  unsigned long long inode = fd < 0 || !(flags & (O_CREAT | O_TRUNC)) ? 0 : inode_of(fd, name);
  if (inode && flags & O_CREAT) record('C', inode, 0, name, NULL, 0);
  if (inode && flags & O_TRUNC) record('T', inode, 0, name, NULL, 0);
  return fd;
}

#define OPENED(directory, path, flags)                                                \
  va_list rest;                                                                       \
  va_start(rest, flags);                                                              \
  int mode = (flags) & O_CREAT ? va_arg(rest, int) : 0;                               \
  va_end(rest);                                                                       \
  return opened(syscall(SYS_openat, directory, path, flags, mode), flags)

int open(const char *path, int flags, ...) { OPENED(AT_FDCWD, path, flags); }
int open64(const char *path, int flags, ...) { OPENED(AT_FDCWD, path, flags); }
int openat(int directory, const char *path, int flags, ...) { OPENED(directory, path, flags); }
int openat64(int directory, const char *path, int flags, ...) { OPENED(directory, path, flags); }

static ssize_t written(int fd, const void *bytes, ssize_t length, long long offset) {
  char name[PATH_MAX];
  unsigned long long inode = length > 0 ? inode_of(fd, name) : 0;
  if (inode && offset < 0) offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - length;
  if (inode) record('W', inode, offset, name, bytes, length);
  return length;
}

ssize_t write(int fd, const void *bytes, size_t length) {
  if (fd == 1 && log_fd >= 0) record('A', 0, 0, "", bytes, length);
  return written(fd, bytes, syscall(SYS_write, fd, bytes, length), -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
  return written(fd, bytes, syscall(SYS_pwrite64, fd, bytes, length, offset), offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  return written(fd, bytes, syscall(SYS_pwrite64, fd, bytes, length, offset), offset);
}

int ftruncate(int fd, off_t length) {
  char name[PATH_MAX];
  int result = syscall(SYS_ftruncate, fd, length);
  unsigned long long inode = result == 0 ? inode_of(fd, name) : 0;
  if (inode) record('T', inode, length, name, NULL, 0);
  return result;
}

int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

static int synced(int fd, long call) {
  char name[PATH_MAX];
  unsigned long long inode = inode_of(fd, name);
  long long number = inode ? __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST) : 0;
  if (inode) record('S', inode, number, name, NULL, 0);
  if (inode && sync_ms) {
    struct timespec wait = {sync_ms / 1000, sync_ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
  }
  int result = syscall(call, fd);
  if (inode && result == 0) record('E', inode, number, name, NULL, 0);
  return result;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
  int result = syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
  const char *was = inside(from), *is = inside(to);
  if (result == 0 && was && is) record('R', 0, 0, is, was, strlen(was));
  return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int directory, const char *path, int flags) {
  int result = syscall(SYS_unlinkat, directory, path, flags);
  const char *name = inside(path);
  if (result == 0 && name) record('U', 0, 0, name, NULL, 0);
  return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
