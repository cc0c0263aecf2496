/* Conversion between element types. Any type is widened to double, int64 or uint64, whichever holds it exactly, and
 * narrowed from there, a piece at a time; one of the two is left out for these types themselves. The pairs that models
 * use most are converted at once.
 *
 * Floats become integers by truncation, and NaN becomes 0. What is out of range becomes the nearest limit of a signed
 * type of 32 or 64 bits; the other types keep the low bits of the narrowest of these that holds them. Integers become
 * narrower ones by their low bits. All but 0 becomes true. What has fewer than 8 bits lies in the low bits of a byte,
 * whose others are 0. */
#ifndef TINYCOMP_KERNELS_CAST_CAST_H
#define TINYCOMP_KERNELS_CAST_CAST_H

#include "vocabulary.h"

#include "../elementwise/rows.h"
#include "half.h"
#include "small.h"

enum { CAST_PIECE = 1024 };

/* One row per type: TC_TYPE(kind, C type, wide type, widening of x, narrowing of a float y, narrowing of an integer y).
 */
#define TC_TYPE_LIST                                                                                       \
  TC_TYPE(F32, float, double, x, (float)y, (float)y)                                                       \
  TC_TYPE(F64, double, double, x, y, (double)y)                                                            \
  TC_TYPE(F16, uint16_t, double, tc_f32_of_f16(x), tc_f16_of_f32(cast_to_odd(y)), tc_f16_of_f32((float)y)) \
  TC_TYPE(BF16, uint16_t, double, tc_f32_of_bf16(x), tc_bf16_of_f32((float)y), tc_bf16_of_f32((float)y))   \
  TC_TYPE(I8, int8_t, int64_t, x, CAST_LOW32(y), (int8_t)y)                                                \
  TC_TYPE(U8, uint8_t, int64_t, x, CAST_LOW32(y), (uint8_t)y)                                              \
  TC_TYPE(I16, int16_t, int64_t, x, CAST_LOW32(y), (int16_t)y)                                             \
  TC_TYPE(U16, uint16_t, int64_t, x, CAST_LOW32(y), (uint16_t)y)                                           \
  TC_TYPE(I32, int32_t, int64_t, x, CAST_LOW32(y), (int32_t)y)                                             \
  TC_TYPE(U32, uint32_t, int64_t, x, CAST_LOW64(y), (uint32_t)y)                                           \
  TC_TYPE(I64, int64_t, int64_t, x, CAST_LOW64(y), (int64_t)y)                                             \
  TC_TYPE(U64, uint64_t, uint64_t, x, cast_low_u64(y), (uint64_t)y)                                        \
  TC_TYPE(BOOL, uint8_t, int64_t, x != 0, y != 0, y != 0)                                                  \
  TC_TYPE(I4, uint8_t, int64_t, ((x & 15) ^ 8) - 8, CAST_LOW32(y) & 15, y & 15)                            \
  TC_TYPE(U4, uint8_t, int64_t, x & 15, CAST_LOW32(y) & 15, y & 15)                                        \
  TC_TYPE(I2, uint8_t, int64_t, ((x & 3) ^ 2) - 2, CAST_LOW32(y) & 3, y & 3)                               \
  TC_TYPE(U2, uint8_t, int64_t, x & 3, CAST_LOW32(y) & 3, y & 3)                                           \
  TC_TYPE(F8E8M0FNU, uint8_t, double, tc_f32_of_scale(x), CAST_SCALE((float)y), CAST_SCALE((float)y))

/* low is the lowest number of the type, above the first one beyond it; both are exact as floats. */
#define CAST_SATURATE(type, y, low, above, highest) \
  ((y) >= (above) ? (type)(highest) : (y) > (low) ? (type)(y) : (y) <= (low) ? (type)(low) : (type)0)

#define CAST_LOW32(y) cast_low32(y)
#define CAST_LOW64(y) CAST_SATURATE(int64_t, y, -0x1p63, 0x1p63, INT64_MAX)

/* Within bounds first, so that the conversion is one instruction that has a result for every number. */
TC_INLINE int32_t cast_low32(double y) {
  const double above = y > -0x1p31 ? y : -0x1p31, bounded = above < 0x1.fffffffcp30 ? above : 0x1.fffffffcp30;
  const int32_t whole = (int32_t)bounded;
  return y == y ? whole : 0;
}

TC_INLINE uint64_t cast_low_u64(double y) {
  return y >= 0x1p63 ? CAST_SATURATE(uint64_t, y, 0, 0x1p64, UINT64_MAX) : (uint64_t)CAST_LOW64(y);
}

/* The nearest f32, or of the two around an inexact number that with an odd significand: rounding the result to fewer
 * bits then gives what rounding y at once would. */
TC_INLINE float cast_to_odd(double y) {
  const float near = (float)y;
  const uint32_t bits = tc_bits_of(near);
  if (y != y || (double)near == y || bits & 1) {
    return near;
  }
  return tc_float_of(fabs((double)near) < fabs(y) ? bits + 1 : bits - 1);
}

#define CAST_SCALE(x) tc_scale_of_f32(x, rows->a == 0, (int)rows->b)

/* The conversions that are done at once: TC_PAIR(from, to, type of x, type of the result, expression in x). */
#define TC_PAIR_LIST                                                                         \
  TC_PAIR(I32, F32, int32_t, float, (float)x)                                                \
  TC_PAIR(U8, F32, uint8_t, float, (float)x)                                                 \
  TC_PAIR(BOOL, F32, uint8_t, float, x ? 1.0f : 0.0f)                                        \
  TC_PAIR(I4, F32, uint8_t, float, (float)(((x & 15) ^ 8) - 8))                              \
  TC_PAIR(U4, F32, uint8_t, float, (float)(x & 15))                                          \
  TC_PAIR(F8E8M0FNU, F32, uint8_t, float, tc_f32_of_scale(x))                                \
  TC_PAIR(BF16, F32, uint16_t, float, tc_f32_of_bf16(x))                                     \
  TC_PAIR(F32, BF16, float, uint16_t, tc_bf16_of_f32(x))                                     \
  TC_PAIR(F32, BOOL, float, uint8_t, x != 0)                                                 \
  TC_PAIR(F32, I64, float, int64_t, CAST_SATURATE(int64_t, x, -0x1p63f, 0x1p63f, INT64_MAX)) \
  TC_PAIR(F32, F8E8M0FNU, float, uint8_t, CAST_SCALE(x))                                     \
  TC_PAIR(BOOL, U8, uint8_t, uint8_t, x != 0)                                                \
  TC_PAIR(U16, U8, uint16_t, uint8_t, (uint8_t)x)                                            \
  TC_PAIR(U32, U8, uint32_t, uint8_t, (uint8_t)x)                                            \
  TC_PAIR(U32, U16, uint32_t, uint16_t, (uint16_t)x)                                         \
  TC_PAIR(I8, I16, int8_t, int16_t, x)                                                       \
  TC_PAIR(U8, I16, uint8_t, int16_t, x)                                                      \
  TC_PAIR(I8, I32, int8_t, int32_t, x)                                                       \
  TC_PAIR(U8, I32, uint8_t, int32_t, x)                                                      \
  TC_PAIR(I16, I32, int16_t, int32_t, x)                                                     \
  TC_PAIR(U16, I32, uint16_t, int32_t, x)

/* The count is read once: a byte that is written might be part of it. */
#define CAST_LOOP(name, to_type, from_type, variable, expression) \
  static void name(const element_rows *rows) {                    \
    to_type *restrict z = rows->to;                               \
    const from_type *restrict source = rows->x;                   \
    const int64_t count = rows->count;                            \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) {    \
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

/* Floats as integers of up to 32 bits, by instructions. */
#define CAST_TRUNCATE(name, type, store)                                                 \
  static void name(const element_rows *rows) {                                           \
    type *restrict z = rows->to;                                                         \
    const float *restrict x = rows->x;                                                   \
    const int64_t count = rows->count;                                                   \
    int64_t i = 0;                                                                       \
    for (; i + TC_LANES <= count; i += TC_LANES) {                                       \
      store(z + i, tc_vf_truncate(tc_vf_load(x + i)));                                   \
    }                                                                                    \
    store##_first(z + i, tc_vf_truncate(tc_vf_load_first(x + i, count - i)), count - i); \
  }
CAST_TRUNCATE(cast_pair_F32_I32, int32_t, tc_vi_store)
CAST_TRUNCATE(cast_pair_F32_U8, uint8_t, tc_vi_store_bytes)
#undef CAST_TRUNCATE

/* float16 by instructions where there are some. */
static void cast_pair_F16_F32(const element_rows *rows) {
  float *restrict z = rows->to;
  const uint16_t *restrict source = rows->x;
  const int64_t count = rows->count, whole = count / TC_LANES * TC_LANES;
  for (int64_t i = 0; i < whole; i += TC_LANES) {
    tc_vf_store(z + i, tc_vf_load_halves(source + i));
  }
  uint16_t rest[TC_LANES] = {0};
  memcpy(rest, source + whole, (size_t)(count - whole) * sizeof(rest[0]));
  tc_vf_store_first(z + whole, tc_vf_load_halves(rest), count - whole);
}
#if TC_STORES_HALVES
static void cast_pair_F32_F16(const element_rows *rows) {
  uint16_t *restrict z = rows->to;
  const float *restrict source = rows->x;
  const int64_t count = rows->count, whole = count / TC_LANES * TC_LANES;
  for (int64_t i = 0; i < whole; i += TC_LANES) {
    tc_vf_store_halves(z + i, tc_vf_load(source + i));
  }
  uint16_t rest[TC_LANES];
  tc_vf_store_halves(rest, tc_vf_load_first(source + whole, count - whole));
  memcpy(z + whole, rest, (size_t)(count - whole) * sizeof(rest[0]));
}
#else
CAST_LOOP(cast_pair_F32_F16, uint16_t, float, x, tc_f16_of_f32(x))
#endif
#undef CAST_LOOP

enum { CAST_WIDE_double, CAST_WIDE_int64_t, CAST_WIDE_uint64_t };

/* What there is for each type. */
typedef struct cast_type {
  int size, wide;
  element_fn widen, narrow[3]; /* narrow: by the kind of the wide type */
  small_format format;         /* of a small float */
} cast_type;

/* Small floats: one function for all of them, which finds the format with the types of the conversion. Doubles become
 * f32 first, as in ONNX's reference. */
#define CAST_OF_SMALL(name, type)                                                                       \
  static void name(const element_rows *rows) {                                                          \
    type *restrict z = rows->to;                                                                        \
    const uint8_t *restrict x = rows->x;                                                                \
    const small_format format = rows->from->format;                                                     \
    const int64_t count = rows->count;                                                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { z[i] = tc_f32_of_small(x[i], &format); } \
  }
#define CAST_TO_SMALL(name, type, expression)                  \
  static void name(const element_rows *rows) {                 \
    uint8_t *restrict z = rows->to;                            \
    const type *restrict source = rows->x;                     \
    const small_format format = rows->into->format;            \
    const bool saturate = rows->a == 0;                        \
    const int64_t count = rows->count;                         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) { \
      const type y = source[i];                                \
      z[i] = tc_small_of_f32(expression, &format, saturate);   \
    }                                                          \
  }
CAST_OF_SMALL(cast_f32_of_small, float)
CAST_OF_SMALL(cast_widen_small, double)
CAST_TO_SMALL(cast_small_of_f32, float, y)
CAST_TO_SMALL(cast_small_of_double, double, (float)y)
CAST_TO_SMALL(cast_small_of_int64, int64_t, (float)y)
CAST_TO_SMALL(cast_small_of_uint64, uint64_t, (float)y)
#undef CAST_OF_SMALL
#undef CAST_TO_SMALL

static const cast_type cast_types[TC_TYPES] = {
#define TC_TYPE(kind, type, wide, widen, of_float, of_integer)                                        \
  [TC_TYPE_##kind] = {sizeof(type),                                                                   \
                      CAST_WIDE_##wide,                                                               \
                      cast_widen_##kind,                                                              \
                      {cast_from_double_##kind, cast_from_int64_t_##kind, cast_from_uint64_t_##kind}, \
                      {0}},
    TC_TYPE_LIST
#undef TC_TYPE
#define TC_SMALL(kind, ...)                                                              \
  [TC_TYPE_##kind] = {1,                                                                 \
                      CAST_WIDE_double,                                                  \
                      cast_widen_small,                                                  \
                      {cast_small_of_double, cast_small_of_int64, cast_small_of_uint64}, \
                      {__VA_ARGS__}},
        TC_SMALL_LIST
#undef TC_SMALL
};

static const element_fn cast_pairs[TC_TYPES][TC_TYPES] = {
#define TC_PAIR(from, to, from_type, to_type, expression) [TC_TYPE_##from][TC_TYPE_##to] = cast_pair_##from##_##to,
    TC_PAIR_LIST TC_PAIR(F16, F32, , , ) TC_PAIR(F32, F16, , , ) TC_PAIR(F32, I32, , , ) TC_PAIR(F32, U8, , , )
#undef TC_PAIR
/* Of the results of these, a sign changes no bit. */
#define CAST_SHARED(from, to, shared_from, shared_to) \
  [TC_TYPE_##from][TC_TYPE_##to] = cast_pair_##shared_from##_##shared_to,
#define CAST_NARROWED(width, bytes)                   \
  CAST_SHARED(I##width, I##bytes, U##width, U##bytes) \
  CAST_SHARED(I##width, U##bytes, U##width, U##bytes) CAST_SHARED(U##width, I##bytes, U##width, U##bytes)
        CAST_NARROWED(16, 8) CAST_NARROWED(32, 8) CAST_NARROWED(32, 16) CAST_SHARED(F32, I8, F32, U8)
            CAST_SHARED(BOOL, I8, BOOL, U8) CAST_SHARED(I8, U16, I8, I16) CAST_SHARED(U8, U16, U8, I16)
                CAST_SHARED(I8, U32, I8, I32) CAST_SHARED(U8, U32, U8, I32) CAST_SHARED(I16, U32, I16, I32)
                    CAST_SHARED(U16, U32, U16, I32)
#undef CAST_NARROWED
#undef CAST_SHARED
#define TC_SMALL(kind, ...) \
  [TC_TYPE_F32][TC_TYPE_##kind] = cast_small_of_f32, [TC_TYPE_##kind][TC_TYPE_F32] = cast_f32_of_small,
                        TC_SMALL_LIST
#undef TC_SMALL
};

/* A number of the type that it has already keeps its bits, also those of NaN; so does an integer of as many. */
static void cast_same(const element_rows *rows) { memcpy(rows->to, rows->x, (size_t)(rows->count * rows->from->size)); }

/* A conversion by way of the wide type. */
static void cast_by_wide(const element_rows *rows) {
  for (int64_t first = 0; first < rows->count; first += CAST_PIECE) {
    uint64_t wide[CAST_PIECE];
    const int64_t count = tc_min(rows->count - first, CAST_PIECE);
    element_rows part = *rows;
    part.count = count;
    part.to = wide;
    part.x = (const char *)rows->x + first * rows->from->size;
    rows->from->widen(&part);
    part.to = (char *)rows->to + first * rows->into->size;
    part.x = wide;
    rows->into->narrow[rows->from->wide](&part);
  }
}

/* The function of a conversion. */
static element_fn cast_find(int64_t from, int64_t to) {
  const cast_type *source = &cast_types[from], *result = &cast_types[to];
  const bool integers = from >= TC_TYPE_I8 && from <= TC_TYPE_U64 && to >= TC_TYPE_I8 && to <= TC_TYPE_U64;
  if (from == to || (integers && source->size == result->size)) {
    return cast_same;
  }
  if (cast_pairs[from][to]) {
    return cast_pairs[from][to];
  }
  if (from == TC_TYPE_F64 || from == TC_TYPE_I64 || from == TC_TYPE_U64) {
    return result->narrow[source->wide];
  }
  const bool is_widened = source->wide == CAST_WIDE_double ? to == TC_TYPE_F64 : to == TC_TYPE_I64 || to == TC_TYPE_U64;
  return is_widened ? source->widen : cast_by_wide;
}

#endif
