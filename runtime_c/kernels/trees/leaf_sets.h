/* Small trees without a walk, after QuickScorer (Lucchese et al., SIGIR 2015): a row begins with the set of all leaves
 * of a tree, from left to right. Every node whose test the row fails takes the leaves below its first child out of the
 * set, in any order; the first leaf that is left is the one that the row reaches. So the nodes are compared one by one
 * with vectors of rows, and the sets of up to 64 leaves are one or two words.
 *
 * All tests have the form threshold < x, of columns that are made of a block of rows: what is no number becomes
 * infinity where it fails the test, and stays where it passes; x == t, which is two nodes of the table, fails where t <
 * x or -t < -x. */
#ifndef TINYCOMP_KERNELS_TREES_LEAF_SETS_H
#define TINYCOMP_KERNELS_TREES_LEAF_SETS_H

#include "vocabulary.h"

#include "node.h"

enum { SETS_ROWS = 64, SETS_LEAVES = 64, SETS_NODES = 256, SETS_LEAST_ROWS = 16 };

/* Vectors that a test meets at once. */
enum {
  SETS_VECTORS = TC_LANES == 1 ? 4
  : TC_LANES < 8               ? 8
                               : SETS_ROWS / TC_LANES,
  SETS_GROUP = SETS_VECTORS * TC_LANES
};

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

typedef struct sets_column {
  int32_t feature, kind;
} sets_column;

/* Where the parts of the state lie, and how much of them is used. */
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

/* Whether a node and its first child say x == threshold together: the way there is the second child of the child. */
static bool sets_equals(const trees_node_f32 *nodes, int32_t at) {
  const trees_node_f32 *node = nodes + at, *below = nodes + node->child[0];
  return below->child[0] == node->child[1] && below->child[1] != node->child[1] &&
         below->feature == (node->feature & ~TREES_TRACKS) && isfinite(node->threshold) &&
         below->threshold == nextafterf(node->threshold, -INFINITY);
}

/* Finds out what is below a root: false if that is no tree, or one that is too large or says what no test says. */
static bool sets_shape_of(const trees_node_f32 *nodes, int64_t count, int32_t root, sets_shape *s) {
  s->nodes = (int)tc_min(count - root, SETS_NODES);
  memset(s->reached, 0, sizeof(s->reached));
  s->reached[0] = true;
  for (int i = 0; i < s->nodes; i++) {
    const trees_node_f32 *node = nodes + root + i;
    s->left[i] = s->right[i] = -1;
    if (!s->reached[i] || node->child[0] == root + i) {
      continue;
    }
    s->equals[i] = sets_equals(nodes, root + i);
    const bool tracks = node->feature & TREES_TRACKS;
    if (node->threshold != node->threshold || (node->threshold == INFINITY && !tracks)) {
      return false;
    }
    const int32_t left = (s->equals[i] ? nodes[node->child[0]].child[1] : node->child[0]) - root;
    const int32_t right = node->child[1] - root;
    if (left >= s->nodes || right >= s->nodes || left == right || s->reached[left] || s->reached[right]) {
      return false;
    }
    s->reached[left] = s->reached[right] = true;
    s->left[i] = (int16_t)left;
    s->right[i] = (int16_t)right;
  }
  for (int i = s->nodes - 1; i >= 0; i--) { /* children come behind their parents */
    s->leaves[i] = s->reached[i];
    if (s->left[i] >= 0) {
      s->leaves[i] = (int16_t)(s->leaves[s->left[i]] + s->leaves[s->right[i]]);
    }
    if (s->leaves[i] > SETS_LEAVES) {
      return false;
    }
  }
  s->first[0] = 0;
  for (int i = 0; i < s->nodes; i++) {
    if (s->left[i] >= 0) {
      s->first[s->left[i]] = s->first[i];
      s->first[s->right[i]] = (int16_t)(s->first[i] + s->leaves[s->left[i]]);
    }
  }
  return true;
}

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
    to->columns[*place] = (sets_column){feature, kind};
  }
  return *place;
}

/* Adds the tests of a word behind `at`, and returns where they end. */
static int32_t sets_add_tests(const tc_tree_ensemble_f32_params *p, const trees_node_f32 *nodes, const sets_shape *s,
                              int word, sets_state *to, int32_t at) {
  for (int i = 0; i < s->nodes; i++) {
    const int32_t gone = (int32_t)sets_below(s, i, word);
    if (!gone) {
      continue;
    }
    const int32_t feature = nodes[i].feature & ~TREES_TRACKS;
    const int kind = nodes[i].feature & TREES_TRACKS ? SETS_NAN_PASSES : SETS_NAN_FAILS;
    to->tests[at++] = (sets_test){nodes[i].threshold, sets_column_of(p, to, feature, kind), gone};
    if (s->equals[i]) {
      to->tests[at++] = (sets_test){-nodes[i].threshold, sets_column_of(p, to, feature, SETS_NEGATIVE), gone};
    }
  }
  return at;
}

static int32_t sets_count_tests(const sets_shape *s) {
  int32_t count = 0;
  for (int i = 0; i < s->nodes; i++) {
    count += (!!sets_below(s, i, 0) + !!sets_below(s, i, 1)) * (s->left[i] >= 0 && s->equals[i] ? 2 : 1);
  }
  return count;
}

/* What a row takes, in cycles of Zen 4: a step of a walk; a test, of a vector; an element of a column. */
static const double SETS_STEP = 2.2, SETS_TEST = 2.5, SETS_ELEMENT = 2.5;

/* Makes sets of those trees that take longer to walk. `leaves` has the row of weights of every node. */
static void sets_pack(const tc_tree_ensemble_f32_params *p, const trees_node_f32 *nodes, const int32_t *leaves,
                      const int32_t *roots, const int32_t *depths, void *state) {
  sets_state to = sets_state_at(p, state);
  to.counts[0] = to.counts[1] = 0;
  for (int64_t i = 0; i < SETS_KINDS * p->features; i++) {
    to.places[i] = -1;
  }
  int32_t tests = 0, leaf = 0;
  double gain = 0;
  for (int64_t t = 0; t < p->trees; t++) {
    sets_shape shape;
    const double steps = (double)(tc_ceil_div(depths[t], TREES_STRIDE) * TREES_STRIDE);
    to.trees[t].begin = -1;
    if (!sets_shape_of(nodes, p->nodes, roots[t], &shape)) {
      continue;
    }
    const int32_t count = sets_count_tests(&shape);
    const double better = SETS_STEP * steps - SETS_TEST / TC_LANES * count;
    if (better <= 0 || tests + count > 2 * p->small || leaf + shape.leaves[0] > p->small) {
      continue;
    }
    const int32_t middle = sets_add_tests(p, nodes + roots[t], &shape, 0, &to, tests);
    const int32_t end = sets_add_tests(p, nodes + roots[t], &shape, 1, &to, middle);
    to.trees[t] = (sets_tree){tests, middle, end, leaf};
    for (int i = 0; i < shape.nodes; i++) {
      if (shape.reached[i] && shape.left[i] < 0) {
        to.leaves[leaf + shape.first[i]] = leaves[roots[t] + i];
      }
    }
    tests = end;
    leaf += shape.leaves[0];
    gain += better;
  }
  if (gain < SETS_ELEMENT * to.counts[0]) {
    to.counts[0] = 0;
  }
  for (int64_t t = 0; t < p->trees; t++) {
    to.trees[t].begin = to.counts[0] ? to.trees[t].begin : -1;
    to.counts[1] += to.trees[t].begin < 0;
  }
}

/* Makes the columns of up to SETS_ROWS rows. */
static void sets_make_columns(const tc_tree_ensemble_f32_params *p, const sets_state *s, const float *x, int64_t rows,
                              float *to) {
  for (int32_t c = 0; c < s->counts[0]; c++, to += SETS_ROWS) {
    const float *from = x + s->columns[c].feature;
    const int32_t kind = s->columns[c].kind;
    for (int64_t row = 0; row < rows; row++, from += p->features) {
      const float value = *from;
      to[row] = kind == SETS_NEGATIVE ? -value : kind == SETS_NAN_FAILS && value != value ? INFINITY : value;
    }
    for (int64_t row = rows; row < tc_min(tc_round_up(rows, SETS_GROUP), SETS_ROWS); row++) {
      to[row] = 0;
    }
  }
}

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
