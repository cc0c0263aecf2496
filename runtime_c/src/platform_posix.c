#ifndef _WIN32
#define _GNU_SOURCE /* for what Linux says of the processors of a process */

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/random.h>
#else
#include <stdio.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "kernel.h"
#include "platform.h"

double tc_seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tc_mutex_create(tc_mutex *mutex) { pthread_mutex_init(mutex, NULL); }
void tc_mutex_destroy(tc_mutex *mutex) { pthread_mutex_destroy(mutex); }
void tc_mutex_lock(tc_mutex *mutex) { pthread_mutex_lock(mutex); }
void tc_mutex_unlock(tc_mutex *mutex) { pthread_mutex_unlock(mutex); }

void tc_condition_create(tc_condition *condition) { pthread_cond_init(condition, NULL); }
void tc_condition_destroy(tc_condition *condition) { pthread_cond_destroy(condition); }
void tc_condition_wait(tc_condition *condition, tc_mutex *mutex) { pthread_cond_wait(condition, mutex); }
void tc_condition_broadcast(tc_condition *condition) { pthread_cond_broadcast(condition); }

static void *run_thread(void *argument) {
  const tc_thread *thread = argument;
  thread->work(thread->argument);
  return NULL;
}

bool tc_thread_start(tc_thread *thread, void (*work)(void *argument), void *argument) {
  thread->work = work;
  thread->argument = argument;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread->handle, NULL, run_thread, thread) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

void tc_thread_join(tc_thread *thread) { pthread_join(thread->handle, NULL); }

void tc_thread_yield(void) { sched_yield(); }

int32_t tc_processors(void) {
#ifdef __linux__
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof(set), &set)) {
    return CPU_COUNT(&set);
  }
#endif
  const long found = sysconf(_SC_NPROCESSORS_ONLN);
  return found > 0 ? (int32_t)found : 1;
}

#if defined(__aarch64__)
bool tc_stated_dotprod(void) {
#if defined(__linux__)
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__APPLE__)
  return true; /* every processor of theirs */
#else
  return false;
#endif
}
#endif

int64_t tc_process(void) { return getpid(); }

void tc_watch_forks(void (*before)(void), void (*after)(void)) { pthread_atfork(before, after, after); }

void tc_prefer_large_pages(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
  (void)madvise(memory, bytes, MADV_HUGEPAGE); /* without it everything works as well */
#else
  (void)memory;
  (void)bytes;
#endif
}

void tc_give_back_pages(const void *memory, size_t bytes) {
#ifdef MADV_DONTNEED
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)memory;
  const uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
  if (first < last) {
    (void)madvise((void *)first, last - first, MADV_DONTNEED);
  }
#else
  (void)memory;
  (void)bytes;
#endif
}

int64_t tc_stated_cache_bytes(int32_t level) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  return level >= 1 && level <= 3 ? sysconf(names[level - 1]) : 0;
#elif defined(__APPLE__)
  const char *const names[] = {"hw.l1dcachesize", "hw.l2cachesize", "hw.l3cachesize"};
  int64_t found = 0;
  size_t size = sizeof(found);
  return level >= 1 && level <= 3 && !sysctlbyname(names[level - 1], &found, &size, NULL, 0) ? found : 0;
#else
  (void)level;
  return 0;
#endif
}

bool tc_random_bytes(void *to, size_t bytes) {
#ifdef __linux__
  return getrandom(to, bytes, 0) == (ssize_t)bytes;
#else
  FILE *source = fopen("/dev/urandom", "rb");
  const bool filled = source && fread(to, 1, bytes, source) == bytes;
  if (source) {
    fclose(source);
  }
  return filled;
#endif
}

tc_map_status tc_map_file(const char *path, void **data, size_t *bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
  struct stat status;
  if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_size < 1) {
    if (file >= 0) {
      close(file);
    }
    return TC_MAP_NO_FILE;
  }
  *bytes = (size_t)status.st_size;
  *data = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  return *data == MAP_FAILED ? TC_MAP_REFUSED : TC_MAP_DONE;
}

void tc_unmap_file(void *data, size_t bytes) { munmap(data, bytes); }

#endif
