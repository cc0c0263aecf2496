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
  int32_t *stages; /* of the values: how many sizes must have been found out before it is known; NULL: none at all */
} tc_formulas;

static inline int64_t tc_formulas_values(const tc_formulas *formulas) {
  return formulas->symbol_count + formulas->count;
}

/* Computes all values behind the symbols, which the caller has filled in. A value that leaves +-2^48 or a division by
 * 0 or less is an error; so is a condition that does not hold and is known at this stage. Where `error` is NULL, such a
 * value is 0, and conditions do not matter. */
int32_t tc_formulas_evaluate(const tc_formulas *formulas, int64_t *values, int32_t stage, tc_error *error);

/* Gives every value its stage, of symbols behind the first `shown` one after the other; false without memory. */
bool tc_formulas_stage(tc_formulas *formulas, int64_t shown);

static inline int32_t tc_formulas_stage_of(const tc_formulas *formulas, int64_t value) {
  return formulas->stages ? formulas->stages[value] : 0;
}

/* How many operands of a formula are numbers of values; the others mean nothing. */
static inline int tc_formula_operands(int32_t operation) {
  switch (operation) {
    case TC_FORMULA_CONSTANT:
      return 0;
    case TC_FORMULA_CONDITION:
      return 1;
    case TC_FORMULA_IF_ZERO:
      return 3;
    default:
      return 2;
  }
}

#endif
