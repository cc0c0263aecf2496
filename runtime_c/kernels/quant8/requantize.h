/* From exact 32-bit sums to what a quantised product stores: 8-bit numbers by either rule, the sums themselves, or
 * floats. */
#ifndef TINYCOMP_KERNELS_QUANT8_REQUANTIZE_H
#define TINYCOMP_KERNELS_QUANT8_REQUANTIZE_H

#include "vocabulary.h"

#include "../common/partial.h"

/* The fields that all quantised products share. */
typedef struct q8_result {
  int64_t x_zero_point, weight_type;
  int64_t type, rule;
  int64_t y_zero_point, low, high;
} q8_result;

#define Q8_RESULT(p) \
  ((q8_result){(p)->x_zero_point, (p)->weight_type, (p)->type, (p)->rule, (p)->y_zero_point, (p)->low, (p)->high})

static bool q8_is_bytes(const q8_result *r) { return r->type == TC_TYPE_U8 || r->type == TC_TYPE_I8; }
static int q8_size(const q8_result *r) { return q8_is_bytes(r) ? 1 : 4; }
static int q8_weight_size(const q8_result *r) { return r->weight_type == TC_TYPE_I8 ? 1 : 2; }

/* Refuses bounds and a zero point outside an 8-bit type. */
static void q8_check_bytes(tc_prepare *prepare, int64_t type, int64_t zero_point, int64_t low, int64_t high) {
  const int64_t lowest = type == TC_TYPE_I8 ? -128 : 0;
  TC_REQUIRE(prepare, low >= lowest && low <= high && high <= lowest + 255, "the bounds %lld and %lld are out of range",
             (long long)low, (long long)high);
  TC_REQUIRE(prepare, zero_point >= lowest && zero_point <= lowest + 255, "the zero point %lld is out of range",
             (long long)zero_point);
}

/* Checks the zero point of x that a run gives, an operand that may be absent. */
static void q8_check_zero_point(tc_prepare *prepare, const q8_result *r, int operand) {
  TC_REQUIRE(prepare, !tc_present(prepare, operand) || (r->type == TC_TYPE_I32 && r->x_zero_point == 0),
             "only sums take a zero point of the run, in place of another");
  tc_touch(prepare, operand, 1, 1);
}

static void q8_check_rule(tc_prepare *prepare, int64_t rule) {
  TC_REQUIRE(prepare, rule == TC_REQUANTIZE_FLOAT || rule == TC_REQUANTIZE_FIXED_POINT,
             "there is no rule of requantisation %lld", (long long)rule);
}

/* Checks the result's fields, and states what is touched of the factors, one for each of `channels`. */
static void q8_check_result(tc_prepare *prepare, const q8_result *r, int factors, int64_t channels) {
  TC_REQUIRE(prepare, q8_is_bytes(r) || r->type == TC_TYPE_I32 || r->type == TC_TYPE_F32,
             "no product of 8-bit numbers gives type %lld", (long long)r->type);
  TC_REQUIRE(prepare, r->weight_type == TC_TYPE_I8 || r->weight_type == TC_TYPE_I16, "no weights are of type %lld",
             (long long)r->weight_type);
  TC_REQUIRE(prepare, r->x_zero_point >= 0 && r->x_zero_point <= 255, "the zero point %lld is out of range",
             (long long)r->x_zero_point);
  TC_REQUIRE(prepare, r->type == TC_TYPE_I32 || tc_present(prepare, factors), "only sums need no factors");
  q8_check_rule(prepare, r->rule);
  TC_REQUIRE(prepare, r->rule == TC_REQUANTIZE_FLOAT || q8_is_bytes(r), "only 8-bit results have fixed-point factors");
  if (q8_is_bytes(r)) {
    q8_check_bytes(prepare, r->type, r->y_zero_point, r->low, r->high);
  }
  tc_touch(prepare, factors, TC_PRODUCT(prepare, channels, r->rule == TC_REQUANTIZE_FIXED_POINT ? 2 : 1),
           sizeof(float));
}

/* How real numbers become bytes: clamped, rounded, moved by the zero point. */
#if TC_BOUNDS
typedef tc_bounds q8_bytes;

static q8_bytes q8_bytes_make(int64_t zero_point, int64_t low, int64_t high) {
  return tc_bounds_make((int32_t)low, (int32_t)high, (int32_t)zero_point);
}

TC_INLINE tc_vi q8_to_byte(const q8_bytes *b, tc_vf v) { return tc_vf_to_bounds(b, v); }
#else
typedef struct q8_bytes {
  tc_vf low, high; /* before the zero point is added */
  tc_vi zero;
} q8_bytes;

static q8_bytes q8_bytes_make(int64_t zero_point, int64_t low, int64_t high) {
  return (q8_bytes){.low = tc_vf_set1((float)(low - zero_point)),
                    .high = tc_vf_set1((float)(high - zero_point)),
                    .zero = tc_vi_set1((int32_t)zero_point)};
}

/* Clamped before they are rounded, which gives the same and cannot leave the range of integers; the order of operands
 * turns NaN into the lowest number. */
TC_INLINE tc_vi q8_to_byte(const q8_bytes *b, tc_vf v) {
  return tc_vi_add(tc_vf_to_int(tc_vf_min(tc_vf_max(v, b->low), b->high)), b->zero);
}
#endif

TC_INLINE void q8_store(const q8_bytes *b, tc_vf v, int64_t count, uint8_t *y) {
  if (count < TC_LANES) {
    tc_vi_store_bytes_first(y, q8_to_byte(b, v), count);
  } else {
    tc_vi_store_bytes(y, q8_to_byte(b, v));
  }
}

/* How sums become results, in registers. The arrays are padded to whole vectors. */
typedef struct q8_scale {
  const float *factors; /* of the float rule */
  const int32_t *multipliers, *left, *right;
  q8_bytes bytes;
  tc_vi lowest, highest, zero; /* the bounds before the zero point is added */
} q8_scale;

/* What the state of a product holds of one group before its panels, each padded to whole vectors: sums of nothing, and
 * factors or multipliers, shifts to the left and to the right. Where results are sums, those of the weights take the
 * place of factors. */
enum { Q8_SUMS, Q8_FACTORS, Q8_LEFT, Q8_RIGHT, Q8_ARRAYS, Q8_WEIGHTS = Q8_FACTORS };

/* Writes what the sums of a channel start with, and the sum of its weights, to its place in the arrays. */
static void q8_pack_start(const q8_result *r, int32_t bias, uint32_t weights, int64_t x_offset, int32_t *arrays,
                          int64_t padded) {
  arrays[Q8_SUMS * padded] = (int32_t)((uint32_t)bias - (uint32_t)(r->x_zero_point - x_offset) * weights);
  if (r->type == TC_TYPE_I32) {
    arrays[Q8_WEIGHTS * padded] = (int32_t)weights;
  }
}

/* The zero point that a run gives, or else that of the parameters. */
static int64_t q8_zero_point(const void *given, const q8_result *r) {
  return given ? *(const uint8_t *)given : r->x_zero_point;
}

/* What the sums of `count` channels start with: as they were packed, or less what the zero point of the run
 * contributes, which goes to `own`. */
static const int32_t *q8_start(const void *given, const int32_t *arrays, int64_t padded, int64_t count, int32_t *own) {
  if (!given) {
    return arrays + Q8_SUMS * padded;
  }
  const uint32_t zero = *(const uint8_t *)given;
  for (int64_t c = 0; c < count; c++) {
    own[c] = (int32_t)((uint32_t)arrays[Q8_SUMS * padded + c] - zero * (uint32_t)arrays[Q8_WEIGHTS * padded + c]);
  }
  return own;
}

/* Points at the arrays of other channels. */
static void q8_scale_move(q8_scale *scale, const int32_t *arrays, int64_t padded) {
  scale->factors = (const float *)(arrays + Q8_FACTORS * padded);
  scale->multipliers = arrays + Q8_FACTORS * padded;
  scale->left = arrays + Q8_LEFT * padded;
  scale->right = arrays + Q8_RIGHT * padded;
}

static q8_scale q8_scale_make(const q8_result *r, const int32_t *arrays, int64_t padded) {
  q8_scale scale = {.bytes = q8_bytes_make(r->y_zero_point, r->low, r->high),
                    .lowest = tc_vi_set1((int32_t)(r->low - r->y_zero_point)),
                    .highest = tc_vi_set1((int32_t)(r->high - r->y_zero_point)),
                    .zero = tc_vi_set1((int32_t)r->y_zero_point)};
  q8_scale_move(&scale, arrays, padded);
  return scale;
}

/* The same of the channels from c on. */
static q8_scale q8_scale_at(const q8_scale *scale, int64_t c) {
  q8_scale at = *scale;
  at.factors += c;
  at.multipliers += c;
  at.left += c;
  at.right += c;
  return at;
}

/* Writes the factors of `channels` channels into their arrays. */
static void q8_pack_factors(const q8_result *r, const void *factors, int64_t channels, int32_t *arrays,
                            int64_t padded) {
  if (!factors || !channels) {
    return;
  }
  if (r->rule == TC_REQUANTIZE_FLOAT) {
    memcpy(arrays + Q8_FACTORS * padded, factors, (size_t)channels * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < channels; c++) {
    int32_t pair[2];
    memcpy(pair, (const char *)factors + c * (int64_t)sizeof(pair), sizeof(pair));
    const int64_t shift = tc_max(tc_min(pair[1], 31), -31);
    arrays[Q8_FACTORS * padded + c] = pair[0];
    arrays[Q8_LEFT * padded + c] = (int32_t)tc_max(shift, 0);
    arrays[Q8_RIGHT * padded + c] = (int32_t)tc_max(-shift, 0);
  }
}

TC_INLINE tc_vf q8_by_float(tc_vi sum, tc_vf factors) { return tc_vf_mul(tc_vi_to_float(sum), factors); }

TC_INLINE tc_vi q8_by_fixed_point(tc_vi sum, tc_vi multiplier, tc_vi left, tc_vi right) {
  return tc_vi_shift_right(tc_vi_multiply_high(tc_vi_shift_left(sum, left), multiplier), right);
}

/* Up to a vector of sums; the others are 0. */
TC_INLINE tc_vi q8_load_sums(const int32_t *sums, int64_t count) {
  int32_t rest[TC_LANES] = {0};
  if (count >= TC_LANES) {
    return tc_vi_load(sums);
  }
  for (int64_t i = 0; i < tc_min(count, TC_LANES - 1); i++) {
    rest[i] = sums[i];
  }
  return tc_vi_load(rest);
}

/* 8-bit results of the vector of columns from j on, by either rule. */
TC_INLINE tc_vi q8_requantize(const q8_result *r, const q8_scale *scale, tc_vi sum, int64_t j) {
  if (r->rule == TC_REQUANTIZE_FLOAT) {
    return q8_to_byte(&scale->bytes, q8_by_float(sum, tc_vf_load(scale->factors + j)));
  }
  const tc_vi value = q8_by_fixed_point(sum, tc_vi_load(scale->multipliers + j), tc_vi_load(scale->left + j),
                                        tc_vi_load(scale->right + j));
  return tc_vi_add(tc_vi_min(tc_vi_max(value, scale->lowest), scale->highest), scale->zero);
}

/* Turns `rows` rows of sums into results; 32-bit ones may take the place of their sums. */
static __attribute__((noinline)) void q8_finish_rows(const q8_result *r, const q8_scale *scale, const int32_t *sums,
                                                     int64_t sums_stride, char *y, int64_t y_stride, int64_t rows,
                                                     int64_t columns) {
  for (int64_t m = 0; m < rows; m++, sums += sums_stride, y += y_stride * q8_size(r)) {
    for (int64_t j = 0; j < columns; j += TC_LANES) {
      const int64_t count = tc_min(columns - j, TC_LANES);
      const tc_vi sum = q8_load_sums(sums + j, count);
      if (r->type == TC_TYPE_F32) {
        tc_store_up_to((float *)y + j, q8_by_float(sum, tc_vf_load(scale->factors + j)), count);
      } else if (r->type == TC_TYPE_I32) {
        tc_vi_store_first((int32_t *)y + j, sum, count);
      } else {
        tc_vi_store_bytes_first((uint8_t *)y + j, q8_requantize(r, scale, sum, j), count);
      }
    }
  }
}

enum { Q8_PIXELS = 8 };

/* Turns the sums of the vector of channels from c on, or of the first `channels` of it, into results for `count`
 * neighbouring pixels, at most Q8_PIXELS; they are y_pixel elements apart, and y is where channel c of the first is. */
TC_INLINE void q8_store_pixels(const int count, const q8_result *r, const q8_scale *scale, const tc_vi *sum, int64_t c,
                               int64_t channels, char *y, int64_t y_pixel) {
  if (q8_is_bytes(r) && r->rule == TC_REQUANTIZE_FLOAT) {
    const tc_vf factors = tc_vf_load(scale->factors + c);
    const q8_bytes bytes = scale->bytes;
#pragma GCC unroll 8
    for (int p = 0; p < count; p++) {
      q8_store(&bytes, q8_by_float(sum[p], factors), channels, (uint8_t *)y + p * y_pixel);
    }
    return;
  }
  int32_t sums[Q8_PIXELS * TC_LANES];
#pragma GCC unroll 8
  for (int p = 0; p < count; p++) {
    tc_vi_store(sums + p * TC_LANES, sum[p]);
  }
  const q8_scale from_c = q8_scale_at(scale, c);
  q8_finish_rows(r, &from_c, sums, TC_LANES, y, y_pixel, count, tc_min(channels, TC_LANES));
}

#endif
