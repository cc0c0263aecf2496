/* quantize_blocks_f32: what gemm_blocks_f32 multiplies by, made of float rows. A unit is one row. */
#ifndef TINYCOMP_KERNELS_QUANT8_QUANTIZE_BLOCKS_F32_H
#define TINYCOMP_KERNELS_QUANT8_QUANTIZE_BLOCKS_F32_H

#include "vocabulary.h"

enum { BLOCKS_BYTES, BLOCKS_FIGURES, BLOCKS_X };

/* So long a sum of products of two bytes is still exact as a float. */
enum { BLOCKS_LONGEST = 256, BLOCKS_SHORTEST = 16 };

static void TC_NAME(tc_quantize_blocks_f32_prepare)(tc_prepare *prepare) {
  const tc_quantize_blocks_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->block > 0 && p->block % BLOCKS_SHORTEST == 0 && p->block <= BLOCKS_LONGEST,
             "a block of %lld is no multiple of 16 up to 256", (long long)p->block);
  TC_REQUIRE(prepare, p->middle >= 0 && p->middle <= 128, "codes have no middle of %lld", (long long)p->middle);
  TC_PRODUCT(prepare, p->m, p->k);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t depth = tc_round_up(p->k, p->block);
  TC_REQUIRE(prepare, p->ldx >= p->k && p->pitch >= depth, "a row stride is shorter than its row");
  tc_touch_rows(prepare, BLOCKS_BYTES, p->m, p->pitch, depth, 1);
  tc_touch(prepare, BLOCKS_FIGURES, TC_PRODUCT(prepare, p->m, 3, depth / p->block), sizeof(float));
  tc_touch_rows(prepare, BLOCKS_X, p->m, p->ldx, p->k, sizeof(float));
  prepare->units = p->m;
  prepare->cost = (double)p->m * (double)p->k;
  prepare->work.flops = 2.0 * (double)p->m * (double)p->k;
}

/* One block of whole vectors. Zero times an infinity or NaN is NaN, and what is added to it. */
TC_INLINE void blocks_quantize(const float *x, int64_t block, int64_t middle, uint8_t *bytes, float *scale,
                               int32_t *start, float *sum) {
  const tc_vf zero = tc_vf_set1(0.0f);
  tc_vf most = zero, poison = zero;
  for (int64_t k = 0; k < block; k += TC_LANES) {
    const tc_vf v = tc_vf_load(x + k);
    most = tc_vf_max(tc_vf_abs(v), most);
    poison = tc_vf_fma(v, zero, poison);
  }
  const float magnitude = tc_vf_reduce_max(most);
  *scale = magnitude / 127.0f + tc_vf_reduce_add(poison);
  /* Below that, the inverse would be infinite, and the block is as good as 0. */
  const tc_vf inverse = tc_vf_set1(magnitude > 1e-36f ? 127.0f / magnitude : 0.0f);
  tc_vi total = tc_vi_set1(0);
  for (int64_t k = 0; k < block; k += TC_LANES) {
    const tc_vi v = tc_vf_to_int(tc_vf_mul(tc_vf_load(x + k), inverse));
    tc_vi_store_bytes(bytes + k, v);
    total = tc_vi_add(total, v);
  }
  *sum = tc_vf_reduce_add(tc_vi_to_float(total));
  *start = isnan(*scale) ? 0 : -(int32_t)*sum * (int32_t)middle;
}

static void TC_NAME(tc_quantize_blocks_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_quantize_blocks_f32_params *p = call->params;
  const int64_t blocks = tc_ceil_div(p->k, p->block);
  for (int64_t row = begin; row < end; row++) {
    const float *x = (const float *)call->operands[BLOCKS_X] + row * p->ldx;
    uint8_t *bytes = (uint8_t *)call->operands[BLOCKS_BYTES] + row * p->pitch;
    float *scales = (float *)call->operands[BLOCKS_FIGURES] + row * 3 * blocks, *sums = scales + 2 * blocks;
    int32_t *starts = (int32_t *)(scales + blocks);
    for (int64_t b = 0; b < blocks; b++) {
      float last[BLOCKS_LONGEST];
      const float *from = x + b * p->block;
      const int64_t count = p->k - b * p->block;
      if (count < p->block) {
        memcpy(last, from, (size_t)count * sizeof(float));
        memset(last + count, 0, (size_t)(p->block - count) * sizeof(float));
        from = last;
      }
      blocks_quantize(from, p->block, p->middle, bytes + b * p->block, &scales[b], &starts[b], &sums[b]);
    }
  }
}

#endif
