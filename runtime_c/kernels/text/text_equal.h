/* text_equal: which texts are the same, with broadcasting. State: the walk over the operands. A unit is a piece of a
 * row.
 */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_EQUAL_H
#define TINYCOMP_KERNELS_TEXT_TEXT_EQUAL_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_EQUAL_Y, TEXT_EQUAL_A, TEXT_EQUAL_A_HEAP, TEXT_EQUAL_B, TEXT_EQUAL_B_HEAP };
enum { TEXT_EQUAL_PIECE = 1024 };

static tc_rows text_equal_rows(const tc_text_equal_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add_contiguous(&nd);
  tc_nd_add(&nd, TC_EIGHT(p, a_stride));
  tc_nd_add(&nd, TC_EIGHT(p, b_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, TEXT_EQUAL_PIECE);
}

static void TC_NAME(tc_text_equal_prepare)(tc_prepare *prepare) {
  const tc_text_equal_params *p = prepare->params;
  const int64_t count = tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  tc_touch(prepare, TEXT_EQUAL_Y, count, 1);
  tc_nd_touch(prepare, TEXT_EQUAL_A, TC_EIGHT(p, size), TC_EIGHT(p, a_stride), sizeof(text_span));
  tc_nd_touch(prepare, TEXT_EQUAL_B, TC_EIGHT(p, size), TC_EIGHT(p, b_stride), sizeof(text_span));
  text_touch_heap(prepare, TEXT_EQUAL_A_HEAP, p->a_bytes);
  text_touch_heap(prepare, TEXT_EQUAL_B_HEAP, p->b_bytes);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = text_equal_rows(p).units;
  prepare->cost = 16.0 * (double)count;
  prepare->work.integer_operations = (double)count;
  prepare->state_bytes = sizeof(tc_rows);
}

static void TC_NAME(tc_text_equal_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = text_equal_rows(prepare->params);
}

static void TC_NAME(tc_text_equal)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_equal_params *p = call->params;
  uint8_t *y = call->operands[TEXT_EQUAL_Y];
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    for (int64_t i = 0; i < walk.count; i++) {
      text_bytes a, b;
      if (!text_of(call, call->operands[TEXT_EQUAL_A], walk.at[1] + i * walk.step[1], call->operands[TEXT_EQUAL_A_HEAP],
                   p->a_bytes, &a) ||
          !text_of(call, call->operands[TEXT_EQUAL_B], walk.at[2] + i * walk.step[2], call->operands[TEXT_EQUAL_B_HEAP],
                   p->b_bytes, &b)) {
        return;
      }
      y[walk.at[0] + i * walk.step[0]] = a.length == b.length && !memcmp(a.data, b.data, (size_t)a.length);
    }
    tc_rows_next(&walk);
  }
}

#endif
