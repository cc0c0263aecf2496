/* Classifies images of handwritten digits with a saved module, without Python.
 *
 *   tinycomp compile digits -o digits.tcm
 *   cc classify.c -o classify $(pkg-config --cflags --libs tinycomp)
 *   ./classify digits.tcm images.f32
 *
 * images.f32 holds images of 8 x 8 float32. */
#include <stdio.h>
#include <stdlib.h>

#include <tinycomp_run.h>

enum { PIXELS = 64 };

static int fail(const tc_error *error) {
  fprintf(stderr, "classify: %s\n", error->message);
  return 1;
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: classify MODULE.tcm IMAGES.f32\n");
    return 2;
  }
  FILE *file = fopen(arguments[2], "rb");
  if (!file) {
    perror(arguments[2]);
    return 1;
  }
  fseek(file, 0, SEEK_END);
  const long images = ftell(file) / (PIXELS * (long)sizeof(float));
  rewind(file);
  float *pixels = malloc((size_t)images * PIXELS * sizeof(float));
  if (!pixels || fread(pixels, sizeof(float), (size_t)images * PIXELS, file) != (size_t)images * PIXELS) {
    fprintf(stderr, "classify: cannot read %s\n", arguments[2]);
    return 1;
  }
  fclose(file);

  tc_error error;
  tc_module *module;
  tc_session *session;
  if (tc_module_open(arguments[1], NULL, &module, &error) || tc_session_open(module, &session, &error)) {
    return fail(&error);
  }
  const tc_tensor input = {.data = pixels, .dtype = "float32", .rank = 4, .dims = {images, 1, 8, 8}};
  tc_tensor scores;
  if (tc_session_set_input(session, 0, &input, &error) || tc_session_run(session, &error) ||
      tc_session_output(session, 0, &scores, &error)) {
    return fail(&error);
  }
  const float *score = scores.data;
  for (long i = 0; i < images; i++, score += scores.dims[1]) {
    int best = 0;
    for (int digit = 1; digit < scores.dims[1]; digit++) {
      best = score[digit] > score[best] ? digit : best;
    }
    printf("%d\n", best);
  }
  tc_session_close(session);
  tc_module_close(module);
  free(pixels);
  return 0;
}
