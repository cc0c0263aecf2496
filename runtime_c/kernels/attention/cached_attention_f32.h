/* cached_attention_f32: attention over as many of the keys as a run says, in one of two forms.
 *
 * Many queries: a unit is a block of queries of one head, or of all heads of a group where each has few. Keys pass in
 * packed blocks with an online softmax, as in attention_f32.h.
 *
 * Few queries: what counts is that every key and value arrives once. A unit is 512 keys of one head with all queries
 * that share them; what it finds goes to `partial`, from which attention_combine_f32 makes the result. The keys of a
 * unit follow from their positions alone, so neither threads nor the room in the cache change a bit. */
#ifndef TINYCOMP_KERNELS_ATTENTION_CACHED_ATTENTION_F32_H
#define TINYCOMP_KERNELS_ATTENTION_CACHED_ATTENTION_F32_H

#include "vocabulary.h"

#include "../common/math.h"
#include "../common/partial.h"
#include "../gemm/block_f32.h"
#include "../gemm/pack_f32.h"
#include "../gemm/tile_f32.h"
#include "../reduce/softmax_f32.h"
#include "cache_span.h"

enum {
  CACHED_Y,
  CACHED_PARTIAL,
  CACHED_Q,
  CACHED_K,
  CACHED_V,
  CACHED_MASK,
  CACHED_LENGTHS,
  CACHED_LONGEST,
  CACHED_SINK
};

enum { CACHED_QUERIES = 384, CACHED_ROWS = 48, CACHED_KEYS = 256 };
enum { CACHED_FEW = 16, CACHED_CHUNK = 512, CACHED_NEAR = 32, CACHED_TILE = 4 };

/* What of a row that is some floats behind is asked for early: `count` columns from `begin` on. What the processor
 * fetches by itself ends with every page. Near rows are read once per CACHED_TILE queries; each time a part of every
 * line of the next ones is asked for, so that the memory is never idle. */
typedef struct cached_part {
  int64_t behind, begin, count;
  bool whole; /* every column */
} cached_part;

enum { CACHED_AHEAD = 16 };

static cached_part cached_ahead(int64_t query, int64_t queries, int64_t width, int64_t step) {
  const int64_t pass = query / CACHED_TILE, passes = tc_ceil_div(queries, CACHED_TILE);
  const int64_t line = TC_ALIGNMENT / sizeof(float), lines = tc_ceil_div(width, line);
  const int64_t begin = lines * pass / passes * line, end = lines * (pass + 1) / passes * line;
  return (cached_part){(passes == 1 ? CACHED_AHEAD : CACHED_NEAR) * step, begin, end - begin, passes == 1};
}

/* Asks for the part's columns from `column` on, of which a vector has TC_LANES, if they are in it. */
TC_INLINE void cached_ask(const bool whole, const float *row, int64_t column, cached_part part) {
  if (whole || (uint64_t)(column - part.begin) < (uint64_t)part.count) {
    __builtin_prefetch((const void *)((uintptr_t)row + (uintptr_t)(column + part.behind) * sizeof(float)));
  }
}

/* From one row of scores to the next: not a power of two, so that they do not crowd a few sets of the cache. */
enum { CACHED_STRIDE = CACHED_KEYS + 16, CACHED_FEW_STRIDE = CACHED_CHUNK + 16 };

/* Vectors of values that are summed at once, for as many queries as a tile has. */
enum { CACHED_VECTORS = TC_REGISTERS >= 32 ? 4 : 2 };

static bool cached_is_few(int64_t group, int64_t rows) { return group <= CACHED_FEW && rows <= CACHED_FEW / group; }

/* How many units share the keys of one head with few queries. */
static int64_t cached_chunks(int64_t keys) { return tc_max(tc_ceil_div(keys, CACHED_CHUNK), 1); }

/* How many heads one unit takes: all of a group, unless each has enough queries by itself. */
static int64_t cached_joined(const tc_cached_attention_f32_params *p) {
  return p->rows < CACHED_QUERIES / 2 ? p->group : 1;
}

/* How the queries of a unit's heads are cut: into equal blocks, each of whole tiles. */
static int64_t cached_block(const tc_cached_attention_f32_params *p) {
  const int64_t queries = p->rows * cached_joined(p), blocks = tc_ceil_div(queries, CACHED_QUERIES);
  return blocks ? tc_round_up(tc_ceil_div(queries, blocks), 6) : 1;
}

static int64_t cached_value_stride(const tc_cached_attention_f32_params *p) {
  return tc_round_up(p->value_depth, TC_LANES);
}

static void cached_touch_data(tc_prepare *prepare, const tc_cached_attention_f32_params *p, int64_t shared) {
#define CACHED_TOUCH(operand, heads, rows, columns, letter, row, column, size)           \
  tc_touch_matrices(prepare, operand, (const int64_t[]){p->batch, heads, rows, columns}, \
                    (const int64_t[]){p->letter##_batch, p->letter##_head, row, column}, size)
  CACHED_TOUCH(CACHED_Y, p->heads, p->rows, p->value_depth, y, p->y_row, 1, sizeof(float));
  CACHED_TOUCH(CACHED_Q, p->heads, p->rows, p->depth, q, p->q_row, 1, sizeof(float));
  CACHED_TOUCH(CACHED_K, shared, p->keys, p->depth, k, p->k_row, 1, sizeof(float));
  CACHED_TOUCH(CACHED_V, shared, p->keys, p->value_depth, v, p->v_row, 1, sizeof(float));
  CACHED_TOUCH(CACHED_MASK, p->heads, p->rows, p->mask_columns, mask, p->mask_row, p->mask_column, (int)p->mask_bytes);
#undef CACHED_TOUCH
  tc_touch(prepare, CACHED_LENGTHS, p->batch, (int)p->length_bytes);
  tc_touch(prepare, CACHED_LONGEST, 1, 4);
  tc_touch(prepare, CACHED_SINK, p->heads, sizeof(float));
}

static void TC_NAME(tc_cached_attention_f32_prepare)(tc_prepare *prepare) {
  const tc_cached_attention_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->group >= 1, "group must be at least 1");
  TC_REQUIRE(prepare, p->heads >= 0 && p->heads % p->group == 0, "the heads must be a multiple of the group");
  TC_REQUIRE(prepare, p->causal == 0 || p->causal == 1, "causal must be 0 or 1");
  TC_REQUIRE(prepare, p->length_bytes == 4 || p->length_bytes == 8, "lengths must have 4 or 8 bytes");
  TC_REQUIRE(prepare, p->length_more == 0 || p->length_more == 1, "length_more must be 0 or 1");
  TC_REQUIRE(prepare, p->mask_bytes == 1 || p->mask_bytes == 4, "a mask must have 1 or 4 bytes");
  TC_REQUIRE(prepare, p->past >= -TC_MAX_BYTES && p->past <= TC_MAX_BYTES, "past is out of range");
  TC_REQUIRE(prepare, p->left <= TC_MAX_BYTES && p->right <= TC_MAX_BYTES, "the window is out of range");
  const int64_t shared = p->heads / p->group;
  const int64_t scores = TC_PRODUCT(prepare, p->batch, p->heads, p->rows, p->keys);
  const int64_t macs = TC_PRODUCT(prepare, scores, p->depth) + TC_PRODUCT(prepare, scores, p->value_depth);
  cached_touch_data(prepare, p, shared);
  if (tc_refused(prepare)) {
    return;
  }
  const int64_t width = p->depth + tc_round_up(tc_max(p->value_depth, 0), TC_LANES);
  const int64_t widths = TC_PRODUCT(prepare, width, CACHED_KEYS), sums = TC_PRODUCT(prepare, width, CACHED_QUERIES);
  TC_PRODUCT(prepare, p->rows, p->heads);
  TC_REQUIRE(prepare, p->keys >= 0 && p->keys <= TC_MAX_BYTES, "the number of keys is out of range");
  const bool is_few = cached_is_few(p->group, p->rows);
  const bool is_cut = is_few && p->keys > CACHED_CHUNK;
  TC_REQUIRE(prepare, !is_cut || tc_present(prepare, CACHED_PARTIAL), "few queries and many keys need partial sums");
  const int64_t chunks = is_cut ? cached_chunks(p->keys) : 1;
  const int64_t partial = TC_PRODUCT(prepare, p->batch, p->heads, p->rows, chunks, p->value_depth + 2);
  tc_touch(prepare, CACHED_PARTIAL, is_cut ? partial : 0, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->cost = 2.0 * (double)macs + 20.0 * (double)scores;
  prepare->work.flops = (double)scores * (2.0 * (double)(p->depth + p->value_depth) + 5.0);
  if (scores == 0 && TC_COUNT(p->batch, p->heads, p->rows, p->value_depth) == 0) {
    return;
  }
  if (is_few) {
    prepare->units = p->batch * shared * chunks;
    prepare->scratch_bytes = CACHED_FEW * (CACHED_FEW_STRIDE + cached_value_stride(p)) * (int64_t)sizeof(float);
  } else {
    prepare->units =
        p->batch * (p->heads / cached_joined(p)) * tc_ceil_div(p->rows * cached_joined(p), cached_block(p));
    prepare->scratch_bytes =
        CACHED_ROWS * (int64_t)sizeof(float *) +
        (TC_PANEL + 2 * CACHED_QUERIES + widths + sums + CACHED_ROWS * CACHED_STRIDE) * (int64_t)sizeof(float);
  }
}

/* One unit at work: where its operands begin, and what its queries are. Queries of several heads are numbered through,
 * head by head. */
typedef struct cached_unit {
  const tc_cached_attention_f32_params *p;
  const float *q, *k, *v;
  const char *mask;  /* or NULL */
  const float *sink; /* or NULL */
  float *y;
  int64_t begin, count; /* queries */
  cache_span span;
} cached_unit;

static cached_unit cached_unit_at(const tc_call *call, int64_t batch, int64_t head, int64_t begin, int64_t count) {
  const tc_cached_attention_f32_params *p = call->params;
  const int64_t shared = head / p->group;
  const char *mask = call->operands[CACHED_MASK];
  const float *sink = call->operands[CACHED_SINK];
  const void *lengths = call->operands[CACHED_LENGTHS];
  cache_span span = {p->past, p->keys};
  if (lengths) {
    span = cache_span_at(lengths, p->length_bytes, p->length_more, call->operands[CACHED_LONGEST], p->rows, batch);
  }
  span.total = tc_min(tc_max(span.total, 0), p->keys);
  if (mask) {
    span.total = tc_min(span.total, p->mask_columns);
    mask += (batch * p->mask_batch + head * p->mask_head) * p->mask_bytes;
  }
  return (cached_unit){
      .p = p,
      .q = (const float *)call->operands[CACHED_Q] + batch * p->q_batch + head * p->q_head,
      .k = (const float *)call->operands[CACHED_K] + batch * p->k_batch + shared * p->k_head,
      .v = (const float *)call->operands[CACHED_V] + batch * p->v_batch + shared * p->v_head,
      .mask = mask,
      .sink = sink ? sink + head : NULL,
      .y = (float *)call->operands[CACHED_Y] + batch * p->y_batch + head * p->y_head,
      .begin = begin,
      .count = count,
      .span = span,
  };
}

/* Which keys a query sees: [begin, end). */
typedef struct cached_range {
  int64_t begin, end;
} cached_range;

static cached_range cached_seen(const cached_unit *u, int64_t query) {
  const tc_cached_attention_f32_params *p = u->p;
  const int64_t position = u->span.first + query % p->rows;
  int64_t end = u->span.total;
  if (p->causal) {
    end = tc_min(end, position + 1);
  }
  if (p->right >= 0) {
    end = tc_min(end, position + p->right + 1);
  }
  end = tc_max(end, 0);
  return (cached_range){p->left >= 0 ? tc_min(tc_max(position - p->left, 0), end) : 0, end};
}

/* What queries [begin, begin + count) see together, which is empty if none sees any. */
static cached_range cached_seen_by(const cached_unit *u, int64_t begin, int64_t count) {
  cached_range all = {INT64_MAX, 0};
  for (int64_t i = begin; i < begin + count; i++) {
    const cached_range one = cached_seen(u, i);
    if (one.begin < one.end) {
      all.begin = tc_min(all.begin, one.begin);
      all.end = tc_max(all.end, one.end);
    }
  }
  all.begin = tc_min(all.begin, all.end);
  return all;
}

/* Adds a row of the mask to the scores of `count` keys, or hides the keys where it is false. */
static void cached_add_mask(const cached_unit *u, float *scores, const char *row, int64_t count) {
  const int64_t step = u->p->mask_column;
  if (u->p->mask_bytes == 1) {
    for (int64_t j = 0; j < count; j++) {
      scores[j] = row[j * step] ? scores[j] : -INFINITY;
    }
    return;
  }
  const float *mask = (const float *)row;
  if (step != 1) {
    for (int64_t j = 0; j < count; j++) {
      scores[j] += mask[j * step];
    }
    return;
  }
  for (int64_t j = 0; j < count; j += TC_LANES) {
    const tc_vf sum = tc_vf_add(tc_load_up_to(scores + j, count - j), tc_load_up_to(mask + j, count - j));
    tc_store_up_to(scores + j, sum, count - j);
  }
}

/* Makes scores of the products of a query with keys [first, first + count): scaled but for the factor that it returns,
 * which is positive, masked, and -inf where the query sees nothing. */
static float cached_finish_scores(const cached_unit *u, float *scores, int64_t query, int64_t first, int64_t count) {
  const tc_cached_attention_f32_params *p = u->p;
  float scale = p->scale;
  if (u->mask || p->softcap > 0.0f || scale <= 0.0f) {
    const tc_vf factor = tc_vf_set1(p->softcap > 0.0f ? scale / p->softcap : scale), cap = tc_vf_set1(p->softcap);
    for (int64_t j = 0; j < count; j += TC_LANES) {
      tc_vf score = tc_vf_mul(tc_load_up_to(scores + j, count - j), factor);
      score = p->softcap > 0.0f ? tc_vf_mul(tc_vf_tanh(score), cap) : score;
      tc_store_up_to(scores + j, score, count - j);
    }
    scale = 1.0f;
  }
  if (u->mask) {
    const int64_t at = query / p->rows * p->mask_head + query % p->rows * p->mask_row + first * p->mask_column;
    cached_add_mask(u, scores, u->mask + at * p->mask_bytes, count);
  }
  const cached_range seen = cached_seen(u, query);
  for (int64_t j = 0; j < tc_min(seen.begin - first, count); j++) {
    scores[j] = -INFINITY;
  }
  for (int64_t j = tc_max(seen.end - first, 0); j < count; j++) {
    scores[j] = -INFINITY;
  }
  return scale;
}

/* Shrinks a row of sums by a factor into its place in the result. */
static void cached_store_row(float *y, const float *sums, int64_t count, float factor) {
  const tc_vf factors = tc_vf_set1(factor);
  for (int64_t i = 0; i < count; i += TC_LANES) {
    tc_store_up_to(y + i, tc_vf_mul(tc_load_up_to(sums + i, count - i), factors), count - i);
  }
}

/* What a row of sums has to be multiplied by, given the greatest score and the sum of exponentials less that. */
static float cached_share(float most, float sum, const float *sink) {
  if (sink) {
    const float top = most > *sink ? most : *sink, shift = top == -INFINITY ? 0.0f : top;
    const float shrink = expf(most - shift);
    const float total = sum * shrink + expf(*sink - shift);
    return total == 0.0f ? 0.0f : shrink / total;
  }
  return sum == 0.0f ? 0.0f : 1.0f / sum; /* a query that saw no key gives zeros */
}

static void cached_finish_row(const cached_unit *u, int64_t query, const float *sums, float most, float sum) {
  const tc_cached_attention_f32_params *p = u->p;
  const int64_t head = query / p->rows;
  cached_store_row(u->y + head * p->y_head + query % p->rows * p->y_row, sums, p->value_depth,
                   cached_share(most, sum, u->sink ? u->sink + head : NULL));
}

/* ---- many queries ---- */

typedef struct cached_scratch {
  const float **rows;
  float *zeros, *most, *totals, *key_panels, *value_panels, *sums, *scores;
} cached_scratch;

static cached_scratch cached_scratch_of(const tc_cached_attention_f32_params *p, void *scratch) {
  const float **rows = scratch;
  float *zeros = (float *)(rows + CACHED_ROWS), *most = zeros + TC_PANEL, *totals = most + CACHED_QUERIES;
  float *key_panels = totals + CACHED_QUERIES, *value_panels = key_panels + p->depth * CACHED_KEYS;
  float *sums = value_panels + cached_value_stride(p) * CACHED_KEYS;
  return (cached_scratch){rows,       zeros,        most, totals,
                          key_panels, value_panels, sums, sums + cached_value_stride(p) * CACHED_QUERIES};
}

/* Packs keys [first, first + count) and their values. */
static void cached_pack(const cached_unit *u, const cached_scratch *s, int64_t first, int64_t count) {
  const tc_cached_attention_f32_params *p = u->p;
  const tc_matrix_f32 keys = {.data = u->k + first * p->k_row,
                              .taps = 1,
                              .depth = p->depth,
                              .columns = count,
                              .depth_stride = 1,
                              .column_stride = p->k_row};
  for (int64_t column = 0; column < count; column += TC_PANEL) {
    tc_pack_panel(&keys, column, 1.0f, s->key_panels + column * p->depth);
  }
  const tc_matrix_f32 values = {.data = u->v + first * p->v_row,
                                .taps = 1,
                                .depth = count,
                                .columns = p->value_depth,
                                .depth_stride = p->v_row,
                                .column_stride = 1};
  tc_pack_panels(&values, s->value_panels);
}

/* c[count, columns] = rows * packed panels, or with add, that on top. `panel_depth` is what the panels were packed
 * for. */
static void cached_product(const cached_scratch *s, int64_t count, int64_t depth, int64_t panel_depth,
                           const float *panels, int64_t columns, float *c, int64_t c_stride, bool add) {
  tc_block_f32 block = {.rows = s->rows, .row_count = count, .c_stride = c_stride};
  tc_tile_f32 tile = {
      .rows = s->rows, .taps = 1, .depth = depth, .bias = add ? NULL : s->zeros, .low = -INFINITY, .high = INFINITY};
  for (int64_t column = 0; column < columns; column += TC_PANEL) {
    block.columns = tc_min(columns - column, TC_PANEL);
    tile.panel = panels + column * panel_depth;
    tile.ahead = (const char *)tile.panel; /* everything is near */
    tile.c = c + column;
    tc_block_part(&block, &tile);
  }
}

/* Lets queries [begin, begin + count) see those of the packed keys [first, first + packed) that they may; `has_sums`
 * says whether they have seen some before, and is set. */
static void cached_rows(const cached_unit *u, const cached_scratch *s, int64_t begin, int64_t count, int64_t first,
                        int64_t packed, bool *has_sums) {
  const tc_cached_attention_f32_params *p = u->p;
  const cached_range seen = cached_seen_by(u, u->begin + begin, count);
  const int64_t keys = tc_min(seen.end - first, packed), stride = cached_value_stride(p);
  if (keys <= 0 || seen.begin >= first + packed) {
    return;
  }
  for (int64_t m = 0; m < count; m++) {
    const int64_t query = u->begin + begin + m;
    s->rows[m] = u->q + query / p->rows * p->q_head + query % p->rows * p->q_row;
  }
  const int64_t whole = tc_min(tc_round_up(keys, TC_PANEL), packed); /* panels are as wide as they were packed */
  cached_product(s, count, p->depth, p->depth, s->key_panels, whole, s->scores, CACHED_STRIDE, false);
  for (int64_t m = 0; m < count; m++) {
    float *scores = s->scores + m * CACHED_STRIDE, *sums = s->sums + (begin + m) * stride;
    const float scale = cached_finish_scores(u, scores, u->begin + begin + m, first, keys);
    const float before = s->most[begin + m], found = softmax_most(scores, keys) * scale;
    const float most = found > before ? found : before, shift = most == -INFINITY ? 0.0f : most;
    const float total = softmax_exponentials(scores, scores, keys, scale, shift / scale);
    const float shrink = *has_sums ? expf(before - shift) : 0.0f;
    s->most[begin + m] = most;
    s->totals[begin + m] = s->totals[begin + m] * shrink + total;
    if (*has_sums && shrink != 1.0f) {
      cached_store_row(sums, sums, p->value_depth, shrink);
    }
    s->rows[m] = scores;
  }
  cached_product(s, count, keys, packed, s->value_panels, p->value_depth, s->sums + begin * stride, stride, *has_sums);
  *has_sums = true;
}

static void cached_run_many(const tc_call *call, const cached_unit *u) {
  const tc_cached_attention_f32_params *p = u->p;
  const cached_scratch s = cached_scratch_of(p, call->scratch);
  const int64_t stride = cached_value_stride(p);
  memset(s.zeros, 0, TC_PANEL * sizeof(float));
  memset(s.totals, 0, (size_t)u->count * sizeof(float));
  bool has_sums[CACHED_QUERIES / CACHED_ROWS + 1] = {false};
  for (int64_t i = 0; i < u->count; i++) {
    s.most[i] = -INFINITY;
  }
  const cached_range seen = cached_seen_by(u, u->begin, u->count);
  for (int64_t first = seen.begin / CACHED_KEYS * CACHED_KEYS; first < seen.end; first += CACHED_KEYS) {
    const int64_t packed = tc_min(seen.end - first, CACHED_KEYS);
    cached_pack(u, &s, first, packed);
    for (int64_t begin = 0; begin < u->count; begin += CACHED_ROWS) {
      cached_rows(u, &s, begin, tc_min(u->count - begin, CACHED_ROWS), first, packed, &has_sums[begin / CACHED_ROWS]);
    }
  }
  for (int64_t i = 0; i < u->count; i++) {
    if (!has_sums[i / CACHED_ROWS]) {
      memset(s.sums + i * stride, 0, (size_t)stride * sizeof(float));
    }
    cached_finish_row(u, u->begin + i, s.sums + i * stride, s.most[i], s.totals[i]);
  }
}

/* ---- few queries ---- */

/* Runs what `run` makes of literals for up to CACHED_TILE queries, and for whether a whole row is asked for early. */
#define CACHED_EACH(run)                                   \
  switch (ahead.whole ? queries : queries + CACHED_TILE) { \
    case 1:                                                \
      run(1, true) break;                                  \
    case 2:                                                \
      run(2, true) break;                                  \
    case 3:                                                \
      run(3, true) break;                                  \
    case 4:                                                \
      run(4, true) break;                                  \
    case 5:                                                \
      run(1, false) break;                                 \
    case 6:                                                \
      run(2, false) break;                                 \
    case 7:                                                \
      run(3, false) break;                                 \
    default:                                               \
      run(4, false)                                        \
  }

/* The products of up to four queries with `keys` rows that follow each other. */
TC_INLINE void cached_dots(const int queries, const bool whole, const float *const *q, const float *k, int64_t k_row,
                           int64_t depth, int64_t keys, cached_part ahead, float *scores) {
  for (int64_t j = 0; j < keys; j++, k += k_row) {
    tc_vf sums[CACHED_TILE];
#pragma GCC unroll 4
    for (int r = 0; r < queries; r++) {
      sums[r] = tc_vf_set1(0.0f);
    }
    int64_t d = 0;
    for (; d + TC_LANES <= depth; d += TC_LANES) {
      cached_ask(whole, k, d, ahead);
      const tc_vf key = tc_vf_load(k + d);
#pragma GCC unroll 4
      for (int r = 0; r < queries; r++) {
        sums[r] = tc_vf_fma(tc_vf_load(q[r] + d), key, sums[r]);
      }
    }
    if (d < depth) {
      const tc_vf key = tc_vf_load_first(k + d, depth - d);
#pragma GCC unroll 4
      for (int r = 0; r < queries; r++) {
        sums[r] = tc_vf_fma(tc_vf_load_first(q[r] + d, depth - d), key, sums[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < queries; r++) {
      scores[r * CACHED_FEW_STRIDE + j] = tc_vf_reduce_add(sums[r]);
    }
  }
}

/* Adds `keys` rows of values, weighted for up to four queries, to their sums: whole vectors, of which the last may
 * reach `last` columns only. */
TC_INLINE void cached_mix(const int queries, const bool whole, const int vectors, const float *weights, const float *v,
                          int64_t v_row, int64_t keys, int64_t last, cached_part ahead, float *sums, int64_t stride) {
  tc_vf total[CACHED_TILE][CACHED_VECTORS];
#pragma GCC unroll 4
  for (int r = 0; r < queries; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) {
      total[r][c] = tc_vf_load(sums + r * stride + c * TC_LANES);
    }
  }
  for (int64_t j = 0; j < keys; j++, v += v_row) {
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) {
      cached_ask(whole, v, c * TC_LANES, ahead);
      const tc_vf value = c + 1 < vectors ? tc_vf_load(v + c * TC_LANES) : tc_load_up_to(v + c * TC_LANES, last);
#pragma GCC unroll 4
      for (int r = 0; r < queries; r++) {
        total[r][c] = tc_vf_fma(tc_vf_set1(weights[r * CACHED_FEW_STRIDE + j]), value, total[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < queries; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < vectors; c++) {
      tc_vf_store(sums + r * stride + c * TC_LANES, total[r][c]);
    }
  }
}

/* A part with its columns counted from `first` on. */
static cached_part cached_part_from(cached_part part, int64_t first) {
  return (cached_part){part.behind, part.begin - first, part.count, part.whole};
}

static void cached_mix_rows(const int queries, const float *weights, const float *v, int64_t v_row, int64_t keys,
                            int64_t columns, cached_part ahead, float *sums, int64_t stride) {
  for (int64_t column = 0; column < columns; column += CACHED_VECTORS * TC_LANES) {
    const int64_t left = columns - column;
    int vectors = (int)tc_min(tc_ceil_div(left, TC_LANES), CACHED_VECTORS);
    const int64_t last = left - (vectors - 1) * TC_LANES;
#define CACHED_MIX(n, whole)                                                                                      \
  if (vectors == CACHED_VECTORS) {                                                                                \
    cached_mix(n, whole, CACHED_VECTORS, weights, v + column, v_row, keys, last, cached_part_from(ahead, column), \
               sums + column, stride);                                                                            \
  } else {                                                                                                        \
    for (int c = 0; c < vectors; c++) {                                                                           \
      const int64_t at = column + c * TC_LANES;                                                                   \
      cached_mix(n, whole, 1, weights, v + at, v_row, keys, left - c * TC_LANES, cached_part_from(ahead, at),     \
                 sums + at, stride);                                                                              \
    }                                                                                                             \
  }
    CACHED_EACH(CACHED_MIX)
#undef CACHED_MIX
  }
}

static void cached_dots_rows(const int queries, const float *const *q, const float *k, int64_t k_row, int64_t depth,
                             int64_t keys, cached_part ahead, float *scores) {
#define CACHED_DOTS(n, whole) cached_dots(n, whole, q, k, k_row, depth, keys, ahead, scores);
  CACHED_EACH(CACHED_DOTS)
#undef CACHED_DOTS
}

/* Lets the queries see keys [from, to) and sums up what those contribute; scratch holds scores and sums. */
static void cached_few_keys(const cached_unit *u, int64_t from, int64_t to, float *scores, float *sums, float *most,
                            float *totals) {
  const tc_cached_attention_f32_params *p = u->p;
  const int64_t stride = cached_value_stride(p);
  const float *rows[CACHED_FEW];
  for (int64_t i = 0; i < u->count; i++) {
    rows[i] = u->q + i / p->rows * p->q_head + i % p->rows * p->q_row;
  }
  for (int64_t first = from; first < to; first += CACHED_NEAR) {
    for (int64_t i = 0; i < u->count; i += CACHED_TILE) {
      cached_dots_rows((int)tc_min(u->count - i, CACHED_TILE), rows + i, u->k + first * p->k_row, p->k_row, p->depth,
                       tc_min(to - first, CACHED_NEAR), cached_ahead(i, u->count, p->depth, p->k_row),
                       scores + i * CACHED_FEW_STRIDE + (first - from));
    }
  }
  for (int64_t i = 0; i < u->count; i++) {
    float *row = scores + i * CACHED_FEW_STRIDE;
    const float scale = cached_finish_scores(u, row, i, from, to - from);
    const float found = softmax_most(row, to - from);
    most[i] = found * scale;
    totals[i] = softmax_exponentials(row, row, to - from, scale, found == -INFINITY ? 0.0f : found);
  }
  memset(sums, 0, (size_t)(u->count * stride) * sizeof(float));
  for (int64_t first = from; first < to; first += CACHED_NEAR) {
    for (int64_t i = 0; i < u->count; i += CACHED_TILE) {
      cached_mix_rows((int)tc_min(u->count - i, CACHED_TILE), scores + i * CACHED_FEW_STRIDE + (first - from),
                      u->v + first * p->v_row, p->v_row, tc_min(to - first, CACHED_NEAR), p->value_depth,
                      cached_ahead(i, u->count, p->value_depth, p->v_row), sums + i * stride, stride);
    }
  }
}

static void cached_run_few(const tc_call *call, const cached_unit *u, int64_t chunk, float *partial) {
  const tc_cached_attention_f32_params *p = u->p;
  const int64_t stride = cached_value_stride(p), width = p->value_depth + 2;
  float *scores = call->scratch, *sums = scores + CACHED_FEW * CACHED_FEW_STRIDE;
  float most[CACHED_FEW], totals[CACHED_FEW];
  const cached_range seen = cached_seen_by(u, 0, u->count);
  const int64_t begin = chunk * CACHED_CHUNK, from = tc_max(begin, seen.begin);
  const int64_t to = tc_min(begin + CACHED_CHUNK, seen.end);
  if (from < to) {
    cached_few_keys(u, from, to, scores, sums, most, totals);
  }
  for (int64_t i = 0; i < u->count; i++) {
    if (from >= to) {
      most[i] = -INFINITY;
      totals[i] = 0.0f;
    }
    float *row = sums + i * stride;
    if (partial) {
      float *place = partial + (i * cached_chunks(p->keys) + chunk) * width;
      if (from < to) {
        memcpy(place, row, (size_t)p->value_depth * sizeof(float));
      }
      place[p->value_depth] = most[i];
      place[p->value_depth + 1] = totals[i];
      continue;
    }
    if (from >= to) {
      memset(row, 0, (size_t)stride * sizeof(float));
    }
    cached_finish_row(u, i, row, most[i], totals[i]);
  }
}

static void TC_NAME(tc_cached_attention_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_cached_attention_f32_params *p = call->params;
  if (cached_is_few(p->group, p->rows)) {
    const bool is_cut = p->keys > CACHED_CHUNK;
    const int64_t chunks = is_cut ? cached_chunks(p->keys) : 1, shared = p->heads / p->group;
    for (int64_t unit = begin; unit < end; unit++) {
      const int64_t head = unit / chunks % shared * p->group, batch = unit / chunks / shared;
      const cached_unit u = cached_unit_at(call, batch, head, 0, p->group * p->rows);
      float *partial = call->operands[CACHED_PARTIAL];
      const int64_t at = (batch * p->heads + head) * p->rows * chunks * (p->value_depth + 2);
      cached_run_few(call, &u, unit % chunks, is_cut ? partial + at : NULL);
    }
    return;
  }
  const int64_t joined = cached_joined(p), block = cached_block(p), queries = p->rows * joined;
  const int64_t blocks = tc_ceil_div(queries, block), sets = p->heads / joined;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = unit % blocks * block;
    const cached_unit u = cached_unit_at(call, unit / blocks / sets, unit / blocks % sets * joined, first,
                                         tc_min(queries - first, block));
    cached_run_many(call, &u);
  }
}

#endif
