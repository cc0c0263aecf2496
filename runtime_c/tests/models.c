/* The programs, and making and running them. */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernel.h"

enum { LAYERS = 20, ROWS = 32, WIDTH = 64, IMAGE = 16, CHANNELS = 8, CLASSES = 4, BOXES = 500 };

/* Every constant and input is a piece of this. */
static float numbers[TEST_MAX_FLOATS];

static void fill_numbers(void) {
  for (int i = 0; i < TEST_MAX_FLOATS; i++) {
    numbers[i] = (float)(i * 37 % 101 - 50) / 400;
  }
}

typedef struct append_call {
  tc_program *program;
  int32_t kernel;
  const tc_operand *operands;
  int32_t operand_count;
  const void *params;
  int64_t params_size;
} append_call;

static int32_t append(void *argument, tc_error *error) {
  const append_call *a = argument;
  return tc_program_append(a->program, a->kernel, a->operands, a->operand_count, a->params, a->params_size, error);
}

#define APPEND(kernel_name, params, ...)                                                                 \
  attempt(append,                                                                                        \
          &(append_call){program, TC_KERNEL_##kernel_name, (tc_operand[]){__VA_ARGS__},                  \
                         (int32_t)(sizeof((tc_operand[]){__VA_ARGS__}) / sizeof(tc_operand)), &(params), \
                         sizeof(tc_##kernel_name##_params)},                                             \
          error)
#define INPUT {TC_INPUT, 0, 0}
#define OUTPUT {TC_OUTPUT, 0, 0}
#define ABSENT {TC_NONE, 0, 0}
#define ARENA(floats) {TC_ARENA, 0, (int64_t)(floats) * 4}
#define CONSTANT(index) {TC_CONSTANT, index, 0}
/* The eight sizes of kernels over several dimensions, of which two are needed. */
#define PLANE(rows, columns) \
  .size0 = 1, .size1 = 1, .size2 = 1, .size3 = 1, .size4 = 1, .size5 = 1, .size6 = rows, .size7 = columns

typedef struct constant_call {
  tc_program *program;
  const void *data;
  int64_t bytes;
} constant_call;

static int32_t add_constant(void *argument, tc_error *error) {
  const constant_call *c = argument;
  return tc_program_add_constant(c->program, c->data, c->bytes, 0, error);
}

#define ADD_CONSTANT(floats) attempt(add_constant, &(constant_call){program, numbers, (floats) * 4}, error)
#define ADD_WORDS(words) attempt(add_constant, &(constant_call){program, words, sizeof(words)}, error)

/* More layers than the first tables of instructions and constants hold. */
static int32_t build_layers(tc_program *program, test_try attempt, tc_error *error) {
  const tc_gemm_f32_params params = {
      .m = ROWS, .n = WIDTH, .k = WIDTH, .lda = WIDTH, .ldc = WIDTH, .activation = TC_ACT_TANH};
  for (int i = 0; i < LAYERS; i++) {
    if (ADD_CONSTANT(WIDTH * WIDTH)) {
      return error->code;
    }
  }
  for (int i = 0; i < LAYERS; i++) {
    const tc_operand slots[2] = {ARENA(0), ARENA(ROWS * WIDTH)};
    const tc_operand from = i ? slots[i % 2] : (tc_operand)INPUT;
    const tc_operand to = i < LAYERS - 1 ? slots[(i + 1) % 2] : (tc_operand)OUTPUT;
    if (APPEND(gemm_f32, params, to, from, CONSTANT(i), ABSENT, ABSENT)) {
      return error->code;
    }
  }
  return TC_OK;
}

/* Convolutions, which pack weights and take scratch. */
static int32_t build_image(tc_program *program, test_try attempt, tc_error *error) {
  const int64_t floats = IMAGE * IMAGE * CHANNELS;
  const tc_conv2d_f32_params conv = {.batch = 1,
                                     .height = IMAGE,
                                     .width = IMAGE,
                                     .channels = CHANNELS,
                                     .out_height = IMAGE,
                                     .out_width = IMAGE,
                                     .out_channels = CHANNELS,
                                     .kernel_height = 3,
                                     .kernel_width = 3,
                                     .stride_height = 1,
                                     .stride_width = 1,
                                     .dilation_height = 1,
                                     .dilation_width = 1,
                                     .pad_top = 1,
                                     .pad_left = 1,
                                     .groups = 1,
                                     .x_pixel_stride = CHANNELS,
                                     .y_pixel_stride = CHANNELS,
                                     .activation = TC_ACT_RELU};
  const tc_softmax_f32_params softmax = {.outer = IMAGE * IMAGE, .axis = CHANNELS, .inner = 1};
  if (ADD_CONSTANT(CHANNELS * CHANNELS * 9) || ADD_CONSTANT(CHANNELS) ||
      APPEND(conv2d_f32, conv, ARENA(0), INPUT, CONSTANT(0), CONSTANT(1), ABSENT) ||
      APPEND(conv2d_winograd_f32, conv, ARENA(floats), ARENA(0), CONSTANT(0), CONSTANT(1), ABSENT) ||
      APPEND(softmax_f32, softmax, OUTPUT, ARENA(floats))) {
    return error->code;
  }
  return TC_OK;
}

/* Kernels whose state is a plan rather than weights. */
static int32_t build_strided(tc_program *program, test_try attempt, tc_error *error) {
  const tc_copy_params transpose = {.element_size = 4,
                                    PLANE(WIDTH, ROWS),
                                    .to_stride6 = ROWS,
                                    .to_stride7 = 1,
                                    .from_stride6 = 1,
                                    .from_stride7 = WIDTH};
  /* e^(x + one number per row) */
  enum { COPIED, ROW, SUM }; /* the inputs and the first step */
  static const int64_t words[] = {2,
                                  0,
                                  2,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  WIDTH,
                                  ROWS,
                                  TC_TYPE_F32,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  ROWS,
                                  1,
                                  TC_TYPE_F32,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  1,
                                  0,
                                  TC_ELEMENT_BINARY,
                                  TC_BINARY_ADD,
                                  TC_TYPE_F32,
                                  COPIED,
                                  ROW,
                                  0,
                                  0,
                                  0,
                                  TC_ELEMENT_UNARY,
                                  TC_UNARY_EXP,
                                  TC_TYPE_F32,
                                  SUM,
                                  0,
                                  0,
                                  0,
                                  0,
                                  SUM + 1};
  const tc_elementwise_params group = {.words = sizeof(words) / sizeof(words[0])};
  if (ADD_CONSTANT(WIDTH) || ADD_WORDS(words) || APPEND(copy, transpose, ARENA(0), INPUT) ||
      APPEND(elementwise, group, OUTPUT, ABSENT, ABSENT, ABSENT, CONSTANT(1), ARENA(0), CONSTANT(0), ABSENT, ABSENT,
             ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT)) {
    return error->code;
  }
  return TC_OK;
}

typedef struct describe_call {
  tc_program *program;
  int32_t (*describe)(tc_program *program, int64_t a, int64_t b, tc_error *error);
  int64_t a, b;
} describe_call;

static int32_t describe(void *argument, tc_error *error) {
  const describe_call *d = argument;
  return d->describe(d->program, d->a, d->b, error);
}

#define DESCRIBE(what, a, b) attempt(describe, &(describe_call){program, what, a, b}, error)

static int32_t symbols(tc_program *program, int64_t count, int64_t unused, tc_error *error) {
  (void)unused;
  return tc_program_symbols(program, (int32_t)count, 0, error);
}

static int32_t number(tc_program *program, int64_t value, int64_t unused, tc_error *error) {
  (void)unused;
  return tc_program_formula(program, TC_FORMULA_CONSTANT, value, 0, 0, error);
}

static int32_t multiply(tc_program *program, int64_t a, int64_t b, tc_error *error) {
  return tc_program_formula(program, TC_FORMULA_MULTIPLY, a, b, 0, error);
}

static int32_t buffer(tc_program *program, int64_t space, int64_t value, tc_error *error) {
  return tc_program_buffer_size(program, (int32_t)space, 0, value, error);
}

static int32_t word(tc_program *program, int64_t place, int64_t value, tc_error *error) {
  return tc_program_word(program, 0, place, value, error);
}

static int32_t piece(tc_program *program, int64_t value, int64_t others, tc_error *error) {
  return tc_program_piece(program, value, (int64_t[]){0}, others, error);
}

/* A piece behind all pieces before it. */
static int32_t apart(tc_program *program, int64_t value, int64_t others, tc_error *error) {
  return tc_program_piece(program, value, (int64_t[]){0, 1, 2}, others, error);
}

static int32_t parameter(tc_program *program, int64_t byte, int64_t value, tc_error *error) {
  return tc_program_parameter(program, byte, value, error);
}

static int32_t typical(tc_program *program, int64_t size, int64_t unused, tc_error *error) {
  (void)unused;
  return tc_program_typical(program, &size, error);
}

/* Rows whose number only a run knows: a product, a table, and a plan that is made anew for every size. */
static int32_t build_sized(tc_program *program, test_try attempt, tc_error *error) {
  enum { SIZE, LINE, BYTES }; /* the values: rows, bytes of a row, bytes of all */
  static const int64_t words[] = {1,
                                  0,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  1,
                                  0,
                                  WIDTH,
                                  TC_TYPE_F32,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  WIDTH,
                                  1,
                                  TC_ELEMENT_UNARY,
                                  TC_UNARY_EXP,
                                  TC_TYPE_F32,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  1};
  const tc_operand first = {TC_ARENA, 0, 0}, second = {TC_ARENA, 1, 0};
  const tc_gemm_f32_params gemm = {.n = WIDTH, .k = WIDTH, .lda = WIDTH, .ldc = WIDTH};
  const tc_elementwise_params table = {.words = sizeof(words) / sizeof(words[0])};
  const tc_copy_params transpose = {
      .element_size = 4, PLANE(WIDTH, 0), .to_stride7 = 1, .from_stride6 = 1, .from_stride7 = WIDTH};
  if (DESCRIBE(symbols, 1, 0) || DESCRIBE(number, WIDTH * 4, 0) || DESCRIBE(multiply, SIZE, LINE) || ADD_WORDS(words) ||
      ADD_CONSTANT(WIDTH * WIDTH) || DESCRIBE(buffer, TC_INPUT, BYTES) || DESCRIBE(buffer, TC_OUTPUT, BYTES) ||
      DESCRIBE(word, 10, SIZE) || DESCRIBE(piece, BYTES, 0) || DESCRIBE(piece, BYTES, 1) ||
      APPEND(gemm_f32, gemm, first, INPUT, CONSTANT(1), ABSENT, ABSENT) ||
      DESCRIBE(parameter, offsetof(tc_gemm_f32_params, m), SIZE) ||
      APPEND(elementwise, table, second, ABSENT, ABSENT, ABSENT, CONSTANT(0), first, ABSENT, ABSENT, ABSENT, ABSENT,
             ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT) ||
      APPEND(copy, transpose, OUTPUT, second) || DESCRIBE(parameter, offsetof(tc_copy_params, size7), SIZE) ||
      DESCRIBE(parameter, offsetof(tc_copy_params, to_stride6), SIZE) || DESCRIBE(typical, 2, 0)) {
    return error->code;
  }
  return TC_OK;
}

static int32_t found(tc_program *program, int64_t count, int64_t unused, tc_error *error) {
  (void)unused;
  return tc_program_symbols(program, 0, (int32_t)count, error);
}

static int32_t finds(tc_program *program, int64_t symbol, int64_t most, tc_error *error) {
  return tc_program_finds(program, 1, symbol, most, error);
}

/* A result with so many rows as a step finds out, and a call that gathers no more than there are. */
static int32_t build_found(tc_program *program, test_try attempt, tc_error *error) {
  enum { SIZE, MOST, READ, WRITTEN, POSITIONS, COUNTS, ROWS_FOUND, COUNT }; /* the values: most of them bytes */
  static const int64_t most = BOXES;
  const tc_operand positions = {TC_ARENA, 0, 0}, counts = {TC_ARENA, 1, 0}, rows = {TC_ARENA, 2, 0};
  const tc_operand count = {TC_ARENA, 3, 0}, scores = {TC_INPUT, 0, BOXES * 16};
  const tc_nms_f32_params nms = {.batch = 1, .classes = CLASSES, .boxes = BOXES, .room = BOXES};
  const tc_coordinates_params coordinates = {.segments = CLASSES, .room = BOXES, .rank = 3, PLANE(CLASSES, BOXES)};
  const tc_fill_params fill = {.element_size = 4, PLANE(1, CLASSES * BOXES), .stride7 = 1};
  const tc_gather_nd_params gather = {
      .element_size = 4, .index_size = 8, .batch = 1, .depth = 3, .inner = 1, PLANE(CLASSES, BOXES)};
  if (DESCRIBE(found, 1, 0) || DESCRIBE(number, CLASSES * BOXES, 0) ||
      DESCRIBE(number, BOXES * (16 + 4 * CLASSES), 0) || DESCRIBE(number, CLASSES * BOXES * 4, 0) ||
      DESCRIBE(number, CLASSES * BOXES * 8, 0) || DESCRIBE(number, CLASSES * 8, 0) ||
      DESCRIBE(number, CLASSES * BOXES * 24, 0) || DESCRIBE(number, 8, 0) ||
      attempt(add_constant, &(constant_call){program, &most, sizeof(most)}, error) ||
      DESCRIBE(buffer, TC_INPUT, READ) || DESCRIBE(buffer, TC_OUTPUT, WRITTEN) || DESCRIBE(piece, POSITIONS, 0) ||
      DESCRIBE(apart, COUNTS, 1) || DESCRIBE(apart, ROWS_FOUND, 2) || DESCRIBE(apart, COUNT, 3) ||
      APPEND(nms_f32, nms, positions, counts, INPUT, scores, CONSTANT(0), ABSENT, ABSENT) ||
      APPEND(coordinates, coordinates, rows, count, positions, counts) || DESCRIBE(finds, SIZE, MOST) ||
      APPEND(fill, fill, OUTPUT) || APPEND(gather_nd, gather, OUTPUT, scores, rows) ||
      DESCRIBE(parameter, offsetof(tc_gather_nd_params, count), SIZE) || DESCRIBE(typical, CLASSES * BOXES, 0)) {
    return error->code;
  }
  return TC_OK;
}

static int32_t build_nothing(tc_program *program, test_try attempt, tc_error *error) {
  (void)program, (void)attempt, (void)error;
  return TC_OK;
}

const test_model test_models[] = {
    {"layers", build_layers, 2 * ROWS * WIDTH * 4, ROWS * WIDTH, ROWS * WIDTH, 0},
    {"image", build_image, 2 * IMAGE * IMAGE * CHANNELS * 4, IMAGE * IMAGE * CHANNELS, IMAGE * IMAGE * CHANNELS, 0},
    {"strided", build_strided, ROWS * WIDTH * 4, ROWS * WIDTH, ROWS * WIDTH, 0},
    {"found", build_found, 0, BOXES * (4 + CLASSES), CLASSES * BOXES, 1},
    {"sized", build_sized, 0, ROWS * WIDTH, ROWS * WIDTH, ROWS},
    {"nothing", build_nothing, 0, 0, 0, 0},
};
const int test_model_count = sizeof(test_models) / sizeof(test_models[0]);

int32_t test_once(test_call call, void *argument, tc_error *error) { return call(argument, error); }

static int32_t create(void *argument, tc_error *error) { return tc_program_create(NULL, 1, 1, argument, error); }

typedef struct finish_call {
  tc_program *program;
  int64_t arena_bytes;
} finish_call;

static int32_t finish(void *argument, tc_error *error) {
  const finish_call *f = argument;
  return tc_program_finish(f->program, NULL, f->arena_bytes, error);
}

int32_t test_program(const test_model *model, test_try attempt, tc_program **program, tc_error *error) {
  if (numbers[0] == 0) {
    fill_numbers();
  }
  if (attempt(create, program, error)) {
    test_require(!*program, model->name, "a program that could not be created is there all the same");
    return error->code;
  }
  if (model->build(*program, attempt, error) || attempt(finish, &(finish_call){*program, model->arena_bytes}, error)) {
    tc_context *context = NULL;
    tc_error refusal = {0};
    test_require(tc_context_create(*program, 1, &context, &refusal) == TC_INVALID && !context, model->name,
                 "a program that is not finished lets itself be run");
    tc_program_destroy(*program);
    *program = NULL;
    return error->code;
  }
  return TC_OK;
}

typedef struct resize_call {
  tc_context *context;
  int64_t size;
} resize_call;

static int32_t resize(void *argument, tc_error *error) {
  const resize_call *r = argument;
  return tc_context_resize(r->context, &r->size, INT64_MAX, error);
}

int32_t test_resize(const test_model *model, test_try attempt, tc_context *context, tc_error *error) {
  if (model->size && (attempt(resize, &(resize_call){context, model->size / 4}, error) ||
                      attempt(resize, &(resize_call){context, model->size}, error))) {
    return error->code;
  }
  return TC_OK;
}

int32_t test_run(const test_model *model, const tc_program *program, tc_context *context, tc_pool *pool, float *output,
                 tc_error *error) {
  (void)model;
  return tc_run(program, context, pool, (void *[]){numbers}, (void *[]){output}, error);
}

void test_require(int condition, const char *model, const char *what) {
  if (!condition) {
    fprintf(stderr, "model \"%s\": %s\n", model, what);
    exit(1);
  }
}
