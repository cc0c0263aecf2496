/* Threads that share a program and a pool, while others make and destroy their own: for the thread sanitizer, though
 * the results are compared too. Usage: races [runs] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "models.h"

enum { CALLERS = 8, MAKERS = 2, THREADS = 4, RUNS = 200 };

typedef struct shared {
  const test_model *model;
  const tc_program *program;
  tc_pool *pool;
  float wanted[TEST_MAX_FLOATS];
  atomic_bool done;
} shared;

static int runs = RUNS;

static void compare(const shared *s, const float *found) {
  test_require(!memcmp(s->wanted, found, (size_t)s->model->output_floats * 4), s->model->name, "the results differ");
}

static void sleep_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = 300 * 1000}, NULL); }

/* Runs the shared program in a context of its own. */
static void *call(void *argument) {
  const shared *s = argument;
  float *found = calloc(TEST_MAX_FLOATS, sizeof(float));
  tc_error error = {0};
  tc_context *context;
  test_require(!tc_context_create(s->program, THREADS, &context, &error), s->model->name, error.message);
  for (int i = 0; i < runs; i++) {
    test_require(!test_resize(s->model, test_once, context, &error), s->model->name, error.message);
    test_require(!test_run(s->model, s->program, context, s->pool, found, &error), s->model->name, error.message);
    compare(s, found);
    if (i % 16 == 0) {
      sleep_briefly(); /* longer than idle workers spin, so that they also have to be woken */
    }
  }
  tc_context_destroy(context);
  free(found);
  return NULL;
}

/* Makes, runs and destroys programs and pools of its own, until told to stop. */
static void *make(void *argument) {
  shared *s = argument;
  float *found = calloc(TEST_MAX_FLOATS, sizeof(float));
  for (int threads = 1; !atomic_load(&s->done); threads = threads % THREADS + 1) {
    tc_error error = {0};
    tc_program *program;
    tc_pool *pool;
    tc_context *context;
    test_require(!test_program(s->model, test_once, &program, &error) && !tc_pool_create(threads, &pool, &error) &&
                     !tc_context_create(program, threads, &context, &error) &&
                     !test_resize(s->model, test_once, context, &error) &&
                     !test_run(s->model, program, context, pool, found, &error),
                 s->model->name, error.message);
    compare(s, found);
    tc_context_destroy(context);
    tc_pool_destroy(pool);
    tc_program_destroy(program);
  }
  free(found);
  return NULL;
}

/* What one thread computes alone. */
static void reference(shared *s) {
  tc_error error = {0};
  tc_context *context;
  test_require(!tc_context_create(s->program, 1, &context, &error) &&
                   !test_resize(s->model, test_once, context, &error) &&
                   !test_run(s->model, s->program, context, NULL, s->wanted, &error),
               s->model->name, error.message);
  tc_context_destroy(context);
}

static void race(const test_model *model) {
  static shared s;
  s.model = model;
  atomic_store(&s.done, false);
  tc_error error = {0};
  tc_program *program;
  test_require(!test_program(model, test_once, &program, &error) && !tc_pool_create(THREADS, &s.pool, &error),
               model->name, error.message);
  s.program = program;
  reference(&s);
  pthread_t threads[CALLERS + MAKERS];
  for (int i = 0; i < CALLERS + MAKERS; i++) {
    test_require(!pthread_create(&threads[i], NULL, i < CALLERS ? call : make, &s), model->name, "no thread");
  }
  for (int i = 0; i < CALLERS + MAKERS; i++) {
    atomic_store(&s.done, i >= CALLERS);
    pthread_join(threads[i], NULL);
  }
  tc_pool_destroy(s.pool);
  tc_program_destroy(program);
}

int main(int count, char **arguments) {
  runs = count > 1 ? atoi(arguments[1]) : RUNS;
  for (int m = 0; m < test_model_count; m++) {
    race(&test_models[m]);
    printf("%s: %d threads, %d runs each\n", test_models[m].name, CALLERS, runs);
  }
  return 0;
}
