/* class_scores_f32: the class of every row by its scores, and the scores transformed, as operators of ai.onnx.ml say. A
 * unit is some rows. */
#ifndef TINYCOMP_KERNELS_TREES_CLASS_SCORES_F32_H
#define TINYCOMP_KERNELS_TREES_CLASS_SCORES_F32_H

#include "vocabulary.h"

enum { CLASSES_Y, CLASSES_CLASS, CLASSES_X, CLASSES_LABELS };

enum { CLASSES_ROWS = 64 };

static void TC_NAME(tc_class_scores_f32_prepare)(tc_prepare *prepare) {
  const tc_class_scores_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->classes > 0, "%lld classes", (long long)p->classes);
  TC_REQUIRE(prepare, p->transform >= TC_CLASSES_NONE && p->transform <= TC_CLASSES_PROBIT,
             "there is no transform %lld", (long long)p->transform);
  TC_REQUIRE(prepare, p->only >= -1 && p->only < p->classes && (p->only < 0 || p->classes == 2),
             "class %lld cannot decide alone", (long long)p->only);
  const int64_t scores = TC_PRODUCT(prepare, p->rows, p->classes);
  tc_touch(prepare, CLASSES_Y, scores, sizeof(float));
  tc_touch(prepare, CLASSES_CLASS, p->rows, sizeof(int64_t));
  tc_touch(prepare, CLASSES_X, scores, p->wide ? sizeof(double) : sizeof(float));
  tc_touch(prepare, CLASSES_LABELS, p->classes, sizeof(int64_t));
  TC_REQUIRE(prepare, tc_present(prepare, CLASSES_CLASS) == tc_present(prepare, CLASSES_LABELS),
             "classes and their labels go together");
  prepare->units = tc_refused(prepare) ? 0 : tc_ceil_div(p->rows, CLASSES_ROWS);
  prepare->work.flops = (double)scores;
  prepare->cost = (double)scores * (p->transform == TC_CLASSES_NONE ? 2.0 : 20.0);
}

TC_INLINE float classes_logistic(float x) {
  const float part = 1.0f / (1.0f + expf(-fabsf(x)));
  return x < 0.0f ? 1.0f - part : part;
}

/* The quantile of the normal distribution by the approximation of Winitzki. */
TC_INLINE float classes_probit(float x) {
  const float y = 2.0f * x - 1.0f, log = logf((1.0f - y) * (1.0f + y));
  const float v = 2.0f / (3.14159274f * 0.147f) + 0.5f * log;
  return 1.41421356f * copysignf(sqrtf(sqrtf(v * v - log / 0.147f) - v), y);
}

static void classes_softmax(int64_t classes, bool zeros_stay, const float *x, float *y) {
  float most = -INFINITY, total = 0.0f;
  for (int64_t i = 0; i < classes; i++) {
    most = x[i] > most ? x[i] : most;
  }
  for (int64_t i = 0; i < classes; i++) {
    y[i] = zeros_stay && fabsf(x[i]) <= 1e-7f ? 0.0f : expf(x[i] - most);
    total += y[i];
  }
  for (int64_t i = 0; i < classes; i++) {
    y[i] = total == 0.0f ? y[i] : y[i] / total;
  }
}

static int64_t classes_best(const tc_class_scores_f32_params *p, const float *x) {
  int64_t best = p->only >= 0 ? x[p->only] > (p->positive ? 0.5f : 0.0f) : 0;
  for (int64_t i = 1; p->only < 0 && i < p->classes; i++) {
    best = x[i] > x[best] ? i : best;
  }
  return best;
}

/* The same of scores in double, which are rounded for the rest. */
static int64_t classes_best_wide(const tc_class_scores_f32_params *p, const double *x, float *y) {
  int64_t best = p->only >= 0 ? x[p->only] > (p->positive ? 0.5 : 0.0) : 0;
  for (int64_t i = 0; i < p->classes; i++) {
    best = p->only < 0 && x[i] > x[best] ? i : best;
    y[i] = (float)x[i];
  }
  return best;
}

/* The scores of a row may become transformed ones in place. */
static void classes_row(const tc_class_scores_f32_params *p, const float *x, float *y) {
  if (p->only == 0 && p->mirrored) { /* the first class's score speaks for the second */
    const float score = x[0];
    const bool logistic = p->transform == TC_CLASSES_LOGISTIC;
    y[0] = logistic ? classes_logistic(-score) : p->positive ? 1.0f - score : -score;
    y[1] = logistic ? classes_logistic(score) : score;
    return;
  }
  if (p->transform == TC_CLASSES_SOFTMAX || p->transform == TC_CLASSES_SOFTMAX_ZERO) {
    classes_softmax(p->classes, p->transform == TC_CLASSES_SOFTMAX_ZERO, x, y);
    return;
  }
  if (p->transform == TC_CLASSES_NONE) {
    for (int64_t i = 0; i < p->classes && x != y; i++) {
      y[i] = x[i];
    }
    return;
  }
  for (int64_t i = 0; i < p->classes; i++) {
    y[i] = p->transform == TC_CLASSES_LOGISTIC ? classes_logistic(x[i])
           : p->transform == TC_CLASSES_PROBIT ? classes_probit(x[i])
                                               : x[i];
  }
}

static void TC_NAME(tc_class_scores_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_class_scores_f32_params *p = call->params;
  const void *x = call->operands[CLASSES_X];
  float *y = call->operands[CLASSES_Y];
  int64_t *classes = call->operands[CLASSES_CLASS];
  const int64_t *labels = call->operands[CLASSES_LABELS];
  const int64_t last = tc_min(end * CLASSES_ROWS, p->rows);
  for (int64_t row = begin * CLASSES_ROWS; row < last; row++) {
    const int64_t at = row * p->classes;
    const int64_t best =
        p->wide ? classes_best_wide(p, (const double *)x + at, y + at) : classes_best(p, (const float *)x + at);
    classes_row(p, p->wide ? y + at : (const float *)x + at, y + at);
    if (classes) {
      classes[row] = labels[best];
    }
  }
}

#endif
