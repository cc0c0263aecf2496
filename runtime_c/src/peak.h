/* The loop whose speed is the peak of an instruction set; included once for each. */
#ifndef TINYCOMP_PEAK_H
#define TINYCOMP_PEAK_H

#include "vocabulary.h"

/* Chains of multiply-adds that do not wait for each other: enough to hide the latency, few enough for the registers.
 * Without vectors the compiler may make some out of the chains, which then needs more of them. */
enum { TC_CHAINS = TC_LANES == 1 ? 48 : TC_REGISTERS - 4 };

/* Only loops that are unrolled keep the chains in registers; those without vectors, the compiler turns into vectors. */
enum { TC_UNROLL = TC_LANES == 1 ? 1 : TC_CHAINS };

/* Products of 8-bit numbers, in the fastest form that the kernels use. */
double TC_NAME(tc_multiply_add_int8)(int64_t rounds, int32_t *sum) {
  const tc_vi factor = tc_vi_set1(sum[0]);
  tc_vi x = factor;
  double operations = 4.0;
  tc_vi chains[TC_CHAINS];
#pragma GCC unroll TC_UNROLL
  for (int i = 0; i < TC_CHAINS; i++) {
    chains[i] = tc_vi_set1(i);
  }
#if TC_DOT4
  const int64_t quad_rounds = tc_has_dot4() ? rounds : 0;
  for (int64_t round = 0; round < quad_rounds; round++) {
#pragma GCC unroll TC_UNROLL
    for (int i = 0; i < TC_CHAINS; i++) {
      x = tc_vi_keep(x);
      chains[i] = tc_vi_dot4(chains[i], x, factor);
    }
  }
  operations = quad_rounds ? 8.0 : operations;
  const int64_t pair_rounds = rounds - quad_rounds;
#else
  const int64_t pair_rounds = rounds;
#endif
  for (int64_t round = 0; round < pair_rounds; round++) {
#pragma GCC unroll TC_UNROLL
    for (int i = 0; i < TC_CHAINS; i++) {
      x = tc_vi_keep(x);
      chains[i] = tc_vi_dot2(chains[i], x, factor);
    }
  }
  tc_vi total = chains[0];
#pragma GCC unroll TC_UNROLL
  for (int i = 1; i < TC_CHAINS; i++) {
    total = tc_vi_add(total, chains[i]);
  }
  tc_vi_store_first(sum, total, 1);
  return operations * (double)rounds * TC_CHAINS * TC_LANES;
}

/* Reads whole lines of the first-level cache, and returns something that depends on all of them. */
int32_t TC_NAME(tc_read_memory)(const void *memory, int64_t bytes) {
  tc_vi sums[4];
  for (int i = 0; i < 4; i++) {
    sums[i] = tc_vi_set1(0);
  }
  const int64_t step = 4 * TC_LANES * (int64_t)sizeof(int32_t);
  for (int64_t at = 0; at + step <= bytes; at += step) {
    for (int i = 0; i < 4; i++) {
      sums[i] = tc_vi_add(sums[i], tc_vi_load((const char *)memory + at + i * TC_LANES * (int64_t)sizeof(int32_t)));
    }
  }
  int32_t sum;
  tc_vi_store_first(&sum, tc_vi_add(tc_vi_add(sums[0], sums[1]), tc_vi_add(sums[2], sums[3])), 1);
  return sum;
}

double TC_NAME(tc_multiply_add)(int64_t rounds, float *sum) {
  const tc_vf factor = tc_vf_set1(sum[0]), term = tc_vf_set1(sum[1]);
  tc_vf chains[TC_CHAINS];
#pragma GCC unroll TC_UNROLL
  for (int i = 0; i < TC_CHAINS; i++) {
    chains[i] = tc_vf_set1((float)i);
  }
  for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll TC_UNROLL
    for (int i = 0; i < TC_CHAINS; i++) {
      chains[i] = tc_vf_fma(chains[i], factor, term);
    }
  }
  tc_vf total = chains[0];
#pragma GCC unroll TC_UNROLL
  for (int i = 1; i < TC_CHAINS; i++) {
    total = tc_vf_add(total, chains[i]);
  }
  sum[0] = tc_vf_reduce_add(total);
  return 2.0 * (double)rounds * TC_CHAINS * TC_LANES;
}

#endif
