/* Packing the weights of 8-bit products into panels, see tile_q8.h. */
#ifndef TINYCOMP_KERNELS_QUANT8_PACK_Q8_H
#define TINYCOMP_KERNELS_QUANT8_PACK_Q8_H

#include "vocabulary.h"

#include "../gemm/tile_f32.h"
#include "tile_q8.h"
#include "tile_across_q8.h"

/* Where weights lie. The depth of a tap runs over `outer` times `inner` numbers; element (tap, outer, inner, column) is
 * at tap * tap_stride + ..., in elements. They may be unaligned. */
typedef struct q8_weights {
  const char *data;
  int size; /* of an element: 1 or 2 bytes */
  int64_t taps, outer, inner, columns;
  int64_t tap_stride, outer_stride, inner_stride, column_stride;
} q8_weights;

static inline int32_t q8_weight(const char *data, int size, int64_t at) {
  if (size == 1) {
    return ((const int8_t *)data)[at];
  }
  int16_t value;
  memcpy(&value, data + at * 2, sizeof(value));
  return value;
}

/* Whether quads are exact whatever x is: neighbours of one sign must not add up to more than the instruction bears. */
static bool q8_quads_are_exact(const q8_weights *w) {
#if TC_DOT4
  for (int64_t column = 0; column < w->columns && TC_DOT4_MOST < 2 * 128; column++) {
    for (int64_t tap = 0; tap < w->taps; tap++) {
      int32_t above = 0, below = 0;
      for (int64_t d = 0; d < w->outer * w->inner; d++) {
        const int32_t value = q8_weight(w->data, w->size,
                                        column * w->column_stride + tap * w->tap_stride +
                                            d / w->inner * w->outer_stride + d % w->inner * w->inner_stride);
        above = (d % 2 ? above : 0) + (value > 0 ? value : 0);
        below = (d % 2 ? below : 0) - (value < 0 ? value : 0);
        if (above > TC_DOT4_MOST || below > TC_DOT4_MOST) {
          return false;
        }
      }
    }
  }
#endif
  (void)w;
  return true;
}

/* The words that a tap takes. */
static inline int64_t q8_words(int64_t depth, q8_form form) { return tc_ceil_div(depth, q8_form_numbers(form)); }

/* One column of a panel of `width` columns. Returns the sum of its weights, which may wrap around. */
static uint32_t q8_pack_column(const q8_weights *w, q8_form form, int64_t column, int64_t width, char *out) {
  const int64_t per_word = q8_form_numbers(form), words = q8_words(w->outer * w->inner, form);
  const int64_t word_bytes = q8_form_word_bytes(form);
  const int64_t lane = column % TC_LANES, vector = column / TC_LANES;
  uint32_t sum = 0;
  for (int64_t tap = 0; tap < w->taps; tap++, out += form == Q8_ACROSS ? 0 : words * width * word_bytes) {
    int64_t d = 0;
    for (int64_t i = 0; i < w->outer; i++) {
      int64_t at = column * w->column_stride + tap * w->tap_stride + i * w->outer_stride;
      for (int64_t j = 0; j < w->inner; j++, d++, at += w->inner_stride) {
        const int32_t value = q8_weight(w->data, w->size, at);
        char *to = out + (d / per_word * width + vector * TC_LANES) * word_bytes;
        if (form == Q8_ACROSS) {
          ((int8_t *)out)[q8_across_place(w->taps, words, column, tap, d)] = (int8_t)value;
        } else if (form == Q8_QUADS) {
          ((int8_t *)to)[lane * 4 + d % 4] = (int8_t)value;
        } else if (form == Q8_NARROW) {
          ((int8_t *)out)[d / 2 * width * word_bytes + q8_narrow_place(width, column, d % 2)] = (int8_t)value;
        } else {
          ((int16_t *)to)[tc_pair_place(lane, d % 2)] = (int16_t)value;
        }
        sum += (uint32_t)value;
      }
    }
  }
  return sum;
}

/* Packs all panels, one after another, into zeroed memory, and starts every sum with the bias (which may be absent)
 * less what the zero point of x contributes; `padded` are the channels of the arrays. */
static void q8_pack(const q8_weights *w, q8_form form, const void *bias, const q8_result *result, int32_t *arrays,
                    int64_t padded, char *panels) {
  const int64_t line = w->taps * q8_words(w->outer * w->inner, form) * q8_form_word_bytes(form); /* bytes of a column */
  for (int64_t first = 0; first < w->columns; first += TC_PANEL) {
    const int64_t columns = tc_min(w->columns - first, TC_PANEL), width = tc_round_up(columns, TC_LANES);
    q8_weights panel = *w;
    panel.data += first * w->column_stride * w->size;
    for (int64_t column = 0; column < columns; column++) {
      int32_t added = 0;
      if (bias) {
        memcpy(&added, (const char *)bias + (first + column) * (int64_t)sizeof(added), sizeof(added));
      }
      const uint32_t sum = q8_pack_column(&panel, form, column, width, panels);
      q8_pack_start(result, added, sum, q8_form_x_offset(form), arrays + first + column, padded);
    }
    panels += line * width;
  }
}

#endif
