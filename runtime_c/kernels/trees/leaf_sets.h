/* Small trees without a walk, after QuickScorer (Lucchese et al., SIGIR 2015): a row begins with the set of all leaves
 * of a tree, from left to right. Every node whose test the row fails takes the leaves below its first child out of the
 * set, in any order; the first leaf that is left is the one that the row reaches. So the nodes are compared one by one
 * with vectors of rows, and the sets of up to 64 leaves are one or two words.
 *
 * All tests have the form threshold < x, of columns that are made of a block of rows: what is no number becomes
 * infinity where it fails the test, and stays where it passes; x == t, which is two nodes of the table, fails
 * where t < x or -t < -x.
 *
 * Columns and thresholds are floats. Of an ensemble in double they are ranks among the thresholds that its column is
 * compared with, see leaf_tests.h. */
#ifndef TINYCOMP_KERNELS_TREES_LEAF_SETS_H
#define TINYCOMP_KERNELS_TREES_LEAF_SETS_H

#include "vocabulary.h"

#include "node.h"

enum { SETS_ROWS = 64, SETS_LEAVES = 64, SETS_NODES = 256, SETS_LEAST_ROWS = 16 };

/* Room for the numbers of an ensemble in double, per node of small trees: those of lists, and those of tests. Ranks of
 * more tests would be no floats. */
enum { SETS_LISTED = 4, SETS_TESTS = 2, SETS_NUMBERS = SETS_LISTED + SETS_TESTS, SETS_MOST_NODES = 1 << 22 };

/* Vectors that a test meets at once: some rows where they are scalars, all SETS_ROWS where they are wide. */
enum { SETS_VECTORS = TC_LANES == 1 || TC_LANES >= 16 ? 4 : 8, SETS_GROUP = SETS_VECTORS * TC_LANES };

/* How a column is made of a feature. */
enum { SETS_NAN_FAILS, SETS_NAN_PASSES, SETS_NEGATIVE, SETS_KINDS };

typedef struct sets_test {
  float threshold;
  int32_t column;
  int32_t gone; /* the leaves of one word that a row loses which is above the threshold */
} sets_test;

/* The tests [begin, middle) of a tree speak of its first 32 leaves, [middle, end) of the others; `begin` is -1 where
 * the tree is walked. Its leaves have rows of weights from `leaf` on. */
typedef struct sets_tree {
  int32_t begin, middle, end, leaf;
} sets_tree;

/* Of an ensemble in double, the sorted thresholds of a column lie from `first` on; they are 2 `half` - 1, the last of
 * them perhaps infinity to fill up. */
typedef struct sets_column {
  int32_t feature, kind, first, half;
} sets_column;

/* Where the parts of the state lie that are int32 and float, and how much of them is used. */
typedef struct sets_state {
  int32_t *counts; /* of columns, 0 if no tree is a set; of trees that are walked */
  sets_test *tests;
  sets_tree *trees;
  sets_column *columns;
  int32_t *leaves, *places;
} sets_state;

TC_INLINE int64_t sets_most_columns(const tc_tree_ensemble_f32_params *p) {
  return tc_min(SETS_KINDS * p->features, 2 * p->small);
}

static int64_t sets_bytes(tc_prepare *prepare, const tc_tree_ensemble_f32_params *p) {
  return TC_PRODUCT(prepare, p->small, 2 * sizeof(sets_test) + sizeof(int32_t)) +
         TC_PRODUCT(prepare, p->trees, sizeof(sets_tree)) + TC_PRODUCT(prepare, 2, p->small, sizeof(sets_column)) +
         TC_PRODUCT(prepare, p->features, SETS_KINDS * sizeof(int32_t)) + 2 * (int64_t)sizeof(int32_t);
}

static sets_state sets_state_at(const tc_tree_ensemble_f32_params *p, const void *state) {
  sets_state at = {.counts = (int32_t *)state};
  at.tests = (sets_test *)(at.counts + 2);
  at.trees = (sets_tree *)(at.tests + 2 * p->small);
  at.columns = (sets_column *)(at.trees + p->trees);
  at.leaves = (int32_t *)(at.columns + 2 * p->small);
  at.places = at.leaves + p->small;
  return at;
}

/* A tree in the making: its nodes, counted from the root on. */
typedef struct sets_shape {
  int16_t left[SETS_NODES], right[SETS_NODES];   /* children, -1 of leaves */
  int16_t leaves[SETS_NODES], first[SETS_NODES]; /* how many leaves are below, and the number of the first */
  bool reached[SETS_NODES], equals[SETS_NODES];
  int nodes;
} sets_shape;

/* The leaves of a word that are below the first child of a node. */
static uint32_t sets_below(const sets_shape *s, int node, int word) {
  const int left = s->left[node];
  if (left < 0) {
    return 0;
  }
  const uint64_t count = (uint64_t)s->leaves[left], all = count < 64 ? ((uint64_t)1 << count) - 1 : ~(uint64_t)0;
  return (uint32_t)(all << s->first[left] >> (32 * word));
}

static int32_t sets_column_of(const tc_tree_ensemble_f32_params *p, sets_state *to, int32_t feature, int kind) {
  int32_t *place = to->places + kind * p->features + feature;
  if (*place < 0) {
    *place = to->counts[0]++;
    to->columns[*place] = (sets_column){.feature = feature, .kind = kind};
  }
  return *place;
}

static int32_t sets_count_tests(const sets_shape *s) {
  int32_t count = 0;
  for (int i = 0; i < s->nodes; i++) {
    count += (!!sets_below(s, i, 0) + !!sets_below(s, i, 1)) * (s->left[i] >= 0 && s->equals[i] ? 2 : 1);
  }
  return count;
}

/* What a row takes, in cycles of Zen 4: a step of a walk; a test, of a vector; an element of a column, and a
 * step of the search for its rank. */
static const double SETS_STEP = 2.2, SETS_TEST = 2.5, SETS_ELEMENT = 2.5, SETS_SEARCH = 1.5;

/* Leaves of a word that are left of each of SETS_GROUP rows. */
static void sets_word(const sets_test *tests, const sets_test *end, const float *columns, uint32_t *to) {
  tc_vi left[SETS_VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < SETS_VECTORS; v++) {
    left[v] = tc_vi_set1(-1);
  }
  for (; tests < end; tests++) {
    const tc_vf threshold = tc_vf_set1(tests->threshold);
    const tc_vi gone = tc_vi_set1(tests->gone);
    const float *x = columns + (int64_t)tests->column * SETS_ROWS;
#pragma GCC unroll 8
    for (int v = 0; v < SETS_VECTORS; v++) {
      left[v] = tc_vi_clear(left[v], tc_vf_lt(threshold, tc_vf_load(x + v * TC_LANES)), gone);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < SETS_VECTORS; v++) {
    tc_vi_store(to + v * TC_LANES, left[v]);
  }
}

/* Writes the rows of weights that up to SETS_ROWS rows reach in a tree. */
static void sets_find(const sets_state *s, const sets_tree *tree, const float *columns, int64_t rows, int32_t *to) {
  uint32_t low[SETS_ROWS], high[SETS_ROWS];
  const bool is_wide = tree->end > tree->middle;
  for (int64_t row = 0; row < rows; row += SETS_GROUP) {
    sets_word(s->tests + tree->begin, s->tests + tree->middle, columns + row, low + row);
    if (is_wide) {
      sets_word(s->tests + tree->middle, s->tests + tree->end, columns + row, high + row);
    }
  }
  const int32_t *leaves = s->leaves + tree->leaf;
  if (is_wide) {
    for (int64_t row = 0; row < rows; row++) {
      to[row] = leaves[__builtin_ctzll((uint64_t)high[row] << 32 | low[row])];
    }
    return;
  }
  for (int64_t row = 0; row < rows; row++) {
    to[row] = leaves[low[row] ? __builtin_ctz(low[row]) : 32];
  }
}

#endif
