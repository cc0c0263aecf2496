/* random: random numbers with a distribution. A unit is a piece of the result, so that any thread may compute it. */
#ifndef TINYCOMP_KERNELS_RANDOM_RANDOM_H
#define TINYCOMP_KERNELS_RANDOM_RANDOM_H

#include "vocabulary.h"

#include "generator.h"

enum { RANDOM_Y, RANDOM_KEY };
enum { RANDOM_PIECE = 1024 };

static void TC_NAME(tc_random_prepare)(tc_prepare *prepare) {
  const tc_random_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_F32 || p->type == TC_TYPE_F64, "no random numbers of type %lld",
             (long long)p->type);
  TC_REQUIRE(prepare, p->distribution == TC_RANDOM_UNIFORM || p->distribution == TC_RANDOM_NORMAL,
             "an unknown distribution");
  tc_touch(prepare, RANDOM_Y, p->count, p->type == TC_TYPE_F32 ? sizeof(float) : sizeof(double));
  tc_touch(prepare, RANDOM_KEY, 2, sizeof(uint64_t));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = tc_ceil_div(p->count, RANDOM_PIECE);
  prepare->cost = 20.0 * (double)p->count;
  prepare->work.integer_operations = 20.0 * (double)p->count;
}

/* The next number; the product is rounded by itself. A normal one takes two uniform ones (Box and Muller, 1958). */
static double random_next(const tc_random_params *p, philox *stream) {
  double x = philox_next(stream);
  if (p->distribution == TC_RANDOM_NORMAL) {
    const double angle = 6.283185307179586 * philox_next(stream);
    x = sqrt(-2.0 * log1p(-x)) * cos(angle);
  }
  double scaled = p->distribution == TC_RANDOM_NORMAL ? (double)p->b * x : ((double)p->b - (double)p->a) * x;
  __asm__("" : "+m"(scaled));
  return (double)p->a + scaled;
}

static void TC_NAME(tc_random)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_random_params *p = call->params;
  const int64_t first = begin * RANDOM_PIECE, last = tc_min(end * RANDOM_PIECE, p->count);
  philox stream = philox_at(call->operands[RANDOM_KEY], p->distribution == TC_RANDOM_NORMAL ? 2 * first : first);
  for (int64_t i = first; i < last; i++) {
    const double x = random_next(p, &stream);
    if (p->type == TC_TYPE_F32) {
      ((float *)call->operands[RANDOM_Y])[i] = (float)x;
    } else {
      ((double *)call->operands[RANDOM_Y])[i] = x;
    }
  }
}

#endif
