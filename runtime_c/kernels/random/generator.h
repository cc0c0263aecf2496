/* Random numbers: Philox4x64-10, which gives number i for itself (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), and MT19937, which goes from number to number (Matsumoto and Nishimura, ACM TOMACS 8(1), 1998).
 * Both give doubles in [0, 1) with 53 bits, those of numpy's generators for the same key or seed. */
#ifndef TINYCOMP_KERNELS_RANDOM_GENERATOR_H
#define TINYCOMP_KERNELS_RANDOM_GENERATOR_H

#include "vocabulary.h"

enum { PHILOX_WORDS = 4, PHILOX_ROUNDS = 10 };
/* Blocks that are made at once, and the numbers in them: as many as there are 64-bit lanes where vectors of products
 * are faster than the processor's own ones, else two, whose rounds overlap. */
enum { PHILOX_LANES = TC_LANES == 16 ? 8 : 2, PHILOX_GROUP = PHILOX_WORDS * PHILOX_LANES };

/* The upper half of a product of 64-bit numbers. */
TC_INLINE uint64_t random_high(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
  if (PHILOX_LANES == 2) {
    __extension__ typedef unsigned __int128 product;
    return (uint64_t)((product)a * b >> 64);
  }
#endif
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), rest = a0 * b1 + (uint32_t)middle;
  return a1 * b1 + (middle >> 32) + (rest >> 32);
}

/* The numbers of group `group`. */
static void philox_group(const uint64_t *key, uint64_t group, double *out) {
  uint64_t c0[PHILOX_LANES], c1[PHILOX_LANES] = {0}, c2[PHILOX_LANES] = {0}, c3[PHILOX_LANES] = {0};
  uint64_t k0 = key[0], k1 = key[1];
  for (int i = 0; i < PHILOX_LANES; i++) {
    c0[i] = group * PHILOX_LANES + (uint64_t)i + 1;
  }
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    const uint64_t first = UINT64_C(0xD2E7470EE14C6C93), second = UINT64_C(0xCA5A826395121157);
    for (int i = 0; i < PHILOX_LANES; i++) {
      const uint64_t high0 = random_high(first, c0[i]), high1 = random_high(second, c2[i]);
      const uint64_t low0 = first * c0[i], low1 = second * c2[i];
      c0[i] = high1 ^ c1[i] ^ k0;
      c1[i] = low1;
      c2[i] = high0 ^ c3[i] ^ k1;
      c3[i] = low0;
    }
    k0 += UINT64_C(0x9E3779B97F4A7C15);
    k1 += UINT64_C(0xBB67AE8584CAA73B);
  }
  for (int i = 0; i < PHILOX_LANES; i++) {
    out[PHILOX_WORDS * i] = (double)(int64_t)(c0[i] >> 11) * 0x1p-53;
    out[PHILOX_WORDS * i + 1] = (double)(int64_t)(c1[i] >> 11) * 0x1p-53;
    out[PHILOX_WORDS * i + 2] = (double)(int64_t)(c2[i] >> 11) * 0x1p-53;
    out[PHILOX_WORDS * i + 3] = (double)(int64_t)(c3[i] >> 11) * 0x1p-53;
  }
}

/* Philox at some number, and the group that it belongs to. */
typedef struct philox {
  const uint64_t *key;
  int64_t next, group;
  double numbers[PHILOX_GROUP];
} philox;

static philox philox_at(const uint64_t *key, int64_t number) {
  return (philox){.key = key, .next = number, .group = -1};
}

static double philox_next(philox *stream) {
  const int64_t number = stream->next++, group = number / PHILOX_GROUP;
  if (group != stream->group) {
    stream->group = group;
    philox_group(stream->key, (uint64_t)group, stream->numbers);
  }
  return stream->numbers[number % PHILOX_GROUP];
}

/* Writes `count` numbers, the first of which is the first of a group, and maybe some more to the end of a group. */
static void philox_fill(const uint64_t *key, int64_t first, int64_t count, double *to) {
  for (int64_t i = 0; i < count; i += PHILOX_GROUP) {
    philox_group(key, (uint64_t)((first + i) / PHILOX_GROUP), to + i);
  }
}

enum { MERSENNE_WORDS = 624, MERSENNE_MIDDLE = 397 };

typedef struct mersenne {
  uint32_t words[MERSENNE_WORDS];
  int next;
} mersenne;

static void mersenne_seed(mersenne *state, uint32_t seed) {
  state->words[0] = seed;
  for (uint32_t i = 1; i < MERSENNE_WORDS; i++) {
    const uint32_t before = state->words[i - 1];
    state->words[i] = 1812433253u * (before ^ before >> 30) + i;
  }
  state->next = MERSENNE_WORDS;
}

static uint32_t mersenne_word(mersenne *state) {
  if (state->next == MERSENNE_WORDS) {
    for (int i = 0; i < MERSENNE_WORDS; i++) {
      const uint32_t y = (state->words[i] & 0x80000000u) | (state->words[(i + 1) % MERSENNE_WORDS] & 0x7fffffffu);
      state->words[i] = state->words[(i + MERSENNE_MIDDLE) % MERSENNE_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    state->next = 0;
  }
  uint32_t y = state->words[state->next++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

static double mersenne_next(mersenne *state) {
  const uint32_t high = mersenne_word(state) >> 5, low = mersenne_word(state) >> 6;
  return ((double)high * 0x1p26 + (double)low) * 0x1p-53;
}

#endif
