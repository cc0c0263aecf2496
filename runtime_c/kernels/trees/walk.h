/* Walks through ensembles of trees whose numbers are of the type trees_real: what the leaves that each row reaches say,
 * added up. tree_ensemble_f32.h and tree_ensemble_f64.h include this, each with names of its own. State: the nodes with
 * their children side by side, the row of weights of every leaf, roots, depths and columns.
 *
 * A step of one row waits for the step before it, so several go side by side: rows in one tree, or one row in several
 * trees. A leaf is its own child, so that no step needs a branch; after some steps the walk ends if nobody has moved.
 * The weights of a row are added in the order of the trees, however rows are cut.
 * Small trees are no walk where many rows come at once, see leaf_sets.h. */
#include "vocabulary.h"

#ifndef TREES_TYPED /* by itself: as the first of those who include this */
#include "tree_ensemble_f32.h"
#else

#include "leaf_sets.h"
#include "node.h"

#define trees_node TREES_TYPED(trees_node)
#define trees_state TREES_TYPED(trees_state)
#define trees_state_at TREES_TYPED(trees_state_at)
#define trees_step TREES_TYPED(trees_step)
#define trees_walk TREES_TYPED(trees_walk)
#define trees_mirror TREES_TYPED(trees_mirror)
#define trees_both_signs TREES_TYPED(trees_both_signs)
#define trees_add TREES_TYPED(trees_add)
#define trees_add_rows TREES_TYPED(trees_add_rows)
#define trees_find TREES_TYPED(trees_find)
#define trees_of_rows TREES_TYPED(trees_of_rows)
#define trees_finish TREES_TYPED(trees_finish)
#define trees_of_row TREES_TYPED(trees_of_row)
#define trees_numbers TREES_TYPED(trees_numbers)
#define sets_equals TREES_TYPED(sets_equals)
#define sets_shape_of TREES_TYPED(sets_shape_of)
#define sets_add_test TREES_TYPED(sets_add_test)
#define sets_add_tests TREES_TYPED(sets_add_tests)
#define sets_pack TREES_TYPED(sets_pack)
#define sets_finish TREES_TYPED(sets_finish)
#define sets_value TREES_TYPED(sets_value)
#define sets_order TREES_TYPED(sets_order)
#define sets_meet TREES_TYPED(sets_meet)
#define trees_of_columns TREES_TYPED(trees_of_columns)
#define trees_of_sets TREES_TYPED(trees_of_sets)
#define sets_make_columns TREES_TYPED(sets_make_columns)

#include "leaf_tests.h"

/* int32 words of a node in the constant table: its feature, the bits of its threshold, its children. */
#define TREES_WORDS (3 + (int)(sizeof(trees_real) / sizeof(int32_t)))

/* Where the parts of the state lie. */
typedef struct trees_state {
  const trees_node *nodes;
  const trees_real *numbers; /* that tests are ranks of */
  const int32_t *leaves, *roots, *depths, *columns;
  sets_state sets;
} trees_state;

TC_INLINE int64_t trees_numbers(const tc_tree_ensemble_f32_params *p) {
  return TREES_RANKS ? SETS_NUMBERS * p->small : 0;
}

static trees_state trees_state_at(const tc_tree_ensemble_f32_params *p, const void *state) {
  trees_state at = {.nodes = state};
  at.numbers = (const trees_real *)(at.nodes + p->nodes);
  at.leaves = (const int32_t *)(at.numbers + trees_numbers(p));
  at.roots = at.leaves + p->nodes;
  at.depths = at.roots + p->trees;
  at.columns = at.depths + p->trees;
  at.sets = sets_state_at(p, at.columns + p->trees);
  return at;
}

static void TREES_PREPARE(tc_prepare *prepare) {
  const tc_tree_ensemble_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->nodes > 0 && p->nodes <= INT32_MAX && p->leaves > 0 && p->leaves <= INT32_MAX,
             "%lld nodes and %lld leaves", (long long)p->nodes, (long long)p->leaves);
  TC_REQUIRE(prepare, p->features > 0 && p->features < TREES_TRACKS / 2 && p->outputs > 0, "%lld columns, %lld outputs",
             (long long)p->features, (long long)p->outputs);
  TC_REQUIRE(prepare, p->small >= 0 && p->small <= p->nodes, "%lld of %lld nodes are of small trees",
             (long long)p->small, (long long)p->nodes);
  TC_REQUIRE(prepare, p->aggregate >= TC_TREES_AVERAGE && p->aggregate <= TC_TREES_MAX, "there is no aggregate %lld",
             (long long)p->aggregate);
  tc_touch(prepare, TREES_Y, TC_PRODUCT(prepare, p->rows, p->outputs), sizeof(trees_real));
  tc_touch(prepare, TREES_X, TC_PRODUCT(prepare, p->rows, p->features), sizeof(trees_real));
  tc_touch(prepare, TREES_NODES, TC_PRODUCT(prepare, p->nodes, TREES_WORDS), sizeof(int32_t));
  tc_touch(prepare, TREES_LEAVES, p->nodes, sizeof(int32_t));
  tc_touch(prepare, TREES_ROOTS, TC_PRODUCT(prepare, p->trees, 3), sizeof(int32_t));
  tc_touch(prepare, TREES_WEIGHTS, TC_PRODUCT(prepare, p->leaves, p->outputs), sizeof(trees_real));
  tc_touch(prepare, TREES_BASE, p->outputs, sizeof(trees_real));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->state_bytes = TC_PRODUCT(prepare, p->nodes, sizeof(trees_node) + sizeof(int32_t)) +
                         TC_PRODUCT(prepare, p->trees, 3, sizeof(int32_t));
  TC_SHARE(prepare, p->nodes, p->trees, p->leaves, p->features, p->outputs, p->aggregate, p->small);
  prepare->scratch_bytes = p->tracks ? TC_PRODUCT(prepare, TREES_BLOCK, 2, p->features, sizeof(trees_real)) : 0;
  const int64_t numbers = TREES_RANKS ? TC_PRODUCT(prepare, SETS_NUMBERS, p->small) : 0;
  prepare->state_bytes += TC_PRODUCT(prepare, numbers, sizeof(trees_real)) + sets_bytes(prepare, p);
  const int64_t sums = TREES_RANKS ? 0 : tc_min(p->outputs, SETS_OUTPUTS);
  prepare->scratch_bytes += TC_PRODUCT(prepare, SETS_ROWS, sets_most_columns(p) + sums, sizeof(float));
  prepare->scratch_bytes += p->small ? TC_PRODUCT(prepare, p->trees, 2, sizeof(uint32_t)) : 0;
  const int64_t words = (int64_t)(offsetof(trees_node, child) + sizeof(int32_t[2]) - offsetof(trees_node, feature));
  const int64_t ahead = p->nodes * (int64_t)sizeof(trees_node);
  const int64_t behind = ahead + numbers * (int64_t)sizeof(trees_real);
  tc_state_repeats(prepare, 0, 1, sizeof(trees_real), p->nodes, sizeof(trees_node));
  tc_state_repeats(prepare, offsetof(trees_node, feature), words / (int64_t)sizeof(int32_t), sizeof(int32_t), p->nodes,
                   sizeof(trees_node));
  tc_state_numbers(prepare, ahead, numbers, sizeof(trees_real));
  tc_state_numbers(prepare, behind, (prepare->state_bytes - behind) / (int64_t)sizeof(int32_t), sizeof(int32_t));
  prepare->units = tc_ceil_div(p->rows, TREES_BLOCK);
  prepare->cost = 10.0 * (double)p->rows * (double)p->trees;
  prepare->work.flops = (double)p->rows * (double)p->trees * (double)p->outputs;
}

/* A node that sends NaN to its first child, as one that does so by comparing like all others: x <= t is no -x <= the
 * number below -t, which NaN is not either. Behind the features of a row lie the negative ones. */
static trees_node trees_mirror(trees_node node, int64_t features) {
  const trees_real least = (trees_real)-INFINITY, below = TREES_BELOW(-node.threshold, least);
  node.feature = (int32_t)((node.feature & ~TREES_TRACKS) + features);
  const int32_t first = node.child[0];
  node.child[0] = node.child[1];
  node.child[1] = first;
  /* No number is above infinity, and none is at most NaN. */
  node.threshold = node.threshold == (trees_real)INFINITY ? (trees_real)NAN
                   : node.threshold != node.threshold     ? (trees_real)INFINITY
                                                          : below;
  return node;
}

/* What a damaged table would make the walk do is mended here: every node leads to later ones and to a leaf's weights.
 */
static void TREES_PACK(const tc_prepare *prepare, void *state) {
  const tc_tree_ensemble_f32_params *p = prepare->params;
  const int32_t *from = prepare->constants[TREES_NODES], *roots = prepare->constants[TREES_ROOTS];
  const int32_t *leaf = prepare->constants[TREES_LEAVES];
  trees_node *nodes = state;
  trees_real *numbers = (trees_real *)(nodes + p->nodes);
  int32_t *leaves = (int32_t *)(numbers + trees_numbers(p)), *to = leaves + p->nodes;
  for (int64_t i = 0; i < p->nodes; i++, from += TREES_WORDS) {
    trees_node node = {.feature = from[0], .child = {from[TREES_WORDS - 2], from[TREES_WORDS - 1]}};
    memcpy(&node.threshold, &from[1], sizeof(node.threshold));
    const bool inner = node.child[0] > i && node.child[0] < p->nodes && node.child[1] > i && node.child[1] < p->nodes &&
                       node.feature >= 0 && (node.feature & ~(p->tracks ? TREES_TRACKS : 0)) < p->features;
    if (!inner) {
      node = (trees_node){.child = {(int32_t)i, (int32_t)i}};
    }
    nodes[i] = node;
    leaves[i] = !inner && leaf[i] >= 0 && leaf[i] < p->leaves ? leaf[i] : 0;
  }
  for (int64_t t = 0; t < p->trees; t++) {
    to[t] = roots[t] >= 0 && roots[t] < p->nodes ? roots[t] : 0;
    to[p->trees + t] = (int32_t)tc_min(tc_max(roots[p->trees + t], 0), (int32_t)p->nodes);
    const int32_t column = roots[2 * p->trees + t];
    to[2 * p->trees + t] = p->aggregate <= TC_TREES_SUM && column >= 0 && column < p->outputs ? column : -1;
  }
  sets_pack(prepare, nodes, leaves, to, numbers, to + 3 * p->trees);
  for (int64_t i = 0; i < p->nodes; i++) {
    nodes[i] = nodes[i].feature & TREES_TRACKS ? trees_mirror(nodes[i], p->features) : nodes[i];
  }
}

TC_INLINE int32_t trees_step(const trees_node *nodes, const trees_real *x, int32_t at) {
  const trees_node *node = nodes + at;
  return node->child[!(x[node->feature] <= node->threshold)];
}

/* Leads all lanes down from where they are. */
static void trees_walk(const trees_node *nodes, const trees_real *const *x, int64_t depth, int32_t *at) {
  int32_t lane[TREES_LANES];
#pragma GCC unroll 8
  for (int i = 0; i < TREES_LANES; i++) {
    lane[i] = at[i];
  }
  for (int64_t d = 0; d < depth; d += TREES_STRIDE) {
    int32_t moved = 0;
    for (int step = 0; step < TREES_STRIDE; step++) {
#pragma GCC unroll 8
      for (int i = 0; i < TREES_LANES; i++) {
        const int32_t next = trees_step(nodes, x[i], lane[i]);
        moved |= step == TREES_STRIDE - 1 ? next ^ lane[i] : 0;
        lane[i] = next;
      }
    }
    if (!moved) {
      break;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < TREES_LANES; i++) {
    at[i] = lane[i];
  }
}

/* Adds one leaf to the scores of a row; `column` is the only one that it speaks of, or -1. */
TC_INLINE void trees_add(const tc_tree_ensemble_f32_params *p, const trees_real *weights, int32_t column,
                         trees_real *y) {
  if (column >= 0) {
    y[column] += weights[column];
    return;
  }
  if (p->aggregate <= TC_TREES_SUM) {
    for (int64_t i = 0; i < p->outputs; i++) {
      y[i] += weights[i];
    }
    return;
  }
  for (int64_t i = 0; i < p->outputs; i++) {
    const bool takes = p->aggregate == TC_TREES_MIN ? weights[i] < y[i] : weights[i] > y[i];
    y[i] = takes ? weights[i] : y[i];
  }
}

/* Adds one leaf each to all scores of some rows; the compiler knows how many these are where it is told a number. */
TC_INLINE void trees_add_rows(const int64_t outputs, const trees_real *weights, const int32_t *leaves, int64_t rows,
                              trees_real *y) {
  for (int64_t row = 0; row < rows; row++, y += outputs) {
    const trees_real *from = weights + leaves[row] * outputs;
    for (int64_t i = 0; i < outputs; i++) {
      y[i] += from[i];
    }
  }
}

/* Leads rows down a tree side by side, TREES_LANES at a time, and finds the rows of weights that they reach. */
static void trees_find(const trees_state *state, int64_t tree, const trees_real *x, int64_t stride, int64_t rows,
                       int32_t *to) {
  for (int64_t row = 0; row < rows; row += TREES_LANES) {
    const trees_real *lanes[TREES_LANES];
    int32_t at[TREES_LANES];
    for (int i = 0; i < TREES_LANES; i++) {
      lanes[i] = x + (row + i) * stride;
      at[i] = state->roots[tree];
    }
    trees_walk(state->nodes, lanes, state->depths[tree], at);
    for (int i = 0; i < TREES_LANES; i++) {
      to[row + i] = state->leaves[at[i]];
    }
  }
}

/* Adds up one tree after another for up to TREES_BLOCK rows; of those that are sets, the rows are columns. */
static void trees_of_rows(const tc_tree_ensemble_f32_params *p, const trees_state *state, const trees_real *weights,
                          const trees_real *x, int64_t stride, int64_t rows, const float *columns, trees_real *y) {
  int32_t leaves[TREES_BLOCK];
  for (int64_t tree = 0; tree < p->trees; tree++) {
    const int32_t column = state->columns[tree];
    if (columns && state->sets.trees[tree].begin >= 0) {
      sets_find(&state->sets, &state->sets.trees[tree], columns, rows, leaves);
    } else {
      trees_find(state, tree, x, stride, rows, leaves);
    }
    if (column >= 0) {
      for (int64_t row = 0; row < rows; row++) {
        y[row * p->outputs + column] += weights[leaves[row] * p->outputs + column];
      }
      continue;
    }
    if (p->aggregate <= TC_TREES_SUM && p->outputs == 2) {
      trees_add_rows(2, weights, leaves, rows, y);
    } else if (p->aggregate <= TC_TREES_SUM) {
      trees_add_rows(p->outputs, weights, leaves, rows, y);
    } else {
      for (int64_t row = 0; row < rows; row++) {
        trees_add(p, weights + leaves[row] * p->outputs, column, y + row * p->outputs);
      }
    }
  }
}

#if !TREES_RANKS

/* The same where every tree speaks of one output: the sums of each lie side by side until all trees are added up. */
static void trees_of_columns(const tc_tree_ensemble_f32_params *p, const trees_state *state, const float *weights,
                             const float *x, int64_t stride, int64_t rows, const float *columns, float *sums,
                             float *y) {
  int32_t leaves[TREES_BLOCK];
  for (int64_t i = 0; i < p->outputs * SETS_ROWS; i++) {
    sums[i] = 0.0f;
  }
  for (int64_t tree = 0; tree < p->trees; tree++) {
    const int32_t column = state->columns[tree];
    float *to = sums + (int64_t)column * SETS_ROWS;
    if (state->sets.trees[tree].begin >= 0) {
      sets_add(&state->sets, &state->sets.trees[tree], columns, rows, to);
      continue;
    }
    trees_find(state, tree, x, stride, rows, leaves);
    for (int64_t row = 0; row < rows; row++) {
      to[row] += weights[leaves[row] * p->outputs + column];
    }
  }
  for (int64_t row = 0; row < rows; row++, y += p->outputs) {
    for (int64_t i = 0; i < p->outputs; i++) {
      y[i] = sums[i * SETS_ROWS + row];
    }
  }
}

#endif

/* One row, whose sets of leaves are met. */
static void trees_of_sets(const tc_tree_ensemble_f32_params *p, const trees_state *state, const trees_real *weights,
                          const trees_real *x, uint32_t *words, trees_real *y) {
  sets_meet(&state->sets, state->numbers, x, words);
  for (int64_t i = 0; i < p->trees; i++) {
    const sets_tree *tree = &state->sets.trees[i];
    const int32_t leaf = tree->leaf + sets_leaf(tree, words[tree->word], words[tree->word + tree->is_wide]);
    if (!TREES_RANKS && state->sets.counts[SETS_SINGLE]) {
      y[state->columns[i]] += (trees_real)state->sets.weights[leaf];
      continue;
    }
    trees_add(p, weights + state->sets.leaves[leaf] * p->outputs, state->columns[i], y);
  }
}

/* Trees side by side for one row. */
static void trees_of_row(const tc_tree_ensemble_f32_params *p, const trees_state *state, const trees_real *weights,
                         const trees_real *x, trees_real *y) {
  const trees_real *lanes[TREES_LANES];
  for (int i = 0; i < TREES_LANES; i++) {
    lanes[i] = x;
  }
  for (int64_t tree = 0; tree < p->trees; tree += TREES_LANES) {
    const int64_t count = tc_min(p->trees - tree, TREES_LANES);
    int32_t at[TREES_LANES];
    int64_t depth = 0;
    for (int i = 0; i < TREES_LANES; i++) {
      const int64_t number = tree + tc_min(i, count - 1);
      at[i] = state->roots[number];
      depth = tc_max(depth, state->depths[number]);
    }
    trees_walk(state->nodes, lanes, depth, at);
    for (int64_t i = 0; i < count; i++) {
      trees_add(p, weights + state->leaves[at[i]] * p->outputs, state->columns[tree + i], y);
    }
  }
}

/* Copies rows, the negative ones of each behind it. */
static void trees_both_signs(const trees_real *x, int64_t rows, int64_t features, trees_real *to) {
  for (int64_t row = 0; row < rows; row++, x += features, to += 2 * features) {
    for (int64_t i = 0; i < features; i++) {
      to[i] = x[i];
      to[features + i] = -x[i];
    }
  }
}

/* Makes results of what the leaves of a row say together. */
static void trees_finish(const tc_tree_ensemble_f32_params *p, const trees_real *base, trees_real *y) {
  for (int64_t i = 0; i < p->outputs; i++) {
    const bool silent = p->aggregate > TC_TREES_SUM && isinf(y[i]); /* no leaf speaks of this output */
    const trees_real sum = p->aggregate == TC_TREES_AVERAGE ? y[i] / (trees_real)p->trees : y[i];
    y[i] = silent ? 0 : sum + (base ? base[i] : 0);
  }
}

static void TREES_RUN(const tc_call *call, int64_t begin, int64_t end) {
  const tc_tree_ensemble_f32_params *p = call->params;
  const trees_state state = trees_state_at(p, call->state);
  const trees_real *weights = call->operands[TREES_WEIGHTS], *base = call->operands[TREES_BASE];
  const int64_t first = begin * TREES_BLOCK, last = tc_min(end * TREES_BLOCK, p->rows);
  const trees_real start = p->aggregate == TC_TREES_MIN ? INFINITY : p->aggregate == TC_TREES_MAX ? -INFINITY : 0;
  const int64_t stride = p->tracks ? 2 * p->features : p->features;
  float *room = (float *)((trees_real *)call->scratch + (p->tracks ? TREES_BLOCK * stride : 0));
  float *sums = room + SETS_ROWS * sets_most_columns(p);
  uint32_t *words = (uint32_t *)(sums + (TREES_RANKS ? 0 : SETS_ROWS * tc_min(p->outputs, SETS_OUTPUTS)));
  const bool are_all_sets = state.sets.counts[SETS_WORDS] && !state.sets.counts[SETS_WALKED];
  for (int64_t row = first; row < last; row += TREES_BLOCK) {
    const int64_t rows = tc_min(last - row, TREES_BLOCK), full = rows / TREES_LANES * TREES_LANES;
    const trees_real *x = (const trees_real *)call->operands[TREES_X] + row * p->features, *from = x;
    float *columns = NULL;
    bool walks = true;
    if (state.sets.counts[SETS_COLUMNS] && full >= SETS_LEAST_ROWS) {
      columns = room;
      sets_make_columns(p, &state.sets, state.numbers, x, full, columns);
      walks = state.sets.counts[SETS_WALKED] || (full < rows && !are_all_sets);
    }
    if (p->tracks && walks) {
      trees_both_signs(x, rows, p->features, call->scratch);
      x = call->scratch;
    }
    trees_real *y = (trees_real *)call->operands[TREES_Y] + row * p->outputs;
    for (int64_t i = 0; i < rows * p->outputs; i++) {
      y[i] = start;
    }
    const bool is_single = columns && state.sets.counts[SETS_SINGLE];
#if !TREES_RANKS
    if (is_single) {
      trees_of_columns(p, &state, weights, x, stride, full, columns, sums, y);
    }
#endif
    if (full && !is_single) {
      trees_of_rows(p, &state, weights, x, stride, full, columns, y);
    }
    for (int64_t i = full; i < rows; i++) {
      if (are_all_sets) {
        trees_of_sets(p, &state, weights, from + i * p->features, words, y + i * p->outputs);
      } else {
        trees_of_row(p, &state, weights, x + i * stride, y + i * p->outputs);
      }
    }
    for (int64_t i = 0; i < rows && (base || p->aggregate != TC_TREES_SUM); i++) {
      trees_finish(p, base, y + i * p->outputs);
    }
  }
}

#undef TREES_WORDS
#undef trees_node
#undef trees_state
#undef trees_state_at
#undef trees_step
#undef trees_walk
#undef trees_mirror
#undef trees_both_signs
#undef trees_add
#undef trees_add_rows
#undef trees_find
#undef trees_of_rows
#undef trees_finish
#undef trees_of_row
#undef trees_numbers
#undef sets_equals
#undef sets_shape_of
#undef sets_add_test
#undef sets_add_tests
#undef sets_pack
#undef sets_finish
#undef sets_value
#undef sets_order
#undef sets_meet
#undef trees_of_columns
#undef trees_of_sets
#undef sets_make_columns

#endif
