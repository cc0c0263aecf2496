/* text_concat: pairs of texts as one, with broadcasting, in a heap of their own. State: the walk over the operands.
 * There is one unit, since texts lie one behind the other. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_CONCAT_H
#define TINYCOMP_KERNELS_TEXT_TEXT_CONCAT_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_CONCAT_Y, TEXT_CONCAT_HEAP, TEXT_CONCAT_A, TEXT_CONCAT_A_HEAP, TEXT_CONCAT_B, TEXT_CONCAT_B_HEAP };
enum { TEXT_CONCAT_PIECE = 1 << 30 };

static tc_rows text_concat_rows(const tc_text_concat_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add_contiguous(&nd);
  tc_nd_add(&nd, TC_EIGHT(p, a_stride));
  tc_nd_add(&nd, TC_EIGHT(p, b_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, TEXT_CONCAT_PIECE);
}

static void TC_NAME(tc_text_concat_prepare)(tc_prepare *prepare) {
  const tc_text_concat_params *p = prepare->params;
  const int64_t count = tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  TC_REQUIRE(prepare, p->kept >= 0 && p->kept <= p->a_bytes && p->kept <= p->bytes,
             "%lld bytes to keep of a heap of %lld in one of %lld", (long long)p->kept, (long long)p->a_bytes,
             (long long)p->bytes);
  tc_touch(prepare, TEXT_CONCAT_Y, count, sizeof(text_span));
  tc_nd_touch(prepare, TEXT_CONCAT_A, TC_EIGHT(p, size), TC_EIGHT(p, a_stride), sizeof(text_span));
  tc_nd_touch(prepare, TEXT_CONCAT_B, TC_EIGHT(p, size), TC_EIGHT(p, b_stride), sizeof(text_span));
  text_touch_heap(prepare, TEXT_CONCAT_HEAP, p->bytes);
  text_touch_heap(prepare, TEXT_CONCAT_A_HEAP, p->a_bytes);
  text_touch_heap(prepare, TEXT_CONCAT_B_HEAP, p->b_bytes);
  if (tc_refused(prepare)) {
    return;
  }
  tc_writes_some(prepare, TEXT_CONCAT_HEAP);
  prepare->units = 1;
  prepare->cost = 16.0 * (double)count + (double)p->bytes;
  prepare->work.integer_operations = (double)count;
  prepare->state_bytes = sizeof(tc_rows);
}

static void TC_NAME(tc_text_concat_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = text_concat_rows(prepare->params);
}

/* Puts one pair behind the bytes that are there; returns how many there are then, or -1. */
static int64_t text_concat_pair(const tc_call *call, const tc_rows_walk *walk, int64_t i, int64_t used) {
  const tc_text_concat_params *p = call->params;
  uint8_t *heap = call->operands[TEXT_CONCAT_HEAP];
  text_bytes a, b;
  if (!text_of(call, call->operands[TEXT_CONCAT_A], walk->at[1] + i * walk->step[1], call->operands[TEXT_CONCAT_A_HEAP],
               p->a_bytes, &a) ||
      !text_of(call, call->operands[TEXT_CONCAT_B], walk->at[2] + i * walk->step[2], call->operands[TEXT_CONCAT_B_HEAP],
               p->b_bytes, &b)) {
    return -1;
  }
  if (a.length + b.length > p->bytes - used) {
    tc_fail(call, "there is no room for the texts");
    return -1;
  }
  tc_memmove(heap + used, a.data, (size_t)a.length);
  tc_memmove(heap + used + a.length, b.data, (size_t)b.length);
  text_put(call->operands[TEXT_CONCAT_Y], walk->at[0] + i * walk->step[0], used, a.length + b.length);
  return used + a.length + b.length;
}

static void TC_NAME(tc_text_concat)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_concat_params *p = call->params;
  const tc_rows *rows = call->state;
  if (begin >= end) {
    return;
  }
  int64_t used = p->kept;
  tc_memmove(call->operands[TEXT_CONCAT_HEAP], call->operands[TEXT_CONCAT_A_HEAP], (size_t)p->kept);
  if (!rows->units) {
    return;
  }
  tc_rows_walk walk = tc_rows_seek(rows, 0);
  for (int64_t unit = 0; unit < rows->units; unit++) {
    for (int64_t i = 0; i < walk.count; i++) {
      used = text_concat_pair(call, &walk, i, used);
      if (used < 0) {
        return;
      }
    }
    tc_rows_next(&walk);
  }
}

#endif
