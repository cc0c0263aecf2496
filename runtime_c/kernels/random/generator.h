/* Random numbers: Philox4x64-10, which gives number i for itself (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), and MT19937, which goes from number to number (Matsumoto and Nishimura, ACM TOMACS 8(1), 1998).
 * Both give doubles in [0, 1) with 53 bits, those of numpy's generators for the same key or seed. */
#ifndef TINYCOMP_KERNELS_RANDOM_GENERATOR_H
#define TINYCOMP_KERNELS_RANDOM_GENERATOR_H

#include "vocabulary.h"

enum { PHILOX_WORDS = 4, PHILOX_ROUNDS = 10 };

/* The upper half of a product of 64-bit numbers. */
static uint64_t random_high(uint64_t a, uint64_t b) {
  const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), rest = a0 * b1 + (uint32_t)middle;
  return a1 * b1 + (middle >> 32) + (rest >> 32);
}

/* Block number `block` of four numbers. */
static void philox_block(const uint64_t *key, uint64_t block, uint64_t *out) {
  uint64_t c0 = block + 1, c1 = 0, c2 = 0, c3 = 0, k0 = key[0], k1 = key[1];
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    const uint64_t first = UINT64_C(0xD2E7470EE14C6C93), second = UINT64_C(0xCA5A826395121157);
    const uint64_t high0 = random_high(first, c0), high1 = random_high(second, c2);
    const uint64_t low0 = first * c0, low1 = second * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += UINT64_C(0x9E3779B97F4A7C15);
    k1 += UINT64_C(0xBB67AE8584CAA73B);
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/* Philox at some number, and the block that it belongs to. */
typedef struct philox {
  const uint64_t *key;
  int64_t next, block;
  uint64_t words[PHILOX_WORDS];
} philox;

static philox philox_at(const uint64_t *key, int64_t number) {
  return (philox){.key = key, .next = number, .block = -1};
}

static double philox_next(philox *stream) {
  const int64_t number = stream->next++, block = number / PHILOX_WORDS;
  if (block != stream->block) {
    stream->block = block;
    philox_block(stream->key, (uint64_t)block, stream->words);
  }
  return (double)(stream->words[number % PHILOX_WORDS] >> 11) * 0x1p-53;
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
