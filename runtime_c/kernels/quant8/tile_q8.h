/* The micro-kernel of 8-bit products: tiles of the same sizes as those of f32, with sums of 32 bits in registers.
 *
 * Both operands come in words of 32 bits that hold a group of neighbours along the depth, in one of several forms. The
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
  Q8_QUADS,  /* four numbers of 8 bits, where the processor multiplies and adds those exactly with these weights */
  Q8_ACROSS  /* sixteen of 8 bits, where it adds up all products of two vectors: see tile_across_q8.h */
} q8_form;

static inline int64_t q8_form_numbers(q8_form form) { return form == Q8_ACROSS ? 16 : form == Q8_QUADS ? 4 : 2; }
static inline int64_t q8_form_x_bytes(q8_form form) { return form == Q8_QUADS || form == Q8_ACROSS ? 1 : 2; }
/* Bytes of one column's word of weights. */
static inline int64_t q8_form_word_bytes(q8_form form) { return form == Q8_ACROSS ? 16 : form == Q8_NARROW ? 2 : 4; }
/* What is taken off every x, to give it a sign. */
static inline int64_t q8_form_x_offset(q8_form form) { return form == Q8_ACROSS ? 128 : 0; }

typedef struct q8_tile {
  ptrdiff_t repeats; /* how many tiles of neighbouring rows, one after another */
  const char *const *rows;
  ptrdiff_t row_stride;
  ptrdiff_t taps, words; /* words of one tap */
  const char *panel;
  ptrdiff_t panels;     /* how many, one after another: their columns lie side by side */
  ptrdiff_t ahead;      /* from a panel to what will be read next: fetched into the second-level cache, */
  ptrdiff_t ahead_step; /* so many bytes per word */
  const int32_t *start; /* of every sum, padded like the panel */
  ptrdiff_t last;       /* columns in the last vector, 1..TC_LANES */
  int32_t *sums;        /* where the sums go; or NULL to requantise them by the float rule at once, */
  ptrdiff_t sums_stride;
  const float *factors; /* padded like the panel */
  const q8_scale *scale;
  uint8_t *y; /* and store them here */
  ptrdiff_t y_stride;
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

TC_INLINE void q8_tile_store(const int mr, const int nv, const q8_tile *t, int32_t *to, const q8_sums *sum) {
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++, to += t->sums_stride) {
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
      if (TC_LANES > 1 && j == nv - 1 && t->last < TC_LANES) {
        tc_vi_store_first(to + j * TC_LANES, sum->v[m][j], t->last);
      } else {
        tc_vi_store(to + j * TC_LANES, sum->v[m][j]);
      }
    }
  }
}

TC_INLINE void q8_tile_requantize(const int mr, const int nv, const q8_tile *t, const float *factors, uint8_t *to,
                                  const q8_sums *sum) {
  /* Copies: stores of bytes may change whatever is behind a pointer. */
  const q8_bytes bytes = t->scale->bytes;
  const ptrdiff_t y_stride = t->y_stride;
  const ptrdiff_t last = TC_LANES == 1 ? 1 : t->last;
#pragma GCC unroll 4
  for (int j = 0; j < nv; j++, factors += TC_LANES) {
    const tc_vf factor = tc_vf_load(factors);
    const ptrdiff_t columns = j == nv - 1 ? last : TC_LANES;
    uint8_t *y = to + j * TC_LANES;
#pragma GCC unroll 12
    for (int m = 0; m < mr; m++, y += y_stride) {
      q8_store(&bytes, q8_by_float(sum->v[m][j], factor), columns, y);
    }
  }
}

#if TC_WIDEN_TWO
/* All words of a tap of narrow weights that lie as closely as x, two columns side by side. Returns where the next tap's
 * are. */
TC_INLINE const char *q8_tile_narrow_tap(const int mr, const char *panel, const char *row[12], ptrdiff_t bytes,
                                         q8_sums *sum) {
  enum { STEPS = 8, WHOLE = 4 * STEPS };
  if (mr == 1) { /* there are registers for pointers that move with every load, and nothing to count */
    for (const char *end = panel + bytes / WHOLE * WHOLE; panel != end;) {
#pragma GCC unroll 8
      for (int i = 0; i < STEPS; i++) {
        q8_tile_step(mr, 2, Q8_NARROW, panel, row, 0, sum);
        panel += 4;
        row[0] += 4;
        TC_OPAQUE(panel);
        TC_OPAQUE(row[0]);
      }
    }
    bytes %= WHOLE;
  }
  /* Otherwise one register counts for all pointers, from the end. */
  panel += bytes;
#pragma GCC unroll 12
  for (int m = 0; m < mr; m++) {
    row[m] += bytes;
    TC_OPAQUE(row[m]); /* otherwise compilers add `bytes` to `at` in every step */
  }
  for (ptrdiff_t at = -bytes; at < 0; at += 4) {
    TC_OPAQUE(at);
    q8_tile_step(mr, 2, Q8_NARROW, panel + at, row, at, sum);
  }
  return panel;
}
#endif

/* One panel. Returns where the next one is. */
TC_INLINE const char *q8_tile_panel(const int mr, const int nv, const q8_form form, const q8_tile *t, const char *panel,
                                    const int32_t *start, const float *factors, int32_t *sums, uint8_t *y) {
  const ptrdiff_t bytes = t->words * 4, ahead_step = t->ahead_step;
  const ptrdiff_t step = (ptrdiff_t)(nv * TC_LANES * q8_form_word_bytes(form));
  const char *const *first = t->rows, *ahead = panel + t->ahead, *column = panel;
  for (ptrdiff_t left = t->repeats; left > 0; left--, first += mr) {
    q8_sums sum;
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
#pragma GCC unroll 12
      for (int m = 0; m < mr; m++) {
        sum.v[m][j] = tc_vi_load(start + j * TC_LANES);
      }
    }
    const char *const *rows = first;
    column = panel;
    for (ptrdiff_t tap = t->taps; tap > 0; tap--, rows += t->row_stride) {
      const char *row[12];
#pragma GCC unroll 12
      for (int m = 0; m < mr; m++) {
        row[m] = rows[m];
      }
#if TC_WIDEN_TWO
      if (form == Q8_NARROW && nv == 2) {
        column = q8_tile_narrow_tap(mr, column, row, bytes, &sum);
        continue;
      }
#endif
      for (ptrdiff_t at = 0; at < bytes; at += 4) {
        TC_PREFETCH(ahead);
        ahead += ahead_step;
        TC_OPAQUE(at);
        q8_tile_step(mr, nv, form, column, row, at, &sum);
        column += step;
      }
    }
    if (sums) {
      q8_tile_store(mr, nv, t, sums, &sum);
      sums += mr * t->sums_stride;
    } else {
      q8_tile_requantize(mr, nv, t, factors, y, &sum);
      y += mr * t->y_stride;
    }
  }
  return column;
}

TC_INLINE void q8_tile_body(const int mr, const int nv, const q8_form form, const q8_tile *t) {
  const char *panel = t->panel;
  const int32_t *start = t->start;
  const float *factors = t->factors;
  int32_t *sums = t->sums;
  uint8_t *y = t->y;
  for (ptrdiff_t left = t->panels; left > 0; left--) {
    panel = q8_tile_panel(mr, nv, form, t, panel, start, factors, sums, y);
    start += nv * TC_LANES;
    factors += nv * TC_LANES;
    sums += sums ? nv * TC_LANES : 0;
    y += nv * TC_LANES;
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

/* Which forms have tiles here. An exported project whose weights all have 8 bits says that nothing is wide. */
#ifndef Q8_HAS_WIDE
#define Q8_HAS_WIDE 1
#endif
#define Q8_HAS_NARROW !TC_ACROSS
#define Q8_HAS_QUADS TC_DOT4

/* By form, vectors, rows. */
#define Q8_TILE_FUNCTION(name, form, mr, nv)                                             \
  static __attribute__((noinline)) void q8_tile_##name##_##mr##x##nv(const q8_tile *t) { \
    q8_tile_body(mr, nv, form, t);                                                       \
  }
#if Q8_HAS_WIDE
#define TC_TILE(mr, nv) Q8_TILE_FUNCTION(wide, Q8_WIDE, mr, nv)
Q8_TILE_LIST
#undef TC_TILE
#endif
#if Q8_HAS_NARROW
#define TC_TILE(mr, nv) Q8_TILE_FUNCTION(narrow, Q8_NARROW, mr, nv)
Q8_TILE_LIST
#undef TC_TILE
#endif
#if Q8_HAS_QUADS
#define TC_TILE(mr, nv) Q8_TILE_FUNCTION(quads, Q8_QUADS, mr, nv)
Q8_TILE_LIST
#undef TC_TILE
#endif
#undef Q8_TILE_FUNCTION

static const q8_tile_fn q8_tiles[3][TC_TILE_VECTORS + 1][13] = {[Q8_WIDE][0][0] = NULL, /* none of no rows */
#if Q8_HAS_WIDE
#define TC_TILE(mr, nv) [Q8_WIDE][nv][mr] = q8_tile_wide_##mr##x##nv,
                                                                Q8_TILE_LIST
#undef TC_TILE
#endif
#if Q8_HAS_NARROW
#define TC_TILE(mr, nv) [Q8_NARROW][nv][mr] = q8_tile_narrow_##mr##x##nv,
                                                                    Q8_TILE_LIST
#undef TC_TILE
#endif
#if Q8_HAS_QUADS
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
#if TC_ACROSS
  return Q8_ACROSS;
#endif
#if TC_DOT4
  if (tc_has_dot4()) {
    return Q8_QUADS;
  }
#endif
  return Q8_NARROW;
}

#endif
