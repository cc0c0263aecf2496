/* random_key: a key for random numbers that no other run has, from the system. One unit. */
#ifndef TINYCOMP_KERNELS_RANDOM_RANDOM_KEY_H
#define TINYCOMP_KERNELS_RANDOM_RANDOM_KEY_H

#include "vocabulary.h"

enum { RANDOM_KEY_WORDS = 2 };

static void TC_NAME(tc_random_key_prepare)(tc_prepare *prepare) {
  tc_touch(prepare, 0, RANDOM_KEY_WORDS, sizeof(uint64_t));
  prepare->units = 1;
  prepare->cost = 1.0;
}

/* Fills bytes by chance; false where the system has none. */
static bool random_key_fill(void *to, size_t bytes) {
#if defined(TC_STANDALONE)
  (void)to;
  (void)bytes;
  return false;
#else
  return tc_random_bytes(to, bytes);
#endif
}

static void TC_NAME(tc_random_key)(const tc_call *call, int64_t begin, int64_t end) {
  if (begin < end && !random_key_fill(call->operands[0], RANDOM_KEY_WORDS * sizeof(uint64_t))) {
    tc_fail(call, "the system gives no random numbers; the operator needs a seed");
  }
}

#endif
