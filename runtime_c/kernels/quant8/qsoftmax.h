/* qsoftmax: shares of an axis in integers alone. A unit is one line along the axis. */
#ifndef TINYCOMP_KERNELS_QUANT8_QSOFTMAX_H
#define TINYCOMP_KERNELS_QUANT8_QSOFTMAX_H

#include "vocabulary.h"

#include "requantize.h"

enum { QSOFTMAX_Y, QSOFTMAX_X, QSOFTMAX_POWERS, QSOFTMAX_INVERSES };

enum { QSOFTMAX_VALUES = 256, QSOFTMAX_PIECE = 256 };

/* One piece of a line: shares, and results that lie apart in memory. */
typedef struct qsoftmax_scratch {
  int32_t shares[QSOFTMAX_PIECE];
  uint8_t bytes[QSOFTMAX_PIECE];
} qsoftmax_scratch;

static void TC_NAME(tc_qsoftmax_prepare)(tc_prepare *prepare) {
  const tc_qsoftmax_params *p = prepare->params;
  q8_check_bytes(prepare, TC_TYPE_U8, p->y_zero_point, p->low, p->high);
  TC_REQUIRE(prepare, p->multiplier >= 0 && p->multiplier <= INT32_MAX, "the multiplier %lld is out of range",
             (long long)p->multiplier);
  TC_REQUIRE(prepare, p->shift >= -31 && p->shift <= 31, "the shift %lld is out of range", (long long)p->shift);
  TC_REQUIRE(prepare, p->inverse_shift >= 29 && p->inverse_shift <= 50, "inverses are shifted by %lld",
             (long long)p->inverse_shift);
  const int64_t count = TC_PRODUCT(prepare, p->outer, p->axis, p->inner);
  tc_touch(prepare, QSOFTMAX_Y, count, 1);
  tc_touch(prepare, QSOFTMAX_X, count, 1);
  tc_touch(prepare, QSOFTMAX_POWERS, QSOFTMAX_VALUES, sizeof(int32_t));
  tc_touch(prepare, QSOFTMAX_INVERSES, QSOFTMAX_VALUES, 1);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = count ? p->outer * p->inner : 0;
  prepare->cost = 8.0 * (double)count;
  prepare->work.integer_operations = 6.0 * (double)count; /* maximum, difference, sum, share, and the two roundings */
  prepare->scratch_bytes = sizeof(qsoftmax_scratch);
}

/* The inverse of a sum, moved to the left as the sum was: about 2^(81 - inverse_shift) / sum. */
static uint32_t qsoftmax_inverse(const tc_qsoftmax_params *p, uint32_t sum, const uint8_t *inverses) {
  const int zeros = sum ? __builtin_clz(sum) : 1, left = tc_max(zeros, 1) - 1;
  const uint32_t scaled = sum << left;
  const int64_t place = ((int64_t)scaled - ((int64_t)1 << 30) + (1 << 21)) >> 22;
  const int64_t guess = (int64_t)inverses[tc_max(tc_min(place, QSOFTMAX_VALUES - 1), 0)] << 14;
  const int64_t rest = ((int64_t)1 << 30) - ((scaled * guess + (1 << 22)) >> 23);
  return (uint32_t)((rest * guess + ((int64_t)1 << (p->inverse_shift - 1))) >> p->inverse_shift) << left;
}

static void qsoftmax_line(const tc_qsoftmax_params *p, uint8_t *y, const uint8_t *x, const uint32_t *powers,
                          const uint8_t *inverses, qsoftmax_scratch *scratch) {
  const int64_t step = p->inner;
  uint8_t greatest = 0;
  for (int64_t i = 0; i < p->axis; i++) {
    greatest = x[i * step] > greatest ? x[i * step] : greatest;
  }
  uint32_t sum = 0;
  for (int64_t i = 0; i < p->axis; i++) {
    sum += powers[greatest - x[i * step]];
  }
  const uint64_t inverse = qsoftmax_inverse(p, sum, inverses);
  const tc_vi multiplier = tc_vi_set1((int32_t)p->multiplier), zero = tc_vi_set1((int32_t)p->y_zero_point);
  const tc_vi left = tc_vi_set1((int32_t)tc_max(p->shift, 0)), right = tc_vi_set1((int32_t)tc_max(-p->shift, 0));
  const tc_vi lowest = tc_vi_set1((int32_t)(p->low - p->y_zero_point));
  const tc_vi highest = tc_vi_set1((int32_t)(p->high - p->y_zero_point));
  for (int64_t first = 0; first < p->axis; first += QSOFTMAX_PIECE) {
    const int64_t count = tc_min(p->axis - first, QSOFTMAX_PIECE);
    const uint8_t *from = x + first * step;
    uint8_t *to = step == 1 ? y + first : scratch->bytes;
    for (int64_t i = 0; i < count; i++) {
      scratch->shares[i] = (int32_t)(uint32_t)((powers[greatest - from[i * step]] * inverse + (1 << 21)) >> 22);
    }
    for (int64_t i = 0; i < count; i += TC_LANES) {
      const tc_vi share = q8_load_sums(scratch->shares + i, count - i);
      const tc_vi value = q8_by_fixed_point(share, multiplier, left, right);
      const tc_vi byte = tc_vi_add(tc_vi_min(tc_vi_max(value, lowest), highest), zero);
      tc_vi_store_bytes_first(to + i, byte, tc_min(count - i, TC_LANES));
    }
    for (int64_t i = 0; i < count && step != 1; i++) {
      y[(first + i) * step] = to[i];
    }
  }
}

static void TC_NAME(tc_qsoftmax)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qsoftmax_params *p = call->params;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t at = unit / p->inner * p->axis * p->inner + unit % p->inner;
    qsoftmax_line(p, (uint8_t *)call->operands[QSOFTMAX_Y] + at, (const uint8_t *)call->operands[QSOFTMAX_X] + at,
                  call->operands[QSOFTMAX_POWERS], call->operands[QSOFTMAX_INVERSES], call->scratch);
  }
}

#endif
