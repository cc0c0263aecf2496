/* where: chooses between two operands of 1, 2, 4 or 8 byte elements by a condition of bytes; all three broadcast.
 * State: the collapsed walk. Units are pieces of rows. */

enum { WHERE_Y, WHERE_CONDITION, WHERE_A, WHERE_B };

enum { WHERE_PIECE = 4096 };

static tc_rows where_rows(const tc_where_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add_contiguous(&nd);
  tc_nd_add(&nd, TC_EIGHT(p, condition_stride));
  tc_nd_add(&nd, TC_EIGHT(p, a_stride));
  tc_nd_add(&nd, TC_EIGHT(p, b_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, WHERE_PIECE);
}

static void TC_NAME(tc_where_prepare)(tc_prepare *prepare) {
  const tc_where_params *p = prepare->params;
  const int64_t size = p->element_size;
  TC_REQUIRE(prepare, size == 1 || size == 2 || size == 4 || size == 8, "elements of %lld bytes cannot be chosen",
             (long long)size);
  const int64_t count = tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  tc_touch(prepare, WHERE_Y, count, (int)size);
  tc_nd_touch(prepare, WHERE_CONDITION, TC_EIGHT(p, size), TC_EIGHT(p, condition_stride), 1);
  tc_nd_touch(prepare, WHERE_A, TC_EIGHT(p, size), TC_EIGHT(p, a_stride), (int)size);
  tc_nd_touch(prepare, WHERE_B, TC_EIGHT(p, size), TC_EIGHT(p, b_stride), (int)size);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = where_rows(p).units;
  prepare->cost = 4.0 * (double)count;
  prepare->state_bytes = sizeof(tc_rows);
}

static void TC_NAME(tc_where_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = where_rows(prepare->params);
}

/* One piece; with literal steps the compiler makes vectors of it. */
#define WHERE_ROW(type)                                                                                                \
  TC_INLINE void where_loop_##type(type *y, const uint8_t *c, const int64_t c_step, const type *a,                     \
                                   const int64_t a_step, const type *b, const int64_t b_step, int64_t count) {         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) {                                                         \
      const type yes = a[i * a_step], no = b[i * b_step];                                                              \
      y[i] = c[i * c_step] ? yes : no;                                                                                 \
    }                                                                                                                  \
  }                                                                                                                    \
  static void where_##type(void *y, const void *c, const void *a, const void *b, const int64_t *step, int64_t count) { \
    const int64_t c_step = step[WHERE_CONDITION], a_step = step[WHERE_A], b_step = step[WHERE_B];                      \
    if (c_step == 1 && a_step == 1 && b_step == 1) {                                                                   \
      where_loop_##type(y, c, 1, a, 1, b, 1, count);                                                                   \
    } else if (c_step == 1 && a_step == 1 && b_step == 0) {                                                            \
      where_loop_##type(y, c, 1, a, 1, b, 0, count);                                                                   \
    } else if (c_step == 1 && a_step == 0 && b_step == 1) {                                                            \
      where_loop_##type(y, c, 1, a, 0, b, 1, count);                                                                   \
    } else {                                                                                                           \
      where_loop_##type(y, c, c_step, a, a_step, b, b_step, count);                                                    \
    }                                                                                                                  \
  }
WHERE_ROW(uint8_t)
WHERE_ROW(uint16_t)
WHERE_ROW(uint32_t)
WHERE_ROW(uint64_t)
#undef WHERE_ROW

static void TC_NAME(tc_where)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_where_params *p = call->params;
  const int64_t size = p->element_size;
  void (*row)(void *, const void *, const void *, const void *, const int64_t *, int64_t) = size == 1   ? where_uint8_t
                                                                                            : size == 2 ? where_uint16_t
                                                                                            : size == 4
                                                                                                ? where_uint32_t
                                                                                                : where_uint64_t;
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    row((char *)call->operands[WHERE_Y] + walk.at[WHERE_Y] * size,
        (const char *)call->operands[WHERE_CONDITION] + walk.at[WHERE_CONDITION],
        (const char *)call->operands[WHERE_A] + walk.at[WHERE_A] * size,
        (const char *)call->operands[WHERE_B] + walk.at[WHERE_B] * size, walk.step, walk.count);
    tc_rows_next(&walk);
  }
}
