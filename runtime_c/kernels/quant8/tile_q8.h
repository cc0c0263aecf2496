/* The micro-kernel of 8-bit products: tiles of the same sizes as those of f32, with sums of 32 bits in registers.
 *
 * Both operands come in words of 32 bits that hold a group of neighbours along the depth, in one of three forms. The
 * left operand comes as row pointers, as in tile_f32.h; rows may end within a word, whose rest meets weights of 0. The
 * right one is one packed panel: for every tap and word, those of the panel's columns side by side, padded to whole
 * vectors. */
#ifndef TINYCOMP_KERNELS_QUANT8_TILE_Q8_H
#define TINYCOMP_KERNELS_QUANT8_TILE_Q8_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "requantize.h"

typedef enum q8_form {
  Q8_WIDE,   /* pairs of numbers of 16 bits */
  Q8_NARROW, /* likewise, but weights lie in 8 bits and are widened when they are loaded: half the memory, and faster */
  Q8_QUADS   /* four numbers of 8 bits, where the processor multiplies and adds those exactly with these weights */
} q8_form;

static inline int64_t q8_form_numbers(q8_form form) { return form == Q8_QUADS ? 4 : 2; }
static inline int64_t q8_form_x_bytes(q8_form form) { return form == Q8_QUADS ? 1 : 2; }
/* Bytes of one column's word of weights. */
static inline int64_t q8_form_word_bytes(q8_form form) { return form == Q8_NARROW ? 2 : 4; }

typedef struct q8_tile {
  const char *const *rows;
  int64_t row_stride;
  int64_t taps, words; /* words of one tap */
  const char *panel;
  const char *ahead; /* what will be read next: fetched into the second-level cache, ahead_step bytes per word */
  int64_t ahead_step;
  const int32_t *start; /* of every sum, padded like the panel */
  int64_t last;         /* columns in the last vector, 1..TC_LANES */
  int32_t *sums;        /* where the sums go; or NULL to requantise them by the float rule at once, */
  int64_t sums_stride;
  const float *factors; /* padded like the panel */
  const q8_scale *scale;
  uint8_t *y; /* and store them here */
  int64_t y_stride;
} q8_tile;

typedef struct q8_sums {
  tc_vi v[12][4];
} q8_sums;

TC_INLINE tc_vi q8_load_word(const q8_form form, const void *p) {
#if TC_DOT4
  if (form == Q8_QUADS) {
    return tc_vi_load_quad(p);
  }
#endif
  (void)form;
  return tc_vi_load_pair(p);
}

TC_INLINE tc_vi q8_dot(const q8_form form, tc_vi sum, tc_vi a, tc_vi b) {
#if TC_DOT4
  if (form == Q8_QUADS) {
    return tc_vi_dot4(sum, a, b);
  }
#endif
  (void)form;
  return tc_vi_dot2(sum, a, b);
}

/* Where in the bytes of a word of a narrow panel, `width` columns wide, half a column's word lies. */
static inline int64_t q8_narrow_place(int64_t width, int64_t column, int64_t half) {
#if TC_WIDEN_TWO
  return half * width + column;
#else
  (void)width;
  return column / TC_LANES * TC_LANES * 2 + tc_pair_place(column % TC_LANES, half);
#endif
}

TC_INLINE void q8_load_columns(const int nv, const q8_form form, const char *panel, tc_vi column[4]) {
#if TC_WIDEN_TWO
  if (form == Q8_NARROW && nv == 2) {
    tc_vi_widen_two(panel, column);
    return;
  }
#endif
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++) {
    const char *at_column = panel + j * TC_LANES * q8_form_word_bytes(form);
    column[j] = form == Q8_NARROW ? tc_vi_widen_bytes(at_column) : tc_vi_load(at_column);
  }
}

TC_INLINE void q8_tile_step(const int mr, const int nv, const q8_form form, const char *panel, const char *const *row,
                            ptrdiff_t at, q8_sums *sum) {
  tc_vi column[4];
  q8_load_columns(nv, form, panel, column);
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const tc_vi x = q8_load_word(form, row[m] + at);
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      sum->v[m][j] = q8_dot(form, sum->v[m][j], x, column[j]);
    }
  }
}

#if TC_WIDEN_TWO && TC_DOT_EIGHT
/* Four steps at once of a narrow panel with two columns. Moves the rows. */
TC_INLINE void q8_tile_four_steps(const int mr, const char *panel, const char **row, q8_sums *sum) {
  tc_eight column[2];
  tc_widen_eight(panel, column);
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    const tc_eight x = tc_load_eight(row[m]);
    row[m] += sizeof(x);
    TC_OPAQUE(row[m]);
    sum->v[m][0] = tc_dot_eight(sum->v[m][0], x, column[0]);
    sum->v[m][1] = tc_dot_eight(sum->v[m][1], x, column[1]);
  }
}
#endif

TC_INLINE void q8_tile_store(const int mr, const int nv, const q8_tile *t, const q8_sums *sum) {
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    int32_t *to = t->sums + m * t->sums_stride;
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      if (j == nv - 1 && t->last < TC_LANES) {
        tc_vi_store_first(to + j * TC_LANES, sum->v[m][j], t->last);
      } else {
        tc_vi_store(to + j * TC_LANES, sum->v[m][j]);
      }
    }
  }
}

TC_INLINE void q8_tile_requantize(const int mr, const int nv, const q8_tile *t, const q8_sums *sum) {
  /* Copies: stores of bytes may change whatever is behind a pointer. */
  const q8_bytes bytes = t->scale->bytes;
  const ptrdiff_t y_stride = (ptrdiff_t)t->y_stride;
  const int64_t last = TC_LANES == 1 ? 1 : t->last;
  const float *factors = t->factors;
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++, factors += TC_LANES) {
    const tc_vf factor = tc_vf_load(factors);
    const int64_t columns = j == nv - 1 ? last : TC_LANES;
    uint8_t *y = t->y + j * TC_LANES;
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++, y += y_stride) {
      q8_store(&bytes, q8_by_float(sum->v[m][j], factor), columns, y);
    }
  }
}

TC_INLINE void q8_tile_body(const int mr, const int nv, const q8_form form, const q8_tile *t) {
  q8_sums sum;
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++) {
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      sum.v[m][j] = tc_vi_load(t->start + j * TC_LANES);
    }
  }
  const char *panel = t->panel, *ahead = t->ahead;
  const ptrdiff_t bytes = (ptrdiff_t)t->words * 4, ahead_step = (ptrdiff_t)t->ahead_step;
  const ptrdiff_t step = (ptrdiff_t)(nv * TC_LANES * q8_form_word_bytes(form));
  const char *const *rows = t->rows;
  for (ptrdiff_t tap = (ptrdiff_t)t->taps; tap > 0; tap--, rows += t->row_stride) {
    const char *row[12];
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++) {
      row[m] = rows[m];
    }
    ptrdiff_t left = bytes;
#if TC_WIDEN_TWO && TC_DOT_EIGHT
    for (; form == Q8_NARROW && nv == 2 && left >= 16; left -= 16, panel += 16) {
      q8_tile_four_steps(mr, panel, row, &sum);
    }
#endif
    if (step == 4) { /* weights lie as closely as x: one register counts for both, from the end of either */
      panel += left;
#pragma GCC unroll 12
      for (int m = 0; m < mr; m++) {
        row[m] += left;
        TC_OPAQUE(row[m]); /* otherwise compilers add `left` to `at` in every step */
      }
      for (ptrdiff_t at = -left; at < 0; at += 4) {
        TC_OPAQUE(at);
        q8_tile_step(mr, nv, form, panel + at, row, at, &sum);
      }
      continue;
    }
    for (ptrdiff_t at = 0; at < bytes; at += 4) {
      TC_PREFETCH(ahead);
      ahead += ahead_step;
      TC_OPAQUE(at);
      q8_tile_step(mr, nv, form, panel, row, at, &sum);
      panel += step;
    }
  }
  if (t->sums) {
    q8_tile_store(mr, nv, t, &sum);
  } else {
    q8_tile_requantize(mr, nv, t, &sum);
  }
}

typedef void (*q8_tile_fn)(const q8_tile *tile);

/* The tiles of this instruction set, and their most rows by vectors. Where a vector is one number, sums share the
 * general registers with the pointers to their rows. */
#if TC_WIDEN_TWO
static const int q8_tile_rows[] = {0, 4, 3};
#define Q8_TILE_LIST TC_TILE(1, 1) TC_TILE(2, 1) TC_TILE(3, 1) TC_TILE(4, 1) TC_TILE(1, 2) TC_TILE(2, 2) TC_TILE(3, 2)
#else
#define q8_tile_rows tc_tile_rows
#define Q8_TILE_LIST TC_TILE_LIST
#endif

#define TC_TILE(mr, nv)                                                                \
  static __attribute__((noinline)) void q8_tile_wide_##mr##x##nv(const q8_tile *t) {   \
    q8_tile_body(mr, nv, Q8_WIDE, t);                                                  \
  }                                                                                    \
  static __attribute__((noinline)) void q8_tile_narrow_##mr##x##nv(const q8_tile *t) { \
    q8_tile_body(mr, nv, Q8_NARROW, t);                                                \
  }
Q8_TILE_LIST
#undef TC_TILE
#if TC_DOT4
#define TC_TILE(mr, nv)                                                               \
  static __attribute__((noinline)) void q8_tile_quads_##mr##x##nv(const q8_tile *t) { \
    q8_tile_body(mr, nv, Q8_QUADS, t);                                                \
  }
Q8_TILE_LIST
#undef TC_TILE
#endif

/* By form, vectors, rows. */
static const q8_tile_fn q8_tiles[3][TC_TILE_VECTORS + 1][13] = {
#define TC_TILE(mr, nv) [Q8_WIDE][nv][mr] = q8_tile_wide_##mr##x##nv, [Q8_NARROW][nv][mr] = q8_tile_narrow_##mr##x##nv,
    Q8_TILE_LIST
#undef TC_TILE
#if TC_DOT4
#define TC_TILE(mr, nv) [Q8_QUADS][nv][mr] = q8_tile_quads_##mr##x##nv,
        Q8_TILE_LIST
#undef TC_TILE
#endif
};

/* How products with weights of this type are computed here, unless Q8_QUADS is not exact: then as Q8_NARROW. */
static q8_form q8_form_of(const q8_result *r) {
  if (r->weight_type == TC_TYPE_I16) {
    return Q8_WIDE;
  }
#if TC_DOT4
  if (tc_has_dot4()) {
    return Q8_QUADS;
  }
#endif
  return Q8_NARROW;
}

#endif
