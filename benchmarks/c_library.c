/* Times a saved module: for every number that comes on standard input, runs so often and prints the seconds that each
 * run took on average. Usage: c_library MODULE.tcm INPUTS.bin OUTPUTS.bin THREADS */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tinycomp_run.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void require(int status, const tc_error *error) {
  if (status) {
    fprintf(stderr, "c_library: %s\n", error->message);
    exit(1);
  }
}

/* Reads an input: its rank and dimensions as int64, its bytes, and then they themselves. */
static void read_input(FILE *file, const tc_module *module, tc_session *session, int32_t index) {
  tc_error error = {1, "the inputs end too early"};
  tc_tensor_spec spec;
  int64_t rank, bytes;
  tc_module_input(module, index, &spec);
  tc_tensor tensor = {.dtype = spec.dtype};
  require(fread(&rank, 8, 1, file) != 1 || rank < 0 || rank > TC_TENSOR_RANK, &error);
  require(fread(tensor.dims, 8, (size_t)rank, file) != (size_t)rank || fread(&bytes, 8, 1, file) != 1, &error);
  tensor.rank = (int32_t)rank;
  tensor.data = aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64);
  require(fread(tensor.data, 1, (size_t)bytes, file) != (size_t)bytes, &error);
  require(tc_session_set_input(session, index, &tensor, &error), &error);
}

int main(int count, char **arguments) {
  if (count != 5) {
    return 2;
  }
  tc_error error;
  tc_module *module;
  tc_session *session;
  const tc_module_options options = {.threads = atoi(arguments[4])};
  require(tc_module_open(arguments[1], &options, &module, &error), &error);
  require(tc_session_open(module, &session, &error), &error);
  FILE *inputs = fopen(arguments[2], "rb");
  for (int32_t i = 0; i < tc_module_input_count(module); i++) {
    read_input(inputs, module, session, i);
  }
  require(tc_session_run(session, &error), &error);
  FILE *outputs = fopen(arguments[3], "wb");
  for (int32_t i = 0; i < tc_module_output_count(module); i++) {
    tc_tensor result;
    int64_t elements = 1;
    require(tc_session_output(session, i, &result, &error), &error);
    for (int32_t d = 0; d < result.rank; d++) {
      elements *= result.dims[d];
    }
    fwrite(result.data, strcmp(result.dtype, "float32") ? 1 : 4, (size_t)elements, outputs);
  }
  fclose(outputs);
  puts("ready");
  fflush(stdout);
  for (long runs; scanf("%ld", &runs) == 1;) {
    const double start = now();
    for (long i = 0; i < runs; i++) {
      require(tc_session_run(session, &error), &error);
    }
    printf("%.9g\n", (now() - start) / (double)runs);
    fflush(stdout);
  }
  return 0;
}
