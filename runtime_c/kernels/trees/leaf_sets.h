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
 * compared with, see leaf_tests.h.
 *
 * Where few rows come, the tests of each column are met in the order of their thresholds, until one is passed; what
 * all trees keep after every so many of them is known. */
#ifndef TINYCOMP_KERNELS_TREES_LEAF_SETS_H
#define TINYCOMP_KERNELS_TREES_LEAF_SETS_H

#include "vocabulary.h"

#include "node.h"

enum { SETS_ROWS = 64, SETS_LEAVES = 64, SETS_NODES = 256, SETS_LEAST_ROWS = 16 };

/* Room for the numbers of an ensemble in double, per node of small trees: those of lists, and those of tests. Ranks of
 * more tests would be no floats. */
enum { SETS_LISTED = 2, SETS_TESTS = 1, SETS_NUMBERS = SETS_LISTED + SETS_TESTS, SETS_MOST_NODES = 1 << 22 };

/* Vectors that a test meets at once: some rows where they are scalars, all SETS_ROWS where they are wide. */
enum { SETS_VECTORS = TC_LANES == 1 || TC_LANES >= 16 ? 4 : 8, SETS_GROUP = SETS_VECTORS * TC_LANES };

/* How a column is made of a feature. */
enum { SETS_NAN_FAILS, SETS_NAN_PASSES, SETS_NEGATIVE, SETS_KINDS };

typedef struct sets_test {
  float threshold;
  int32_t column;
  int32_t gone; /* the leaves of one word that a row loses which is above the threshold */
} sets_test;

/* The same test among those of its column. */
typedef struct sets_ordered {
  float threshold;
  int32_t word; /* of all trees */
  int32_t kept;
} sets_ordered;

/* The tests [begin, middle) of a tree speak of its first 32 leaves, [middle, end) of the others; `begin` is -1 where
 * the tree is walked. Its leaves have weights from `leaf` on. It has one word, or if it is wide two, from `word` on. */
typedef struct sets_tree {
  int32_t begin, middle, end, leaf, word, is_wide;
} sets_tree;

/* The ordered tests of a column are [begin, end), and its marks lie from `mark` on: what is kept by all words after the
 * first sets_steps of them, after as many more, and so on. Of an ensemble in double, its sorted thresholds lie from
 * `first` on; they are 2 `half` - 1, the last of them perhaps infinity to fill up. */
typedef struct sets_column {
  int32_t feature, kind, begin, end, mark, first, half;
} sets_column;

/* Figures of the state: columns, 0 if no tree is a set; trees that are walked; words of all trees, 0 if single rows
 * walk; whether every tree speaks of one output. */
enum { SETS_COLUMNS, SETS_WALKED, SETS_WORDS, SETS_SINGLE, SETS_COUNTS };

/* The numbers that vectors look up, and the most outputs that are added up as columns. */
enum { SETS_TABLE = 32, SETS_OUTPUTS = 64 };

/* Room for marks, in words per test. */
enum { SETS_MARKED = 4 };

/* Where the parts of the state lie that are int32 and float, and how much of them is used. */
typedef struct sets_state {
  int32_t *counts;
  sets_test *tests;
  sets_ordered *ordered;
  sets_tree *trees;
  sets_column *columns;
  int32_t *leaves, *places; /* the row of weights of each leaf; the column of each feature and kind */
  float *weights;           /* of each leaf, where every tree speaks of one output */
  uint32_t *marks;
} sets_state;

/* Tests from one mark of a column to the next, so that the marks are a few words per test. */
TC_INLINE int32_t sets_steps(int32_t words) { return words / SETS_MARKED + 8; }

TC_INLINE int64_t sets_most_columns(const tc_tree_ensemble_f32_params *p) {
  return tc_min(SETS_KINDS * p->features, p->small);
}

static int64_t sets_bytes(tc_prepare *prepare, const tc_tree_ensemble_f32_params *p) {
  const int64_t node = sizeof(sets_test) + sizeof(sets_ordered) + sizeof(sets_column) + sizeof(int32_t) +
                       (1 + SETS_MARKED) * sizeof(float);
  return TC_PRODUCT(prepare, p->small, node) + TC_PRODUCT(prepare, p->trees, sizeof(sets_tree)) +
         TC_PRODUCT(prepare, p->features, SETS_KINDS * sizeof(int32_t)) +
         (int64_t)(SETS_COUNTS * sizeof(int32_t) + SETS_TABLE * sizeof(float));
}

static sets_state sets_state_at(const tc_tree_ensemble_f32_params *p, const void *state) {
  sets_state at = {.counts = (int32_t *)state};
  at.tests = (sets_test *)(at.counts + SETS_COUNTS);
  at.ordered = (sets_ordered *)(at.tests + p->small);
  at.trees = (sets_tree *)(at.ordered + p->small);
  at.columns = (sets_column *)(at.trees + p->trees);
  at.leaves = (int32_t *)(at.columns + p->small);
  at.places = at.leaves + p->small;
  at.marks = (uint32_t *)(at.places + SETS_KINDS * p->features);
  at.weights = (float *)(at.marks + SETS_MARKED * p->small);
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
    *place = to->counts[SETS_COLUMNS]++;
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

/* What a single row takes: a step of a walk; a test, half of which are met; a column; a tree. */
static const double SETS_ROW_STEP = 3.5, SETS_ROW_TEST = 1.0, SETS_ROW_COLUMN = 20.0, SETS_ROW_TREE = 3.0;

/* Leaves of a word that are left of each of SETS_GROUP rows. */
TC_INLINE void sets_word(const sets_test *tests, const sets_test *end, const float *columns, tc_vi *left) {
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
}

/* The first leaf of each word, below 0 if there is none: the exponent of its bit as a float. */
TC_INLINE tc_vi sets_first(tc_vi left) {
  const tc_vi lowest = tc_vi_and(left, tc_vi_sub(tc_vi_set1(0), left));
  const tc_vi exponent = tc_vi_and(tc_vi_down(tc_vf_bits(tc_vi_to_float(lowest)), 23), tc_vi_set1(0xff));
  return tc_vi_sub(exponent, tc_vi_set1(127));
}

/* Adds the weights that whole groups of SETS_GROUP rows reach in a tree that speaks of one output. */
static void sets_add(const sets_state *s, const sets_tree *tree, const float *columns, int64_t rows, float *y) {
  const sets_test *begin = s->tests + tree->begin, *middle = s->tests + tree->middle, *end = s->tests + tree->end;
  const float *weights = s->weights + tree->leaf;
  for (int64_t row = 0; row < rows; row += SETS_GROUP) {
    tc_vi left[SETS_VECTORS];
    tc_vf found[SETS_VECTORS];
    sets_word(begin, middle, columns + row, left);
    if (!tree->is_wide) {
#pragma GCC unroll 8
      for (int v = 0; v < SETS_VECTORS; v++) {
        found[v] = tc_vf_lookup(weights, sets_first(left[v]));
      }
    } else {
      tc_vi first[SETS_VECTORS];
#pragma GCC unroll 8
      for (int v = 0; v < SETS_VECTORS; v++) {
        first[v] = sets_first(left[v]);
      }
      sets_word(middle, end, columns + row, left);
#pragma GCC unroll 8
      for (int v = 0; v < SETS_VECTORS; v++) {
        const tc_vf low = tc_vf_lookup(weights, tc_vi_max(first[v], tc_vi_set1(0)));
        const tc_vf high = tc_vf_lookup(weights + SETS_TABLE, sets_first(left[v]));
        found[v] = tc_vf_select(tc_vf_lt(tc_vi_to_float(first[v]), tc_vf_set1(0.0f)), high, low);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < SETS_VECTORS; v++) {
      float *to = y + row + v * TC_LANES;
      tc_vf_store(to, tc_vf_add(tc_vf_load(to), found[v]));
    }
  }
}

/* The leaf that is the first of those left. */
TC_INLINE int sets_leaf(const sets_tree *tree, uint32_t low, uint32_t high) {
  return tree->is_wide ? __builtin_ctzll((uint64_t)high << 32 | low) : __builtin_ctz(low);
}

/* Writes the rows of weights that up to SETS_ROWS rows reach in a tree. */
static void sets_find(const sets_state *s, const sets_tree *tree, const float *columns, int64_t rows, int32_t *to) {
  uint32_t words[2][SETS_ROWS];
  for (int64_t row = 0; row < rows; row += SETS_GROUP) {
    for (int word = 0; word <= tree->is_wide; word++) {
      tc_vi left[SETS_VECTORS];
      sets_word(s->tests + (word ? tree->middle : tree->begin), s->tests + (word ? tree->end : tree->middle),
                columns + row, left);
#pragma GCC unroll 8
      for (int v = 0; v < SETS_VECTORS; v++) {
        tc_vi_store(words[word] + row + v * TC_LANES, left[v]);
      }
    }
  }
  const int32_t *leaves = s->leaves + tree->leaf;
  for (int64_t row = 0; row < rows && tree->is_wide; row++) {
    to[row] = leaves[sets_leaf(tree, words[0][row], words[1][row])];
  }
  for (int64_t row = 0; row < rows && !tree->is_wide; row++) {
    to[row] = leaves[__builtin_ctz(words[0][row])];
  }
}

#endif
