/* attention_f32: softmax(scale * Q K^T + mask) V without the scores ever leaving the cache.
 *
 * A unit is a block of queries of one head. Keys pass in blocks; the softmax is the online one (Milakov and Gimelshein,
 * 2018): every block of keys may raise a row's maximum, and then what was summed so far shrinks accordingly.
 *
 * Scratch, one after another: row pointers, a bias of zeros, the rows' maxima and sums, a packed block of keys, a
 * packed block of values, the scores of a few queries, and, where there are several blocks of keys, the queries and
 * their sums. In their own places, rows of heads side by side would crowd a part of the second-level cache. */
#ifndef TINYCOMP_KERNELS_ATTENTION_ATTENTION_F32_H
#define TINYCOMP_KERNELS_ATTENTION_ATTENTION_F32_H

#include "vocabulary.h"

#include "../common/partial.h"
#include "../gemm/tile_f32.h"
#include "../gemm/pack_f32.h"
#include "../gemm/block_f32.h"
#include "../reduce/softmax_f32.h"

enum { ATTENTION_Y, ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_MASK };

enum { ATTENTION_QUERIES = 768, ATTENTION_BLOCK = 384, ATTENTION_ROWS = 48, ATTENTION_KEYS = 256 };

/* From one row of scores to the next: not a power of two, so that they do not crowd a few sets of the cache. */
enum { ATTENTION_STRIDE = ATTENTION_KEYS + 16 };

/* Floats of a line of the cache. */
enum { ATTENTION_LINE = 16 };

/* Rows of scores that become exponentials together. */
enum { ATTENTION_TOGETHER = 8 };

/* With fewer units than this, heads are halved, for threads to have equal shares of an odd number of them. */
enum { ATTENTION_FEWEST_UNITS = 8 };

/* How the queries of a head are cut: into equal blocks, each of whole tiles. */
static int64_t attention_block(const tc_attention_f32_params *p) {
  int64_t blocks = tc_ceil_div(p->rows, ATTENTION_BLOCK);
  if (p->rows > ATTENTION_ROWS && p->batch * p->heads * blocks < ATTENTION_FEWEST_UNITS) {
    blocks *= 2;
  }
  return blocks ? tc_round_up(tc_ceil_div(p->rows, blocks), 6) : 1;
}

/* The sum of all numbers from 0 to n - 1, of which those above `most` count as that. */
static double attention_ramp(int64_t n, int64_t most) {
  const double below = (double)tc_min(tc_max(n, 0), most + 1), above = (double)tc_max(n - most - 1, 0);
  return below * (below - 1) / 2 + above * (double)most;
}

/* The scores of one head that no causal mask hides. */
static double attention_seen(const tc_attention_f32_params *p) {
  const int64_t first = p->past + 1;
  return p->causal ? attention_ramp(p->rows + first, p->keys) - attention_ramp(first, p->keys)
                   : (double)p->rows * (double)p->keys;
}

static void TC_NAME(tc_attention_f32_prepare)(tc_prepare *prepare) {
  const tc_attention_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->group >= 1, "group must be at least 1");
  TC_REQUIRE(prepare, p->causal == 0 || p->causal == 1, "causal must be 0 or 1");
  TC_REQUIRE(prepare, p->past >= -TC_MAX_BYTES && p->past <= TC_MAX_BYTES, "past is out of range");
  const int64_t scores = TC_PRODUCT(prepare, p->batch, p->heads, p->rows, p->keys);
  const int64_t macs = TC_PRODUCT(prepare, scores, p->depth) + TC_PRODUCT(prepare, scores, p->value_depth);
  const int64_t shared = tc_ceil_div(tc_max(p->heads, 0), p->group);
#define ATTENTION_TOUCH(operand, heads, rows, columns, letter, row, column)              \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch, heads, rows, columns}, \
                    (const int64_t[]){p->letter##_batch, p->letter##_head, row, column}, sizeof(float))
  ATTENTION_TOUCH(ATTENTION_Y, p->heads, p->rows, p->value_depth, y, p->y_row, 1);
  ATTENTION_TOUCH(ATTENTION_Q, p->heads, p->rows, p->depth, q, p->q_row, 1);
  ATTENTION_TOUCH(ATTENTION_K, shared, p->keys, p->depth, k, p->k_row, p->k_column);
  ATTENTION_TOUCH(ATTENTION_V, shared, p->keys, p->value_depth, v, p->v_row, 1);
  ATTENTION_TOUCH(ATTENTION_MASK, p->heads, p->rows, p->keys, mask, p->mask_row, p->mask_column);
#undef ATTENTION_TOUCH
  const int64_t widths =
      TC_PRODUCT(prepare, p->depth, ATTENTION_KEYS) +
      TC_PRODUCT(prepare, tc_ceil_div(tc_max(p->value_depth, 0), TC_LANES), TC_LANES, ATTENTION_KEYS);
  const int64_t copies = p->keys > ATTENTION_KEYS ? TC_PRODUCT(prepare, p->depth, ATTENTION_QUERIES) +
                                                        TC_PRODUCT(prepare, p->value_depth, ATTENTION_QUERIES)
                                                  : 0;
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = p->batch * p->heads * tc_ceil_div(p->rows, attention_block(p));
  prepare->cost = 2.0 * (double)macs + 20.0 * (double)scores;
  prepare->work.flops =
      TC_COUNT(p->batch, p->heads) * attention_seen(p) * (2.0 * (double)(p->depth + p->value_depth) + 5.0);
  prepare->scratch_bytes =
      ATTENTION_ROWS * (int64_t)sizeof(float *) +
      (TC_PANEL + 2 * ATTENTION_QUERIES + widths + ATTENTION_ROWS * ATTENTION_STRIDE + copies) * (int64_t)sizeof(float);
}

/* One unit at work: where its operands begin, and the call's pieces of scratch. */
typedef struct attention_unit {
  const tc_attention_f32_params *p;
  const float *q, *k, *v, *mask;
  float *y;
  int64_t first, count; /* queries */
  const float **rows;
  float *zeros, *most, *sums, *key_panels, *value_panels, *scores;
  const float *queries; /* q, or a copy where several blocks of keys come by */
  float *result;        /* y, or its sums until then */
  int64_t query_row, result_row;
} attention_unit;

/* The queries of unit `*unit` and of those before `end` that see the same keys, which are then packed once for as many
 * queries as there is room for. Moves on to the first unit that is left. */
static attention_unit attention_unit_at(const tc_call *call, int64_t *unit, int64_t end) {
  const tc_attention_f32_params *p = call->params;
  const int64_t block = attention_block(p), blocks = tc_ceil_div(p->rows, block);
  const int64_t first = *unit % blocks * block, head = *unit / blocks % p->heads, batch = *unit / blocks / p->heads;
  const int64_t left = p->causal ? 1 : tc_min(end - *unit, blocks - *unit % blocks);
  const int64_t together = tc_min(left, ATTENTION_QUERIES / block);
  const int64_t shared = head / p->group;
  const float *mask = call->operands[ATTENTION_MASK];
  const float **rows = call->scratch;
  *unit += together;
  float *zeros = (float *)(rows + ATTENTION_ROWS), *most = zeros + TC_PANEL, *sums = most + ATTENTION_QUERIES;
  float *key_panels = sums + ATTENTION_QUERIES, *value_panels = key_panels + p->depth * ATTENTION_KEYS;
  float *scores = value_panels + tc_round_up(p->value_depth, TC_LANES) * ATTENTION_KEYS;
  float *copies = scores + ATTENTION_ROWS * ATTENTION_STRIDE;
  attention_unit u = {
      .p = p,
      .q = (const float *)call->operands[ATTENTION_Q] + batch * p->q_batch + head * p->q_head + first * p->q_row,
      .k = (const float *)call->operands[ATTENTION_K] + batch * p->k_batch + shared * p->k_head,
      .v = (const float *)call->operands[ATTENTION_V] + batch * p->v_batch + shared * p->v_head,
      .mask = mask ? mask + batch * p->mask_batch + head * p->mask_head + first * p->mask_row : NULL,
      .y = (float *)call->operands[ATTENTION_Y] + batch * p->y_batch + head * p->y_head + first * p->y_row,
      .first = first,
      .count = tc_min(p->rows - first, together * block),
      .rows = rows,
      .zeros = zeros,
      .most = most,
      .sums = sums,
      .key_panels = key_panels,
      .value_panels = value_panels,
      .scores = scores,
  };
  u.queries = p->keys > ATTENTION_KEYS ? copies : u.q;
  u.query_row = p->keys > ATTENTION_KEYS ? p->depth : p->q_row;
  u.result = p->keys > ATTENTION_KEYS ? copies + ATTENTION_QUERIES * p->depth : u.y;
  u.result_row = p->keys > ATTENTION_KEYS ? p->value_depth : p->y_row;
  return u;
}

/* Packs keys [first, first + count) and their values. */
static void attention_pack(const attention_unit *u, int64_t first, int64_t count) {
  const tc_attention_f32_params *p = u->p;
  const tc_matrix_f32 keys = {.data = u->k + first * p->k_row,
                              .taps = 1,
                              .depth = p->depth,
                              .columns = count,
                              .depth_stride = p->k_column,
                              .column_stride = p->k_row};
  for (int64_t column = 0; column < count; column += TC_PANEL) {
    tc_pack_panel(&keys, column, 1.0f, u->key_panels + column * p->depth);
  }
  const tc_matrix_f32 values = {.data = u->v + first * p->v_row,
                                .taps = 1,
                                .depth = count,
                                .columns = p->value_depth,
                                .depth_stride = p->v_row,
                                .column_stride = 1};
  tc_pack_panels(&values, u->value_panels);
}

/* Asks for the rows from `begin` to `end`, of so many floats. */
static void attention_fetch_rows(const float *rows, int64_t stride, int64_t begin, int64_t end, int64_t columns) {
  for (int64_t i = begin; i < end; i++) {
    for (int64_t j = 0; j < columns; j += ATTENTION_LINE) {
      __builtin_prefetch(rows + i * stride + j, 0, 2);
    }
  }
}

/* Asks for that part of the keys behind `first` and their values that the queries from `begin` on are of all of the
 * unit, so that they are near when they are packed. */
static void attention_fetch(const attention_unit *u, int64_t begin, int64_t count, int64_t first) {
  const tc_attention_f32_params *p = u->p;
  const int64_t keys = tc_min(p->keys - first, ATTENTION_KEYS);
  const int64_t from = first + keys * begin / u->count, to = first + keys * (begin + count) / u->count;
  attention_fetch_rows(u->k, p->k_row, from, to, p->k_column == 1 ? p->depth : 0);
  attention_fetch_rows(u->v, p->v_row, from, to, p->value_depth);
}

/* c[count, columns] (+)= rows * packed panels. */
static void attention_product(const attention_unit *u, int64_t count, int64_t depth, const float *panels,
                              int64_t columns, float *c, int64_t c_stride, bool add) {
  tc_block_f32 block = {.rows = u->rows, .row_count = count, .c_stride = c_stride};
  tc_tile_f32 tile = {
      .rows = u->rows, .taps = 1, .depth = depth, .bias = add ? NULL : u->zeros, .low = -INFINITY, .high = INFINITY};
  for (int64_t column = 0; column < columns; column += TC_PANEL) {
    block.columns = tc_min(columns - column, TC_PANEL);
    tile.panel = panels + column * depth;
    tile.ahead = (const char *)tile.panel; /* everything is near */
    tile.c = c + column;
    tc_block_part(&block, &tile);
  }
}

/* Scales the scores of keys [0, count) and adds one row of the mask. */
static void attention_add_mask(float *scores, float scale, const float *mask, int64_t stride, int64_t count) {
  if (stride > 1) {
    for (int64_t j = 0; j < count; j++) {
      scores[j] = scores[j] * scale + mask[j * stride];
    }
    return;
  }
  for (int64_t j = 0; j < count; j += TC_LANES) {
    const tc_vf more = stride ? tc_load_up_to(mask + j, count - j) : tc_vf_set1(*mask);
    const tc_vf score = tc_load_up_to(scores + j, count - j);
    tc_store_up_to(scores + j, tc_vf_fma(score, tc_vf_set1(scale), more), count - j);
  }
}

/* to = factor * from, which may be the same. */
static void attention_scale_row(float *to, const float *from, int64_t count, float factor) {
  const tc_vf factors = tc_vf_set1(factor);
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_store_up_to(to + i, tc_vf_mul(tc_load_up_to(from + i, count - i), factors), count - i);
  }
}

/* Masks the products of a query with keys [first, first + keys). What is left to scale them by is positive. */
static void attention_finish_scores(const attention_unit *u, float *scores, int64_t query, int64_t first,
                                    int64_t keys) {
  const tc_attention_f32_params *p = u->p;
  if (u->mask) {
    attention_add_mask(scores, p->scale, u->mask + query * p->mask_row + first * p->mask_column, p->mask_column, keys);
  } else if (p->scale <= 0.0f) { /* the largest product is not the largest score */
    attention_scale_row(scores, scores, keys, p->scale);
  }
  const int64_t seen = p->causal ? tc_max(u->first + query + p->past + 1 - first, 0) : keys;
  for (int64_t j = seen; j < keys; j++) {
    scores[j] = -INFINITY;
  }
}

/* Turns the products of a few queries, [query, query + count), with keys [first, first + keys) into exponentials, and
 * shrinks what a query has summed so far if its greatest score rises. Step by step for all of them: while one row waits
 * for its lanes to be joined, another goes on. */
static void attention_exponentials(const attention_unit *u, float *scores, int64_t query, int64_t count, int64_t first,
                                   int64_t keys) {
  const tc_attention_f32_params *p = u->p;
  const float scale = u->mask || p->scale <= 0.0f ? 1.0f : p->scale;
  float *most = u->most + query, *sums = u->sums + query, shift[ATTENTION_TOGETHER], shrink[ATTENTION_TOGETHER] = {0};
  for (int64_t m = 0; m < count; m++) {
    attention_finish_scores(u, scores + m * ATTENTION_STRIDE, query + m, first, keys);
  }
  for (int64_t m = 0; m < count; m++) {
    const float found = softmax_most(scores + m * ATTENTION_STRIDE, keys);
    const float before = first ? most[m] : -INFINITY;
    most[m] = found > before ? found : before;
    shift[m] = most[m] == -INFINITY ? 0.0f : most[m]; /* nothing but masked keys so far */
    shrink[m] = (before - shift[m]) * scale;
  }
  for (int64_t m = 0; first && m < ATTENTION_TOGETHER; m += TC_LANES) {
    tc_store_up_to(shrink + m, tc_vf_exp(tc_load_up_to(shrink + m, ATTENTION_TOGETHER - m)), ATTENTION_TOGETHER - m);
  }
  for (int64_t m = 0; m < count; m++) {
    float *row = scores + m * ATTENTION_STRIDE;
    const float sum = softmax_exponentials(row, row, keys, scale, shift[m]);
    sums[m] = first ? sums[m] * shrink[m] + sum : sum;
    if (first && shrink[m] != 1.0f) {
      float *result = u->result + (query + m) * u->result_row;
      attention_scale_row(result, result, p->value_depth, shrink[m]);
    }
  }
}

/* Lets queries [begin, begin + count) see keys [first, first + keys). */
static void attention_rows(const attention_unit *u, int64_t begin, int64_t count, int64_t first, int64_t keys) {
  const tc_attention_f32_params *p = u->p;
  for (int64_t m = 0; m < count; m++) {
    u->rows[m] = u->queries + (begin + m) * u->query_row;
  }
  attention_product(u, count, p->depth, u->key_panels, keys, u->scores, ATTENTION_STRIDE, false);
  for (int64_t m = 0; m < count; m += ATTENTION_TOGETHER) {
    attention_exponentials(u, u->scores + m * ATTENTION_STRIDE, begin + m, tc_min(count - m, ATTENTION_TOGETHER), first,
                           keys);
  }
  for (int64_t m = 0; m < count; m++) {
    u->rows[m] = u->scores + m * ATTENTION_STRIDE;
  }
  attention_product(u, count, keys, u->value_panels, p->value_depth, u->result + begin * u->result_row, u->result_row,
                    first > 0);
}

static void attention_run_unit(const attention_unit *u) {
  const tc_attention_f32_params *p = u->p;
  for (int64_t m = 0; m < u->count && u->queries != u->q; m++) {
    memcpy((float *)u->queries + m * u->query_row, u->q + m * p->q_row, (size_t)p->depth * sizeof(float));
  }
  for (int64_t first = 0; first == 0 || first < p->keys; first += ATTENTION_KEYS) {
    const int64_t keys = tc_min(p->keys - first, ATTENTION_KEYS);
    if (first > 0 && p->causal && first > u->first + u->count - 1 + p->past) {
      break; /* all later keys are hidden from all these queries */
    }
    attention_pack(u, first, keys);
    for (int64_t begin = 0; begin < u->count; begin += ATTENTION_ROWS) {
      const int64_t count = tc_min(u->count - begin, ATTENTION_ROWS);
      if (first + keys < p->keys) {
        attention_fetch(u, begin, count, first + keys);
      }
      attention_rows(u, begin, count, first, keys);
    }
  }
  for (int64_t m = 0; m < u->count; m++) {
    attention_scale_row(u->y + m * p->y_row, u->result + m * u->result_row, p->value_depth, 1.0f / u->sums[m]);
  }
}

static void TC_NAME(tc_attention_f32)(const tc_call *call, int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end;) {
    const attention_unit u = attention_unit_at(call, &unit, end);
    for (int j = 0; j < TC_PANEL; j++) {
      u.zeros[j] = 0.0f;
    }
    attention_run_unit(&u);
  }
}

#endif
