/* fill: a strided fill with one bit pattern. Units are pieces of rows. State: the collapsed walk. */
#ifndef TINYCOMP_KERNELS_COPY_FILL_H
#define TINYCOMP_KERNELS_COPY_FILL_H

#include "vocabulary.h"

#include "copy.h"

enum { FILL_PIECE_BYTES = 32 * 1024 };

static tc_rows fill_rows(const tc_fill_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add(&nd, TC_EIGHT(p, stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, FILL_PIECE_BYTES / p->element_size);
}

static void TC_NAME(tc_fill_prepare)(tc_prepare *prepare) {
  const tc_fill_params *p = prepare->params;
  const int64_t size = p->element_size;
  TC_REQUIRE(prepare, size == 1 || size == 2 || size == 4 || size == 8, "elements of %lld bytes cannot be filled",
             (long long)size);
  tc_nd_touch(prepare, 0, TC_EIGHT(p, size), TC_EIGHT(p, stride), (int)size);
  tc_nd_require_forward(prepare, TC_EIGHT(p, size), TC_EIGHT(p, stride));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = fill_rows(p).units;
  prepare->cost = (double)(TC_PRODUCT(prepare, size, tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS)));
  tc_state_is_rows(prepare);
}

static void TC_NAME(tc_fill_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = fill_rows(prepare->params);
}

static void TC_NAME(tc_fill)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_fill_params *p = call->params;
  const uint8_t byte = (uint8_t)p->pattern;
  const uint16_t half = (uint16_t)p->pattern;
  const uint32_t word = (uint32_t)p->pattern;
  const void *value = p->element_size == 1   ? (const void *)&byte
                      : p->element_size == 2 ? (const void *)&half
                      : p->element_size == 4 ? (const void *)&word
                                             : (const void *)&p->pattern;
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    const tc_rows_walk piece = {.step = {walk.step[0], 0}, .count = walk.count};
    copy_piece((char *)call->operands[0] + walk.at[0] * p->element_size, value, p->element_size, &piece);
    tc_rows_next(&walk);
  }
}

#endif
