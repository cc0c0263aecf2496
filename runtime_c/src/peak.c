/* What the arithmetic of a core can do, and how fast memory is read. */
#include <stdatomic.h>
#include <string.h>

#include "isa.h"
#include "platform.h"
#include "pool.h"

enum { MEASUREMENTS = 50, ROUNDS = 50000 }; /* about 100 microseconds each: some of them are disturbed by nothing */

int32_t tc_peak_flops(const char *isa, double *flops_per_second, tc_error *error) {
  const tc_isa *chosen = tc_isa_demand(isa, error);
  if (!chosen) {
    return error->code;
  }
  *flops_per_second = 0;
  for (int i = 0; i < MEASUREMENTS; i++) {
    float sum[2] = {0.5f, 1.0f}; /* the chains stay between 0 and 64 */
    const double start = tc_seconds_now();
    const double operations = chosen->multiply_add(ROUNDS, sum);
    const double rate = operations / (tc_seconds_now() - start);
    *flops_per_second = rate > *flops_per_second ? rate : *flops_per_second;
  }
  return TC_OK;
}

int32_t tc_peak_int8(const char *isa, double *operations_per_second, tc_error *error) {
  const tc_isa *chosen = tc_isa_demand(isa, error);
  if (!chosen) {
    return error->code;
  }
  *operations_per_second = 0;
  for (int i = 0; i < MEASUREMENTS; i++) {
    int32_t sum = 0x01020304;
    const double start = tc_seconds_now();
    const double operations = chosen->multiply_add_int8(ROUNDS, &sum);
    const double rate = operations / (tc_seconds_now() - start);
    *operations_per_second = rate > *operations_per_second ? rate : *operations_per_second;
  }
  return TC_OK;
}

enum { PIECE = 256 << 10, PASSES = 3 };

/* Memory that threads read piece by piece. */
typedef struct read_job {
  const tc_isa *isa;
  const char *memory;
  int64_t bytes;
  atomic_llong next;
  atomic_int sum;
} read_job;

static void read_pieces(void *argument, int thread) {
  (void)thread;
  read_job *job = argument;
  for (int64_t at; (at = atomic_fetch_add(&job->next, PIECE)) < job->bytes;) {
    atomic_fetch_add(&job->sum, job->isa->read_memory(job->memory + at, tc_min(PIECE, job->bytes - at)));
  }
}

int32_t tc_peak_read(const char *isa, int32_t threads, int64_t bytes, double *bytes_per_second, tc_error *error) {
  const tc_isa *chosen = tc_isa_demand(isa, error);
  if (!chosen) {
    return error->code;
  }
  if (bytes <= 0 || bytes > TC_MAX_BYTES) {
    return tc_error_set(error, TC_INVALID, "cannot read %lld bytes", (long long)bytes);
  }
  tc_pool *pool = NULL;
  const int32_t failed = tc_pool_create(threads, &pool, error);
  if (failed) {
    return failed;
  }
  char *memory = tc_allocate(bytes);
  if (!memory) {
    tc_pool_destroy(pool);
    return tc_error_set(error, TC_NO_MEMORY, "no memory to read");
  }
  memset(memory, 1, (size_t)bytes);
  *bytes_per_second = 0;
  const bool entered = tc_pool_enter(pool);
  const double begin = tc_seconds_now();
  for (int pass = 0; pass < PASSES || tc_seconds_now() - begin < 0.05; pass++) {
    read_job job = {.isa = chosen, .memory = memory, .bytes = bytes};
    const double start = tc_seconds_now();
    if (entered) {
      tc_pool_run(pool, read_pieces, &job);
    } else {
      read_pieces(&job, 0);
    }
    const double rate = (double)bytes / (tc_seconds_now() - start);
    *bytes_per_second = rate > *bytes_per_second ? rate : *bytes_per_second;
  }
  if (entered) {
    tc_pool_leave(pool);
  }
  tc_free(memory);
  tc_pool_destroy(pool);
  return TC_OK;
}
