// Preloaded before the C library: counts the calls of some kinds, and lets the n-th fail, be the
// last of the process, or be the last before power is lost. Writes that were not synchronized by
// then are lost, all or every other one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, MAP = 8, ALLOCATE = 16, ENGINE = 32 };
enum { FAIL, KILL, POWER_NONE, POWER_EVEN, POWER_ODD };
enum { KILLED = 77, SMALL = 256, MOST_WRITES = 1024 };

static atomic_int armed;
static atomic_long n_calls;
static long fault_at;
static int fault_mode;

struct unsynced {
    int file;  // a copy of the descriptor, valid after a rename
    ino_t inode;
    off_t offset;
    size_t size;
};
static struct unsynced writes[MOST_WRITES];
static int n_writes;

void faults_arm(int kinds, long at, int mode) {
    n_calls = 0;
    fault_at = at;
    fault_mode = mode;
    armed = kinds;
}

long faults_disarm(void) {
    armed = 0;
    return n_calls;
}

static void lose_power(void) {
    static const char zeros[1 << 16];
    for (int i = 0; i < n_writes; ++i) {
        if (fault_mode == POWER_NONE) {
            if (ftruncate(writes[i].file, 0)) _exit(1);
        } else if (i % 2 == (fault_mode == POWER_ODD)) {
            const size_t size = writes[i].size < sizeof zeros ? writes[i].size : sizeof zeros;
            if (syscall(SYS_pwrite64, writes[i].file, zeros, size, writes[i].offset) < 0) _exit(1);
        }
    }
}

// The file of the library that made the call which failed, for the parent of the process: the
// first on the stack but for this one, the C library and Python itself.
enum { MOST_NAME = 4096, MOST_FRAMES = 64 };
static char* culprit;

__attribute__((constructor)) static void share_culprit(void) {
    culprit = (char*)syscall(SYS_mmap, NULL, (size_t)MOST_NAME, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, (off_t)0);
    void* frames[1];
    backtrace(frames, 1);  // loads a library, which allocates
}

const char* faults_culprit(void) { return culprit; }

static int is_package(const char* file) {
    return strstr(file, "numpy") || strstr(file, "safetensors") || strstr(file, "_engine") ||
           strstr(file, "scipy");
}

static void find_culprit(void) {
    void* frames[MOST_FRAMES];
    Dl_info object, own;
    const int n = backtrace(frames, MOST_FRAMES);
    dladdr((void*)&find_culprit, &own);
    culprit[0] = '\0';
    for (int i = 0; i < n; ++i)
        if (dladdr(frames[i], &object) && object.dli_fbase != own.dli_fbase &&
            is_package(object.dli_fname)) {
            strncpy(culprit, object.dli_fname, MOST_NAME - 1);
            return;
        }
}

static int is_fault(int kind, int error) {
    if (!(armed & kind) || n_calls++ != fault_at) return 0;
    if (fault_mode == FAIL) {
        find_culprit();
        errno = error;
        return 1;
    }
    if (fault_mode != KILL) lose_power();
    _exit(KILLED);
}

static void remember(int file, off_t offset, ssize_t size) {
    struct stat about;
    if (!armed || size <= 0 || offset < 0 || n_writes == MOST_WRITES) return;
    if (fstat(file, &about) || !S_ISREG(about.st_mode)) return;
    writes[n_writes++] = (struct unsynced){dup(file), about.st_ino, offset, (size_t)size};
}

static void forget(int file) {
    struct stat about;
    if (!armed || fstat(file, &about)) return;
    int kept = 0;
    for (int i = 0; i < n_writes; ++i) {
        if (writes[i].inode == about.st_ino)
            close(writes[i].file);
        else
            writes[kept++] = writes[i];
    }
    n_writes = kept;
}

ssize_t write(int file, const void* data, size_t size) {
    if (is_fault(WRITE, ENOSPC)) return -1;
    const off_t offset = armed ? lseek(file, 0, SEEK_CUR) : 0;
    const ssize_t done = syscall(SYS_write, file, data, size);
    remember(file, offset, done);
    return done;
}

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
    if (is_fault(WRITE, ENOSPC)) return -1;
    const ssize_t done = syscall(SYS_pwrite64, file, data, size, offset);
    remember(file, offset, done);
    return done;
}
ssize_t pwrite64(int, const void*, size_t, off_t) __attribute__((alias("pwrite")));

ssize_t writev(int file, const struct iovec* parts, int count) {
    if (is_fault(WRITE, ENOSPC)) return -1;
    const off_t offset = armed ? lseek(file, 0, SEEK_CUR) : 0;
    const ssize_t done = syscall(SYS_writev, file, parts, count);
    remember(file, offset, done);
    return done;
}

int fsync(int file) {
    if (is_fault(SYNC, EIO)) return -1;
    const int result = (int)syscall(SYS_fsync, file);
    forget(file);
    return result;
}

int fdatasync(int file) {
    if (is_fault(SYNC, EIO)) return -1;
    const int result = (int)syscall(SYS_fdatasync, file);
    forget(file);
    return result;
}

int rename(const char* from, const char* to) {
    if (is_fault(RENAME, EIO)) return -1;
    return (int)syscall(SYS_rename, from, to);
}

void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
    if (file >= 0 && is_fault(MAP, ENOMEM)) return MAP_FAILED;  // maps of files
    return (void*)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void* mmap64(void*, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

// Whether an allocation fails: one of any library, unless it is small, or any of the engine and of
// the C++ library that it calls.
static int fails(size_t size, const void* caller) {
    Dl_info object;
    if (armed & ALLOCATE) return size >= SMALL && is_fault(ALLOCATE, ENOMEM);
    if (!(armed & ENGINE) || !dladdr(caller, &object)) return 0;
    if (!strstr(object.dli_fname, "_engine") && !strstr(object.dli_fname, "libstdc++")) return 0;
    return is_fault(ENGINE, ENOMEM);
}
#define CALLER __builtin_return_address(0)

void* malloc(size_t size) { return fails(size, CALLER) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
    return fails(count * size, CALLER) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* data, size_t size) {
    return fails(size, CALLER) ? NULL : __libc_realloc(data, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
    return fails(size, CALLER) ? NULL : __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
    return fails(size, CALLER) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void** data, size_t alignment, size_t size) {
    *data = fails(size, CALLER) ? NULL : __libc_memalign(alignment, size);
    return *data ? 0 : ENOMEM;
}
