/* Every allocation of the runtime, and every start of a thread, fails once: each time the caller is told, nothing is
 * left behind, and the same call succeeds when it is made again. Then everything is made and destroyed many times.
 *
 * The linker leads the runtime's calls here (--wrap), so that the runtime itself knows nothing of this.
 * Usage: faults [rounds] */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"

enum { THREADS = 3, ROUNDS = 500 };

static atomic_long countdown = -1; /* calls that succeed before one fails; negative: all do */
static atomic_long calls;          /* that could have failed */
static atomic_long live;           /* allocations that were not released */

static bool fails(void) {
  atomic_fetch_add(&calls, 1);
  return atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) == 0;
}

static void *counted(void *memory) {
  atomic_fetch_add(&live, memory != NULL);
  return memory;
}

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
void __real_free(void *);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void *__wrap_aligned_alloc(size_t, size_t);
void __wrap_free(void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

void *__wrap_malloc(size_t size) { return fails() ? NULL : counted(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : counted(__real_calloc(count, size)); }

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void *__wrap_realloc(void *old, size_t size) {
  if (fails()) {
    return NULL;
  }
  void *memory = __real_realloc(old, size);
  atomic_fetch_add(&live, memory && !old);
  return memory;
}

void __wrap_free(void *memory) {
  atomic_fetch_sub(&live, memory != NULL);
  __real_free(memory);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument) {
  return fails() ? EAGAIN : __real_pthread_create(thread, attributes, function, argument);
}

typedef struct context_call {
  const tc_program *program;
  tc_context *context;
} context_call;

static int32_t create_context(void *argument, tc_error *error) {
  context_call *call = argument;
  return tc_context_create(call->program, THREADS, &call->context, error);
}

static int32_t create_pool(void *argument, tc_error *error) { return tc_pool_create(THREADS, argument, error); }

/* Makes everything that a model needs, runs it twice and destroys it all. */
static int32_t live_once(const test_model *model, test_try attempt, float *output, tc_error *error) {
  context_call made = {0};
  tc_program *program = NULL;
  tc_pool *pool = NULL;
  int32_t status = test_program(model, attempt, &program, error);
  made.program = program;
  status = status ? status : attempt(create_pool, &pool, error);
  status = status ? status : attempt(create_context, &made, error);
  const bool is_made = !status;
  test_require(is_made || !made.context, model->name, "a call failed and made something all the same");
  status = status ? status : test_resize(model, attempt, made.context, error);
  if (!status) {
    const long before = atomic_load(&calls);
    for (int i = 0; i < 2 && !status; i++) {
      status = test_run(model, program, made.context, pool, output, error);
    }
    test_require(atomic_load(&calls) == before, model->name, "a run asked for memory");
  }
  tc_context_destroy(made.context);
  tc_pool_destroy(pool);
  tc_program_destroy(program);
  return status;
}

static int32_t again(test_call call, void *argument, tc_error *error) {
  return call(argument, error) ? call(argument, error) : TC_OK;
}

static void check(const test_model *model, test_try attempt, const float *wanted, tc_error *error) {
  static float found[TEST_MAX_FLOATS];
  memset(found, 0xff, sizeof(found));
  const bool survives = attempt == again;
  const int32_t status = live_once(model, attempt, found, error);
  test_require(atomic_load(&live) == 0, model->name, "memory is lost");
  if (atomic_load(&countdown) >= 0 || survives) {
    test_require(status == TC_OK, model->name, error->message);
    test_require(!memcmp(wanted, found, (size_t)model->output_floats * 4), model->name, "the results differ");
    return;
  }
  const bool memory = status == TC_NO_MEMORY && strstr(error->message, "no memory");
  const bool thread = status == TC_SYSTEM && strstr(error->message, "refused to start 3 threads");
  test_require(memory || thread, model->name, error->message[0] ? error->message : "a failure passed unnoticed");
}

/* Fails the first call, the second, and so on, until none is left to fail; returns how many there were. */
static long fail_each(const test_model *model, test_try attempt, const float *wanted) {
  for (long n = 0;; n++) {
    tc_error error = {0};
    atomic_store(&countdown, n);
    check(model, attempt, wanted, &error);
    if (atomic_load(&countdown) >= 0) {
      atomic_store(&countdown, -1);
      return n;
    }
  }
}

int main(int count, char **arguments) {
  static float wanted[TEST_MAX_FLOATS];
  const int rounds = count > 1 ? atoi(arguments[1]) : ROUNDS;
  for (int m = 0; m < test_model_count; m++) {
    const test_model *model = &test_models[m];
    tc_error error = {0};
    test_require(live_once(model, test_once, wanted, &error) == TC_OK, model->name, error.message);
    const long failed = fail_each(model, test_once, wanted);
    /* A program without instructions still needs itself, its tables, a pool with threads, and a context. */
    test_require(failed >= 11, model->name, "calls that can fail do not come by here");
    test_require(fail_each(model, again, wanted) >= failed, model->name, "fewer calls than before could fail");
    for (int i = 0; i < rounds; i++) {
      test_require(live_once(model, test_once, wanted, &error) == TC_OK && !live, model->name, "memory is lost");
    }
    printf("%s: %ld failures, each twice; made and destroyed %d times\n", model->name, failed, rounds);
  }
  return 0;
}
