/* random: random numbers with a distribution. A unit is a piece of the result, so that any thread may compute it. */
#ifndef TINYCOMP_KERNELS_RANDOM_RANDOM_H
#define TINYCOMP_KERNELS_RANDOM_RANDOM_H

#include "vocabulary.h"

#include "../common/math_f64.h"
#include "generator.h"

enum { RANDOM_Y, RANDOM_KEY };
/* Numbers of a unit, and of what it makes at once, both whole groups of the generator. */
enum { RANDOM_PIECE = 1024, RANDOM_BLOCK = 256 };

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

/* The exact normal number of two uniform ones, as far as the C library is (Box and Muller, 1958). */
static double random_normal(const double *pair) {
  return sqrt(-2.0 * log1p(-pair[0])) * cos(6.283185307179586 * pair[1]);
}

/* The same, within 2^-47. The difference is exact, as both numbers have 53 bits behind the point. */
TC_INLINE double random_near_normal(double x, double angle) {
  return sqrt(-2.0 * tc_f64_log(1.0 - x)) * tc_f64_cos(6.283185307179586 * angle);
}

/* a + b * x; the product is rounded by itself. */
static double random_scaled(double a, double b, double x) {
  double scaled = b * x;
  __asm__("" : "+m"(scaled));
  return a + scaled;
}

/* a + b * x for a block, where memory keeps the compiler from fusing the two. */
static void random_scale(double a, double b, int64_t count, double *x) {
  for (int64_t i = 0; i < count; i++) {
    x[i] *= b;
  }
  __asm__ volatile("" ::: "memory");
  for (int64_t i = 0; i < count; i++) {
    x[i] += a;
  }
}

/* Normal numbers as floats: where what is near may round to another float than what is exact, the latter is made. */
static void random_normal_floats(double a, double b, const double *pairs, int64_t count, float *to) {
  double x[RANDOM_BLOCK];
  const double error = (fabs(a) + fabs(b)) * 0x1p-44;
  for (int64_t i = 0; i < count; i++) {
    x[i] = random_near_normal(pairs[2 * i], pairs[2 * i + 1]);
  }
  random_scale(a, b, count, x);
  int doubtful = 0;
  for (int64_t i = 0; i < count; i++) {
    to[i] = (float)(x[i] - error);
    doubtful |= to[i] != (float)(x[i] + error);
  }
  for (int64_t i = 0; doubtful && i < count; i++) {
    if (to[i] != (float)(x[i] + error)) {
      to[i] = (float)random_scaled(a, b, random_normal(pairs + 2 * i));
    }
  }
}

static void random_block(const tc_call *call, int64_t first, int64_t count) {
  const tc_random_params *p = call->params;
  const bool normal = p->distribution == TC_RANDOM_NORMAL, floats = p->type == TC_TYPE_F32;
  const int64_t each = normal ? 2 : 1;
  const double a = p->a, b = normal ? (double)p->b : (double)p->b - (double)p->a;
  double x[2 * RANDOM_BLOCK];
  float *z = (float *)call->operands[RANDOM_Y] + (floats ? first : 0);
  philox_fill(call->operands[RANDOM_KEY], each * first, each * count, x);
  if (normal && floats) {
    random_normal_floats(a, b, x, count, z);
    return;
  }
  for (int64_t i = 0; normal && i < count; i++) {
    x[i] = random_normal(x + 2 * i);
  }
  random_scale(a, b, count, x);
  if (floats) {
    for (int64_t i = 0; i < count; i++) {
      z[i] = (float)x[i];
    }
  } else {
    memcpy((double *)call->operands[RANDOM_Y] + first, x, (size_t)count * sizeof(x[0]));
  }
}

static void TC_NAME(tc_random)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_random_params *p = call->params;
  const int64_t last = tc_min(end * RANDOM_PIECE, p->count);
  for (int64_t first = begin * RANDOM_PIECE; first < last; first += RANDOM_BLOCK) {
    random_block(call, first, tc_min(RANDOM_BLOCK, last - first));
  }
}

#endif
