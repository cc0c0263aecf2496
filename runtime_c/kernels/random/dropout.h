/* dropout: elements that are kept by chance, and which they are. A unit is a piece of the result; with a seed, whose
 * generator goes from number to number, it is all of it. */
#ifndef TINYCOMP_KERNELS_RANDOM_DROPOUT_H
#define TINYCOMP_KERNELS_RANDOM_DROPOUT_H

#include "vocabulary.h"

#include "generator.h"

enum { DROPOUT_Y, DROPOUT_MASK, DROPOUT_X, DROPOUT_RATIO, DROPOUT_TRAINING, DROPOUT_KEY };
enum { DROPOUT_PIECE = 1024 };

static void TC_NAME(tc_dropout_prepare)(tc_prepare *prepare) {
  const tc_dropout_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_F32 || p->type == TC_TYPE_F64, "no dropout of numbers of type %lld",
             (long long)p->type);
  TC_REQUIRE(prepare, p->ratio_type == TC_TYPE_F32 || p->ratio_type == TC_TYPE_F64, "a ratio of type %lld",
             (long long)p->ratio_type);
  TC_REQUIRE(prepare, p->seed >= -1 && p->seed <= UINT32_MAX, "a seed has 32 bits");
  TC_REQUIRE(prepare, (p->seed < 0) == tc_present(prepare, DROPOUT_KEY), "either a seed or a key is given");
  const int size = p->type == TC_TYPE_F32 ? sizeof(float) : sizeof(double);
  tc_touch(prepare, DROPOUT_Y, p->count, size);
  tc_touch(prepare, DROPOUT_MASK, p->count, sizeof(uint8_t));
  tc_touch(prepare, DROPOUT_X, p->count, size);
  tc_touch(prepare, DROPOUT_RATIO, 1, p->ratio_type == TC_TYPE_F32 ? sizeof(float) : sizeof(double));
  tc_touch(prepare, DROPOUT_TRAINING, 1, sizeof(uint8_t));
  tc_touch(prepare, DROPOUT_KEY, 2, sizeof(uint64_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->seed < 0 ? tc_ceil_div(p->count, DROPOUT_PIECE) : p->count ? 1 : 0;
  prepare->cost = 20.0 * (double)p->count;
  prepare->work.integer_operations = 20.0 * (double)p->count;
}

/* Writes one element: as it is, or grown by as much as others are lost. */
static void dropout_element(const tc_call *call, int64_t i, bool kept, double scale) {
  const tc_dropout_params *p = call->params;
  uint8_t *mask = call->operands[DROPOUT_MASK];
  void *y = call->operands[DROPOUT_Y];
  const void *x = call->operands[DROPOUT_X];
  if (mask) {
    mask[i] = kept;
  }
  if (y && p->type == TC_TYPE_F32) {
    ((float *)y)[i] = kept ? (float)((double)((const float *)x)[i] * scale) : 0.0f;
  } else if (y) {
    ((double *)y)[i] = kept ? ((const double *)x)[i] * scale : 0.0;
  }
}

static double dropout_ratio(const tc_call *call) {
  const tc_dropout_params *p = call->params;
  const void *ratio = call->operands[DROPOUT_RATIO];
  return !ratio ? 0.5 : p->ratio_type == TC_TYPE_F32 ? (double)*(const float *)ratio : *(const double *)ratio;
}

static void TC_NAME(tc_dropout)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_dropout_params *p = call->params;
  const uint8_t *training = call->operands[DROPOUT_TRAINING];
  const double ratio = dropout_ratio(call), scale = ratio < 1.0 ? 1.0 / (1.0 - ratio) : 0.0;
  const bool drops = training && *training && ratio != 0.0;
  const int64_t first = p->seed < 0 ? begin * DROPOUT_PIECE : 0;
  const int64_t last = begin >= end ? first : p->seed < 0 ? tc_min(end * DROPOUT_PIECE, p->count) : p->count;
  mersenne sequence;
  philox stream = philox_at(call->operands[DROPOUT_KEY], first);
  if (p->seed >= 0) {
    mersenne_seed(&sequence, (uint32_t)p->seed);
  }
  for (int64_t i = first; i < last; i++) {
    const double chance = !drops ? 1.0 : p->seed < 0 ? philox_next(&stream) : mersenne_next(&sequence);
    dropout_element(call, i, !drops || chance >= ratio, drops ? scale : 1.0);
  }
}

#endif
