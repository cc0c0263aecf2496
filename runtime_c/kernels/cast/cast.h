/* cast: conversion of contiguous elements. Any type is widened to double, int64 or uint64, whichever holds it exactly,
 * and narrowed from there, a piece at a time; the pairs that models use most are converted at once. Units are pieces.
 *
 * Floats become integers by truncation; NaN becomes 0 and what is out of range the nearest limit. Integers become
 * narrower ones by their low bits. All but 0 becomes true. f64 becomes a 16-bit float by way of f32. */

enum { CAST_PIECE = 1024 };

/* One row per type: TC_TYPE(kind, C type, wide type, widening of x, narrowing of a float y, narrowing of an integer y).
 */
#define TC_TYPE_LIST                                                                                     \
  TC_TYPE(F32, float, double, x, (float)y, (float)y)                                                     \
  TC_TYPE(F64, double, double, x, y, (double)y)                                                          \
  TC_TYPE(F16, uint16_t, double, tc_f32_of_f16(x), tc_f16_of_f32((float)y), tc_f16_of_f32((float)y))     \
  TC_TYPE(BF16, uint16_t, double, tc_f32_of_bf16(x), tc_bf16_of_f32((float)y), tc_bf16_of_f32((float)y)) \
  TC_TYPE(I8, int8_t, int64_t, x, CAST_SATURATE(int8_t, y, -0x1p7, 0x1p7, INT8_MAX), (int8_t)y)          \
  TC_TYPE(U8, uint8_t, int64_t, x, CAST_SATURATE(uint8_t, y, 0, 0x1p8, UINT8_MAX), (uint8_t)y)           \
  TC_TYPE(I16, int16_t, int64_t, x, CAST_SATURATE(int16_t, y, -0x1p15, 0x1p15, INT16_MAX), (int16_t)y)   \
  TC_TYPE(U16, uint16_t, int64_t, x, CAST_SATURATE(uint16_t, y, 0, 0x1p16, UINT16_MAX), (uint16_t)y)     \
  TC_TYPE(I32, int32_t, int64_t, x, CAST_SATURATE(int32_t, y, -0x1p31, 0x1p31, INT32_MAX), (int32_t)y)   \
  TC_TYPE(U32, uint32_t, int64_t, x, CAST_SATURATE(uint32_t, y, 0, 0x1p32, UINT32_MAX), (uint32_t)y)     \
  TC_TYPE(I64, int64_t, int64_t, x, CAST_SATURATE(int64_t, y, -0x1p63, 0x1p63, INT64_MAX), (int64_t)y)   \
  TC_TYPE(U64, uint64_t, uint64_t, x, CAST_SATURATE(uint64_t, y, 0, 0x1p64, UINT64_MAX), (uint64_t)y)    \
  TC_TYPE(BOOL, uint8_t, int64_t, x != 0, y != 0, y != 0)

/* low is the lowest number of the type, above the first one beyond it; both are exact as floats. */
#define CAST_SATURATE(type, y, low, above, highest) \
  ((y) >= (above) ? (type)(highest) : (y) > (low) ? (type)(y) : (y) <= (low) ? (type)(low) : (type)0)

/* The conversions that are done at once: TC_PAIR(from, to, type of x, type of the result, expression in x). */
#define TC_PAIR_LIST                                                                         \
  TC_PAIR(I64, F32, int64_t, float, (float)x)                                                \
  TC_PAIR(I32, F32, int32_t, float, (float)x)                                                \
  TC_PAIR(U8, F32, uint8_t, float, (float)x)                                                 \
  TC_PAIR(BOOL, F32, uint8_t, float, x ? 1.0f : 0.0f)                                        \
  TC_PAIR(F16, F32, uint16_t, float, tc_f32_of_f16(x))                                       \
  TC_PAIR(BF16, F32, uint16_t, float, tc_f32_of_bf16(x))                                     \
  TC_PAIR(F32, F16, float, uint16_t, tc_f16_of_f32(x))                                       \
  TC_PAIR(F32, BF16, float, uint16_t, tc_bf16_of_f32(x))                                     \
  TC_PAIR(F32, BOOL, float, uint8_t, x != 0)                                                 \
  TC_PAIR(F32, I32, float, int32_t, CAST_SATURATE(int32_t, x, -0x1p31f, 0x1p31f, INT32_MAX)) \
  TC_PAIR(F32, I64, float, int64_t, CAST_SATURATE(int64_t, x, -0x1p63f, 0x1p63f, INT64_MAX)) \
  TC_PAIR(I64, I32, int64_t, int32_t, (int32_t)x)                                            \
  TC_PAIR(I32, I64, int32_t, int64_t, (int64_t)x)

typedef void (*cast_fn)(void *to, const void *from, int64_t count);

#define CAST_LOOP(name, to_type, from_type, variable, expression) \
  static void name(void *to, const void *from, int64_t count) {   \
    to_type *restrict z = to;                                     \
    const from_type *restrict source = from;                      \
    for (int64_t i = 0; i < count; i++) {                         \
      const from_type variable = source[i];                       \
      z[i] = (to_type)(expression);                               \
    }                                                             \
  }
#define TC_TYPE(kind, type, wide, widen, of_float, of_integer)      \
  CAST_LOOP(cast_widen_##kind, wide, type, x, widen)                \
  CAST_LOOP(cast_from_double_##kind, type, double, y, of_float)     \
  CAST_LOOP(cast_from_int64_t_##kind, type, int64_t, y, of_integer) \
  CAST_LOOP(cast_from_uint64_t_##kind, type, uint64_t, y, of_integer)
TC_TYPE_LIST
#undef TC_TYPE
#define TC_PAIR(from, to, from_type, to_type, expression) \
  CAST_LOOP(cast_pair_##from##_##to, to_type, from_type, x, expression)
TC_PAIR_LIST
#undef TC_PAIR
#undef CAST_LOOP

enum { CAST_WIDE_double, CAST_WIDE_int64_t, CAST_WIDE_uint64_t };

/* What there is for each type. */
typedef struct cast_type {
  int size, wide;
  cast_fn widen, narrow[3]; /* narrow: by the kind of the wide type */
} cast_type;

static const cast_type cast_types[] = {
#define TC_TYPE(kind, type, wide, widen, of_float, of_integer) \
  [TC_TYPE_##kind] = {sizeof(type),                            \
                      CAST_WIDE_##wide,                        \
                      cast_widen_##kind,                       \
                      {cast_from_double_##kind, cast_from_int64_t_##kind, cast_from_uint64_t_##kind}},
    TC_TYPE_LIST
#undef TC_TYPE
};

enum { CAST_TYPES = sizeof(cast_types) / sizeof(cast_types[0]) };

static const cast_fn cast_pairs[CAST_TYPES][CAST_TYPES] = {
#define TC_PAIR(from, to, from_type, to_type, expression) [TC_TYPE_##from][TC_TYPE_##to] = cast_pair_##from##_##to,
    TC_PAIR_LIST
#undef TC_PAIR
};

static void TC_NAME(tc_cast_prepare)(tc_prepare *prepare) {
  const tc_cast_params *p = prepare->params;
  TC_REQUIRE(prepare, p->from >= 0 && p->from < CAST_TYPES && p->to >= 0 && p->to < CAST_TYPES, "there is no type %lld",
             (long long)(p->from >= 0 && p->from < CAST_TYPES ? p->to : p->from));
  tc_touch(prepare, 0, p->count, cast_types[p->to].size);
  tc_touch(prepare, 1, p->count, cast_types[p->from].size);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_ceil_div(p->count, CAST_PIECE);
  prepare->cost = 4.0 * (double)p->count;
}

static void TC_NAME(tc_cast)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_cast_params *p = call->params;
  const cast_type *from = &cast_types[p->from], *to = &cast_types[p->to];
  const cast_fn at_once = cast_pairs[p->from][p->to];
  for (int64_t first = begin * CAST_PIECE; first < tc_min(end * CAST_PIECE, p->count); first += CAST_PIECE) {
    const int64_t count = tc_min(p->count - first, CAST_PIECE);
    char *y = (char *)call->operands[0] + first * to->size;
    const char *x = (const char *)call->operands[1] + first * from->size;
    if (at_once) {
      at_once(y, x, count);
    } else {
      uint64_t wide[CAST_PIECE];
      from->widen(wide, x, count);
      to->narrow[from->wide](y, wide, count);
    }
  }
}
