/* Small programs to test the runtime with: together they use every kind of memory that it asks for. */
#ifndef TINYCOMP_TESTS_MODELS_H
#define TINYCOMP_TESTS_MODELS_H

#include "building.h"

/* A function that makes one call of the interface; returns its status. */
typedef int32_t (*test_call)(void *argument, tc_error *error);
/* Makes a call, or makes it again: how a test wants failures to be treated. Returns the last status. */
typedef int32_t (*test_try)(test_call call, void *argument, tc_error *error);

typedef struct test_model {
  const char *name;
  int32_t (*build)(tc_program *program, test_try attempt, tc_error *error); /* everything between create and finish */
  int64_t arena_bytes;
  int64_t input_floats;
  int64_t output_floats;
  int64_t size; /* that its symbol has in a run, or 0 for a program without */
} test_model;

extern const test_model test_models[];
extern const int test_model_count;

/* Calls, once. */
int32_t test_once(test_call call, void *argument, tc_error *error);
/* Creates, builds and finishes a program; on failure there is none. */
int32_t test_program(const test_model *model, test_try attempt, tc_program **program, tc_error *error);
/* Makes a context ready for a run, having made it ready for a smaller one; nothing happens to one without sizes. */
int32_t test_resize(const test_model *model, test_try attempt, tc_context *context, tc_error *error);
/* Runs a program on the model's input, and writes its output. */
int32_t test_run(const test_model *model, const tc_program *program, tc_context *context, tc_pool *pool, float *output,
                 tc_error *error);
/* Ends the process with a message unless the condition holds. */
void test_require(int condition, const char *model, const char *what);

enum { TEST_MAX_FLOATS = 32 * 1024 };

#endif
