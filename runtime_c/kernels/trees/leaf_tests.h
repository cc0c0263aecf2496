/* What is packed of small trees whose numbers are of the type trees_real, and the columns of their rows; walk.h
 * includes this once for each type.
 *
 * Tests of doubles become tests of ranks, numbers of thresholds of a column: a number is above one of them just when
 * more thresholds are below it than below that one. So every column is searched once, and compared with all its tests
 * as floats are. */
#include "vocabulary.h"

#ifndef TREES_TYPED /* by itself: as the first of those who include walk.h */
#include "tree_ensemble_f32.h"
#else

#include "leaf_sets.h"

/* Whether a node and its first child say x == threshold together: the way there is the second child of the child. */
static bool sets_equals(const trees_node *nodes, int32_t at) {
  const trees_node *node = nodes + at, *below = nodes + node->child[0];
  return below->child[0] == node->child[1] && below->child[1] != node->child[1] &&
         below->feature == (node->feature & ~TREES_TRACKS) && isfinite(node->threshold) &&
         below->threshold == TREES_BELOW(node->threshold, (trees_real)-INFINITY);
}

/* Finds out what is below a root: false if that is no tree, or one that is too large or says what no test says. */
static bool sets_shape_of(const trees_node *nodes, int64_t count, int32_t root, sets_shape *s) {
  s->nodes = (int)tc_min(count - root, SETS_NODES);
  memset(s->reached, 0, sizeof(s->reached));
  s->reached[0] = true;
  for (int i = 0; i < s->nodes; i++) {
    const trees_node *node = nodes + root + i;
    s->left[i] = s->right[i] = -1;
    if (!s->reached[i] || node->child[0] == root + i) {
      continue;
    }
    s->equals[i] = sets_equals(nodes, root + i);
    const bool tracks = node->feature & TREES_TRACKS;
    if (node->threshold != node->threshold || (node->threshold == (trees_real)INFINITY && !tracks)) {
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

#if TREES_RANKS

/* Tests whose thresholds are ranks keep these themselves until all are known. */
TC_INLINE void sets_add_test(sets_state *to, double *thresholds, int32_t at, double threshold, int32_t column,
                             int32_t gone) {
  thresholds[at] = threshold;
  to->tests[at] = (sets_test){.column = column, .gone = gone};
}

/* How many of 2 half - 1 numbers in order are less than each of some rows. */
TC_INLINE void sets_ranks(const double *list, int32_t half, const double *x, int count, int32_t *to) {
#pragma GCC unroll 8
  for (int i = 0; i < count; i++) {
    to[i] = 0;
  }
  for (int32_t step = half; step; step >>= 1) {
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
      to[i] += list[to[i] + step - 1] < x[i] ? step : 0;
    }
  }
}

/* Sorts in place, after Shell. */
static void sets_sort(double *list, int64_t count) {
  int64_t gap = 1;
  while (gap < count / 3) {
    gap = 3 * gap + 1;
  }
  for (; gap; gap /= 3) {
    for (int64_t i = gap; i < count; i++) {
      const double number = list[i];
      int64_t at = i;
      for (; at >= gap && list[at - gap] > number; at -= gap) {
        list[at] = list[at - gap];
      }
      list[at] = number;
    }
  }
}

/* The number that a row has in a column. */
TC_INLINE float sets_value(const sets_column *column, const double *lists, const double *x) {
  const double number = x[column->feature], value = column->kind == SETS_NEGATIVE ? -number : number;
  int32_t rank;
  sets_ranks(lists + column->first, column->half, &value, 1, &rank);
  return column->kind == SETS_NAN_FAILS && value != value ? INFINITY : (float)rank;
}

/* Makes the lists of all columns and the ranks of all tests; returns what a row's columns take. */
static double sets_finish(sets_state *s, int32_t tests, double *lists, const double *thresholds) {
  const int32_t columns = s->counts[SETS_COLUMNS];
  for (int32_t c = 0; c < columns; c++) {
    s->columns[c].first = 0; /* the number of its thresholds, for now */
  }
  for (int32_t i = 0; i < tests; i++) {
    s->columns[s->tests[i].column].first++;
  }
  double cost = 0;
  for (int32_t c = 0, end = 0; c < columns; c++) {
    sets_column *column = &s->columns[c];
    column->half = 1;
    cost += SETS_ELEMENT + SETS_SEARCH;
    while (2 * column->half - 1 < column->first) {
      column->half *= 2;
      cost += SETS_SEARCH;
    }
    for (int32_t i = 0; i < 2 * column->half - 1; i++) {
      lists[end + i] = INFINITY;
    }
    column->first = end;
    end += 2 * column->half - 1;
  }
  for (int32_t i = 0; i < tests; i++) {
    lists[s->columns[s->tests[i].column].first++] = thresholds[i];
  }
  for (int32_t c = 0, end = 0; c < columns; c++) {
    s->columns[c].first = end;
    sets_sort(lists + end, 2 * s->columns[c].half - 1);
    end += 2 * s->columns[c].half - 1;
  }
  for (int32_t i = 0; i < tests; i++) {
    const sets_column *column = &s->columns[s->tests[i].column];
    int32_t rank;
    sets_ranks(lists + column->first, column->half, &thresholds[i], 1, &rank);
    s->tests[i].threshold = (float)rank;
  }
  return cost;
}

/* Makes the columns of up to SETS_ROWS rows, whole groups of TREES_LANES. */
static void sets_make_columns(const tc_tree_ensemble_f32_params *p, const sets_state *s, const double *lists,
                              const double *x, int64_t rows, float *to) {
  for (int32_t c = 0; c < s->counts[SETS_COLUMNS]; c++, to += SETS_ROWS) {
    const sets_column *column = &s->columns[c];
    const double *from = x + column->feature;
    const int32_t kind = column->kind;
    for (int64_t row = 0; row < rows; row += TREES_LANES, from += TREES_LANES * p->features) {
      double values[TREES_LANES];
      int32_t ranks[TREES_LANES];
#pragma GCC unroll 8
      for (int i = 0; i < TREES_LANES; i++) {
        const double value = from[i * p->features];
        values[i] = kind == SETS_NEGATIVE ? -value : value;
      }
      sets_ranks(lists + column->first, column->half, values, TREES_LANES, ranks);
#pragma GCC unroll 8
      for (int i = 0; i < TREES_LANES; i++) {
        to[row + i] = kind == SETS_NAN_FAILS && values[i] != values[i] ? INFINITY : (float)ranks[i];
      }
    }
    for (int64_t row = rows; row < tc_min(tc_round_up(rows, SETS_GROUP), SETS_ROWS); row++) {
      to[row] = 0;
    }
  }
}

#else

TC_INLINE void sets_add_test(sets_state *to, const float *thresholds, int32_t at, float threshold, int32_t column,
                             int32_t gone) {
  (void)thresholds;
  to->tests[at] = (sets_test){threshold, column, gone};
}

/* The number that a row has in a column. */
TC_INLINE float sets_value(const sets_column *column, const float *numbers, const float *x) {
  (void)numbers;
  const float value = x[column->feature];
  return column->kind == SETS_NEGATIVE ? -value : column->kind == SETS_NAN_FAILS && value != value ? INFINITY : value;
}

/* Returns what a row's columns take. */
static double sets_finish(const sets_state *s, int32_t tests, const float *numbers, const float *thresholds) {
  (void)tests, (void)numbers, (void)thresholds;
  return SETS_ELEMENT * s->counts[SETS_COLUMNS];
}

/* Makes the columns of up to SETS_ROWS rows. */
static void sets_make_columns(const tc_tree_ensemble_f32_params *p, const sets_state *s, const float *numbers,
                              const float *x, int64_t rows, float *to) {
  for (int32_t c = 0; c < s->counts[SETS_COLUMNS]; c++, to += SETS_ROWS) {
    const sets_column column = s->columns[c];
    for (int64_t row = 0; row < rows; row++) {
      to[row] = sets_value(&column, numbers, x + row * p->features);
    }
    for (int64_t row = rows; row < tc_min(tc_round_up(rows, SETS_GROUP), SETS_ROWS); row++) {
      to[row] = 0;
    }
  }
}

#endif

/* Adds the tests of a word behind `at`, and returns where they end. */
static int32_t sets_add_tests(const tc_tree_ensemble_f32_params *p, const trees_node *nodes, const sets_shape *s,
                              int word, sets_state *to, trees_real *thresholds, int32_t at) {
  for (int i = 0; i < s->nodes; i++) {
    const int32_t gone = (int32_t)sets_below(s, i, word);
    if (!gone) {
      continue;
    }
    const int32_t feature = nodes[i].feature & ~TREES_TRACKS;
    const int kind = nodes[i].feature & TREES_TRACKS ? SETS_NAN_PASSES : SETS_NAN_FAILS;
    sets_add_test(to, thresholds, at++, nodes[i].threshold, sets_column_of(p, to, feature, kind), gone);
    if (s->equals[i]) {
      sets_add_test(to, thresholds, at++, -nodes[i].threshold, sets_column_of(p, to, feature, SETS_NEGATIVE), gone);
    }
  }
  return at;
}

/* Sorts the tests of every column by their thresholds, after Shell, and makes the marks. */
static void sets_order(const tc_tree_ensemble_f32_params *p, sets_state *to, int32_t tests, int32_t words) {
  const int32_t columns = to->counts[SETS_COLUMNS];
  for (int32_t c = 0; c < columns; c++) {
    to->columns[c].end = 0; /* the number of its tests, for now */
  }
  for (int32_t i = 0; i < tests; i++) {
    to->columns[to->tests[i].column].end++;
  }
  for (int32_t c = 0, begin = 0; c < columns; c++) {
    to->columns[c].begin = begin;
    begin += to->columns[c].end;
    to->columns[c].end = to->columns[c].begin;
  }
  for (int64_t t = 0; t < p->trees; t++) {
    const sets_tree *tree = &to->trees[t];
    for (int32_t i = tree->begin; i >= 0 && i < tree->end; i++) {
      const sets_test *test = &to->tests[i];
      to->ordered[to->columns[test->column].end++] =
          (sets_ordered){test->threshold, tree->word + (i >= tree->middle), ~test->gone};
    }
  }
  for (int32_t c = 0; c < columns; c++) {
    sets_ordered *list = to->ordered + to->columns[c].begin;
    const int32_t count = to->columns[c].end - to->columns[c].begin;
    int32_t gap = 1;
    while (gap < count / 3) {
      gap = 3 * gap + 1;
    }
    for (; gap; gap /= 3) {
      for (int32_t i = gap; i < count; i++) {
        const sets_ordered test = list[i];
        int32_t at = i;
        for (; at >= gap && list[at - gap].threshold > test.threshold; at -= gap) {
          list[at] = list[at - gap];
        }
        list[at] = test;
      }
    }
  }
  uint32_t *mark = to->marks;
  const int32_t steps = sets_steps(words);
  for (int32_t c = 0; c < columns; c++) {
    const sets_ordered *list = to->ordered + to->columns[c].begin;
    const int32_t count = to->columns[c].end - to->columns[c].begin;
    to->columns[c].mark = (int32_t)(mark - to->marks);
    for (int32_t first = 0; first + steps <= count; first += steps, mark += words) {
      if (first) {
        memcpy(mark, mark - words, (size_t)words * sizeof(*mark));
      } else {
        memset(mark, 0xff, (size_t)words * sizeof(*mark));
      }
      for (int32_t i = first; i < first + steps; i++) {
        mark[list[i].word] &= (uint32_t)list[i].kept;
      }
    }
  }
}

/* Writes the sets of leaves that are left of a row. */
static void sets_meet(const sets_state *s, const trees_real *numbers, const trees_real *x, uint32_t *words) {
  const int32_t count = s->counts[SETS_WORDS], steps = sets_steps(count);
  memset(words, 0xff, (size_t)count * sizeof(*words));
  for (int32_t c = 0; c < s->counts[SETS_COLUMNS]; c++) {
    const sets_column *column = &s->columns[c];
    const float value = sets_value(column, numbers, x);
    const sets_ordered *test = s->ordered + column->begin, *end = s->ordered + column->end;
    const uint32_t *mark = s->marks + column->mark;
    const sets_ordered *first = test;
    while (end - test >= steps && test[steps - 1].threshold < value) {
      test += steps;
      mark += count;
    }
    for (int32_t i = 0; i < count && test > first; i++) {
      words[i] &= mark[i - count];
    }
    for (; test < end && test->threshold < value; test++) {
      words[test->word] &= (uint32_t)test->kept;
    }
  }
}

/* Makes sets of those trees that take longer to walk. `leaves` has the row of weights of every node; behind the roots
 * lie the depths of all trees and the output that each speaks of. */
static void sets_pack(const tc_prepare *prepare, const trees_node *nodes, const int32_t *leaves, const int32_t *roots,
                      trees_real *numbers, void *state) {
  const tc_tree_ensemble_f32_params *p = prepare->params;
  const trees_real *weights = prepare->constants[TREES_WEIGHTS];
  const int32_t *depths = roots + p->trees, *outputs = depths + p->trees;
  sets_state to = sets_state_at(p, state);
  trees_real *thresholds = numbers + SETS_LISTED * p->small; /* of each test, where these are ranks */
  memset(to.counts, 0, SETS_COUNTS * sizeof(*to.counts));
  for (int64_t i = 0; i < SETS_KINDS * p->features; i++) {
    to.places[i] = -1;
  }
  int32_t tests = 0, leaf = 0, words = 0;
  bool is_single = !TREES_RANKS && weights && p->outputs <= SETS_OUTPUTS;
  double gain = 0, walk = 0;
  for (int64_t t = 0; t < p->trees; t++) {
    sets_shape shape;
    const double steps = (double)(tc_ceil_div(depths[t], TREES_STRIDE) * TREES_STRIDE);
    to.trees[t].begin = -1;
    is_single = is_single && outputs[t] >= 0;
    if (p->small > SETS_MOST_NODES || !sets_shape_of(nodes, p->nodes, roots[t], &shape)) {
      continue;
    }
    const int32_t count = sets_count_tests(&shape);
    const double better = SETS_STEP * steps - SETS_TEST / TC_LANES * count;
    if (better < 0 || tests + count > p->small || leaf + shape.leaves[0] > p->small) {
      continue;
    }
    const int32_t middle = sets_add_tests(p, nodes + roots[t], &shape, 0, &to, thresholds, tests);
    const int32_t end = sets_add_tests(p, nodes + roots[t], &shape, 1, &to, thresholds, middle);
    to.trees[t] = (sets_tree){tests, middle, end, leaf, words, shape.leaves[0] > 32};
    for (int i = 0; i < shape.nodes; i++) {
      if (shape.reached[i] && shape.left[i] < 0) {
        const int32_t row = leaves[roots[t] + i], at = leaf + shape.first[i];
        to.leaves[at] = row;
        to.weights[at] = is_single ? (float)weights[row * p->outputs + outputs[t]] : 0.0f;
      }
    }
    words += 1 + to.trees[t].is_wide;
    tests = end;
    leaf += shape.leaves[0];
    gain += better;
    walk += SETS_ROW_STEP * steps - SETS_ROW_TREE;
  }
  const double cost = sets_finish(&to, tests, numbers, thresholds);
  const double row = SETS_ROW_TEST * tests + SETS_ROW_COLUMN * to.counts[SETS_COLUMNS];
  if (gain < cost) {
    to.counts[SETS_COLUMNS] = 0;
  } else if (row < walk) {
    sets_order(p, &to, tests, words);
    to.counts[SETS_WORDS] = words;
  }
  to.counts[SETS_SINGLE] = is_single;
  for (int64_t t = 0; t < p->trees; t++) {
    to.trees[t].begin = to.counts[SETS_COLUMNS] ? to.trees[t].begin : -1;
    to.counts[SETS_WALKED] += to.trees[t].begin < 0;
  }
}

#endif
