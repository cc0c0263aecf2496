/* cache_append_f32: writes new rows into a cache, rotated if asked for, and copies the earlier ones unless the cache is
 * extended where it lies. A unit is a block of rows of one head. */
#ifndef TINYCOMP_KERNELS_ATTENTION_CACHE_APPEND_F32_H
#define TINYCOMP_KERNELS_ATTENTION_CACHE_APPEND_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "cache_span.h"

enum { APPEND_Y, APPEND_PAST, APPEND_X, APPEND_LENGTHS, APPEND_LONGEST, APPEND_POSITIONS, APPEND_COS, APPEND_SIN };

enum { APPEND_ROWS = 1024 };

static void TC_NAME(tc_cache_append_f32_prepare)(tc_prepare *prepare) {
  const tc_cache_append_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->append == 0 || p->append == 1, "append must be 0 or 1");
  TC_REQUIRE(prepare, p->interleaved == 0 || p->interleaved == 1, "interleaved must be 0 or 1");
  TC_REQUIRE(prepare, p->length_bytes == 4 || p->length_bytes == 8, "lengths must have 4 or 8 bytes");
  TC_REQUIRE(prepare, p->length_more == 0 || p->length_more == 1, "length_more must be 0 or 1");
  TC_REQUIRE(prepare, p->rotated >= 0 && p->rotated % 2 == 0 && p->rotated <= p->columns,
             "the rotated features must be an even number, and no more than a head has");
  TC_REQUIRE(prepare, p->append == 1 || !tc_present(prepare, APPEND_PAST), "a past that nothing is appended to");
  TC_REQUIRE(prepare, p->past_rows >= 0 && p->rows >= 0 && p->past_rows <= p->capacity,
             "the present has room for %lld rows, but the past has %lld", (long long)p->capacity,
             (long long)p->past_rows);
  TC_REQUIRE(prepare, p->append == 1 || p->capacity == p->rows, "the result must have as many rows as are new");
  const int64_t bytes = TC_PRODUCT(prepare, p->batch, p->heads, p->capacity, p->columns);
#define APPEND_TOUCH(operand, rows, letter)                                                    \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch, p->heads, rows, p->columns}, \
                    (const int64_t[]){p->letter##_batch, p->letter##_head, p->letter##_row, 1}, sizeof(float))
  APPEND_TOUCH(APPEND_Y, p->capacity, y);
  APPEND_TOUCH(APPEND_PAST, p->past_rows, past);
  APPEND_TOUCH(APPEND_X, p->rows, x);
#undef APPEND_TOUCH
  tc_touch(prepare, APPEND_LENGTHS, p->batch, (int)p->length_bytes);
  tc_touch(prepare, APPEND_LONGEST, 1, 4);
  tc_touch_rows(prepare, APPEND_POSITIONS, p->batch, p->position_batch, p->rows, 8);
  const int64_t angles = TC_PRODUCT(prepare, p->cache_rows, p->rotated / 2);
  tc_touch(prepare, APPEND_COS, angles, sizeof(float));
  tc_touch(prepare, APPEND_SIN, angles, sizeof(float));
  TC_REQUIRE(prepare, p->rotated == 0 || (tc_present(prepare, APPEND_COS) && tc_present(prepare, APPEND_SIN)),
             "a rotation needs cos and sin caches");
  if (tc_refused(prepare)) {
    return;
  }
  const double moved = TC_COUNT(p->batch, p->heads, p->rows, p->columns);
  tc_move(prepare, APPEND_Y, moved, sizeof(float)); /* in place; the copy of another past comes on top */
  tc_move(prepare, APPEND_PAST, 0, sizeof(float));
  tc_move(prepare, APPEND_COS, 0, sizeof(float));
  tc_move(prepare, APPEND_SIN, 0, sizeof(float));
  prepare->units = p->columns ? p->batch * p->heads * tc_max(tc_ceil_div(p->capacity, APPEND_ROWS), 1) : 0;
  prepare->cost = (double)bytes * 4.0;
  prepare->work.flops = p->rotated ? TC_COUNT(p->batch, p->heads, p->rows, p->rotated) * 3.0 : 0.0;
}

/* One row with its pairs of features rotated: (i, i + half), or (2i, 2i + 1). */
static void append_rotate(float *y, const float *x, const float *cosines, const float *sines, int64_t rotated,
                          int64_t columns, bool interleaved) {
  const int64_t half = rotated / 2;
  if (interleaved) {
    for (int64_t i = 0; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = cosines[i] * a - sines[i] * b;
      y[2 * i + 1] = sines[i] * a + cosines[i] * b;
    }
  } else {
    for (int64_t i = 0; i < half; i += TC_LANES) {
      const int64_t count = half - i;
      const tc_vf a = tc_load_up_to(x + i, count), b = tc_load_up_to(x + half + i, count);
      const tc_vf c = tc_load_up_to(cosines + i, count), s = tc_load_up_to(sines + i, count);
      tc_store_up_to(y + i, tc_vf_sub(tc_vf_mul_rounded(c, a), tc_vf_mul_rounded(s, b)), count);
      tc_store_up_to(y + half + i, tc_vf_add(tc_vf_mul_rounded(s, a), tc_vf_mul_rounded(c, b)), count);
    }
  }
  memcpy(y + rotated, x + rotated, (size_t)(columns - rotated) * sizeof(float));
}

/* Rows [begin, end) of the past, or zeros behind its end. */
static void append_keep(const tc_cache_append_f32_params *p, float *y, const float *past, int64_t begin, int64_t end) {
  const size_t bytes = (size_t)p->columns * sizeof(float);
  const int64_t copied = past ? tc_min(end, p->past_rows) : 0;
  if (begin < copied && p->y_row == p->columns && p->past_row == p->columns) {
    memcpy(y + begin * p->y_row, past + begin * p->past_row, (size_t)(copied - begin) * bytes);
    begin = copied;
  }
  for (; begin < copied; begin++) {
    memcpy(y + begin * p->y_row, past + begin * p->past_row, bytes);
  }
  for (; begin < end; begin++) {
    memset(y + begin * p->y_row, 0, bytes);
  }
}

static void append_block(const tc_call *call, int64_t batch, int64_t head, int64_t begin, int64_t end) {
  const tc_cache_append_f32_params *p = call->params;
  const void *lengths = call->operands[APPEND_LENGTHS];
  const cache_span span =
      lengths ? cache_span_at(lengths, p->length_bytes, p->length_more, call->operands[APPEND_LONGEST], p->rows, batch)
              : (cache_span){p->past_rows, p->past_rows + p->rows};
  if (span.first < 0 || span.total < 0) {
    tc_fail(call, "a sequence is shorter than its new rows: its length counts them, too");
    return;
  }
  if (p->append && (span.first > p->capacity - p->rows || span.total > p->capacity)) {
    tc_fail(call, "the cache is full: a sequence is longer than its buffer");
    return;
  }
  const int32_t *longest = call->operands[APPEND_LONGEST];
  if (p->append && longest && p->capacity > tc_max(p->past_rows, *longest)) {
    tc_fail(call, "the present is declared longer than the past and the longest sequence are");
    return;
  }
  const int64_t first = p->append ? span.first : 0, last = first + p->rows;
  float *y = (float *)call->operands[APPEND_Y] + batch * p->y_batch + head * p->y_head;
  const float *past = call->operands[APPEND_PAST];
  if (call->operands[APPEND_PAST] != call->operands[APPEND_Y]) {
    past = past ? past + batch * p->past_batch + head * p->past_head : NULL;
    append_keep(p, y, past, begin, tc_min(first, end));
    append_keep(p, y, past, tc_max(last, begin), end);
  }
  const float *x = (const float *)call->operands[APPEND_X] + batch * p->x_batch + head * p->x_head;
  const int64_t *positions = call->operands[APPEND_POSITIONS];
  const float *cosines = call->operands[APPEND_COS], *sines = call->operands[APPEND_SIN];
  for (int64_t row = tc_max(first, begin); row < tc_min(last, end); row++) {
    const int64_t i = row - first;
    if (p->rotated == 0) {
      memcpy(y + row * p->y_row, x + i * p->x_row, (size_t)p->columns * sizeof(float));
      continue;
    }
    const int64_t position = positions ? positions[batch * p->position_batch + i] : span.first + i;
    if (position < 0 || position >= p->cache_rows) {
      tc_fail(call, "a position lies behind the end of the cos and sin caches");
      return;
    }
    const int64_t angle = position * (p->rotated / 2);
    append_rotate(y + row * p->y_row, x + i * p->x_row, cosines + angle, sines + angle, p->rotated, p->columns,
                  p->interleaved);
  }
}

static void TC_NAME(tc_cache_append_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_cache_append_f32_params *p = call->params;
  const int64_t blocks = tc_max(tc_ceil_div(p->capacity, APPEND_ROWS), 1);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = unit % blocks * APPEND_ROWS, head = unit / blocks % p->heads;
    append_block(call, unit / blocks / p->heads, head, first, tc_min(first + APPEND_ROWS, p->capacity));
  }
}

#endif
