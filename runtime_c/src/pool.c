/* The thread pool: workers spin for a short while after a job, so that the next one starts within a fraction of a
 * microsecond, and then sleep on a condition variable.
 *
 * A job is offered, not assigned: the caller does whatever no worker has begun, closes the job, and waits only for
 * workers that are inside it. So a worker that the system does not schedule in time delays nobody. */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

/* How long a worker waits for the next job before it sleeps. */
static const int64_t spin_nanoseconds = 100 * 1000;

typedef struct tc_worker {
  pthread_t thread;
  tc_pool *pool;
  int index;
} tc_worker;

struct tc_pool {
  /* Written by the caller, read by the workers. */
  _Alignas(64) atomic_uint generation; /* a new value wakes the workers */
  atomic_bool open;                    /* whether job and argument may be used */
  atomic_bool quit;
  tc_job job;
  void *argument;
  /* Written by the workers. */
  _Alignas(64) atomic_int inside; /* workers that look at the job or do it */
  _Alignas(64) atomic_int sleepers;
  atomic_flag busy;
  pid_t owner; /* threads do not survive a fork */
  int threads;
  int started;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  tc_worker workers[];
};

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits until the generation differs from `seen`; false if that did not happen within the spinning time. */
static bool spin(tc_pool *pool, unsigned seen) {
  const int64_t end = nanoseconds() + spin_nanoseconds;
  do {
    for (int i = 0; i < 64; i++) {
      if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) {
        return true;
      }
      pause_briefly();
    }
  } while (nanoseconds() < end);
  return false;
}

static void sleep_until_next(tc_pool *pool, unsigned seen) {
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->generation) == seen) {
    pthread_cond_wait(&pool->wake, &pool->mutex);
  }
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
}

/* Takes part in the job if there still is one. Either this sees that the job was closed, or the caller sees that a
 * worker is inside, because both use sequentially consistent order. */
static void take_part(tc_pool *pool, int index) {
  atomic_fetch_add(&pool->inside, 1);
  if (atomic_load(&pool->open)) {
    pool->job(pool->argument, index);
  }
  atomic_fetch_sub_explicit(&pool->inside, 1, memory_order_release);
}

static void *work(void *argument) {
  tc_worker *worker = argument;
  tc_pool *pool = worker->pool;
  unsigned seen = 0;
  while (!atomic_load(&pool->quit)) {
    take_part(pool, worker->index);
    if (!spin(pool, seen)) {
      sleep_until_next(pool, seen);
    }
    seen = atomic_load(&pool->generation);
  }
  return NULL;
}

/* Starts a new generation and wakes whoever sleeps. */
static void announce(tc_pool *pool) {
  atomic_fetch_add(&pool->generation, 1);
  if (atomic_load(&pool->sleepers)) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
  }
}

/* Starts the workers with all signals blocked, so that the caller's own threads keep receiving them. */
static bool start_workers(tc_pool *pool) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 1; i < pool->threads; i++) {
    tc_worker *worker = &pool->workers[i - 1];
    *worker = (tc_worker){.pool = pool, .index = i};
    if (pthread_create(&worker->thread, NULL, work, worker)) {
      break;
    }
    pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return pool->started == pool->threads - 1;
}

int32_t tc_pool_create(int32_t threads, tc_pool **out, tc_error *error) {
  *out = NULL;
  if (threads < 1 || threads > 1024) {
    return tc_error_set(error, TC_INVALID, "a pool has 1 to 1024 threads, not %d", threads);
  }
  tc_pool *pool = tc_allocate((int64_t)(sizeof(tc_pool) + (size_t)threads * sizeof(tc_worker)));
  if (!pool) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a thread pool");
  }
  atomic_flag_clear(&pool->busy);
  pool->owner = getpid();
  pool->threads = threads;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  if (!start_workers(pool)) {
    tc_pool_destroy(pool);
    return tc_error_set(error, TC_SYSTEM, "the system refused to start %d threads", threads);
  }
  *out = pool;
  return TC_OK;
}

void tc_pool_destroy(tc_pool *pool) {
  if (!pool) {
    return;
  }
  if (pool->owner == getpid()) {
    atomic_store(&pool->quit, true);
    announce(pool);
    for (int i = 0; i < pool->started; i++) {
      pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
  }
  tc_free(pool);
}

int32_t tc_pool_threads(const tc_pool *pool) { return pool->threads; }

bool tc_pool_enter(tc_pool *pool) {
  return pool && pool->threads > 1 && !atomic_flag_test_and_set_explicit(&pool->busy, memory_order_acquire) &&
         (pool->owner == getpid() || (atomic_flag_clear(&pool->busy), false));
}

void tc_pool_leave(tc_pool *pool) { atomic_flag_clear_explicit(&pool->busy, memory_order_release); }

void tc_pool_run(tc_pool *pool, tc_job job, void *argument) {
  pool->job = job;
  pool->argument = argument;
  atomic_store(&pool->open, true);
  announce(pool);
  job(argument, 0);
  atomic_store(&pool->open, false);
  for (unsigned spins = 0; atomic_load(&pool->inside); spins++) {
    if (spins < 4096) {
      pause_briefly();
    } else {
      sched_yield(); /* a worker may be waiting for this very processor */
    }
  }
}
