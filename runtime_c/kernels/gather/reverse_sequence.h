/* reverse_sequence: the first steps of every sequence in reverse order. A unit is one step of one sequence. */
#ifndef TINYCOMP_KERNELS_GATHER_REVERSE_SEQUENCE_H
#define TINYCOMP_KERNELS_GATHER_REVERSE_SEQUENCE_H

#include "vocabulary.h"

#include "index.h"

enum { REVERSE_Y, REVERSE_X, REVERSE_LENGTHS };

static void TC_NAME(tc_reverse_sequence_prepare)(tc_prepare *prepare) {
  const tc_reverse_sequence_params *p = prepare->params;
  tc_check_indexed(prepare, p->element_size, sizeof(int64_t));
  TC_REQUIRE(prepare, p->time_first == 0 || p->time_first == 1, "time_first must be 0 or 1");
  const int64_t count = TC_PRODUCT(prepare, p->batch, p->time, p->inner);
  tc_touch(prepare, REVERSE_Y, count, (int)p->element_size);
  tc_touch(prepare, REVERSE_X, count, (int)p->element_size);
  tc_touch(prepare, REVERSE_LENGTHS, p->batch, sizeof(int64_t));
  prepare->units = count ? TC_PRODUCT(prepare, p->batch, p->time) : 0;
  prepare->cost = (double)prepare->units * (16.0 + (double)p->inner * (double)p->element_size);
}

static void TC_NAME(tc_reverse_sequence)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_reverse_sequence_params *p = call->params;
  const int64_t *lengths = call->operands[REVERSE_LENGTHS];
  const int64_t bytes = p->inner * p->element_size, step = p->time_first ? p->batch : 1;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t time = p->time_first ? unit / p->batch : unit % p->time;
    const int64_t length = lengths[p->time_first ? unit % p->batch : unit / p->time];
    if (length < 0 || length > p->time) {
      tc_fail(call, "a sequence length is out of range");
      return;
    }
    const int64_t from = time < length ? unit + (length - 1 - 2 * time) * step : unit;
    memcpy((char *)call->operands[REVERSE_Y] + unit * bytes, (const char *)call->operands[REVERSE_X] + from * bytes,
           (size_t)bytes);
  }
}

#endif
