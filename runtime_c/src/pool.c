/* The thread pool: workers spin for a short while after a job, so that the next one starts within a fraction of a
 * microsecond, and then sleep on a condition variable.
 *
 * A job is offered, not assigned: the caller does all that no worker has begun, closes the job, and waits only for the
 * workers inside it. So a worker that the system does not schedule in time delays no job. */
#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base.h"
#include "platform.h"

/* How long a worker waits for the next job before it sleeps. */
static const double spin_seconds = 100e-6;

typedef struct tc_worker {
  tc_thread thread;
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
  int64_t owner; /* the process: threads do not survive a fork */
  int threads;
  int started;
  tc_mutex mutex;
  tc_condition wake;
  tc_worker workers[];
};

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Waits until the generation differs from `seen`; false if that did not happen within the spinning time. */
static bool spin(tc_pool *pool, unsigned seen) {
  const double end = tc_seconds_now() + spin_seconds;
  do {
    for (int i = 0; i < 64; i++) {
      if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) {
        return true;
      }
      pause_briefly();
    }
  } while (tc_seconds_now() < end);
  return false;
}

static void sleep_until_next(tc_pool *pool, unsigned seen) {
  tc_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->generation) == seen) {
    tc_condition_wait(&pool->wake, &pool->mutex);
  }
  atomic_fetch_sub(&pool->sleepers, 1);
  tc_mutex_unlock(&pool->mutex);
}

/* Takes part in the job if there is one. Either this thread sees that the job is closed, or the caller sees that a
 * worker is inside, because both use sequentially consistent order. */
static void take_part(tc_pool *pool, int index) {
  atomic_fetch_add(&pool->inside, 1);
  if (atomic_load(&pool->open)) {
    pool->job(pool->argument, index);
  }
  atomic_fetch_sub_explicit(&pool->inside, 1, memory_order_release);
}

static void work(void *argument) {
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
}

/* Starts a new generation and wakes sleeping workers. */
static void announce(tc_pool *pool) {
  atomic_fetch_add(&pool->generation, 1);
  if (atomic_load(&pool->sleepers)) {
    tc_mutex_lock(&pool->mutex);
    tc_condition_broadcast(&pool->wake);
    tc_mutex_unlock(&pool->mutex);
  }
}

static bool start_workers(tc_pool *pool) {
  for (int i = 1; i < pool->threads; i++) {
    tc_worker *worker = &pool->workers[i - 1];
    *worker = (tc_worker){.pool = pool, .index = i};
    if (!tc_thread_start(&worker->thread, work, worker)) {
      break;
    }
    pool->started++;
  }
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
  pool->owner = tc_process();
  pool->threads = threads;
  tc_mutex_create(&pool->mutex);
  tc_condition_create(&pool->wake);
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
  if (pool->owner == tc_process()) {
    atomic_store(&pool->quit, true);
    announce(pool);
    for (int i = 0; i < pool->started; i++) {
      tc_thread_join(&pool->workers[i].thread);
    }
    tc_condition_destroy(&pool->wake);
    tc_mutex_destroy(&pool->mutex);
  }
  tc_free(pool);
}

int32_t tc_pool_threads(const tc_pool *pool) { return pool->threads; }

bool tc_pool_enter(tc_pool *pool) {
  return pool && pool->threads > 1 && !atomic_flag_test_and_set_explicit(&pool->busy, memory_order_acquire) &&
         (pool->owner == tc_process() || (atomic_flag_clear(&pool->busy), false));
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
      tc_thread_yield(); /* a worker may be waiting for this very processor */
    }
  }
}
