/* text_lookup: the numbers of texts in a table. A unit is a text. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_LOOKUP_H
#define TINYCOMP_KERNELS_TEXT_TEXT_LOOKUP_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_LOOKUP_Y, TEXT_LOOKUP_X, TEXT_LOOKUP_HEAP, TEXT_LOOKUP_TABLE };

static void TC_NAME(tc_text_lookup_prepare)(tc_prepare *prepare) {
  const tc_text_lookup_params *p = prepare->params;
  tc_touch(prepare, TEXT_LOOKUP_Y, p->texts, sizeof(int64_t));
  tc_touch(prepare, TEXT_LOOKUP_X, p->texts, sizeof(text_span));
  text_touch_heap(prepare, TEXT_LOOKUP_HEAP, p->x_bytes);
  text_check_table(prepare, TEXT_LOOKUP_TABLE, p->slots, p->words);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->texts;
  prepare->cost = 64.0 * (double)p->texts;
  prepare->work.integer_operations = (double)p->texts;
}

static void TC_NAME(tc_text_lookup)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_lookup_params *p = call->params;
  int64_t *y = call->operands[TEXT_LOOKUP_Y];
  for (int64_t i = begin; i < end; i++) {
    text_bytes text;
    if (!text_of(call, call->operands[TEXT_LOOKUP_X], i, call->operands[TEXT_LOOKUP_HEAP], p->x_bytes, &text)) {
      return;
    }
    y[i] = p->missing;
    text_find(call->operands[TEXT_LOOKUP_TABLE], p->slots, p->words, text.data, text.length, &y[i]);
  }
}

#endif
