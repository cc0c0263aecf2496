/* What scattering does with an element that it meets: replace it, or combine it with the new one. */
#ifndef TINYCOMP_KERNELS_SCATTER_STEPS_H
#define TINYCOMP_KERNELS_SCATTER_STEPS_H

#include "vocabulary.h"

#include "../common/number.h"

/* Elements one behind the other, or each where a position says, some of which may be the same. */
typedef struct scatter_steps {
  void (*adjacent)(void *to, const void *from, int64_t count);
  void (*apart)(void *to, const int64_t *positions, const void *from, int64_t step, int64_t count);
} scatter_steps;

#define SCATTER_LOOP(name, type, expression)                                                           \
  static void scatter_##name(void *to, const void *from, int64_t count) {                              \
    type *restrict y = to;                                                                             \
    const type *restrict updates = from;                                                               \
    for (int64_t i = 0; i < count; i++) {                                                              \
      const type old __attribute__((unused)) = y[i], new = updates[i];                                 \
      y[i] = (type)(expression);                                                                       \
    }                                                                                                  \
  }                                                                                                    \
  static void scatter_apart_##name(void *to, const int64_t *positions, const void *from, int64_t step, \
                                   int64_t count) {                                                    \
    type *y = to;                                                                                      \
    const type *updates = from;                                                                        \
    for (int64_t i = 0; i < count; i++) {                                                              \
      const int64_t at = positions[i];                                                                 \
      const type old __attribute__((unused)) = y[at], new = updates[i * step];                         \
      y[at] = (type)(expression);                                                                      \
    }                                                                                                  \
  }                                                                                                    \
  static const scatter_steps scatter_steps_##name = {scatter_##name, scatter_apart_##name};
SCATTER_LOOP(uint8_t, uint8_t, new)
SCATTER_LOOP(uint16_t, uint16_t, new)
SCATTER_LOOP(uint32_t, uint32_t, new)
SCATTER_LOOP(uint64_t, uint64_t, new)
/* One of two numbers, without a branch that nobody can foresee. */
#define SCATTER_PICK(kind, type, bits)                                               \
  TC_INLINE type scatter_pick_##kind(bool first, type a, type b) {                   \
    bits x, y;                                                                       \
    memcpy(&x, &a, sizeof(x));                                                       \
    memcpy(&y, &b, sizeof(y));                                                       \
    const bits mask = (bits) - (bits)first, picked = (x & mask) | (y & (bits)~mask); \
    memcpy(&a, &picked, sizeof(a));                                                  \
    return a;                                                                        \
  }
SCATTER_PICK(F32, float, uint32_t)
SCATTER_PICK(F64, double, uint64_t)
#define SCATTER_PICK_WHOLE(kind, type) \
  TC_INLINE type scatter_pick_##kind(bool first, type a, type b) { return first ? a : b; }
SCATTER_PICK_WHOLE(I8, int8_t)
SCATTER_PICK_WHOLE(U8, uint8_t)
SCATTER_PICK_WHOLE(I16, int16_t)
SCATTER_PICK_WHOLE(U16, uint16_t)
SCATTER_PICK_WHOLE(I32, int32_t)
SCATTER_PICK_WHOLE(U32, uint32_t)
SCATTER_PICK_WHOLE(I64, int64_t)
SCATTER_PICK_WHOLE(U64, uint64_t)
/* A maximum or minimum is NaN if either is. */
#define TC_NUMBER(kind, type, wide)                                                         \
  SCATTER_LOOP(ADD_##kind, type, (wide)old + (wide) new)                                    \
  SCATTER_LOOP(MUL_##kind, type, (wide)old *(wide) new)                                     \
  SCATTER_LOOP(MAX_##kind, type, scatter_pick_##kind((new > old) | (new != new), new, old)) \
  SCATTER_LOOP(MIN_##kind, type, scatter_pick_##kind((new < old) | (new != new), new, old))
TC_NUMBER_LIST
#undef TC_NUMBER
#undef SCATTER_LOOP
#undef SCATTER_PICK
#undef SCATTER_PICK_WHOLE

static const scatter_steps *scatter_replace(int64_t element_size) {
  switch (element_size) {
    case 1:
      return &scatter_steps_uint8_t;
    case 2:
      return &scatter_steps_uint16_t;
    case 4:
      return &scatter_steps_uint32_t;
    default:
      return &scatter_steps_uint64_t;
  }
}

/* The loops for a reduction, or NULL if there is none. */
static const scatter_steps *scatter_find(int64_t element_size, int64_t type, int64_t reduction) {
  if (reduction == TC_SCATTER_REPLACE) {
    return scatter_replace(element_size);
  }
  if (element_size < 1 || tc_number_size(type) != element_size) {
    return NULL;
  }
#define SCATTER_CASE(operation)                                             \
  case TC_SCATTER_##operation: {                                            \
    static const scatter_steps *const table[] = {SCATTER_TABLE(operation)}; \
    return table[type];                                                     \
  }
#define SCATTER_TABLE(operation)                                                                      \
  [TC_TYPE_F32] = &scatter_steps_##operation##_F32, [TC_TYPE_F64] = &scatter_steps_##operation##_F64, \
  [TC_TYPE_I8] = &scatter_steps_##operation##_I8, [TC_TYPE_U8] = &scatter_steps_##operation##_U8,     \
  [TC_TYPE_I16] = &scatter_steps_##operation##_I16, [TC_TYPE_U16] = &scatter_steps_##operation##_U16, \
  [TC_TYPE_I32] = &scatter_steps_##operation##_I32, [TC_TYPE_U32] = &scatter_steps_##operation##_U32, \
  [TC_TYPE_I64] = &scatter_steps_##operation##_I64, [TC_TYPE_U64] = &scatter_steps_##operation##_U64
  switch (reduction) {
    SCATTER_CASE(ADD)
    SCATTER_CASE(MUL)
    SCATTER_CASE(MAX)
    SCATTER_CASE(MIN)
    default:
      return NULL;
  }
#undef SCATTER_TABLE
#undef SCATTER_CASE
}

static void scatter_check(tc_prepare *prepare, int64_t element_size, int64_t type, int64_t reduction) {
  TC_REQUIRE(prepare, scatter_find(element_size, type, reduction),
             "there is no reduction %lld of numbers of type %lld in %lld bytes", (long long)reduction, (long long)type,
             (long long)element_size);
}

#endif
