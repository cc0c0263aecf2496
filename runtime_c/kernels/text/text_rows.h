/* text_rows: the parts of texts as rows of one length, filled up behind them. A unit is a row. */
#ifndef TINYCOMP_KERNELS_TEXT_TEXT_ROWS_H
#define TINYCOMP_KERNELS_TEXT_TEXT_ROWS_H

#include "vocabulary.h"

#include "texts.h"

enum { TEXT_ROWS_Y, TEXT_ROWS_PARTS, TEXT_ROWS_COUNTS };

static void TC_NAME(tc_text_rows_prepare)(tc_prepare *prepare) {
  const tc_text_rows_params *p = prepare->params;
  const int64_t parts = TC_PRODUCT(prepare, p->texts, p->most);
  const int64_t elements = TC_PRODUCT(prepare, p->texts, p->width);
  TC_REQUIRE(prepare, p->width <= p->most, "rows of %lld parts, and no more than %lld have been found",
             (long long)p->width, (long long)p->most);
  TC_REQUIRE(prepare, p->fill_start >= 0 && p->fill_length >= 0 && p->fill_start <= TEXT_HEAP_MOST - p->fill_length,
             "a text from byte %lld on with %lld bytes", (long long)p->fill_start, (long long)p->fill_length);
  tc_touch(prepare, TEXT_ROWS_Y, elements, sizeof(text_span));
  tc_touch(prepare, TEXT_ROWS_PARTS, parts, sizeof(text_span));
  tc_touch(prepare, TEXT_ROWS_COUNTS, p->texts, sizeof(int64_t));
  if (tc_refused(prepare)) {
    return;
  }
  tc_move(prepare, TEXT_ROWS_PARTS, (double)elements, sizeof(text_span));
  prepare->units = p->texts;
  prepare->cost = 8.0 * (double)elements;
}

/* How many parts a text has; a count that nobody could have written counts as none. */
TC_INLINE int64_t text_rows_count(const tc_text_rows_params *p, const int64_t *counts, int64_t text) {
  return counts[text] < 0 || counts[text] > p->width ? 0 : counts[text];
}

static void TC_NAME(tc_text_rows)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_text_rows_params *p = call->params;
  const int64_t *counts = call->operands[TEXT_ROWS_COUNTS];
  const text_span fill = {(uint32_t)p->fill_start, (uint32_t)p->fill_length};
  int64_t part = 0;
  for (int64_t text = 0; text < begin; text++) {
    part += text_rows_count(p, counts, text);
  }
  for (int64_t text = begin; text < end; text++) {
    const int64_t count = text_rows_count(p, counts, text);
    text_span *y = (text_span *)call->operands[TEXT_ROWS_Y] + text * p->width;
    memcpy(y, (const text_span *)call->operands[TEXT_ROWS_PARTS] + part, (size_t)count * sizeof(text_span));
    for (int64_t i = count; i < p->width; i++) {
      y[i] = fill;
    }
    part += count;
  }
}

#endif
