/* attention_combine_f32: the result of attention with few queries, of what every 512 keys contributed. A unit is one
 * query; the parts are summed in the order of the keys. */
#ifndef TINYCOMP_KERNELS_ATTENTION_ATTENTION_COMBINE_F32_H
#define TINYCOMP_KERNELS_ATTENTION_ATTENTION_COMBINE_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "cached_attention_f32.h"

enum { COMBINE_Y, COMBINE_PARTIAL, COMBINE_SINK };

static void TC_NAME(tc_attention_combine_f32_prepare)(tc_prepare *prepare) {
  const tc_attention_combine_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->group >= 1, "group must be at least 1");
  TC_REQUIRE(prepare, p->keys >= 0 && p->keys <= TC_MAX_BYTES, "the number of keys is out of range");
  TC_PRODUCT(prepare, p->rows, p->heads);
  const bool is_cut = p->keys > CACHED_CHUNK && cached_is_few(p->group, p->rows);
  const int64_t batch = is_cut ? p->batch : 0;
  tc_touch_matrices(prepare, COMBINE_Y, (const int64_t[]){batch, p->heads, p->rows, p->value_depth},
                    (const int64_t[]){p->y_batch, p->y_head, p->y_row, 1}, sizeof(float));
  const int64_t partial =
      TC_PRODUCT(prepare, batch, p->heads, p->rows, cached_chunks(p->keys), tc_plus(p->value_depth, 2));
  tc_touch(prepare, COMBINE_PARTIAL, partial, sizeof(float));
  tc_touch(prepare, COMBINE_SINK, p->heads, sizeof(float));
  prepare->units = TC_PRODUCT(prepare, batch, p->heads, p->rows);
  prepare->cost = (double)partial * 2.0;
  prepare->work.flops = (double)partial * 2.0;
}

static void combine_row(float *y, const float *parts, int64_t count, int64_t columns, const float *sink) {
  const int64_t width = columns + 2;
  float most = sink ? *sink : -INFINITY;
  for (int64_t c = 0; c < count; c++) {
    const float found = parts[c * width + columns];
    most = found > most ? found : most;
  }
  const float shift = most == -INFINITY ? 0.0f : most;
  float total = sink ? expf(*sink - shift) : 0.0f;
  for (int64_t i = 0; i < columns; i += TC_LANES) {
    tc_store_up_to(y + i, tc_vf_set1(0.0f), columns - i);
  }
  for (int64_t c = 0; c < count; c++) {
    const float *part = parts + c * width;
    if (part[columns + 1] == 0.0f) {
      continue; /* nothing was seen there, and nothing written */
    }
    const float share = expf(part[columns] - shift);
    total += part[columns + 1] * share;
    for (int64_t i = 0; i < columns; i += TC_LANES) {
      const tc_vf sum = tc_load_up_to(y + i, columns - i), more = tc_load_up_to(part + i, columns - i);
      tc_store_up_to(y + i, tc_vf_fma(more, tc_vf_set1(share), sum), columns - i);
    }
  }
  cached_store_row(y, y, columns, total == 0.0f ? 0.0f : 1.0f / total);
}

static void TC_NAME(tc_attention_combine_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_attention_combine_f32_params *p = call->params;
  const int64_t chunks = cached_chunks(p->keys), width = p->value_depth + 2;
  const float *sink = call->operands[COMBINE_SINK];
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t row = unit % p->rows, head = unit / p->rows % p->heads, batch = unit / p->rows / p->heads;
    float *y = (float *)call->operands[COMBINE_Y] + batch * p->y_batch + head * p->y_head + row * p->y_row;
    const float *parts = (const float *)call->operands[COMBINE_PARTIAL] + unit * chunks * width;
    combine_row(y, parts, chunks, p->value_depth, sink ? sink + head : NULL);
  }
}

#endif
