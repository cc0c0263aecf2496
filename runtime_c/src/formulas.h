/* Formulas: the sizes of a program as functions of its symbols, as straight-line code. */
#ifndef TINYCOMP_FORMULAS_H
#define TINYCOMP_FORMULAS_H

#include <stdbool.h>

#include "base.h"

typedef struct tc_formula {
  int32_t operation; /* an enum tc_formula_operation */
  int64_t operands[3];
} tc_formula;

/* Values are numbered: the symbols come first, then one value for every formula. */
typedef struct tc_formulas {
  int64_t symbol_count;
  tc_formula *items;
  int64_t count;
  int64_t capacity;
} tc_formulas;

static inline int64_t tc_formulas_values(const tc_formulas *formulas) {
  return formulas->symbol_count + formulas->count;
}

/* Computes all values behind the symbols, which the caller has filled in. A value that leaves +-2^48 or a division by
 * 0 or less is an error, and so is a condition that does not hold; where `error` is NULL, such a value is 0, and
 * conditions need not hold. */
int32_t tc_formulas_evaluate(const tc_formulas *formulas, int64_t *values, tc_error *error);

#endif
