/* count_ngrams: how often the n-grams of a pool occur in rows of integers, weighted. A unit is one row. */
#ifndef TINYCOMP_KERNELS_TEXT_COUNT_NGRAMS_H
#define TINYCOMP_KERNELS_TEXT_COUNT_NGRAMS_H

#include "vocabulary.h"

enum { NGRAMS_Y, NGRAMS_X, NGRAMS_POOL, NGRAMS_WEIGHTS };
enum { NGRAMS_HEAD = 3, NGRAMS_MOST_LEVELS = 64 }; /* words that describe the n-grams of one length */

static void TC_NAME(tc_count_ngrams_prepare)(tc_prepare *prepare) {
  const tc_count_ngrams_params *p = prepare->params;
  TC_REQUIRE(prepare, p->type == TC_TYPE_I32 || p->type == TC_TYPE_I64, "no n-grams of numbers of type %lld",
             (long long)p->type);
  TC_REQUIRE(prepare, p->mode >= TC_NGRAMS_COUNTS && p->mode <= TC_NGRAMS_PRODUCTS, "an unknown way to weigh n-grams");
  TC_REQUIRE(prepare, p->levels >= 0 && p->levels <= NGRAMS_MOST_LEVELS, "n-grams of %lld lengths",
             (long long)p->levels);
  TC_REQUIRE(prepare, p->skips >= 0 && p->words >= NGRAMS_HEAD * p->levels, "skips or words are missing");
  const int64_t items = TC_PRODUCT(prepare, p->rows, p->length);
  tc_touch(prepare, NGRAMS_Y, TC_PRODUCT(prepare, p->rows, p->width), sizeof(float));
  tc_touch(prepare, NGRAMS_X, items, p->type == TC_TYPE_I32 ? sizeof(int32_t) : sizeof(int64_t));
  tc_touch(prepare, NGRAMS_POOL, p->words, sizeof(int64_t));
  tc_touch(prepare, NGRAMS_WEIGHTS, p->width, sizeof(float));
  /* Reach grows with every skip, so that no more than the square of a row's length are looked up. */
  const int64_t skips = tc_min(p->skips, p->length);
  const int64_t searches = TC_PRODUCT(prepare, items, p->levels, skips + 1);
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->rows;
  prepare->cost = 32.0 * (double)searches + (double)(p->rows * p->width);
  prepare->work.integer_operations = 16.0 * (double)searches;
}

static int64_t ngrams_item(const tc_count_ngrams_params *p, const void *x, int64_t at) {
  return p->type == TC_TYPE_I32 ? ((const int32_t *)x)[at] : ((const int64_t *)x)[at];
}

/* The column of the n-gram whose items begin at a place and are `step` apart, or -1; grams are sorted. */
static int64_t ngrams_find(const tc_count_ngrams_params *p, const int64_t *grams, int64_t count, int64_t n,
                           const void *x, int64_t at, int64_t step) {
  int64_t low = 0, high = count;
  const int64_t first = count ? ngrams_item(p, x, at) : 0;
  if (!count || first < grams[0] || first > grams[(count - 1) * (n + 1)]) {
    return -1; /* as most are that are in no pool */
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2, *gram = grams + middle * (n + 1);
    int order = 0;
    for (int64_t i = 0; i < n && !order; i++) {
      const int64_t item = ngrams_item(p, x, at + i * step);
      order = (item > gram[i]) - (item < gram[i]);
    }
    if (!order) {
      return gram[n];
    }
    low = order > 0 ? middle + 1 : low;
    high = order > 0 ? high : middle;
  }
  return -1;
}

/* Counts the n-grams of one length in a row; false where the pool is damaged. */
static bool ngrams_count(const tc_count_ngrams_params *p, const int64_t *pool, int64_t level, const void *x,
                         int64_t row, float *y) {
  const int64_t n = pool[NGRAMS_HEAD * level], count = pool[NGRAMS_HEAD * level + 1];
  const int64_t start = pool[NGRAMS_HEAD * level + 2], at = row * p->length;
  if (n < 1 || n > p->words || count < 0 || count > p->words || start < 0 || start > p->words ||
      count > (p->words - start) / (n + 1)) {
    return false;
  }
  for (int64_t step = 1; step <= (n == 1 ? 1 : tc_min(p->skips, p->length) + 1); step++) {
    const int64_t places = n - 1 > p->length / step ? 0 : p->length - (n - 1) * step;
    for (int64_t i = 0; i < places; i++) {
      const int64_t column = ngrams_find(p, pool + start, count, n, x, at + i, step);
      if (column >= p->width || column < -1) {
        return false;
      }
      if (column >= 0) {
        y[column] += 1.0f;
      }
    }
  }
  return true;
}

static void TC_NAME(tc_count_ngrams)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_count_ngrams_params *p = call->params;
  const int64_t *pool = call->operands[NGRAMS_POOL];
  const float *weights = call->operands[NGRAMS_WEIGHTS];
  for (int64_t row = begin; row < end; row++) {
    float *y = (float *)call->operands[NGRAMS_Y] + row * p->width;
    memset(y, 0, (size_t)p->width * sizeof(float));
    for (int64_t level = 0; level < p->levels; level++) {
      if (!ngrams_count(p, pool, level, call->operands[NGRAMS_X], row, y)) {
        tc_fail(call, "a pool of n-grams is damaged");
        return;
      }
    }
    for (int64_t i = 0; i < p->width && p->mode != TC_NGRAMS_COUNTS; i++) {
      y[i] = p->mode == TC_NGRAMS_PRODUCTS ? y[i] * weights[i] : y[i] > 0.0f ? weights[i] : 0.0f;
    }
  }
}

#endif
