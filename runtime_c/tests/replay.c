/* Runs programs that another process describes, so that instruction sets can be tested where they are emulated.
 *
 * Requests come on standard input and answers go to standard output, one after another until the input ends. A number
 * is an int64 in the byte order that both processes share; bytes are their number and then they themselves.
 *
 * Request: the instruction set (bytes), threads, number of inputs, of outputs, of constants; the records of the program
 * (bytes), every constant (bytes), every input (bytes); every output, as it is before the run (bytes).
 *
 * Answer: a stage, 0 if all went well, 1 if the program was refused, 2 if its run failed; then every output (bytes), or
 * the error's code and message (bytes). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tinycomp.h"

enum { ALIGNMENT = 64, MAX_NAME = 64 };
enum stage { STAGE_DONE, STAGE_REFUSED, STAGE_FAILED };

typedef struct buffer {
  int64_t bytes;
  void *data;
} buffer;

typedef struct list {
  int64_t count;
  buffer *buffers;
} list;

/* Ends the process: a driver that lost its place in the input has nothing to say any more. */
static void require(bool condition, const char *message) {
  if (!condition) {
    fprintf(stderr, "replay: %s\n", message);
    exit(1);
  }
}

static void read_exactly(void *data, int64_t bytes) {
  require(fread(data, 1, (size_t)bytes, stdin) == (size_t)bytes, "the input ended within a request");
}

static int64_t read_number(void) {
  int64_t number;
  read_exactly(&number, sizeof(number));
  return number;
}

/* Reads a count or size that nothing here needs above `most`. */
static int64_t read_up_to(int64_t most) {
  const int64_t number = read_number();
  require(number >= 0 && number <= most, "a count or size is out of range");
  return number;
}

static buffer read_buffer(void) {
  buffer found = {.bytes = read_up_to((int64_t)1 << 32)};
  found.data = aligned_alloc(ALIGNMENT, (size_t)(found.bytes / ALIGNMENT + 1) * ALIGNMENT);
  require(found.data, "no memory");
  read_exactly(found.data, found.bytes);
  return found;
}

static list read_buffers(int64_t count) {
  list found = {count, calloc((size_t)count + 1, sizeof(buffer))};
  require(found.buffers, "no memory");
  for (int64_t i = 0; i < count; i++) {
    found.buffers[i] = read_buffer();
  }
  return found;
}

static void release(list *held) {
  for (int64_t i = 0; i < held->count; i++) {
    free(held->buffers[i].data);
  }
  free(held->buffers);
}

/* The pointers of a list, as tc_run takes them. */
static void **pointers(const list *held) {
  void **found = calloc((size_t)held->count + 1, sizeof(void *));
  require(found, "no memory");
  for (int64_t i = 0; i < held->count; i++) {
    found[i] = held->buffers[i].data;
  }
  return found;
}

typedef struct request {
  tc_program *program;
  int64_t threads;
  list constants, inputs, outputs;
} request;

/* Refuses a program that reaches beyond the arrays that it is given, as who loads one for this machine does. */
static void check_reach(const request *r, tc_error *error) {
  for (int32_t side = 0; side < 2; side++) {
    const list *given = side ? &r->outputs : &r->inputs;
    for (int64_t i = 0; i < given->count && !error->code; i++) {
      const int64_t needed = (side ? tc_program_output_bytes : tc_program_input_bytes)(r->program, (int32_t)i);
      if (needed > given->buffers[i].bytes) {
        error->code = TC_INVALID;
        snprintf(error->message, sizeof(error->message), "the program reaches past the end of %s %lld",
                 side ? "output" : "input", (long long)i);
      }
    }
  }
}

/* Reads a request to its end, whatever becomes of the program. */
static request read_request(const char *isa, tc_error *error) {
  request r = {.threads = read_up_to(64)};
  const int64_t inputs = read_up_to(1 << 20), outputs = read_up_to(1 << 20), constants = read_up_to(1 << 20);
  buffer records = read_buffer();
  r.constants = read_buffers(constants);
  r.inputs = read_buffers(inputs);
  r.outputs = read_buffers(outputs);
  tc_array *arrays = calloc((size_t)constants + 1, sizeof(tc_array));
  require(arrays, "no memory");
  for (int64_t i = 0; i < constants; i++) {
    arrays[i] = (tc_array){r.constants.buffers[i].data, r.constants.buffers[i].bytes, 0};
  }
  const tc_making making = {.isa = isa};
  if (!tc_program_read(records.data, records.bytes, arrays, constants, &making, &r.program, error)) {
    check_reach(&r, error);
  }
  free(arrays);
  free(records.data);
  return r;
}

static enum stage run(const request *r, tc_error *error) {
  tc_pool *pool;
  tc_context *context;
  require(!tc_pool_create((int32_t)r->threads, &pool, error), error->message);
  require(!tc_context_create(r->program, (int32_t)r->threads, &context, error), error->message);
  void **inputs = pointers(&r->inputs), **outputs = pointers(&r->outputs);
  const int32_t code = tc_run(r->program, context, pool, inputs, outputs, error);
  free(inputs);
  free(outputs);
  tc_context_destroy(context);
  tc_pool_destroy(pool);
  return code ? STAGE_FAILED : STAGE_DONE;
}

static void write_number(int64_t number) { fwrite(&number, sizeof(number), 1, stdout); }

static void write_bytes(const void *data, int64_t bytes) {
  write_number(bytes);
  fwrite(data, 1, (size_t)bytes, stdout);
}

static void answer(enum stage stage, const list *outputs, const tc_error *error) {
  write_number(stage);
  if (stage != STAGE_DONE) {
    write_number(error->code);
    write_bytes(error->message, (int64_t)strlen(error->message));
  }
  for (int64_t i = 0; stage == STAGE_DONE && i < outputs->count; i++) {
    write_bytes(outputs->buffers[i].data, outputs->buffers[i].bytes);
  }
  require(!fflush(stdout), "nobody reads the answer");
}

/* Answers one request; false at the end of the input. */
static bool serve(void) {
  int64_t length;
  if (fread(&length, sizeof(length), 1, stdin) != 1) {
    return false;
  }
  char isa[MAX_NAME];
  require(length >= 0 && length < MAX_NAME, "the name of the instruction set is out of range");
  read_exactly(isa, length);
  isa[length] = 0;
  tc_error error = {0};
  request r = read_request(isa, &error);
  const enum stage stage = error.code ? STAGE_REFUSED : run(&r, &error);
  answer(stage, &r.outputs, &error);
  tc_program_destroy(r.program);
  release(&r.constants);
  release(&r.inputs);
  release(&r.outputs);
  return true;
}

int main(void) {
  while (serve()) {
  }
  return 0;
}
