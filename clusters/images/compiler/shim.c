/* Preloaded into a server: moves its wall clock, and notes which bytes of its files are synced.
 *
 * Both go through one small file in the memory that a pod's containers share (LOCKBENCH_SHARED). The
 * link container's program creates, writes and reads it (../toxiproxy/shared.go has the same layout);
 * it outlives the server's process. Without it, every call is what it is without this library.
 *
 * The monotonic clocks are true. What is not seen: a program that asks the kernel or its vDSO without
 * the C library (Go), waits until an absolute time (the kernel's clock decides), file timestamps,
 * and syncs other than fsync and fdatasync. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 255
#define PATH_BYTES 248
#define SECOND_NS 1000000000LL

struct entry {
	_Atomic int64_t synced;
	char path[PATH_BYTES]; /* empty: free */
};

struct shared {
	_Atomic int64_t clock_offset_ns;
	_Atomic int32_t lock;
	char unused[256 - 12];
	struct entry files[ENTRIES];
};

static struct shared *shared;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_ftruncate)(int, off_t);
static int (*real_truncate)(const char *, off_t);

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void)
{
	real_fsync = next("fsync");
	real_fdatasync = next("fdatasync");
	real_rename = next("rename");
	real_unlink = next("unlink");
	real_ftruncate = next("ftruncate");
	real_truncate = next("truncate");
	real_clock_gettime = next("clock_gettime");
	const char *name = getenv("LOCKBENCH_SHARED");
	if (name == NULL)
		return;
	/* Not created when it is there: that is refused in a directory that all may write to. */
	int fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	struct stat is;
	if (fstat(fd, &is) == 0 && (size_t)is.st_size < sizeof(struct shared) &&
	    ftruncate(fd, sizeof(struct shared)) != 0) {
		close(fd);
		return;
	}
	void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return;
	shared = at;
	/* Whoever held it is gone: one server at a time runs in a pod. */
	atomic_store(&shared->lock, 0);
}

/* --- the clock ------------------------------------------------------------------------------- */

static int now(clockid_t clock, struct timespec *t)
{
	/* The dynamic linker may ask before this library has begun. */
	return real_clock_gettime ? real_clock_gettime(clock, t)
				  : (int)syscall(SYS_clock_gettime, clock, t);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int failed = now(clock, t);
	if (failed || shared == NULL ||
	    (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE && clock != CLOCK_TAI))
		return failed;
	int64_t offset = atomic_load_explicit(&shared->clock_offset_ns, memory_order_relaxed);
	if (offset != 0) {
		int64_t ns = t->tv_sec * SECOND_NS + t->tv_nsec + offset;
		t->tv_sec = ns / SECOND_NS;
		t->tv_nsec = ns % SECOND_NS;
		if (t->tv_nsec < 0) {
			t->tv_nsec += SECOND_NS;
			t->tv_sec--;
		}
	}
	return 0;
}

int gettimeofday(struct timeval *restrict v, void *restrict zone)
{
	(void)zone;
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	v->tv_sec = t.tv_sec;
	v->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	if (to != NULL)
		*to = t.tv_sec;
	return t.tv_sec;
}

int timespec_get(struct timespec *t, int base)
{
	if (base != TIME_UTC)
		return 0;
	clock_gettime(CLOCK_REALTIME, t);
	return base;
}

/* --- synced bytes ---------------------------------------------------------------------------- */

static void lock_table(void)
{
	/* Whoever holds it this long was killed: a child that wrote a file for its server. */
	for (int tries = 0; tries < 10000 && atomic_exchange(&shared->lock, 1) != 0; tries++)
		usleep(10);
}

static void unlock_table(void) { atomic_store(&shared->lock, 0); }

/* The entry of a path, or NULL; with `make`, a new one while there is room. Locked. */
static struct entry *entry_of(const char *path, int make)
{
	struct entry *empty = NULL;
	for (int i = 0; i < ENTRIES; i++) {
		struct entry *e = &shared->files[i];
		if (e->path[0] == 0) {
			if (empty == NULL)
				empty = e;
		} else if (strcmp(e->path, path) == 0) {
			return e;
		}
	}
	if (!make || empty == NULL || strlen(path) >= PATH_BYTES)
		return NULL;
	atomic_store(&empty->synced, 0);
	strcpy(empty->path, path);
	return empty;
}

static int path_of(int fd, char *path)
{
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t size = readlink(link, path, PATH_MAX - 1);
	if (size <= 0)
		return 0;
	path[size] = 0;
	return 1;
}

static int absolute(const char *name, char *path)
{
	if (name[0] == '/')
		return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
	char here[PATH_MAX];
	return getcwd(here, sizeof here) != NULL &&
	       snprintf(path, PATH_MAX, "%s/%s", here, name) < PATH_MAX;
}

/* What was in the file when the sync began is synced when it has succeeded. */
static int synced(int (*sync)(int), int fd)
{
	struct stat is;
	if (shared == NULL || fstat(fd, &is) != 0 || !S_ISREG(is.st_mode))
		return sync(fd);
	int failed = sync(fd);
	int saved = errno;
	char path[PATH_MAX];
	if (!failed && path_of(fd, path)) {
		lock_table();
		struct entry *e = entry_of(path, 1);
		/* Two syncs at once may end in either order. */
		if (e != NULL && atomic_load(&e->synced) < is.st_size)
			atomic_store(&e->synced, is.st_size);
		unlock_table();
	}
	errno = saved;
	return failed;
}

int fsync(int fd) { return synced(real_fsync, fd); }

int fdatasync(int fd) { return synced(real_fdatasync, fd); }

static void truncated(const char *path, off_t size)
{
	lock_table();
	struct entry *e = entry_of(path, 0);
	if (e != NULL && atomic_load(&e->synced) > size)
		atomic_store(&e->synced, size);
	unlock_table();
}

int ftruncate(int fd, off_t size)
{
	int failed = real_ftruncate(fd, size);
	int saved = errno;
	char path[PATH_MAX];
	if (!failed && shared != NULL && path_of(fd, path))
		truncated(path, size);
	errno = saved;
	return failed;
}

int truncate(const char *name, off_t size)
{
	int failed = real_truncate(name, size);
	int saved = errno;
	char path[PATH_MAX];
	if (!failed && shared != NULL && absolute(name, path))
		truncated(path, size);
	errno = saved;
	return failed;
}

/* What programs call that were built for large files; the types are the same here. */
_Static_assert(sizeof(off_t) == sizeof(off64_t), "64 bits");
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int truncate64(const char *name, off64_t size) { return truncate(name, size); }

/* A name's entry goes, or goes on under another name. */
static void renamed(const char *name, const char *to)
{
	char from_path[PATH_MAX], to_path[PATH_MAX];
	if (!absolute(name, from_path) || (to != NULL && !absolute(to, to_path)))
		return;
	lock_table();
	struct entry *e = entry_of(from_path, 0);
	struct entry *old = to == NULL ? NULL : entry_of(to_path, 0);
	if (old != NULL)
		old->path[0] = 0;
	if (e != NULL) {
		if (to != NULL && strlen(to_path) < PATH_BYTES)
			strcpy(e->path, to_path);
		else
			e->path[0] = 0;
	}
	unlock_table();
}

int rename(const char *from, const char *to)
{
	int failed = real_rename(from, to);
	int saved = errno;
	if (!failed && shared != NULL)
		renamed(from, to);
	errno = saved;
	return failed;
}

int unlink(const char *name)
{
	int failed = real_unlink(name);
	int saved = errno;
	if (!failed && shared != NULL)
		renamed(name, NULL);
	errno = saved;
	return failed;
}
