/* quantize_f32 and dequantize_f32: linear quantisation per tensor or per channel. Units are pieces of rows: a row has
 * one scale, or, with adjacent channels, one scale per element. */
#ifndef TINYCOMP_KERNELS_QUANT_QUANTIZE_F32_H
#define TINYCOMP_KERNELS_QUANT_QUANTIZE_F32_H

#include "vocabulary.h"

enum { QUANT_Y, QUANT_X, QUANT_SCALE, QUANT_ZERO };

enum { QUANT_PIECE = 4096 };

/* Rows of elements, and whether each element has a scale of its own. */
typedef struct quant_rows {
  int64_t rows, length, pieces, channels;
  bool by_element;
} quant_rows;

static quant_rows quant_rows_of(const tc_quantize_f32_params *p) {
  const bool by_element = p->inner == 1 && p->axis > 1;
  const int64_t length = by_element ? p->axis : p->inner;
  return (quant_rows){.rows = by_element ? p->outer : p->outer * p->axis,
                      .length = length,
                      .pieces = tc_ceil_div(length, QUANT_PIECE),
                      .channels = p->axis,
                      .by_element = by_element};
}

typedef void (*quant_fn)(void *y, const void *x, const float *scales, const void *zeros, int64_t count);

/* Clamped before it is rounded, as in onnxruntime; comparisons in this order turn NaN into the lowest number. */
TC_INLINE int32_t quant_number(float x, float scale, int32_t zero, int32_t lowest, int32_t highest) {
  const float low = (float)(lowest - zero), high = (float)(highest - zero);
  float value = x / scale;
  value = value > low ? value : low;
  value = value < high ? value : high;
  return (int32_t)rintf(value) + zero;
}

/* Loops with a scale per element, or with the first one for all. `index` is i or 0. */
#define QUANT_LOOP(index, y_type, zero_type, expression)                  \
  _Pragma("GCC ivdep") for (ptrdiff_t i = 0; i < (ptrdiff_t)count; i++) { \
    const float scale = scales[index];                                    \
    const zero_type zero = zeros ? zeros[index] : 0;                      \
    y[i] = (y_type)(expression);                                          \
  }
#define QUANT_FUNCTIONS(name, y_type, x_type, zero_type, expression)                                         \
  TC_INLINE void name##_loop(const bool by_element, y_type *restrict y, const x_type *restrict x,            \
                             const float *restrict scales, const zero_type *restrict zeros, int64_t count) { \
    if (by_element && zeros) {                                                                               \
      QUANT_LOOP(i, y_type, zero_type, expression)                                                           \
    } else if (by_element) {                                                                                 \
      zeros = NULL;                                                                                          \
      QUANT_LOOP(i, y_type, zero_type, expression)                                                           \
    } else {                                                                                                 \
      const float only_scale = scales[0];                                                                    \
      const zero_type only_zero = zeros ? zeros[0] : 0;                                                      \
      scales = &only_scale;                                                                                  \
      zeros = &only_zero;                                                                                    \
      QUANT_LOOP(0, y_type, zero_type, expression)                                                           \
    }                                                                                                        \
  }                                                                                                          \
  static void name##_one(void *y, const void *x, const float *scales, const void *zeros, int64_t count) {    \
    name##_loop(false, y, x, scales, zeros, count);                                                          \
  }                                                                                                          \
  static void name##_each(void *y, const void *x, const float *scales, const void *zeros, int64_t count) {   \
    name##_loop(true, y, x, scales, zeros, count);                                                           \
  }

QUANT_FUNCTIONS(quantize_i8, int8_t, float, int8_t, quant_number(x[i], scale, zero, INT8_MIN, INT8_MAX))
QUANT_FUNCTIONS(quantize_u8, uint8_t, float, uint8_t, quant_number(x[i], scale, zero, 0, UINT8_MAX))
QUANT_FUNCTIONS(quantize_i16, int16_t, float, int16_t, quant_number(x[i], scale, zero, INT16_MIN, INT16_MAX))
QUANT_FUNCTIONS(quantize_u16, uint16_t, float, uint16_t, quant_number(x[i], scale, zero, 0, UINT16_MAX))
QUANT_FUNCTIONS(dequantize_i8, float, int8_t, int8_t, (float)((int32_t)x[i] - zero) * scale)
QUANT_FUNCTIONS(dequantize_u8, float, uint8_t, uint8_t, (float)((int32_t)x[i] - zero) * scale)
QUANT_FUNCTIONS(dequantize_i16, float, int16_t, int16_t, (float)((int32_t)x[i] - zero) * scale)
QUANT_FUNCTIONS(dequantize_u16, float, uint16_t, uint16_t, (float)((int32_t)x[i] - zero) * scale)
QUANT_FUNCTIONS(dequantize_i32, float, int32_t, int32_t, (float)((int64_t)x[i] - zero) * scale)
#undef QUANT_FUNCTIONS
#undef QUANT_LOOP

/* A quantised type: its size, and the functions for one scale and for one per element. */
typedef struct quant_type {
  int size;
  quant_fn quantize[2], dequantize[2];
} quant_type;

static const quant_type quant_types[] = {
    [TC_TYPE_I8] = {1, {quantize_i8_one, quantize_i8_each}, {dequantize_i8_one, dequantize_i8_each}},
    [TC_TYPE_U8] = {1, {quantize_u8_one, quantize_u8_each}, {dequantize_u8_one, dequantize_u8_each}},
    [TC_TYPE_I16] = {2, {quantize_i16_one, quantize_i16_each}, {dequantize_i16_one, dequantize_i16_each}},
    [TC_TYPE_U16] = {2, {quantize_u16_one, quantize_u16_each}, {dequantize_u16_one, dequantize_u16_each}},
    [TC_TYPE_I32] = {4, {NULL, NULL}, {dequantize_i32_one, dequantize_i32_each}},
};

static const quant_type *quant_type_of(int64_t type) {
  const int64_t types = sizeof(quant_types) / sizeof(quant_types[0]);
  return type >= 0 && type < types && quant_types[type].size ? &quant_types[type] : NULL;
}

/* Everything but the type; y_size and x_size are element sizes, those of zero points the smaller type's. */
static void quant_prepare(tc_prepare *prepare, int y_size, int x_size, int zero_size) {
  const tc_quantize_f32_params *p = prepare->params;
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, QUANT_Y, count, y_size);
  tc_touch(prepare, QUANT_X, count, x_size);
  tc_touch(prepare, QUANT_SCALE, p->axis, sizeof(float));
  tc_touch(prepare, QUANT_ZERO, p->axis, zero_size);
  if (tc_refused(prepare) || count == 0) {
    return;
  }
  const quant_rows rows = quant_rows_of(p);
  prepare->units = rows.rows * rows.pieces;
  prepare->cost = 4.0 * (double)count;
  prepare->work.flops = 2.0 * (double)count;
}

static void quant_run(const tc_call *call, const quant_fn functions[2], int y_size, int x_size, int zero_size,
                      int64_t begin, int64_t end) {
  const quant_rows rows = quant_rows_of(call->params);
  const float *scales = call->operands[QUANT_SCALE];
  const char *zeros = call->operands[QUANT_ZERO];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit / rows.pieces, first = unit % rows.pieces * QUANT_PIECE;
    const int64_t at = row * rows.length + first, channel = rows.by_element ? first : row % rows.channels;
    functions[rows.by_element]((char *)call->operands[QUANT_Y] + at * y_size,
                               (const char *)call->operands[QUANT_X] + at * x_size, scales + channel,
                               zeros ? zeros + channel * zero_size : NULL, tc_min(rows.length - first, QUANT_PIECE));
  }
}

static void TC_NAME(tc_quantize_f32_prepare)(tc_prepare *prepare) {
  const tc_quantize_f32_params *p = prepare->params;
  const quant_type *type = quant_type_of(p->type);
  TC_REQUIRE(prepare, type && type->quantize[0], "nothing can be quantised to type %lld", (long long)p->type);
  quant_prepare(prepare, type->size, sizeof(float), type->size);
}

static void TC_NAME(tc_quantize_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_quantize_f32_params *p = call->params;
  const quant_type *type = quant_type_of(p->type);
  quant_run(call, type->quantize, type->size, sizeof(float), type->size, begin, end);
}

static void TC_NAME(tc_dequantize_f32_prepare)(tc_prepare *prepare) {
  const tc_dequantize_f32_params *p = prepare->params;
  const quant_type *type = quant_type_of(p->type);
  TC_REQUIRE(prepare, type, "nothing can be dequantised from type %lld", (long long)p->type);
  quant_prepare(prepare, sizeof(float), type->size, type->size);
}

static void TC_NAME(tc_dequantize_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_dequantize_f32_params *p = call->params;
  const quant_type *type = quant_type_of(p->type);
  quant_run(call, type->dequantize, sizeof(float), type->size, type->size, begin, end);
}

#endif
