/* fill: a strided fill with one bit pattern. Units are pieces of rows. State: the collapsed walk. */
#ifndef TINYCOMP_KERNELS_COPY_FILL_H
#define TINYCOMP_KERNELS_COPY_FILL_H

#include "vocabulary.h"

#include "copy.h"

enum { FILL_PIECE_BYTES = 32 * 1024, FILL_LINE = 64 };

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

/* Fills bytes with one line again and again. */
static void fill_line(char *to, const char *line, int64_t bytes) {
  for (; bytes >= FILL_LINE; bytes -= FILL_LINE, to += FILL_LINE) {
    memcpy(to, line, FILL_LINE);
  }
  memcpy(to, line, (size_t)bytes);
}

static void TC_NAME(tc_fill)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_fill_params *p = call->params;
  const int64_t size = p->element_size;
  const uint8_t byte = (uint8_t)p->pattern;
  const uint16_t half = (uint16_t)p->pattern;
  const uint32_t word = (uint32_t)p->pattern;
  const void *value = size == 1   ? (const void *)&byte
                      : size == 2 ? (const void *)&half
                      : size == 4 ? (const void *)&word
                                  : (const void *)&p->pattern;
  char line[FILL_LINE];
  for (int64_t at = 0; at < FILL_LINE; at += size) {
    memcpy(line + at, value, (size_t)size);
  }
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    const tc_rows_walk piece = {.step = {walk.step[0], 0}, .count = walk.count};
    char *to = (char *)call->operands[0] + walk.at[0] * size;
    if (walk.step[0] == 1) {
      fill_line(to, line, walk.count * size);
    } else {
      copy_piece(to, value, size, &piece);
    }
    tc_rows_next(&walk);
  }
}

#endif
